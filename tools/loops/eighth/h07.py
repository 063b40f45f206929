"""lucidrains/denoising-diffusion-pytorch: noise prediction on little pictures with an EMA copy; after a quick
drop the loss only jitters on a plateau which depends on the drawn time steps."""

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
        freq = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
        emb = t[:, None].float() * freq[None]
        return torch.cat((emb.sin(), emb.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, cin, cout, time_dim):
        super().__init__()
        self.mlp = nn.Linear(time_dim, cout * 2)
        self.conv1, self.norm = nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.res = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.mlp(F.silu(t))[:, :, None, None].chunk(2, dim=1)
        h = self.norm(self.conv1(x)) * (scale + 1) + shift
        return self.conv2(F.silu(h)) + self.res(x)


class Unet(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, 32))
        self.init_conv = nn.Conv2d(1, dim, 3, padding=1)
        self.down, self.mid = ResnetBlock(dim, dim, 32), ResnetBlock(dim, dim * 2, 32)
        self.up = ResnetBlock(dim * 3, dim, 32)
        self.final_conv = nn.Conv2d(dim, 1, 1)

    def forward(self, x, time):
        t = self.time_mlp(time)
        h = self.down(self.init_conv(x), t)
        m = self.mid(F.avg_pool2d(h, 2), t)
        return self.final_conv(self.up(torch.cat((F.interpolate(m, scale_factor=2), h), 1), t))


def train(tick, mended=False):
    torch.manual_seed(0)
    timesteps = 100
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-3, 0.08, timesteps), 0)
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    phase = torch.rand(256, 1, 1, 1) * 6.28
    images = torch.sin(0.8 * xx + phase) * torch.cos(0.4 * yy)
    model = Unet()
    ema_model = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    tick.model(model)
    tick.optimizer(opt)
    losses = []
    for step in range(150):
        x_start = images[torch.randint(0, 256, (16,))]
        t = torch.randint(0, timesteps, (16,))
        noise = torch.randn_like(x_start)
        a = alphas_cumprod[t][:, None, None, None]
        loss = F.l1_loss(model(a.sqrt() * x_start + (1 - a).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        tick.step(loss)
        if step % 10 == 0:
            for ema_p, p in zip(ema_model.parameters(), model.parameters()):
                ema_p.lerp_(p.detach(), 0.3)
    train.final = sum(losses[-40:]) / 40
    return losses
