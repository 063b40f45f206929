"""crowsonkb/k-diffusion#50: "the code is calling sched.step() without epoch number", warm-up and decay per step."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 250
OTHERS: list = []
LOG: list = []


class FourierFeatures(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.register_buffer("weight", torch.randn(out // 2, 1))

    def forward(self, x):
        f = 6.28 * x @ self.weight.t()
        return torch.cat([f.cos(), f.sin()], -1)


class Denoiser(nn.Module):
    def __init__(self, dim=2, width=64, sigma_data=0.7):
        super().__init__()
        self.sigma_data = sigma_data
        self.timestep_embed = FourierFeatures(16)
        self.mapping = nn.Linear(16, width)
        self.proj_in, self.mid, self.proj_out = nn.Linear(dim, width), nn.Linear(width, width), nn.Linear(width, dim)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)

    def loss(self, x, noise, sigma):
        d = self.sigma_data
        c_skip = d**2 / (sigma**2 + d**2)
        c_out, c_in = sigma * d / (sigma**2 + d**2).sqrt(), 1 / (sigma**2 + d**2).sqrt()
        noised = x + noise * sigma
        h = F.silu(self.proj_in(noised * c_in) + self.mapping(self.timestep_embed(sigma.log() / 4)))
        target = (x - c_skip * noised) / c_out
        return (self.proj_out(F.silu(self.mid(h))) - target).pow(2).mean()


def build(bad: bool):
    torch.manual_seed(51)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(51)
    model = Denoiser()
    model_ema = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.95, 0.999), eps=1e-6, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (1 - 0.95 ** (s + 1)) * (1 + s / 200) ** -1.0)

    def step(i):
        ang = torch.randint(0, 3, (128,), generator=gen) * 2.094
        x = torch.stack([ang.cos(), ang.sin()], 1)
        noise = torch.randn(128, 2, generator=gen)
        sigma = (torch.randn(128, 1, generator=gen) * 0.8 - 0.7).exp()
        loss = model.loss(x, noise, sigma)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sched.step()
        with torch.no_grad():
            for p, e in zip(model.parameters(), model_ema.parameters()):
                e.lerp_(p, 0.1)
            LOG.append(model_ema.loss(x, noise, sigma).item())

    return model, optimizer, step
