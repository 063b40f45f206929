"""davda54/sam#32: a SAM step clips and back-propagates twice and moves the weights uphill in between.

The first pass climbs to the worst point near by, the second pass supplies the gradient that is used.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

STEPS: int = 200
OTHERS: list[torch.optim.Optimizer] = []
HISTORY: list[float] = []
BATCH, SIDE, CLASSES = 32, 8, 3


class Sam(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter], rho: float, lr: float, momentum: float) -> None:
        super().__init__(params, {"rho": rho, "lr": lr, "momentum": momentum})
        self.base = torch.optim.SGD(self.param_groups, lr=lr, momentum=momentum)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        for group in self.param_groups:
            norm = torch.stack([p.grad.norm() for p in group["params"]]).norm()
            for p in group["params"]:
                self.state[p]["climb"] = p.grad * (group["rho"] / (norm + 1e-12))
                p.add_(self.state[p]["climb"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["climb"])
        self.base.step()
        self.zero_grad()

    def step(self, closure: Callable[[], Tensor] | None = None) -> None:
        raise RuntimeError("call first_step and second_step")


class SmallCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, padding=1)
        self.fc = nn.Linear(12 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(nn.functional.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


def shapes() -> tuple[Tensor, Tensor]:
    label = torch.randint(0, CLASSES, (BATCH,))
    image = 0.4 * torch.randn(BATCH, 1, SIDE, SIDE)
    for k, kind in enumerate(label.tolist()):
        at = int(torch.randint(1, SIDE - 1, ()))
        if kind == 0:
            image[k, 0, at, :] += 1.5
        elif kind == 1:
            image[k, 0, :, at] += 1.5
        else:
            image[k, 0].diagonal().add_(1.5)
    return image, label


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(20)
    HISTORY.clear()
    OTHERS.clear()
    model = SmallCnn()
    optimizer = Sam(model.parameters(), rho=0.05, lr=0.03, momentum=0.9)
    OTHERS.append(optimizer.base)

    def step(i: int) -> None:
        image, label = shapes()
        loss = nn.functional.cross_entropy(model(image), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.first_step()
        nn.functional.cross_entropy(model(image), label).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.second_step()
        HISTORY.append(loss.item())

    return model, optimizer, step
