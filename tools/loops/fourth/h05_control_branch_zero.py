"""lllyasviel/ControlNet#51: a user asks why the connecting convolutions start at zero; they protect the frozen copy.

Most parameters are frozen and most of the rest have no gradient in the first step; still the branch learns.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 240
HISTORY: list[float] = []
BATCH, SIDE = 16, 10


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Conv2d(1, 12, 3, padding=1)
        self.mid = nn.Conv2d(12, 12, 3, padding=1)
        self.out = nn.Conv2d(12, 1, 3, padding=1)

    def encode(self, x: Tensor) -> Tensor:
        return torch.relu(self.mid(torch.relu(self.inp(x))))


def zero_module(conv: nn.Conv2d) -> nn.Conv2d:
    for p in conv.parameters():
        nn.init.zeros_(p)
    return conv


class Controlled(nn.Module):
    def __init__(self, base: Denoiser) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.copy = copy.deepcopy(base).requires_grad_(True)
        self.copy.out.requires_grad_(False)
        self.zero_in = zero_module(nn.Conv2d(1, 1, 1))
        self.zero_out = zero_module(nn.Conv2d(12, 12, 1))

    def forward(self, noisy: Tensor, hint: Tensor) -> Tensor:
        control = self.zero_out(self.copy.encode(noisy + self.zero_in(hint)))
        return self.base.out(self.base.encode(noisy) + control)


def drawings() -> tuple[Tensor, Tensor, Tensor]:
    hint = torch.nn.functional.avg_pool2d(torch.randn(BATCH, 1, SIDE + 2, SIDE + 2), 3, stride=1) * 2
    clean = hint.tanh()
    return clean + 2.5 * torch.randn_like(clean), clean, hint


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(5)
    HISTORY.clear()
    base = Denoiser()
    pretrain = torch.optim.Adam(base.parameters(), lr=5e-3)
    for _ in range(80):
        noisy, clean, _ = drawings()
        loss = nn.functional.mse_loss(base.out(base.encode(noisy)), clean)
        pretrain.zero_grad()
        loss.backward()
        pretrain.step()

    model = Controlled(base)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    def step(i: int) -> None:
        noisy, clean, hint = drawings()
        loss = nn.functional.mse_loss(model(noisy, hint), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
