"""yunjey/pytorch-tutorial#196: with batch_first=False the row-by-row image LSTM stays at the accuracy of chance.

The batch axis is read as time, so the state that is classified has seen only the last rows of other images.
"""

from collections.abc import Callable

import torch
from torch import nn

STEPS = 180
ROWS, COLUMNS, CLASSES = 10, 8, 5
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class RNN(nn.Module):
    def __init__(self, input_size: int, hidden_size: int, num_layers: int, num_classes: int, batch_first: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(input_size, hidden_size, num_layers, batch_first=batch_first)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, _ = self.lstm(x)
        return self.fc(out[:, -1, :])


def digits(generator: torch.Generator, strokes: torch.Tensor, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, CLASSES, (batch,), generator=generator)
    images = 0.3 * torch.randn(batch, ROWS, COLUMNS, generator=generator)
    images[:, 2:6] += strokes[labels]
    return images, labels


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(7)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(12)
    strokes = (torch.rand(CLASSES, 4, COLUMNS, generator=generator) > 0.6).float()
    model = RNN(COLUMNS, 32, 1, CLASSES, batch_first=not bad)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step(i: int) -> None:
        images, labels = digits(generator, strokes, 50)
        outputs = model(images.reshape(-1, ROWS, COLUMNS))
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
