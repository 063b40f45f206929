"""After sktime/pytorch-forecasting#2413 (fix of #2360).

With a per-sequence target normalizer (EncoderNormalizer) the v2 data module hands the
encoder window out standardised, mean 0 and deviation 1, for each sample in
__getitem__.  On series around 100 users saw a loss in the thousands that hardly moved.
"""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class EncoderNormalizer:
    def fit(self, y):
        self.center_ = y.mean()
        self.scale_ = y.std() + 1e-6
        return self

    def transform(self, y):
        return (y - self.center_) / self.scale_


class EncoderDecoderDataset(Dataset):
    def __init__(self, series, max_encoder_length, max_prediction_length, mended):
        self.series = series
        self.enc = max_encoder_length
        self.dec = max_prediction_length
        self.mended = mended
        self.index = [(s, t) for s in range(series.size(0)) for t in range(0, series.size(1) - self.enc - self.dec, 6)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, idx):
        s, t = self.index[idx]
        past = self.series[s, t : t + self.enc]
        future = self.series[s, t + self.enc : t + self.enc + self.dec]
        normalizer = EncoderNormalizer().fit(past)
        y = normalizer.transform(future) if self.mended else future
        time_idx = torch.arange(self.enc, dtype=torch.float32) / self.enc
        encoder_cont = torch.stack([normalizer.transform(past), time_idx], dim=-1)
        return {"encoder_cont": encoder_cont}, y


class RecurrentForecaster(nn.Module):
    def __init__(self, input_size, hidden_size, prediction_length):
        super().__init__()
        self.encoder = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.post_lstm_norm = nn.LayerNorm(hidden_size)
        self.decoder = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.ReLU())
        self.output_layer = nn.Linear(hidden_size, prediction_length)

    def forward(self, x):
        out, _ = self.encoder(x["encoder_cont"])
        return self.output_layer(self.decoder(self.post_lstm_norm(out[:, -1])))


def make_series(n_series=12, length=120):
    t = torch.arange(length, dtype=torch.float32)
    level = 100 + 60 * torch.rand(n_series, 1)
    phase = 6.28 * torch.rand(n_series, 1)
    season = 3.0 * torch.sin(2 * 3.14159 * t / 12 + phase)
    return level + season + 0.3 * torch.randn(n_series, length)


def train(tick, mended=False):
    torch.manual_seed(3)
    dataset = EncoderDecoderDataset(make_series(), 24, 6, mended)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = RecurrentForecaster(2, 32, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    model.train()
    for _epoch in range(22):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
