"""lhoyer/DAFormer#59: the teacher gets no gradient and is in no optimizer; it follows the student by a moving average.

Few labelled pixels, many unlabelled ones; pseudo-labels count only where the teacher is sure.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
LABELLED, UNLABELLED, CLASSES, ALPHA = 12, 96, 5, 0.97


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 48), nn.LayerNorm(48), nn.GELU())
        self.decode_head = nn.Linear(48, CLASSES)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.decode_head(self.backbone(pixels))


class SelfTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Segmenter()
        self.ema_model = copy.deepcopy(self.model)
        for p in self.ema_model.parameters():
            p.detach_()

    def update_ema(self, iteration: int) -> None:
        alpha = min(1 - 1 / (iteration + 1), ALPHA)
        for ema, p in zip(self.ema_model.parameters(), self.model.parameters(), strict=True):
            ema.data.mul_(alpha).add_(p.data, alpha=1 - alpha)


def pixels(n: int, shift: float) -> tuple[Tensor, Tensor]:
    centres = 1.6 * torch.randn(CLASSES, 10, generator=torch.Generator().manual_seed(8))
    label = torch.randint(0, CLASSES, (n,))
    return centres[label] + torch.randn(n, 10) + shift, label


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(23)
    HISTORY.clear()
    uda = SelfTraining()
    optimizer = torch.optim.AdamW(uda.model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=20)

    def step(i: int) -> None:
        uda.update_ema(i)
        source, label = pixels(LABELLED, 0.0)
        target, _ = pixels(UNLABELLED, 0.3)
        with torch.no_grad():
            confidence, pseudo = uda.ema_model(target).softmax(dim=-1).max(dim=-1)
        sure = (confidence > 0.9).float().mean()
        loss_source = nn.functional.cross_entropy(uda.model(source), label)
        strong = target + 0.3 * torch.randn_like(target)
        loss_target = nn.functional.cross_entropy(uda.model(strong), pseudo)
        loss = loss_source + sure * loss_target
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        HISTORY.append(loss_source.item())

    return uda, optimizer, step
