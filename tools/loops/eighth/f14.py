"""IDEALLab/EngiOpt#67: a one-dimensional diffusion model of designs (chord lengths along a profile); the samples
have nothing in common with the designs and the loss does not come down."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        freq = torch.exp(torch.arange(self.dim // 2) * -(math.log(10000) / (self.dim // 2 - 1)))
        emb = t[:, None].float() * freq
        return torch.cat((emb.sin(), emb.cos()), -1)


class ResnetBlock1D(nn.Module):
    def __init__(self, channels, time_dim):
        super().__init__()
        self.time = nn.Linear(time_dim, channels)
        self.conv1 = nn.Conv1d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x, t):
        return x + self.conv2(F.silu(self.conv1(F.silu(x)) + self.time(t)[..., None]))


class Unet1D(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(16), nn.Linear(16, 32), nn.SiLU())
        self.init_conv = nn.Conv1d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList([ResnetBlock1D(channels, 32) for _ in range(3)])
        self.final_conv = nn.Conv1d(channels, 1, 1)

    def forward(self, x, t):
        emb, h = self.time_mlp(t), self.init_conv(x)
        for block in self.blocks:
            h = block(h, emb)
        return self.final_conv(h)


class GaussianDiffusion1D(nn.Module):
    def __init__(self, model, timesteps=100, low=None, high=None, auto_norm=False):
        super().__init__()
        self.model, self.timesteps, self.auto_norm = model, timesteps, auto_norm
        self.low, self.high = low, high
        self.register_buffer("alphas_cumprod", torch.cumprod(1 - torch.linspace(1e-3, 0.08, timesteps), 0))

    def normalize(self, x):
        return (x - self.low) / (self.high - self.low) * 2 - 1 if self.auto_norm else x

    def forward(self, design):
        x_start = self.normalize(design)
        t = torch.randint(0, self.timesteps, (len(x_start),))
        noise = torch.randn_like(x_start)
        a = self.alphas_cumprod[t][:, None, None]
        return F.mse_loss(self.model(a.sqrt() * x_start + (1 - a).sqrt() * noise, t), noise)


def airfoil_designs(n):
    s = torch.linspace(0, 1, 24)
    chord, taper, bump = 300 + 60 * torch.rand(n, 1), torch.rand(n, 1), torch.rand(n, 1)
    return (chord * (1 - 0.6 * taper * s) + 60 * bump * torch.sin(3.14 * s) ** 2)[:, None]


def train(tick, mended=False):
    torch.manual_seed(0)
    designs = airfoil_designs(512)
    diffusion = GaussianDiffusion1D(Unet1D(), low=designs.min(), high=designs.max(), auto_norm=mended)
    opt = torch.optim.Adam(diffusion.parameters(), lr=2e-3)
    tick.model(diffusion)
    tick.optimizer(opt)
    losses = []
    for _step in range(170):
        loss = diffusion(designs[torch.randint(0, 512, (32,))])
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        tick.step(loss)
    train.final = sum(losses[-40:]) / 40
    return losses
