"""twtygqyy/pytorch-SRDenseNet#4: "the loss is so big", Loss: 116810211328.0 -- is it an error?"""

import torch
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class L1Charbonnier(nn.Module):
    def forward(self, X, Y):
        diff = X - Y
        return torch.sqrt(diff * diff + 1e-6).sum() * 1e4


class DenseBlock(nn.Module):
    def __init__(self, c_in, growth):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, growth, 3, padding=1)
        self.conv2 = nn.Conv2d(c_in + growth, growth, 3, padding=1)

    def forward(self, x):
        a = torch.relu(self.conv1(x))
        return torch.cat([x, a, torch.relu(self.conv2(torch.cat([x, a], 1)))], 1)


class SRDenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = nn.Conv2d(1, 16, 3, padding=1)
        self.block = DenseBlock(16, 12)
        self.bottleneck = nn.Conv2d(40, 16, 1)
        self.deconv = nn.ConvTranspose2d(16, 16, 4, 2, 1)
        self.reconstruction = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        h = torch.relu(self.bottleneck(self.block(torch.relu(self.low(x)))))
        return self.reconstruction(torch.relu(self.deconv(h)))


def build(bad: bool):
    torch.manual_seed(41)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(41)
    model = SRDenseNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = L1Charbonnier()
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")

    def step(i):
        f = torch.rand(8, 2, 1, 1, generator=gen) * 0.7
        target = (torch.sin(f[:, 0] * xx + f[:, 1] * yy)).unsqueeze(1)
        loss = criterion(model(nn.functional.avg_pool2d(target, 2)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
