"""After rosinality/vq-vae-2-pytorch.

Auto-encoder with a codebook that is not trained by gradients but by running
averages; straight-through copy in the middle of the network.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Quantize(nn.Module):
    def __init__(self, dim, n_embed, decay=0.9, eps=1e-5):
        super().__init__()
        self.n_embed, self.decay, self.eps = n_embed, decay, eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, x):
        flat = x.reshape(-1, x.size(-1))
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        ind = dist.argmin(1)
        onehot = F.one_hot(ind, self.n_embed).type(flat.dtype)
        quantize = self.embed.t()[ind].view_as(x)
        if self.training:
            self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
            self.embed_avg.mul_(self.decay).add_((flat.t() @ onehot).detach(), alpha=1 - self.decay)
            n = self.cluster_size.sum()
            size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
            self.embed.copy_(self.embed_avg / size[None])
        diff = (quantize.detach() - x).pow(2).mean()
        return x + (quantize - x).detach(), diff


class VQVAE(nn.Module):
    def __init__(self, ch=16, dim=8, n_embed=32):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, ch, 4, 2, 1), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, dim, 1)
        )
        self.quantize = Quantize(dim, n_embed)
        self.dec = nn.Sequential(nn.Conv2d(dim, ch, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(ch, 1, 4, 2, 1))

    def forward(self, x):
        z = self.enc(x).permute(0, 2, 3, 1)
        q, diff = self.quantize(z)
        return self.dec(q.permute(0, 3, 1, 2)), diff


def train(tick, mended=False):
    torch.manual_seed(0)
    grid = torch.arange(12).float()
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for i in range(180):
        f = torch.randint(1, 4, (24, 2)).float() * 0.5
        img = (torch.sin(f[:, :1, None] * grid.view(1, -1, 1)) * torch.cos(f[:, 1:, None] * grid.view(1, 1, -1)))[
            :, None
        ]
        model.zero_grad()
        out, latent_loss = model(img)
        recon_loss = F.mse_loss(out, img)
        loss = recon_loss + 0.25 * latent_loss
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
