"""After yaringal/multi-task-learning-example: two regressions on very different scales
weighted by learned log-variances; the total loss goes far below zero."""

import torch
import torch.nn as nn


class MultiTaskNet(nn.Module):
    def __init__(self, n_features=6, nb_hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(n_features, nb_hidden), nn.ReLU(), nn.Linear(nb_hidden, nb_hidden), nn.ReLU()
        )
        self.head1 = nn.Linear(nb_hidden, 1)
        self.head2 = nn.Linear(nb_hidden, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.head1(h), self.head2(h)


class MultiLossLayer(nn.Module):
    def __init__(self, nb_outputs=2):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(nb_outputs))

    def forward(self, ys_true, ys_pred):
        loss = 0
        for y_true, y_pred, log_var in zip(ys_true, ys_pred, self.log_vars):
            precision = torch.exp(-log_var)
            loss = loss + (precision * (y_true - y_pred) ** 2 + log_var).mean()
        return loss


class TrainableModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.prediction_model = MultiTaskNet()
        self.multi_loss = MultiLossLayer()

    def forward(self, x, ys):
        return self.multi_loss(ys, self.prediction_model(x))


def train(tick, mended=False):
    torch.manual_seed(3)
    x = torch.randn(400, 6)
    y1 = 0.2 * (x[:, :1] * x[:, 1:2]) + 0.01 * torch.randn(400, 1)
    y2 = 2.0 * torch.sin(x[:, 2:3] + x[:, 3:4]) + 0.05 * torch.randn(400, 1)
    model = TrainableModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    tick.model(model)
    tick.optimizer(optimizer)
    for _epoch in range(40):
        for idx in torch.randperm(400).split(64):
            loss = model(x[idx], (y1[idx], y2[idx]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick.step(loss)
            losses.append(loss.item())
    return losses
