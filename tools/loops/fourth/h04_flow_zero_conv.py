"""ksw0306/FloWaveNet#9: ZeroConv1d starts at exactly zero, yet the flow trains: only its own gradient is not zero.

An affine-coupling flow on short waveforms; at first every coupling is the identity.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
HISTORY: list[float] = []
BATCH, LENGTH = 32, 32


class ZeroConv1d(nn.Module):
    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inp, out, 1)
        nn.init.zeros_(self.conv.weight)
        nn.init.zeros_(self.conv.bias)
        self.scale = nn.Parameter(torch.zeros(1, out, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) * torch.exp(self.scale * 3)


class Coupling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Conv1d(1, 16, 3, padding=1)
        self.mid = nn.Conv1d(16, 16, 3, padding=1)
        self.zero = ZeroConv1d(16, 2)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.mid(torch.relu(self.front(a))))
        log_s, t = self.zero(h).chunk(2, dim=1)
        log_s = 2.0 * torch.tanh(log_s / 2.0)
        return (b - t) * torch.exp(-log_s), -log_s


class Flow(nn.Module):
    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling() for _ in range(depth))

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        a, b = wave[:, None, 0::2], wave[:, None, 1::2]
        log_det = torch.zeros(len(wave))
        for coupling in self.couplings:
            b, piece = coupling(a, b)
            log_det = log_det + piece.sum(dim=(1, 2))
            a, b = b, a
        return torch.cat([a, b], dim=-1).flatten(1), log_det


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(4)
    HISTORY.clear()
    model = Flow()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(i: int) -> None:
        t = torch.arange(LENGTH) / LENGTH
        wave = torch.sin(2 * torch.pi * (2 * t[None, :] + torch.rand(BATCH, 1))) + 0.1 * torch.randn(BATCH, LENGTH)
        z, log_det = model(wave)
        log_prob = -0.5 * (z.pow(2) + 1.8379).sum(dim=1)
        loss = -(log_prob + log_det).mean() / LENGTH
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
