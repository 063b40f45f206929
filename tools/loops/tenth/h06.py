"""After lucidrains/denoising-diffusion-pytorch: noise prediction at random timesteps with an
EMA copy kept beside; the loss is noisy and soon flat."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        emb = t[:, None] * freqs[None]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=2, hidden=64):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(32), nn.Linear(32, hidden), nn.SiLU())
        self.inp = nn.Linear(dim, hidden)
        self.mid = nn.Sequential(nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.out = nn.Linear(hidden, dim)

    def forward(self, x, t):
        return self.out(self.mid(self.inp(x) + self.time_mlp(t.float())))


class EMA:
    def __init__(self, model, beta=0.98):
        self.ma_model, self.beta = copy.deepcopy(model), beta

    def update(self, model):
        for a, b in zip(self.ma_model.parameters(), model.parameters()):
            a.data.lerp_(b.data, 1 - self.beta)


def train(tick, mended=False):
    torch.manual_seed(0)
    T = 100
    betas = torch.linspace(1e-3, 0.12, T)
    alphas_cumprod = torch.cumprod(1 - betas, 0)
    model = Denoiser()
    ema = EMA(model)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    losses = []
    tick.model(model)
    tick.optimizer(opt)
    for _step in range(300):
        ang = 6.2832 * torch.rand(128)
        x0 = torch.stack([ang.cos(), ang.sin()], 1) * 1.5 + 0.05 * torch.randn(128, 2)
        t = torch.randint(0, T, (128,))
        noise = torch.randn_like(x0)
        a = alphas_cumprod[t][:, None]
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
        tick.step(loss)
        losses.append(loss.item())
    return losses
