"""DegardinBruno/Kinetic-GAN#1: "Negative losses when training", generator and critic."""

import torch
from torch import autograd, nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class Generator(nn.Module):
    def __init__(self, z=4, joints=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, joints * 2)
        )

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self, joints=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(joints * 2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1)
        )

    def forward(self, x):
        return self.net(x)


class KineticGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = Generator(), Critic()


def gradient_penalty(D, real, fake, gen):
    alpha = torch.rand(len(real), 1, generator=gen)
    x = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    grad = autograd.grad(D(x).sum(), x, create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def build(bad: bool):
    torch.manual_seed(34)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(34)
    gan = KineticGAN()
    optimizer_G = torch.optim.Adam(gan.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_D = torch.optim.Adam(gan.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    OTHERS.append(optimizer_D)
    shift = torch.tensor([3.0, -2.0, 2.0, 1.0, -3.0, 2.0])

    def step(i):
        for _ in range(3):
            real = shift + 0.5 * torch.randn(64, 6, generator=gen)
            fake = gan.generator(torch.randn(64, 4, generator=gen)).detach()
            d_loss = (
                gan.discriminator(fake).mean()
                - gan.discriminator(real).mean()
                + 10 * gradient_penalty(gan.discriminator, real, fake, gen)
            )
            optimizer_D.zero_grad()
            d_loss.backward()
            optimizer_D.step()
        fake = gan.generator(torch.randn(64, 4, generator=gen))
        g_loss = -gan.discriminator(fake).mean()
        optimizer_G.zero_grad()
        g_loss.backward()
        optimizer_G.step()
        LOG.append((fake.mean(0) - shift).norm().item())

    return gan, optimizer_G, step
