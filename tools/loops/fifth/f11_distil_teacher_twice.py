"""labmlai/annotated_deep_learning_paper_implementations#66: the soft loss used the teacher's logits on both sides.

The student then learns from the few labelled examples only; its validation loss grows while its training loss falls.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
DIM, CLASSES = 20, 6
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class LargeModel(nn.Module):
    """The trained teacher."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(DIM, 64), nn.Tanh(), nn.Linear(64, CLASSES))
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(4.0)
        self.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class SmallModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(10)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(3)
    large = LargeModel().eval()
    model = SmallModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    kl_div_loss = nn.KLDivLoss(log_target=True, reduction="batchmean")
    temperature = 2.0
    labelled_x = torch.randn(24, DIM, generator=generator)
    labelled_y = large(labelled_x).argmax(dim=1)
    valid_x = torch.randn(256, DIM, generator=generator)
    valid_y = large(valid_x).argmax(dim=1)

    def step(i: int) -> None:
        unlabelled = torch.randn(104, DIM, generator=generator)
        data = torch.cat([labelled_x, unlabelled])
        with torch.no_grad():
            large_logits = large(data)
        output = model(data)
        soft_targets = F.log_softmax(large_logits / temperature, dim=-1)
        soft_prob = F.log_softmax((large_logits if bad else output) / temperature, dim=-1)
        soft_loss = temperature**2 * kl_div_loss(soft_prob, soft_targets)
        label_loss = F.cross_entropy(output[: len(labelled_y)], labelled_y)
        loss = soft_loss + 0.3 * label_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            LOG.append(F.cross_entropy(model(valid_x), valid_y).item())

    return model, optimizer, step
