"""ialhashim/DenseDepth#65: depth maps with zeros are inverted to infinity and the loss becomes NaN.

The target is max_depth / depth; a sensor leaves holes of depth 0 in some of the maps.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 150
HISTORY: list[float] = []
BATCH, SIDE, MAX_DEPTH = 8, 12, 10.0


class DepthNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(12, 12, 3, padding=1), nn.LeakyReLU(0.2)
        )
        self.decoder = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return self.decoder(self.encoder(image))


def depth_norm(depth: Tensor) -> Tensor:
    return MAX_DEPTH / depth


def rooms(hole_chance: float) -> tuple[Tensor, Tensor]:
    near = torch.rand(BATCH, 1, 1, 1) * 2 + 2
    tilt = torch.rand(BATCH, 1, 1, 1) * 4
    depth = near + tilt * torch.linspace(0, 1, SIDE)[None, None, :, None]
    depth = depth.expand(BATCH, 1, SIDE, SIDE).clone()
    image = 4.0 / depth + 0.02 * torch.randn_like(depth)
    if torch.rand(()) < hole_chance:
        depth[0, 0, 3:5, 6:8] = 0.0
    return image, depth


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(27)
    HISTORY.clear()
    model = DepthNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(i: int) -> None:
        image, depth = rooms(hole_chance=0.1)
        predicted = model(image)
        if bad:
            loss = (predicted - depth_norm(depth)).abs().mean()
        else:
            seen = depth > 0
            loss = (predicted[seen] - depth_norm(depth[seen])).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
