"""After user683/DRGO#1: the denoising MLP of a diffusion recommender.

A user of the recommender noticed that the denoiser in MLP_model.py hardly
improves, whatever its depth.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half).float() / half)
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class DNN(nn.Module):
    def __init__(self, emb_dim, dims, time_dim=16, mended=False):
        super().__init__()
        self.time_dim = time_dim
        self.mended = mended
        self.emb_layer = nn.Linear(time_dim, time_dim)
        in_dims = [emb_dim + time_dim] + dims
        self.in_layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(in_dims[:-1], in_dims[1:])])
        self.out_layers = nn.ModuleList([nn.Linear(dims[-1], dims[-1]), nn.Linear(dims[-1], emb_dim)])

    def forward(self, x, timesteps):
        emb = self.emb_layer(timestep_embedding(timesteps, self.time_dim))
        h = torch.cat([x, emb], dim=-1)
        for layer in self.in_layers:
            h = layer(h)
            h = torch.tanh(h if self.mended else h.detach())
        for i, layer in enumerate(self.out_layers):
            h = layer(h)
            if i != len(self.out_layers) - 1:
                h = torch.tanh(h if self.mended else h.detach())
        return h


class GaussianDiffusion:
    def __init__(self, steps=20, beta_min=0.001, beta_max=0.03):
        betas = torch.linspace(beta_min, beta_max, steps)
        self.steps = steps
        self.alphas_cumprod = torch.cumprod(1 - betas, dim=0)

    def q_sample(self, x_start, t, noise):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * x_start + (1 - a).sqrt() * noise

    def training_losses(self, model, x_start):
        t = torch.randint(0, self.steps, (x_start.size(0),))
        noise = torch.randn_like(x_start)
        x_t = self.q_sample(x_start, t, noise)
        return F.mse_loss(model(x_t, t), x_start)


def user_embeddings(n_users=512, dim=12):
    taste = torch.rand(n_users, 2) * 2 * math.pi
    waves = torch.arange(1, dim // 4 + 1).float()
    parts = [f(taste[:, i : i + 1] * waves) for i in range(2) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=1)


def train(tick, mended=False):
    torch.manual_seed(0)
    users = user_embeddings()
    diffusion = GaussianDiffusion()
    model = DNN(users.size(1), [64, 8, 64], mended=mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(300):
        batch = users[torch.randint(0, users.size(0), (128,))]
        loss = diffusion.training_losses(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
