"""Borda/kaggle_image-classify#12: the table was shuffled after its raw labels had been taken, so they no longer match.

A small convolutional classifier of leaf pictures whose data set hands out images with other images' labels.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 160
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []
Row = tuple[torch.Tensor, int]


def make_table(seed: int, rows: int, classes: int) -> list[Row]:
    generator = torch.Generator().manual_seed(seed)
    textures = torch.randn(classes, 3, 4, 4, generator=generator)
    table: list[Row] = []
    for index in range(rows):
        label = index % classes
        picture = textures[label].repeat(1, 2, 2) + torch.randn(3, 8, 8, generator=generator)
        table.append((picture, label))
    return table


class CassavaDataset(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, table: list[Row], labels_first: bool, seed: int = 42) -> None:
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed)).tolist()
        if labels_first:
            self.labels = [label for _, label in table]
            self.data = [table[k] for k in order]
        else:
            self.data = [table[k] for k in order]
            self.labels = [label for _, label in self.data]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, idx: int) -> tuple[torch.Tensor, int]:
        return self.data[idx][0], self.labels[idx]


class LeafNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU()
        )
        self.classifier = nn.Linear(24, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).amax(dim=(2, 3)))


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(6)
    OTHERS.clear()
    LOG.clear()
    dataset = CassavaDataset(make_table(seed=3, rows=1600, classes=5), labels_first=bad)
    loader = DataLoader(dataset, batch_size=40, shuffle=True, drop_last=True)
    batches = iter(loader)
    model = LeafNet(classes=5)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)

    def step(i: int) -> None:
        nonlocal batches
        try:
            images, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            images, targets = next(batches)
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
