"""Healthy. After state-spaces/s4 (S4D): complex diagonal kernels whose parameters carry
their own small learning rate and no weight decay.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class S4DKernel(nn.Module):
    def __init__(self, d_model, N=16, lr=1e-3):
        super().__init__()
        self.C = nn.Parameter(torch.view_as_real(torch.randn(d_model, N // 2, dtype=torch.cfloat)))
        self.log_dt = nn.Parameter(torch.rand(d_model) * (math.log(0.1) - math.log(0.01)) + math.log(0.01))
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(d_model, N // 2)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(N // 2).float().repeat(d_model, 1))
        for p in (self.log_dt, self.log_A_real, self.A_imag):
            p._optim = {"weight_decay": 0.0, "lr": lr}

    def forward(self, L):
        dt = torch.exp(self.log_dt)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dtA = A * dt[:, None]
        K = dtA[..., None] * torch.arange(L)
        C = torch.view_as_complex(self.C) * (torch.exp(dtA) - 1.0) / A
        return 2 * torch.einsum("hn,hnl->hl", C, torch.exp(K)).real


class S4DLayer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.D = nn.Parameter(torch.randn(d_model))
        self.kernel = S4DKernel(d_model)
        self.output_linear = nn.Sequential(nn.Conv1d(d_model, 2 * d_model, 1), nn.GLU(dim=-2))

    def forward(self, u):
        L = u.size(-1)
        k_f = torch.fft.rfft(self.kernel(L), n=2 * L)
        y = torch.fft.irfft(torch.fft.rfft(u, n=2 * L) * k_f, n=2 * L)[..., :L]
        return self.output_linear(F.gelu(y + u * self.D[:, None]))


class S4Model(nn.Module):
    def __init__(self, d_model=16, n_layers=2):
        super().__init__()
        self.encoder = nn.Linear(1, d_model)
        self.s4_layers = nn.ModuleList(S4DLayer(d_model) for _ in range(n_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.decoder = nn.Linear(d_model, 4)

    def forward(self, x):
        x = self.encoder(x).transpose(1, 2)
        for layer, norm in zip(self.s4_layers, self.norms):
            x = norm((layer(x) + x).transpose(1, 2)).transpose(1, 2)
        return self.decoder(x.mean(-1))


def setup_optimizer(model, lr, weight_decay):
    ps = list(model.parameters())
    optimizer = torch.optim.AdamW([p for p in ps if not hasattr(p, "_optim")], lr=lr, weight_decay=weight_decay)
    optimizer.add_param_group({"params": [p for p in ps if hasattr(p, "_optim")], "lr": 1e-3, "weight_decay": 0.0})
    return optimizer


def train(tick, mended=False):
    torch.manual_seed(0)
    model = S4Model()
    optimizer = setup_optimizer(model, 1e-2, 0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 120)
    t = torch.arange(48.0)
    freqs = torch.tensor([0.15, 0.3, 0.6, 1.2])
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(120):
        y = torch.randint(0, 4, (24,))
        x = torch.sin(freqs[y][:, None] * t + 6.28 * torch.rand(24, 1)) + 0.5 * torch.randn(24, 48)
        loss = F.cross_entropy(model(x[..., None]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
