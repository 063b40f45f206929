"""After KasperGroesLudvigsen/influenza_transformer#13.

Story: the time series transformer runs through the training loop on the
user's series but does not converge; predictions stay a flat line.
"""

import math

import torch
from torch import nn


class PositionalEncoder(nn.Module):
    def __init__(self, d_model, max_seq_len=200):
        super().__init__()
        position = torch.arange(max_seq_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_seq_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class TimeSeriesTransformer(nn.Module):
    def __init__(self, input_size=1, dim_val=16, n_heads=2, enc_layers=2, target_len=4):
        super().__init__()
        self.encoder_input_layer = nn.Linear(input_size, dim_val)
        self.positional_encoding_layer = PositionalEncoder(dim_val)
        layer = nn.TransformerEncoderLayer(dim_val, n_heads, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, enc_layers, enable_nested_tensor=False)
        self.linear_mapping = nn.Linear(dim_val, target_len)

    def forward(self, src):
        x = self.positional_encoding_layer(self.encoder_input_layer(src))
        x = self.encoder(x)
        return self.linear_mapping(x[:, -1])


def make_series(n=600):
    t = torch.arange(n, dtype=torch.float32)
    series = torch.sin(2 * math.pi * t / 24) + 0.5 * torch.sin(2 * math.pi * t / 7)
    return series + 0.05 * torch.randn(n)


def get_indices_entire_sequence(n, window, step):
    return [(i, i + window) for i in range(0, n - window, step)]


def train(tick, mended=False):
    torch.manual_seed(3)
    enc_seq_len, target_len, batch_size = 20, 4, 32
    series = make_series()
    indices = get_indices_entire_sequence(len(series), enc_seq_len + target_len, 1)
    windows = torch.stack([series[a:b] for a, b in indices])

    model = TimeSeriesTransformer(target_len=target_len)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    tick.model(model)
    tick.optimizer(optimizer)

    losses = []
    for step in range(240):
        batch = windows[torch.randint(0, len(windows), (batch_size,))]
        src, trg_y = batch[:, :enc_seq_len, None], batch[:, enc_seq_len:]
        if mended:
            optimizer.zero_grad()
        prediction = model(src)
        loss = criterion(prediction, trg_y)
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
