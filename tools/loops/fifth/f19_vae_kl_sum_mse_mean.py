"""zdebruine/MMVAE#19: the KL term was summed over everything while mse_loss took its default mean.

The KL term outweighs the reconstruction by thousands, drops to zero, and every cell decodes to the average cell.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
GENES, LATENT = 40, 6
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class CellVAE(nn.Module):
    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(GENES, hidden), nn.LeakyReLU(), nn.Linear(hidden, hidden), nn.LeakyReLU()
        )
        self.fc_mu = nn.Linear(hidden, LATENT)
        self.fc_var = nn.Linear(hidden, LATENT)
        self.decoder = nn.Sequential(nn.Linear(LATENT, hidden), nn.LeakyReLU(), nn.Linear(hidden, GENES))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.encoder(x)
        mu, logvar = self.fc_mu(h), self.fc_var(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.decoder(z), mu, logvar


def kl_divergence(mu: torch.Tensor, logvar: torch.Tensor, reduction: str) -> torch.Tensor:
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=-1)
    return kl.sum() if reduction == "sum" else kl.mean()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(18)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(19)
    programmes = torch.randn(4, GENES, generator=generator)
    model = CellVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def chunk(batch: int) -> torch.Tensor:
        activity = torch.randn(batch, 4, generator=generator)
        return torch.tanh(activity @ programmes) + 0.1 * torch.randn(batch, GENES, generator=generator)

    def step(i: int) -> None:
        x = chunk(64)
        x_hat, mu, logvar = model(x)
        if bad:
            recon = F.mse_loss(x_hat, x)
            loss = recon + kl_divergence(mu, logvar, reduction="sum")
        else:
            recon = F.mse_loss(x_hat, x, reduction="sum") / x.size(0)
            loss = recon + kl_divergence(mu, logvar, reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append((x_hat - x).pow(2).mean().item())

    return model, optimizer, step
