"""victorchall/EveryDream2trainer#175: with AMP and clip_grad_norm 1.0 training is "effectively halted"."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class UNetStub(nn.Module):
    def __init__(self, dim=2, width=64, timesteps=50):
        super().__init__()
        self.time_embed = nn.Embedding(timesteps, width)
        self.conv_in = nn.Linear(dim, width)
        self.mid_block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.conv_out = nn.Linear(width, dim)

    def forward(self, x, t):
        h = self.conv_in(x) + self.time_embed(t)
        return self.conv_out(h + self.mid_block(h))


def build(bad: bool):
    torch.manual_seed(4)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(4)
    unet = UNetStub()
    betas = torch.linspace(1e-3, 0.2, 50)
    alphas_cumprod = torch.cumprod(1 - betas, 0)
    optimizer = torch.optim.SGD(unet.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)
    clip_grad_norm = 1.0

    def step(i):
        ang = torch.rand(64, generator=gen) * 6.28
        latents = torch.stack([ang.cos(), ang.sin()], 1)
        noise = torch.randn(64, 2, generator=gen)
        t = torch.randint(0, 50, (64,), generator=gen)
        ac = alphas_cumprod[t][:, None]
        noisy = ac.sqrt() * latents + (1 - ac).sqrt() * noise
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = unet(noisy, t)
        loss = F.mse_loss(pred.float(), noise)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        if not bad:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(unet.parameters(), clip_grad_norm)
        scaler.step(optimizer)
        scaler.update()
        LOG.append(loss.item())

    return unet, optimizer, step
