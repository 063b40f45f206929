"""bhanML/Co-teaching: 40 per cent of the labels are false; two networks pick small-loss samples for one
another, the training loss on the kept part falls while the share kept shrinks."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MLPNet(nn.Module):
    def __init__(self, features=20, classes=5):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(features, 64), nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, classes)

    def forward(self, x):
        return self.fc2(F.dropout(F.leaky_relu(self.bn1(self.fc1(x)), 0.01), 0.25, self.training))


class CoTeaching(nn.Module):
    def __init__(self):
        super().__init__()
        self.model1, self.model2 = MLPNet(), MLPNet()


def loss_coteaching(y_1, y_2, t, forget_rate):
    ind_1 = F.cross_entropy(y_1, t, reduction="none").detach().argsort()
    ind_2 = F.cross_entropy(y_2, t, reduction="none").detach().argsort()
    num_remember = int((1 - forget_rate) * len(t))
    ind_1_update, ind_2_update = ind_1[:num_remember], ind_2[:num_remember]
    return F.cross_entropy(y_1[ind_2_update], t[ind_2_update]), F.cross_entropy(y_2[ind_1_update], t[ind_1_update])


def train(tick, mended=False):
    torch.manual_seed(1)
    centres = torch.randn(5, 20)
    clean = torch.randint(0, 5, (1200,))
    x = centres[clean] + torch.randn(1200, 20)
    noisy = torch.where(torch.rand(1200) < 0.4, torch.randint(0, 5, (1200,)), clean)
    nets = CoTeaching()
    optimizer1 = torch.optim.Adam(nets.model1.parameters(), lr=1e-3)
    optimizer2 = torch.optim.Adam(nets.model2.parameters(), lr=1e-3)
    n_epoch, num_gradual, forget_rate = 10, 4, 0.4
    rate_schedule = torch.full((n_epoch,), forget_rate)
    rate_schedule[:num_gradual] = torch.linspace(0, forget_rate, num_gradual)
    tick.model(nets)
    tick.optimizer(optimizer1)
    tick.optimizer(optimizer2)
    losses = []
    for epoch in range(n_epoch):
        for idx in torch.randperm(1200).split(100):
            loss_1, loss_2 = loss_coteaching(
                nets.model1(x[idx]), nets.model2(x[idx]), noisy[idx], rate_schedule[epoch].item()
            )
            optimizer1.zero_grad()
            loss_1.backward()
            optimizer1.step()
            losses.append(loss_1.item())
            tick.step(loss_1)
            optimizer2.zero_grad()
            loss_2.backward()
            optimizer2.step()
            losses.append(loss_2.item())
            tick.step(loss_2)
    nets.eval()
    with torch.no_grad():
        train.final = (nets.model1(x).argmax(1) == clean).float().mean().item()
    return losses
