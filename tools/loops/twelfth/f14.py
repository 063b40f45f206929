"""After sktime/pytorch-forecasting#2360: forecasts with a normalizer that is fitted per encoder window.

With the EncoderNormalizer in the new data module the forecasts sit far from
the series and the loss stays in the hundreds.
"""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class EncoderNormalizer:
    def fit(self, y):
        self.center_, self.scale_ = y.mean(), y.std() + 1e-6
        return self

    def transform(self, y):
        return (y - self.center_) / self.scale_


class EncoderDecoderTimeSeriesDataset(Dataset):
    def __init__(self, series, max_encoder_length, max_prediction_length, mended):
        self.series = series
        self.enc, self.pred = max_encoder_length, max_prediction_length
        self.mended = mended
        self.windows = [
            (s, t) for s in range(series.size(0)) for t in range(0, series.size(1) - self.enc - self.pred, 4)
        ]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, idx):
        s, t = self.windows[idx]
        past = self.series[s, t : t + self.enc]
        y = self.series[s, t + self.enc : t + self.enc + self.pred]
        normalizer = EncoderNormalizer().fit(past)
        target_past = normalizer.transform(past)
        if self.mended:
            y = normalizer.transform(y)
        return {"target_past": target_past, "encoder_time_idx": torch.arange(self.enc) / self.enc}, y


class SimpleTFT(nn.Module):
    def __init__(self, hidden=24, horizon=4):
        super().__init__()
        self.embed = nn.Linear(2, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.gate = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GLU())
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, horizon)

    def forward(self, x):
        h = self.embed(torch.stack([x["target_past"], x["encoder_time_idx"]], -1))
        _, (h, _) = self.lstm(h)
        return self.out(self.norm(h[-1] + self.gate(h[-1])))


def sales(n=24, length=96):
    t = torch.arange(length).float()
    level = 60 + 100 * torch.rand(n, 1)
    phase = 6.28 * torch.rand(n, 1)
    return level + 5 * torch.sin(2 * 3.14159 * t / 12 + phase) + 0.3 * torch.randn(n, length)


def train(tick, mended=False):
    torch.manual_seed(13)
    dataset = EncoderDecoderTimeSeriesDataset(sales(), 16, 4, mended)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
    model = SimpleTFT()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.MSELoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(14):
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
