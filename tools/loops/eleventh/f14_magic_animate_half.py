"""After jinxixiang/magic_animate_unofficial#6.

Story: the denoising network is trained in half precision to save memory; after
the first optimizer step everything is nan.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, dim):
    freqs = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], -1)


class ResBlock(nn.Module):
    def __init__(self, dim, t_dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.in_layer = nn.Linear(dim, dim)
        self.emb_layer = nn.Linear(t_dim, dim)
        self.out_layer = nn.Linear(dim, dim)

    def forward(self, x, emb):
        h = self.in_layer(F.silu(self.norm(x))) + self.emb_layer(emb)
        return x + self.out_layer(F.silu(h))


class AppearanceDenoiser(nn.Module):
    def __init__(self, latent=16, dim=48, t_dim=16):
        super().__init__()
        self.t_dim = t_dim
        self.conv_in = nn.Linear(latent * 2, dim)
        self.blocks = nn.ModuleList([ResBlock(dim, t_dim) for _ in range(2)])
        self.conv_out = nn.Linear(dim, latent)

    def forward(self, noisy, t, reference):
        emb = timestep_embedding(t, self.t_dim).to(noisy.dtype)
        x = self.conv_in(torch.cat([noisy, reference], -1))
        for block in self.blocks:
            x = block(x, emb)
        return self.conv_out(F.silu(x))


class DDPMScheduler:
    def __init__(self, n=100):
        self.n = n
        self.alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.04, n), 0)

    def add_noise(self, x, noise, t):
        a = self.alphas_cumprod[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise


def train(tick, mended=False):
    torch.manual_seed(0)
    weight_dtype = torch.float16
    basis = torch.randn(4, 16)
    scheduler = DDPMScheduler()
    unet = AppearanceDenoiser().to(weight_dtype)
    adam_epsilon = 1e-4 if mended else 1e-8
    optimizer = torch.optim.AdamW(unet.parameters(), lr=2e-3, betas=(0.9, 0.999), weight_decay=1e-2, eps=adam_epsilon)
    tick.model(unet)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        code = torch.randn(32, 4)
        latents, reference = code @ basis * 0.5, code.repeat(1, 4)
        noise = torch.randn_like(latents)
        t = torch.randint(0, scheduler.n, (32,))
        noisy = scheduler.add_noise(latents, noise, t)
        model_pred = unet(noisy.to(weight_dtype), t, reference.to(weight_dtype))
        loss = F.mse_loss(model_pred.float(), noise)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
