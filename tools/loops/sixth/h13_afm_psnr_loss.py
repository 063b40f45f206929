"""dhryougit/AFM#5: the loss "will be farther and farther away from 0, so how will the model converge?" """

import torch
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class PSNRLoss(nn.Module):
    def forward(self, pred, target):
        return 10 * torch.log(((pred - target) ** 2).mean((1, 2, 3)) + 1e-8).mean() / 2.302585


class NAFBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = (
            nn.Conv2d(c, 2 * c, 1),
            nn.Conv2d(2 * c, 2 * c, 3, padding=1, groups=2 * c),
            nn.Conv2d(c, c, 1),
        )
        self.norm = nn.GroupNorm(1, c)
        self.beta = nn.Parameter(torch.zeros(1, c, 1, 1))

    def forward(self, x):
        a, b = self.conv2(self.conv1(self.norm(x))).chunk(2, 1)
        return x + self.beta * self.conv3(a * b)


class NAFNet(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.intro, self.ending = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, 1, 3, padding=1)
        self.blocks = nn.Sequential(NAFBlock(c), NAFBlock(c))

    def forward(self, inp):
        return inp + self.ending(self.blocks(self.intro(inp)))


def build(bad: bool):
    torch.manual_seed(43)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(43)
    net = NAFNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, betas=(0.9, 0.9))
    criterion = PSNRLoss()
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")

    def step(i):
        f = torch.rand(16, 2, 1, 1, generator=gen) * 0.6
        clean = (0.5 + 0.4 * torch.sin(f[:, 0] * xx + f[:, 1] * yy)).unsqueeze(1)
        noisy = clean + 0.2 * torch.randn(16, 1, 12, 12, generator=gen)
        loss = criterion(net(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        LOG.append(loss.item())

    return net, optimizer, step
