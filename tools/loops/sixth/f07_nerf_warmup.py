"""nerfstudio-project/nerfstudio#1998: "When training nerfacto with warmup-steps it will crash soon"."""

import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class NerfField(nn.Module):
    def __init__(self, freqs=4, width=48):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(freqs))
        self.mlp_base = nn.Sequential(nn.Linear(4 * freqs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.density_head = nn.Linear(width, 1)
        self.mlp_head = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 3), nn.Sigmoid())

    def forward(self, pos):
        x = (pos.unsqueeze(-1) * self.bands * math.pi).flatten(-2)
        h = self.mlp_base(torch.cat([x.sin(), x.cos()], -1))
        return F.softplus(self.density_head(h)), self.mlp_head(h)


def render(field, origins, directions, samples=12):
    t = torch.linspace(0.1, 1.0, samples)
    pts = origins[:, None] + directions[:, None] * t[None, :, None]
    sigma, rgb = field(pts)
    alpha = 1 - torch.exp(-sigma.squeeze(-1) * 2.0 / samples)
    trans = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-7], 1), 1)[:, :-1]
    w = alpha * trans
    return (w.unsqueeze(-1) * rgb).sum(1) + (1 - w.sum(1, keepdim=True))


def build(bad: bool):
    torch.manual_seed(9)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(9)
    model = NerfField()
    lr_init, lr_pre_warmup, lr_final, warmup_steps = 5e-3, 1e-8, 1e-3, 60

    def func(step):
        if step < warmup_steps:
            span = (1 - lr_pre_warmup) if bad else (lr_init - lr_pre_warmup)
            lr = lr_pre_warmup + span * math.sin(0.5 * math.pi * min(step / warmup_steps, 1))
        else:
            t = min((step - warmup_steps) / (STEPS - warmup_steps), 1)
            lr = math.exp(math.log(lr_init) * (1 - t) + math.log(lr_final) * t)
        return lr / lr_init

    optimizer = torch.optim.Adam(model.parameters(), lr=lr_init, eps=1e-15)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, func)

    def step(i):
        origins = torch.rand(128, 2, generator=gen) * 0.2 - 1.0
        ang = torch.rand(128, 1, generator=gen) * 1.5
        directions = torch.cat([ang.cos(), ang.sin()], 1) * 1.5
        target = torch.cat([0.5 + 0.5 * torch.sin(5 * ang), 0.5 + 0.5 * torch.cos(3 * ang), 0.3 + 0.2 * ang / 1.5], 1)
        loss = F.mse_loss(render(model, origins, directions), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        LOG.append(loss.item())

    return model, optimizer, step
