"""CuthbertCai/pytorch_DANN#13: should the domain loss not be subtracted? It is added; a layer reverses its gradient.

The domain loss rightly stays near log 2 while the class loss falls, on target pictures as well.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 220
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor, constant: float) -> torch.Tensor:
        ctx.constant = constant
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.constant * grad, None


class DANN(nn.Module):
    def __init__(self, inputs: int = 12, width: int = 32, classes: int = 4) -> None:
        super().__init__()
        self.extractor = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.class_classifier = nn.Linear(width, classes)
        self.domain_classifier = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: torch.Tensor, constant: float) -> tuple[torch.Tensor, torch.Tensor]:
        feature = self.extractor(x)
        return self.class_classifier(feature), self.domain_classifier(GradReverse.apply(feature, constant))


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(12)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(13)
    centres = 1.5 * torch.randn(4, 12, generator=generator)
    shift = torch.randn(12, generator=generator)
    model = DANN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def domain(batch: int, target: bool) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.randint(0, 4, (batch,), generator=generator)
        x = centres[label] + torch.randn(batch, 12, generator=generator)
        return x + (shift if target else 0.0), label

    def step(i: int) -> None:
        p = i / STEPS
        constant = 2.0 / (1.0 + math.exp(-10 * p)) - 1
        source, source_label = domain(48, target=False)
        target, _ = domain(48, target=True)
        src_class, src_domain = model(source, constant)
        _, tgt_domain = model(target, constant)
        class_loss = F.cross_entropy(src_class, source_label)
        domain_loss = F.cross_entropy(src_domain, torch.zeros(48, dtype=torch.long))
        domain_loss = 0.5 * (domain_loss + F.cross_entropy(tgt_domain, torch.ones(48, dtype=torch.long)))
        loss = class_loss + 0.3 * domain_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(class_loss.item())

    return model, optimizer, step
