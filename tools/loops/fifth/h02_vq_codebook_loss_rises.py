"""evonneng/learning2listen#1: the codebook loss grows before it falls, which the author says is normal.

A vector-quantised autoencoder of short motions, with straight-through gradients and a commitment term.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class VectorQuantizer(nn.Module):
    def __init__(self, n_e: int, e_dim: int, beta: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_e, e_dim)
        self.embedding.weight.data.uniform_(-1.0 / n_e, 1.0 / n_e)
        self.beta = beta

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = z.reshape(-1, z.size(-1))
        nearest = torch.cdist(flat, self.embedding.weight).argmin(dim=1)
        z_q = self.embedding(nearest).view_as(z)
        loss = F.mse_loss(z_q, z.detach()) + self.beta * F.mse_loss(z, z_q.detach())
        return z + (z_q - z).detach(), loss


class MotionVQ(nn.Module):
    def __init__(self, joints: int = 6, width: int = 32, e_dim: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(joints, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Conv1d(width, e_dim, 3, padding=1)
        )
        self.quantize = VectorQuantizer(32, e_dim, beta=0.25)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(e_dim, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv1d(width, joints, 3, padding=1),
        )

    def forward(self, motion: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z_q, vq_loss = self.quantize(self.encoder(motion).transpose(1, 2))
        return self.decoder(z_q.transpose(1, 2)), vq_loss


def motions(generator: torch.Generator, basis: torch.Tensor, batch: int) -> torch.Tensor:
    gesture = torch.randint(0, basis.size(0), (batch,), generator=generator)
    return basis[gesture] + 0.05 * torch.randn(batch, *basis.shape[1:], generator=generator)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(1)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(2)
    time = torch.linspace(0, 6.28, 16)
    basis = torch.sin(time * torch.randint(1, 4, (10, 6, 1), generator=generator) + torch.rand(10, 6, 1) * 6.28)
    model = MotionVQ()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(i: int) -> None:
        motion = motions(generator, basis, 48)
        recon, vq_loss = model(motion)
        loss = F.l1_loss(recon, motion) + vq_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(F.l1_loss(recon, motion).item())

    return model, optimizer, step
