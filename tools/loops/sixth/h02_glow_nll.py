"""NVIDIA/waveglow#251: "The training log shows that the loss value is negative", ever further from zero."""

import torch
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class AffineCoupling(nn.Module):
    def __init__(self, half, hidden=32):
        super().__init__()
        self.wn = nn.Sequential(nn.Linear(half, hidden), nn.Tanh(), nn.Linear(hidden, 2 * half))
        nn.init.zeros_(self.wn[-1].weight)
        nn.init.zeros_(self.wn[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        log_s, t = self.wn(a).chunk(2, 1)
        return torch.cat([a, b * log_s.exp() + t], 1), log_s.sum(1)


class WaveGlow(nn.Module):
    def __init__(self, dim=8, flows=4):
        super().__init__()
        q = [torch.linalg.qr(torch.randn(dim, dim))[0] for _ in range(flows)]
        self.convinv = nn.ParameterList([nn.Parameter(w) for w in q])
        self.couplings = nn.ModuleList([AffineCoupling(dim // 2) for _ in range(flows)])

    def forward(self, x):
        logdet = 0.0
        for w, layer in zip(self.convinv, self.couplings):
            x = x @ w
            x, log_s = layer(x)
            logdet = logdet + log_s + torch.linalg.slogdet(w)[1]
        return x, logdet


def build(bad: bool):
    torch.manual_seed(32)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(32)
    model = WaveGlow()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    mix = 0.1 * torch.randn(3, 8, generator=gen)

    def step(i):
        audio = torch.randn(128, 3, generator=gen) @ mix + 0.02 * torch.randn(128, 8, generator=gen)
        z, logdet = model(audio)
        loss = (0.5 * z.pow(2).sum(1) - logdet).mean() / 8
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
