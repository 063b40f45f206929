"""haitongli/knowledge-distillation-pytorch#2: the soft loss is multiplied by T squared and looks far too large.

The teacher is frozen; students see hard labels only with a small weight, and a fifth of these is wrong.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS: int = 250
HISTORY: list[float] = []
BATCH, FEATURES, CLASSES, T, ALPHA = 64, 12, 6, 6.0, 0.95


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, width)
        self.bn = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.bn(self.fc1(x))))


def samples(directions: Tensor) -> tuple[Tensor, Tensor]:
    x = torch.randn(BATCH, FEATURES)
    return x, (x @ directions).abs().argmax(dim=1)


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(24)
    HISTORY.clear()
    directions = torch.randn(FEATURES, CLASSES)
    teacher, student = Net(128), Net(32)
    opt_teacher = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(250):
        x, label = samples(directions)
        loss = F.cross_entropy(teacher(x), label)
        opt_teacher.zero_grad()
        loss.backward()
        opt_teacher.step()
    teacher.eval().requires_grad_(False)

    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def step(i: int) -> None:
        x, label = samples(directions)
        wrong = torch.rand(BATCH) < 0.2
        label = torch.where(wrong, torch.randint(0, CLASSES, (BATCH,)), label)
        logits = student(x)
        soft = F.kl_div(F.log_softmax(logits / T, dim=1), F.softmax(teacher(x) / T, dim=1), reduction="batchmean")
        loss = soft * (ALPHA * T * T) + F.cross_entropy(logits, label) * (1 - ALPHA)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return student, optimizer, step
