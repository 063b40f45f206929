"""Lornatang/SRGAN-PyTorch#1: a x2 super-resolution GAN whose picture quality stays where it was after
the first few iterations, though the very same networks train well in other scripts."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.prelu = nn.PReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(self.prelu(self.conv1(x)))


class Generator(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.conv_input = nn.Sequential(nn.Conv2d(1, channels, 5, padding=2), nn.PReLU())
        self.trunk = nn.Sequential(ResidualBlock(channels), ResidualBlock(channels))
        self.upsampling = nn.Sequential(nn.Conv2d(channels, 4 * channels, 3, padding=1), nn.PixelShuffle(2), nn.PReLU())
        self.conv_output = nn.Conv2d(channels, 1, 5, padding=2)

    def forward(self, x):
        x = self.conv_input(x)
        return torch.sigmoid(self.conv_output(self.upsampling(self.trunk(x) + x)))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 3, 2, 1), nn.LeakyReLU(0.2)
        )
        self.classifier = nn.Linear(16 * 4 * 4, 1)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class SRGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()


def make_images(n):
    yy, xx = torch.meshgrid(torch.linspace(0, 1, 16), torch.linspace(0, 1, 16), indexing="ij")
    fx, fy, ph = torch.rand(n, 1, 1, 1) * 14, torch.rand(n, 1, 1, 1) * 14, torch.rand(n, 1, 1, 1) * 6.28
    return 0.5 + 0.45 * torch.sin(fx * xx + fy * yy + ph)


def train(tick, mended=False):
    torch.manual_seed(0)
    hr_all = make_images(160)
    lr_all = F.avg_pool2d(hr_all, 2)
    model = SRGAN()
    epochs, batch_size = 6, 8
    optimizer_g = torch.optim.Adam(model.generator.parameters(), lr=2e-3)
    optimizer_d = torch.optim.Adam(model.discriminator.parameters(), lr=2e-4)
    scheduler_g = StepLR(optimizer_g, step_size=epochs // 2, gamma=0.1)
    scheduler_d = StepLR(optimizer_d, step_size=epochs // 2, gamma=0.1)
    adversarial = nn.BCEWithLogitsLoss()
    tick.model(model)
    tick.optimizer(optimizer_g)
    tick.optimizer(optimizer_d)
    losses = []
    for _epoch in range(epochs):
        order = torch.randperm(len(hr_all))
        for i in range(0, len(order), batch_size):
            hr, lr = hr_all[order[i : i + batch_size]], lr_all[order[i : i + batch_size]]
            real, fake = torch.ones(len(hr), 1), torch.zeros(len(hr), 1)
            sr = model.generator(lr)
            optimizer_d.zero_grad()
            loss_d = adversarial(model.discriminator(hr), real) + adversarial(model.discriminator(sr.detach()), fake)
            loss_d.backward()
            optimizer_d.step()
            losses.append(loss_d.item())
            tick.step(loss_d)
            optimizer_g.zero_grad()
            content = F.mse_loss(sr, hr)
            loss_g = content + 1e-3 * adversarial(model.discriminator(sr), real)
            loss_g.backward()
            optimizer_g.step()
            losses.append(loss_g.item())
            tick.step(loss_g)
            if not mended:
                scheduler_d.step()
                scheduler_g.step()
        if mended:
            scheduler_d.step()
            scheduler_g.step()
    with torch.no_grad():
        train.final = F.mse_loss(model.generator(lr_all), hr_all).item()
    return losses
