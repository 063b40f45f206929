"""jacobgil/keras-dcgan#11: generated images are labelled 1 in the generator's step; "shouldn't this be 0?"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 300
OTHERS: list = []
LOG: list = []


class DCGAN(nn.Module):
    def __init__(self, nz=8):
        super().__init__()
        self.generator = nn.Sequential(
            nn.Linear(nz, 32),
            nn.ReLU(),
            nn.Linear(32, 16 * 4),
            nn.Unflatten(1, (16, 2, 2)),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 1, 4, 2, 1),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(256, 1)
        )


def build(bad: bool):
    torch.manual_seed(35)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(35)
    net = DCGAN()
    g_optim = torch.optim.Adam(net.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    d_optim = torch.optim.SGD(net.discriminator.parameters(), lr=0.02, momentum=0.5, nesterov=True)
    OTHERS.append(d_optim)
    digit = torch.tensor([[1.0, 1, 1, 1], [-1, -1, 1, -1], [-1, 1, -1, -1], [1, -1, -1, -1]]) * 0.8

    def step(i):
        image_batch = digit[None, None] + 0.15 * torch.randn(32, 1, 4, 4, generator=gen)
        noise = torch.rand(32, 8, generator=gen) * 2 - 1
        X = torch.cat([image_batch, net.generator(noise).detach()])
        y = torch.tensor([1.0] * 32 + [0.0] * 32)
        d_loss = F.binary_cross_entropy_with_logits(net.discriminator(X).squeeze(1), y)
        d_optim.zero_grad()
        d_loss.backward()
        d_optim.step()
        net.discriminator.requires_grad_(False)
        fake = net.generator(torch.rand(32, 8, generator=gen) * 2 - 1)
        g_loss = F.binary_cross_entropy_with_logits(net.discriminator(fake).squeeze(1), torch.ones(32))
        g_optim.zero_grad()
        g_loss.backward()
        net.discriminator.requires_grad_(True)
        g_optim.step()
        LOG.append(F.mse_loss(fake.mean(0)[0], digit).item())

    return net, g_optim, step
