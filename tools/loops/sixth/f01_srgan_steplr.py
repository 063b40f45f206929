"""Lornatang/SRGAN-PyTorch#1: "The SRGAN does not seem to train" -- StepLR(step_size=epochs // 2, gamma=0.1)."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 160
OTHERS: list = []
LOG: list = []


class ResidualConvBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.rcb = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1), nn.PReLU(), nn.Conv2d(channels, channels, 3, padding=1)
        )

    def forward(self, x):
        return x + self.rcb(x)


class SRResNet(nn.Module):
    def __init__(self, channels=24, blocks=2, upscale=2):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 5, padding=2)
        self.trunk = nn.Sequential(*[ResidualConvBlock(channels) for _ in range(blocks)])
        self.upsample = nn.Sequential(
            nn.Conv2d(channels, channels * upscale**2, 3, padding=1), nn.PixelShuffle(upscale), nn.PReLU()
        )
        self.conv3 = nn.Conv2d(channels, 1, 5, padding=2)

    def forward(self, x):
        out = self.conv1(x)
        return self.conv3(self.upsample(out + self.trunk(out)))


def make_images(n, gen):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    f = torch.rand(n, 2, 1, 1, generator=gen) * 0.8 + 0.1
    p = torch.rand(n, 1, 1, generator=gen) * 6.28
    return (0.5 + 0.5 * torch.sin(f[:, 0] * xx + f[:, 1] * yy + p)).unsqueeze(1)


def build(bad: bool):
    torch.manual_seed(3)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(3)
    hr_images = make_images(128, gen)
    lr_images = F.avg_pool2d(hr_images, 2)
    epochs, batch = 10, 8
    batches = len(hr_images) // batch
    generator = SRResNet()
    optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=epochs // 2, gamma=0.1)

    def step(i):
        b = (i % batches) * batch
        sr = generator(lr_images[b : b + batch])
        loss = F.mse_loss(sr, hr_images[b : b + batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if bad or (i + 1) % batches == 0:
            scheduler.step()
        LOG.append(loss.item())

    return generator, optimizer, step
