"""After keras-team/keras#4563: "Very high / Nan loss when performing multiple sequence
time series regression".

An LSTM with dropout reads several sensor series and a dense layer predicts a value.
"""

import torch
from torch import nn

MAX_TIMESTEPS, MAX_FEATURES = 14, 5


class LSTMRegressor(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.lstm = nn.LSTM(MAX_FEATURES, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.dense = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.dense(self.dropout(h[:, -1])).squeeze(1)


def load():
    g = torch.Generator().manual_seed(0)
    X = torch.randn(640, MAX_TIMESTEPS, MAX_FEATURES, generator=g)
    w = torch.randn(MAX_FEATURES, generator=g)
    trend = (X @ w)[:, -4:].mean(1)
    Y = 250000 + 90000 * torch.tanh(trend)
    return X, Y


def train(tick, mended=False):
    torch.manual_seed(0)
    X_train, Y_train = load()
    if mended:
        Y_train = (Y_train - Y_train.mean()) / Y_train.std()
    model = LSTMRegressor()
    criterion = nn.L1Loss()
    sgd = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9, nesterov=True)
    tick.model(model)
    tick.optimizer(sgd)
    losses = []
    for _epoch in range(12):
        for idx in torch.randperm(640).split(32):
            loss = criterion(model(X_train[idx]), Y_train[idx])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            losses.append(loss.item())
            tick.step(loss)
    return losses
