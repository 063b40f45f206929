"""Healthy. After lucidrains/vector-quantize-pytorch: the codebook is a buffer moved by an
exponential average (no gradient), the encoder learns straight through, commitment loss.
"""

import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantize(nn.Module):
    def __init__(self, dim, codebook_size, decay=0.9, eps=1e-5):
        super().__init__()
        self.decay, self.eps = decay, eps
        embed = torch.randn(codebook_size, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("embed_avg", embed.clone())
        self.register_buffer("cluster_size", torch.ones(codebook_size))

    def forward(self, x):
        ind = torch.cdist(x, self.embed).argmin(1)
        quantize = self.embed[ind]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(ind, len(self.embed)).float()
                self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(onehot.t() @ x, alpha=1 - self.decay)
                dead = self.cluster_size < 0.2
                self.embed.copy_(self.embed_avg / (self.cluster_size[:, None] + self.eps))
                if dead.any():
                    pick = x[torch.randint(0, len(x), (int(dead.sum()),))]
                    self.embed[dead], self.embed_avg[dead], self.cluster_size[dead] = pick, pick, 1.0
        commit_loss = F.mse_loss(quantize.detach(), x)
        return x + (quantize - x).detach(), commit_loss


class SimpleVQAutoEncoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, dim))
        self.vq = VectorQuantize(dim, 32)
        self.decoder = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, 32))

    def forward(self, x):
        q, commit = self.vq(self.encoder(x))
        return self.decoder(q).clamp(-1, 1), commit


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.tanh(torch.randn(24, 32))
    model = SimpleVQAutoEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(250):
        x = (protos[torch.randint(0, 24, (96,))] + 0.05 * torch.randn(96, 32)).clamp(-1, 1)
        out, commit = model(x)
        loss = (out - x).abs().mean() + 1.0 * commit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
