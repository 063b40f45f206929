"""yaringal/multi-task-learning-example: two regressions of very unlike noise, weighted by learnt log variances;
the total loss passes zero and goes on falling."""

import torch
import torch.nn as nn


class CustomMultiLossLayer(nn.Module):
    def __init__(self, nb_outputs=2):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(nb_outputs))

    def multi_loss(self, ys_true, ys_pred):
        loss = 0
        for y_true, y_pred, log_var in zip(ys_true, ys_pred, self.log_vars):
            precision = torch.exp(-log_var)
            loss = loss + (precision * (y_true - y_pred) ** 2.0 + log_var).sum(-1)
        return loss.mean()

    def forward(self, ys_true, ys_pred):
        return self.multi_loss(ys_true, ys_pred)


class PredictionModel(nn.Module):
    def __init__(self, features=1, hidden=64):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(features, hidden), nn.ReLU())
        self.out1 = nn.Linear(hidden, 1)
        self.out2 = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.shared(x)
        return self.out1(h), self.out2(h)


class TrainableModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.prediction_model = PredictionModel()
        self.loss_layer = CustomMultiLossLayer()

    def forward(self, x, y1, y2):
        return self.loss_layer((y1, y2), self.prediction_model(x))


def gen_data(n):
    x = torch.randn(n, 1)
    y1 = 2 * x + 0.8 + 0.1 * torch.randn(n, 1)
    y2 = -3 * x + 3 + 0.02 * torch.randn(n, 1)
    return x, y1, y2


def train(tick, mended=False):
    torch.manual_seed(0)
    x, y1, y2 = gen_data(400)
    model = TrainableModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _epoch in range(15):
        for idx in torch.randperm(400).split(20):
            optimizer.zero_grad()
            loss = model(x[idx], y1[idx], y2[idx])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            tick.step(loss)
    train.final = (model.loss_layer.log_vars.exp() ** 0.5).tolist()
    return losses
