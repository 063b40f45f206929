"""After eriklindernoren/PyTorch-GAN (wgan_gp.py): critic with gradient penalty, generator
every n_critic steps."""

import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, latent_dim=4):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent_dim, 32),
            nn.LeakyReLU(0.2),
            nn.Linear(32, 32),
            nn.BatchNorm1d(32, 0.8),
            nn.LeakyReLU(0.2),
            nn.Linear(32, 2),
        )

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
        )

    def forward(self, x):
        return self.model(x)


class WGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()


def compute_gradient_penalty(D, real, fake):
    alpha = torch.rand(real.size(0), 1)
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d_inter = D(inter)
    grads = torch.autograd.grad(d_inter, inter, torch.ones_like(d_inter), create_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def real_samples(n):
    return torch.tensor([2.0, -1.0]) + torch.randn(n, 2) * torch.tensor([0.3, 0.8])


def train(tick, mended=False):
    torch.manual_seed(0)
    net = WGAN()
    generator, discriminator = net.generator, net.discriminator
    optimizer_G = torch.optim.Adam(generator.parameters(), lr=4e-3, betas=(0.5, 0.9))
    optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=4e-3, betas=(0.5, 0.9))
    n_critic, lambda_gp, losses = 5, 10, []
    tick.model(net)
    tick.optimizer(optimizer_G)
    tick.optimizer(optimizer_D)
    for i in range(250):
        real = real_samples(64)
        optimizer_D.zero_grad()
        fake = generator(torch.randn(64, 4))
        gp = compute_gradient_penalty(discriminator, real.data, fake.data)
        d_loss = -discriminator(real).mean() + discriminator(fake.detach()).mean() + lambda_gp * gp
        d_loss.backward()
        optimizer_D.step()
        tick.step(d_loss)
        losses.append(d_loss.item())
        if i % n_critic == 0:
            optimizer_G.zero_grad()
            g_loss = -discriminator(generator(torch.randn(64, 4))).mean()
            g_loss.backward()
            optimizer_G.step()
            tick.step(g_loss)
    return losses
