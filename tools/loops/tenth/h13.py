"""After bhanML/Co-teaching: forty per cent of the labels are wrong; two networks choose the
small-loss samples for each other, the share kept falls over the first epochs."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CNN(nn.Module):
    def __init__(self, n_outputs=5, dropout_rate=0.25):
        super().__init__()
        self.c1 = nn.Conv1d(1, 16, 5, padding=2)
        self.bn1 = nn.BatchNorm1d(16)
        self.c2 = nn.Conv1d(16, 16, 5, stride=2, padding=2)
        self.drop = nn.Dropout(dropout_rate)
        self.l_c1 = nn.Linear(16 * 8, n_outputs)

    def forward(self, x):
        h = F.leaky_relu(self.bn1(self.c1(x)), 0.01)
        h = self.drop(F.leaky_relu(self.c2(h), 0.01))
        return self.l_c1(h.flatten(1))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1, self.cnn2 = CNN(), CNN()


def loss_coteaching(y_1, y_2, t, forget_rate):
    l1 = F.cross_entropy(y_1, t, reduction="none")
    l2 = F.cross_entropy(y_2, t, reduction="none")
    n = int((1 - forget_rate) * len(t))
    ind1, ind2 = l1.argsort()[:n], l2.argsort()[:n]
    return F.cross_entropy(y_1[ind2], t[ind2]), F.cross_entropy(y_2[ind1], t[ind1])


def train(tick, mended=False):
    torch.manual_seed(1)
    protos = torch.randn(5, 1, 16)
    clean = torch.randint(0, 5, (512,))
    x = protos[clean] + 0.8 * torch.randn(512, 1, 16)
    flip = torch.rand(512) < 0.4
    noisy = torch.where(flip, torch.randint(0, 5, (512,)), clean)
    net = Pair()
    opt1 = torch.optim.Adam(net.cnn1.parameters(), lr=2e-3)
    opt2 = torch.optim.Adam(net.cnn2.parameters(), lr=2e-3)
    losses = []
    tick.model(net)
    tick.optimizer(opt1)
    tick.optimizer(opt2)
    for epoch in range(9):
        forget_rate = 0.35 * min(1.0, epoch / 4)
        for idx in torch.randperm(512).split(32):
            loss_1, loss_2 = loss_coteaching(net.cnn1(x[idx]), net.cnn2(x[idx]), noisy[idx], forget_rate)
            opt1.zero_grad()
            loss_1.backward()
            opt1.step()
            tick.step(loss_1)
            opt2.zero_grad()
            loss_2.backward()
            opt2.step()
            tick.step(loss_2)
            losses.append(loss_1.item())
    return losses
