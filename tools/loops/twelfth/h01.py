"""WGAN-GP after eriklindernoren/PyTorch-GAN (implementations/wgan_gp)."""

import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, latent_dim=4):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(latent_dim, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 2)
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
    grads = torch.autograd.grad(D(inter).sum(), inter, create_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def arc(n):
    a = torch.rand(n) * 3.14159
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.05 * torch.randn(n, 2)


def quality(model):
    torch.manual_seed(0)
    x = model.generator(torch.randn(400, 4))
    return (x.norm(dim=1) - 2).abs().mean().item()


def train(tick, mended=False):
    torch.manual_seed(31)
    gan = WGAN()
    optimizer_G = torch.optim.Adam(gan.generator.parameters(), lr=2e-3, betas=(0.0, 0.9))
    optimizer_D = torch.optim.Adam(gan.discriminator.parameters(), lr=2e-3, betas=(0.0, 0.9))
    n_critic, lambda_gp = 2, 1
    tick.model(gan)
    tick.optimizer(optimizer_D)
    tick.optimizer(optimizer_G)
    losses = []
    for i in range(340):
        real = arc(128)
        z = torch.randn(128, 4)
        fake = gan.generator(z).detach()
        optimizer_D.zero_grad()
        gp = compute_gradient_penalty(gan.discriminator, real, fake)
        d_loss = -gan.discriminator(real).mean() + gan.discriminator(fake).mean() + lambda_gp * gp
        d_loss.backward()
        optimizer_D.step()
        tick.step(d_loss)
        losses.append(d_loss.item())
        if i % n_critic == 0:
            optimizer_G.zero_grad()
            g_loss = -gan.discriminator(gan.generator(torch.randn(128, 4))).mean()
            g_loss.backward()
            optimizer_G.step()
            tick.step(g_loss)
            losses.append(g_loss.item())
    return losses
