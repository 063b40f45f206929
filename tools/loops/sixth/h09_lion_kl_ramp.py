"""nv-tlabs/LION#17: "I try to train the VAE, but the loss is increasing"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class PointVAE(nn.Module):
    def __init__(self, dim=12, latent=12):
        super().__init__()
        self.encoder = nn.Linear(dim, 2 * latent)
        self.decoder = nn.Linear(latent, dim)
        with torch.no_grad():
            self.encoder.weight.copy_(torch.cat([torch.eye(dim), torch.zeros(latent, dim)]))
            self.encoder.bias.copy_(torch.cat([torch.zeros(latent), torch.full((latent,), -6.0)]))
            self.decoder.weight.copy_(torch.eye(dim))
            self.decoder.bias.zero_()

    def forward(self, pts):
        mu, logvar = self.encoder(pts).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        return self.decoder(z), kl


def build(bad: bool):
    torch.manual_seed(39)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(39)
    vae = PointVAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=1e-2)
    basis = torch.randn(3, 12, generator=gen)

    def step(i):
        pts = torch.randn(64, 3, generator=gen) @ basis + 0.05 * torch.randn(64, 12, generator=gen)
        kl_weight = min(1e-7 + 0.5 * i / (0.6 * STEPS), 0.5)
        rec, kl = vae(pts)
        rec_loss = F.l1_loss(rec, pts, reduction="sum") / len(pts)
        loss = rec_loss + kl_weight * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append((rec_loss + 0.5 * kl).item())

    return vae, optimizer, step
