"""HuiZeng/Grid-Anchor-based-Image-Cropping-Pytorch#2: batch norm in eval mode while training; it helps at batch size 1.

The backbone comes from an earlier task; its running statistics are kept, its weights go on learning.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 250
HISTORY: list[float] = []
SIDE, CROPS = 12, 6


class Cropper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
        )
        self.score = nn.Linear(12, 1)

    def forward(self, photo: Tensor, crops: list[tuple[int, int]]) -> Tensor:
        features = self.backbone(photo)
        pooled = [features[0, :, y : y + 6, x : x + 6].mean(dim=(1, 2)) for y, x in crops]
        return self.score(torch.stack(pooled)).squeeze(1)


def photo() -> Tensor:
    low = nn.functional.interpolate(torch.randn(1, 1, 3, 3), size=(SIDE, SIDE), mode="bilinear")
    return 2.0 * low + 0.3 * torch.randn(1, 1, SIDE, SIDE) + 1.0


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(18)
    HISTORY.clear()
    model = Cropper()
    model.train()
    with torch.no_grad():
        for _ in range(60):
            model.backbone(torch.cat([photo() for _ in range(4)]))

    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.eval()

    def step(i: int) -> None:
        image = photo()
        crops = [(int(torch.randint(0, 7, ())), int(torch.randint(0, 7, ()))) for _ in range(CROPS)]
        mos = torch.stack([image[0, 0, y : y + 6, x : x + 6].clamp(min=0).mean() for y, x in crops])
        loss = nn.functional.smooth_l1_loss(model(image, crops), mos)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
