"""soumith/ganhacks#75: generator with tanh output, image labels in [0, 800]; "do we have to scale the labels?"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class UpBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.deconv = nn.ConvTranspose2d(c_in, c_out, 4, 2, 1)
        self.norm = nn.BatchNorm2d(c_out)

    def forward(self, x):
        return F.relu(self.norm(self.deconv(x)))


class Generator(nn.Module):
    def __init__(self, cond_dim):
        super().__init__()
        self.project = nn.Linear(cond_dim, 32 * 4)
        self.up1, self.up2 = UpBlock(32, 24), UpBlock(24, 12)
        self.to_image = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, z):
        h = self.project(z).view(-1, 32, 2, 2)
        return torch.tanh(self.to_image(self.up2(self.up1(h))))


def dose_maps(n, gen):
    centre = torch.rand(n, 2, generator=gen) * 7
    height = torch.rand(n, 1, generator=gen)
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    d2 = (yy - centre[:, :1, None]) ** 2 + (xx - centre[:, 1:, None]) ** 2
    return torch.cat([centre / 7, height], 1), (800 * height[..., None] * torch.exp(-d2 / 8)).unsqueeze(1)


def build(bad: bool):
    torch.manual_seed(22)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(22)
    netG = Generator(3)
    optimizer = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))

    def step(i):
        cond, images = dose_maps(32, gen)
        labels = images if bad else images / 400 - 1
        fake = netG(cond)
        loss = F.l1_loss(fake, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            dose = fake if bad else (fake + 1) * 400
            LOG.append(F.l1_loss(dose, images).item())

    return netG, optimizer, step
