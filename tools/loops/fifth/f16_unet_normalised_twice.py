"""4uiiurz1/pytorch-nested-unet#62: images are divided by 255 in Normalize and once more in the data set.

What reaches the network is a few thousandths around zero, and the masks it predicts hardly depend on the image.
"""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

STEPS = 150
SIZE = 12
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def normalize(img: np.ndarray, max_pixel_value: float = 255.0) -> np.ndarray:
    return (img.astype(np.float32) - MEAN * max_pixel_value) / (STD * max_pixel_value)


class CellDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, length: int, divide_again: bool) -> None:
        self.rng = np.random.default_rng(7)
        self.divide_again = divide_again
        self.items = [self.draw() for _ in range(length)]

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        ys, xs = np.mgrid[:SIZE, :SIZE]
        cy, cx = self.rng.uniform(3, SIZE - 3, size=2)
        mask = ((ys - cy) ** 2 + (xs - cx) ** 2 < self.rng.uniform(4, 16)).astype(np.float32)
        stain = np.array([150.0, 60.0, 140.0])
        img = 205.0 - mask[..., None] * stain + self.rng.normal(0, 30, size=(SIZE, SIZE, 3))
        return np.clip(img, 0, 255).astype(np.uint8), mask

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int) -> tuple[torch.Tensor, torch.Tensor]:
        img, mask = self.items[idx]
        img = normalize(img)
        if self.divide_again:
            img = img.astype("float32") / 255
        return torch.from_numpy(img.transpose(2, 0, 1).copy()), torch.from_numpy(mask)[None]


class NestedUNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.conv0_0 = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.conv1_0 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.conv0_1 = nn.Sequential(nn.Conv2d(3 * width, width, 3, padding=1), nn.ReLU())
        self.final = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x0_0 = self.conv0_0(x)
        x1_0 = self.conv1_0(F.max_pool2d(x0_0, 2))
        up = F.interpolate(x1_0, scale_factor=2, mode="bilinear", align_corners=True)
        return self.final(self.conv0_1(torch.cat([x0_0, up], dim=1)))


def bce_dice_loss(logits: torch.Tensor, target: torch.Tensor, smooth: float = 1e-5) -> torch.Tensor:
    bce = F.binary_cross_entropy_with_logits(logits, target)
    prob = torch.sigmoid(logits).flatten(1)
    goal = target.flatten(1)
    dice = (2.0 * (prob * goal).sum(1) + smooth) / (prob.sum(1) + goal.sum(1) + smooth)
    return 0.5 * bce + 1 - dice.mean()


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(15)
    OTHERS.clear()
    LOG.clear()
    dataset = CellDataset(160, divide_again=bad)
    rng = np.random.default_rng(1)
    model = NestedUNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(i: int) -> None:
        picked = [dataset[int(k)] for k in rng.integers(0, len(dataset), size=12)]
        images = torch.stack([image for image, _ in picked])
        masks = torch.stack([mask for _, mask in picked])
        loss = bce_dice_loss(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
