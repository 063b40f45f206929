"""jsboige/CoursIA#926: with pred_len=1 the (B, 1) forecast is compared with a (B,) target.

A patch forecaster for one step ahead of noisy seasonal series.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

warnings.filterwarnings("ignore", message="Using a target size")

STEPS: int = 200
HISTORY: list[float] = []
BATCH, WINDOW, PATCH = 64, 32, 8


class PatchForecaster(nn.Module):
    def __init__(self, pred_len: int = 1) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH, 24)
        layer = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.position = nn.Parameter(0.02 * torch.randn(WINDOW // PATCH, 24))
        self.head = nn.Linear(24 * (WINDOW // PATCH), pred_len)

    def forward(self, series: Tensor) -> Tensor:
        patches = series.unfold(-1, PATCH, PATCH)
        return self.head(self.encoder(self.embed(patches) + self.position).flatten(1))


def windows() -> tuple[Tensor, Tensor]:
    start = torch.rand(BATCH, 1) * 40
    t = start + torch.arange(WINDOW + 1)[None, :]
    series = torch.sin(2 * torch.pi * t / 9.0) + 0.5 * torch.sin(2 * torch.pi * t / 20.0)
    series = series + 0.05 * torch.randn_like(series)
    return series[:, :-1], series[:, -1]


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(21)
    HISTORY.clear()
    model = PatchForecaster()
    criterion = nn.MSELoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step(i: int) -> None:
        x_batch, y_batch = windows()
        pred = model(x_batch)
        target = y_batch if bad else y_batch.view_as(pred)
        loss = criterion(pred, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
