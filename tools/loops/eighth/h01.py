"""pytorch/examples (dcgan): DCGAN on tiny pictures; neither loss falls, the two chase one another."""

import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, nz=8, ngf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.Conv2d(ngf, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, ndf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 3, 1, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).view(-1)


class DCGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = Generator(), Discriminator()
        self.apply(weights_init)


def weights_init(m):
    name = m.__class__.__name__
    if name.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif name.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def real_batch(n):
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    cx, cy = 3.5 + torch.randn(n, 1, 1) * 0.7, 3.5 + torch.randn(n, 1, 1) * 0.7
    return (2 * torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 4) - 1)[:, None]


def train(tick, mended=False):
    torch.manual_seed(1)
    model = DCGAN()
    criterion = nn.BCELoss()
    optimizerD = torch.optim.Adam(model.netD.parameters(), lr=2e-4 * 5, betas=(0.5, 0.999))
    optimizerG = torch.optim.Adam(model.netG.parameters(), lr=2e-4 * 5, betas=(0.5, 0.999))
    tick.model(model)
    tick.optimizer(optimizerD)
    tick.optimizer(optimizerG)
    losses = []
    for _i in range(140):
        data = real_batch(32)
        model.netD.zero_grad()
        errD_real = criterion(model.netD(data), torch.ones(32))
        errD_real.backward()
        fake = model.netG(torch.randn(32, 8, 1, 1))
        errD_fake = criterion(model.netD(fake.detach()), torch.zeros(32))
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()
        losses.append(errD.item())
        tick.step(errD)
        model.netG.zero_grad()
        errG = criterion(model.netD(fake), torch.ones(32))
        errG.backward()
        optimizerG.step()
        losses.append(errG.item())
        tick.step(errG)
    with torch.no_grad():
        gap = (model.netG(torch.randn(256, 8, 1, 1)).mean(0) - real_batch(256).mean(0)).abs().mean().item()
    train.final = gap
    return losses
