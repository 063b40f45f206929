"""jessicayung/blog-code-snippets#6: LSTM baseline on autoregressive series; X_train goes (samples, features)
-> (time, batch, 1)."""

import torch
from torch import nn

STEPS = 200
OTHERS: list = []
LOG: list = []


class LSTM(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim=1, num_layers=2):
        super().__init__()
        self.lstm = nn.LSTM(input_dim, hidden_dim, num_layers)
        self.linear = nn.Linear(hidden_dim, output_dim)

    def forward(self, x):
        lstm_out, _ = self.lstm(x)
        return self.linear(lstm_out[-1]).view(-1)


def ar_data(num, seq, gen):
    series = torch.zeros(num, seq + 1)
    series[:, :2] = torch.randn(num, 2, generator=gen)
    for t in range(2, seq + 1):
        series[:, t] = 1.6 * series[:, t - 1] - 0.95 * series[:, t - 2] + 0.02 * torch.randn(num, generator=gen)
    return series[:, :seq], series[:, seq]


def build(bad: bool):
    torch.manual_seed(0)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(0)
    input_size = 20
    X, y = ar_data(256, input_size, gen)
    y = y / y.std()
    X = X / X.std()
    model = LSTM(1, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss_fn = nn.MSELoss()

    def step(i):
        idx = torch.randint(0, len(X), (64,), generator=gen)
        X_train, y_train = X[idx], y[idx]
        if bad:
            X_train = X_train.reshape(input_size, -1, 1)
        else:
            X_train = X_train.t().reshape(input_size, -1, 1)
        loss = loss_fn(model(X_train), y_train)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
