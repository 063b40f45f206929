"""DDPM noise prediction with warm-up, clipping and an EMA copy after w86763777/pytorch-ddpm."""

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
        emb = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        emb = t[:, None].float() * emb[None]
        return torch.cat([emb.sin(), emb.cos()], -1)


class Unet1D(nn.Module):
    def __init__(self, dim=2, hid=64):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(16), nn.Linear(16, hid), nn.GELU())
        self.inp = nn.Linear(dim, hid)
        self.mid = nn.Linear(hid, hid)
        self.out = nn.Linear(hid, dim)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.time_mlp(t))
        h = F.silu(self.mid(h)) + h
        return self.out(h)


class GaussianDiffusionTrainer(nn.Module):
    def __init__(self, model, beta_1, beta_T, T):
        super().__init__()
        self.model, self.T = model, T
        alphas_bar = torch.cumprod(1.0 - torch.linspace(beta_1, beta_T, T), dim=0)
        self.register_buffer("sqrt_alphas_bar", alphas_bar.sqrt())
        self.register_buffer("sqrt_one_minus_alphas_bar", (1 - alphas_bar).sqrt())

    def forward(self, x_0):
        t = torch.randint(self.T, size=(x_0.shape[0],))
        noise = torch.randn_like(x_0)
        x_t = self.sqrt_alphas_bar[t][:, None] * x_0 + self.sqrt_one_minus_alphas_bar[t][:, None] * noise
        return F.mse_loss(self.model(x_t, t), noise, reduction="none")


def ema(source, target, decay):
    for a, b in zip(source.parameters(), target.parameters()):
        b.data.copy_(b.data * decay + a.data * (1 - decay))


def spiral(n):
    r = torch.rand(n) * 2 + 0.3
    return torch.stack([r * (3 * r).cos(), r * (3 * r).sin()], 1)


def train(tick, mended=False):
    torch.manual_seed(37)
    net_model = Unet1D()
    ema_model = copy.deepcopy(net_model)
    optim = torch.optim.Adam(net_model.parameters(), lr=2e-3)
    warmup = 30
    sched = torch.optim.lr_scheduler.LambdaLR(optim, lr_lambda=lambda step: min(step, warmup) / warmup)
    trainer = GaussianDiffusionTrainer(net_model, 1e-4, 0.1, 100)
    tick.model(net_model)
    tick.optimizer(optim)
    losses = []
    for step in range(300):
        optim.zero_grad()
        x_0 = spiral(128)
        loss = trainer(x_0).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net_model.parameters(), 1.0)
        optim.step()
        sched.step()
        ema(net_model, ema_model, 0.99)
        tick.step(loss)
        losses.append(loss.item())
    return losses
