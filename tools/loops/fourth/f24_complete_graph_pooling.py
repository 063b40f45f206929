"""danielegrattarola/spektral#21: vibration signals become untrainable once the adjacency is put through local pooling.

All sensors are joined with each other, so a normalised adjacency with self-loops gives every node the same average.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
SENSORS, SAMPLES, STATES, GRAPHS = 8, 24, 4, 16


def localpooling_filter(adjacency: Tensor) -> Tensor:
    adjacency = adjacency + torch.eye(len(adjacency))
    scale = adjacency.sum(dim=1).rsqrt()
    return scale[:, None] * adjacency * scale[None, :]


class GraphConv(nn.Module):
    def __init__(self, inp: int, out: int) -> None:
        super().__init__()
        self.kernel = nn.Linear(inp, out)

    def forward(self, x: Tensor, filt: Tensor) -> Tensor:
        return torch.einsum("ij,bjf->bif", filt, self.kernel(x))


class SensorGcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = GraphConv(SAMPLES, 32)
        self.conv2 = GraphConv(32, 32)
        self.out = nn.Linear(32, STATES)

    def forward(self, x: Tensor, filt: Tensor) -> Tensor:
        h = torch.relu(self.conv1(x, filt))
        h = torch.relu(self.conv2(h, filt))
        return self.out(h)


def signals() -> tuple[Tensor, Tensor]:
    """Each sensor vibrates in one of four modes."""
    state = torch.randint(0, STATES, (GRAPHS, SENSORS))
    t = torch.arange(SAMPLES) / SAMPLES
    phase = torch.rand(GRAPHS, SENSORS, 1) * 0.5
    wave = torch.sin(2 * torch.pi * ((state[..., None] + 1) * t + phase))
    return wave + 0.2 * torch.randn_like(wave), state


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(37)
    HISTORY.clear()
    complete = torch.ones(SENSORS, SENSORS) - torch.eye(SENSORS)
    if bad:
        filt = localpooling_filter(complete)
    else:
        filt = torch.eye(SENSORS) + 0.3 * complete / SENSORS
    model = SensorGcn()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)

    def step(i: int) -> None:
        x, state = signals()
        loss = nn.functional.cross_entropy(model(x, filt).flatten(0, 1), state.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
