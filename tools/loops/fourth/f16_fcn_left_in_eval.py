"""wkentaro/pytorch-fcn#57: after a validation in mid-epoch the model is not put back into training mode.

The trainer validates before the first iteration too, so batch norm keeps its initial statistics from then on.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BATCH, SIDE, CLASSES, VALIDATE_EVERY = 8, 12, 4, 50


class Fcn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        width = 1
        for out in (12, 12, 12, 12, 12, 12):
            blocks += [nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            width = out
        self.features = nn.Sequential(*blocks)
        self.score = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.score(self.features(x))


def scenes() -> tuple[Tensor, Tensor]:
    """Stripes: the class of a column is given by the contrast to its left neighbour."""
    label = torch.randint(0, CLASSES, (BATCH, 1, SIDE // 3)).repeat_interleave(3, dim=2).expand(-1, SIDE, -1)
    image = 0.02 * (label.float() - 1.5) + 0.004 * torch.randn(BATCH, SIDE, SIDE)
    return image[:, None], label.contiguous()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(9)
    HISTORY.clear()
    model = Fcn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def validate() -> float:
        model.eval()
        image, label = scenes()
        with torch.no_grad():
            value = nn.functional.cross_entropy(model(image), label).item()
        if not bad:
            model.train()
        return value

    model.train()

    def step(i: int) -> None:
        if i % VALIDATE_EVERY == 0:
            validate()
        image, label = scenes()
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
