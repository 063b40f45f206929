"""After victorchall/EveryDream2trainer#175: fine-tuning a denoiser under automatic mixed precision.

With --clip_grad_scale at the usual 1.0 the training is effectively halted;
people pass values such as 1e6 to get anywhere.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class TimeEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.proj = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        freqs = torch.exp(-math.log(1000) * torch.arange(self.dim // 2) / (self.dim // 2))
        args = t[:, None] * freqs[None]
        return self.proj(torch.cat([args.sin(), args.cos()], -1))


class UNetTiny(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.time = TimeEmbed(ch)
        self.conv_in = nn.Conv2d(1, ch, 3, padding=1)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1)
        self.norm = nn.GroupNorm(4, ch)
        self.conv_out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.conv_in(x) + self.time(t)[:, :, None, None])
        h = h + F.silu(self.norm(self.mid(h)))
        return self.conv_out(h)


class EveryDreamOptimizer:
    def __init__(self, unet, lr, clip_grad_norm, mended):
        self.unet = unet
        self.optimizer = torch.optim.SGD(unet.parameters(), lr=lr, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2**17, growth_interval=2000)
        self.clip_grad_norm = clip_grad_norm
        self.mended = mended

    def step(self, loss):
        self.scaler.scale(loss).backward()
        if self.clip_grad_norm is not None:
            if self.mended:
                self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.unet.parameters(), max_norm=self.clip_grad_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)


def latents(n, size=8):
    x = torch.zeros(n, 1, size, size)
    pos = torch.randint(0, size - 3, (n, 2))
    for i in range(n):
        a, b = pos[i].tolist()
        x[i, 0, a : a + 4, b : b + 4] = 1.0
    return x * 2 - 1


def train(tick, mended=False):
    torch.manual_seed(11)
    unet = UNetTiny()
    ed_optimizer = EveryDreamOptimizer(unet, lr=5e-2, clip_grad_norm=1.0, mended=mended)
    alphas = torch.cumprod(1 - torch.linspace(1e-3, 0.06, 100), 0)
    tick.model(unet)
    tick.optimizer(ed_optimizer.optimizer)
    losses = []
    for step in range(200):
        x0 = latents(16)
        t = torch.randint(0, 100, (16,))
        noise = torch.randn_like(x0)
        a = alphas[t][:, None, None, None]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = unet(a.sqrt() * x0 + (1 - a).sqrt() * noise, t.float())
        loss = F.mse_loss(pred.float(), noise)
        ed_optimizer.step(loss)
        tick.step(loss)
        losses.append(loss.item())
    return losses
