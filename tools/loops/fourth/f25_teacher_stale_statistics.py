"""saltoricristiano/cosmix-uda#21: the EMA teacher's batch-norm buffers are never updated, only its weights are.

Self-training for point clouds: the teacher, in eval mode, labels the target domain for the student.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, FEATURES, CLASSES, TAU = 64, 8, 4, 0.95


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.block2 = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.classifier = nn.Linear(32, CLASSES)

    def forward(self, points: Tensor) -> Tensor:
        return self.classifier(self.block2(self.block1(points)))


def points(n: int, shift: float, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    centres = 1.5 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(1))
    label = torch.randint(0, CLASSES, (n,), generator=generator)
    cloud = centres[label] + torch.randn(n, FEATURES, generator=generator)
    return 4.0 * cloud + 15.0 + shift, label


def evaluate(model: PointNet) -> float:
    """Share of target points that the student gets wrong."""
    mode = model.training
    model.eval()
    cloud, label = points(500, 2.0, torch.Generator().manual_seed(5))
    with torch.no_grad():
        wrong = (model(cloud).argmax(dim=1) != label).float().mean().item()
    model.train(mode)
    return wrong


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(91)
    HISTORY.clear()
    student = PointNet()
    teacher = copy.deepcopy(student).eval().requires_grad_(False)
    optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)

    @torch.no_grad()
    def update_teacher() -> None:
        for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
            q.mul_(TAU).add_(p, alpha=1 - TAU)
        if not bad:
            for p, q in zip(student.buffers(), teacher.buffers(), strict=True):
                q.copy_(p)

    def step(i: int) -> None:
        source, label = points(BATCH // 2, 0.0)
        target, _ = points(BATCH, 2.0)
        with torch.no_grad():
            pseudo = teacher(target).argmax(dim=1)
        logits = student(torch.cat([source, target]))
        supervised = nn.functional.cross_entropy(logits[: len(source)], label)
        adaptation = nn.functional.cross_entropy(logits[len(source) :], pseudo)
        loss = supervised + 2.0 * adaptation
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_teacher()
        HISTORY.append(loss.item())

    return student, optimizer, step
