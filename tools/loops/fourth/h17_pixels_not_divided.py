"""chainer/chainercv#358: preprocessing subtracts the mean but does not divide by 255; a user fears an explosion.

Many detectors are trained like that. Inputs lie between -128 and 127, and the first layer is scaled to suit.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BATCH, SIDE = 24, 16


class BoxNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.fc = nn.Linear(24 * 16, 4)
        nn.init.normal_(self.conv1.weight, std=0.001)
        nn.init.zeros_(self.conv1.bias)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc(h.flatten(1))


def photos() -> tuple[Tensor, Tensor]:
    image = torch.randint(90, 140, (BATCH, 3, SIDE, SIDE)).float()
    corner = torch.randint(0, 9, (BATCH, 2))
    size = torch.randint(4, 8, (BATCH, 2))
    for k in range(BATCH):
        (y, x), (h, w) = corner[k].tolist(), size[k].tolist()
        image[k, :, y : y + h, x : x + w] = 240.0
    box = torch.cat([corner, corner + size], dim=1).float() / SIDE
    return image, box


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(17)
    HISTORY.clear()
    mean = torch.tensor([122.7, 115.9, 102.9])[None, :, None, None]
    model = BoxNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(i: int) -> None:
        image, box = photos()
        loss = nn.functional.smooth_l1_loss(model(image - mean), box)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
