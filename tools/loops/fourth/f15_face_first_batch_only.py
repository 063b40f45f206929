"""ZhaoJ9014/face.evoLVe#39: iter(loader) is made anew every time, so it is always the first batch that is drawn.

An identity classifier on synthetic face descriptors; the loader keeps its order.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS: int = 200
HISTORY: list[float] = []
IDENTITIES, PIXELS, BATCH = 12, 40, 32


class FaceNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(PIXELS, 96), nn.PReLU(), nn.Linear(96, 32), nn.PReLU())
        self.head = nn.Linear(32, IDENTITIES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x))


def faces(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    centres = torch.randn(IDENTITIES, PIXELS, generator=torch.Generator().manual_seed(100))
    gen = torch.Generator().manual_seed(seed)
    who = torch.randint(0, IDENTITIES, (n,), generator=gen)
    return centres[who] + 1.3 * torch.randn(n, PIXELS, generator=gen), who


def evaluate(model: FaceNet) -> float:
    """Cross entropy on faces that were held out."""
    x, who = faces(500, seed=2)
    with torch.no_grad():
        return nn.functional.cross_entropy(model(x), who).item()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(23)
    HISTORY.clear()
    loader = DataLoader(TensorDataset(*faces(3200, seed=1)), batch_size=BATCH, shuffle=False)
    model = FaceNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    running = iter(loader)

    def step(i: int) -> None:
        nonlocal running
        if bad:
            x, who = next(iter(loader))
        else:
            try:
                x, who = next(running)
            except StopIteration:
                running = iter(loader)
                x, who = next(running)
        loss = nn.functional.cross_entropy(model(x), who)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
