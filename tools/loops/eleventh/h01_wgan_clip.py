"""After martinarjovsky/WassersteinGAN.

Wasserstein GAN on a 2-d ring of points: critic with clamped weights, RMSprop,
five critic iterations for each generator iteration.
"""

import math

import torch
from torch import nn

LAST = None


class MLP_G(nn.Module):
    def __init__(self, nz=4, ngf=48):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(nz, ngf), nn.ReLU(True), nn.Linear(ngf, ngf), nn.ReLU(True), nn.Linear(ngf, 2)
        )

    def forward(self, noise):
        return self.main(noise)


class MLP_D(nn.Module):
    def __init__(self, ndf=48):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, ndf), nn.ReLU(True), nn.Linear(ndf, ndf), nn.ReLU(True), nn.Linear(ndf, 1)
        )

    def forward(self, x):
        return self.main(x).mean(0).view(1)


class WGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG = MLP_G()
        self.netD = MLP_D()


def ring(n):
    a = torch.rand(n) * 2 * math.pi
    return torch.stack([2 + a.cos(), a.sin()], 1) + 0.05 * torch.randn(n, 2)


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    net = WGAN()
    one, mone = torch.ones(1), -torch.ones(1)
    optimizerD = torch.optim.RMSprop(net.netD.parameters(), lr=2e-3)
    optimizerG = torch.optim.RMSprop(net.netG.parameters(), lr=2e-3)
    tick.model(net)
    tick.optimizer(optimizerD)
    tick.optimizer(optimizerG)
    losses = []
    for gen_iteration in range(100):
        for p in net.netD.parameters():
            p.requires_grad = True
        for _ in range(5):
            for p in net.netD.parameters():
                p.data.clamp_(-0.1, 0.1)
            net.netD.zero_grad()
            errD_real = net.netD(ring(64))
            errD_real.backward(mone)
            with torch.no_grad():
                fake = net.netG(torch.randn(64, 4))
            errD_fake = net.netD(fake)
            errD_fake.backward(one)
            errD = errD_fake - errD_real
            optimizerD.step()
        for p in net.netD.parameters():
            p.requires_grad = False
        net.netG.zero_grad()
        errG = net.netD(net.netG(torch.randn(64, 4)))
        errG.backward(mone)
        optimizerG.step()
        tick.step(errD.detach())
        losses.append(errD.item())
    with torch.no_grad():
        x = net.netG(torch.randn(500, 4))
        LAST = (x.mean(0).tolist(), (x - torch.tensor([2.0, 0.0])).norm(dim=1).mean().item())
    return losses
