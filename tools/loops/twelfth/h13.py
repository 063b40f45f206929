"""Learning with noisy labels after hongxin001/JoCoR: two networks, one joint loss on the small-loss samples."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CNN(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(12)
        self.c2 = nn.Conv2d(12, 16, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.l_c1 = nn.Linear(16 * 16, classes)

    def forward(self, x):
        h = F.leaky_relu(self.bn1(self.c1(x)), 0.01)
        h = F.leaky_relu(self.bn2(self.c2(h)), 0.01)
        return self.l_c1(F.dropout(h.flatten(1), 0.25, self.training))


class JoCoR(nn.Module):
    def __init__(self):
        super().__init__()
        self.model1 = CNN()
        self.model2 = CNN()


def kl_loss_compute(pred, soft_targets):
    kl = F.kl_div(F.log_softmax(pred, dim=1), F.softmax(soft_targets, dim=1), reduction="none")
    return kl.sum(1)


def loss_jocor(y_1, y_2, t, forget_rate, co_lambda=0.3):
    loss_pick_1 = F.cross_entropy(y_1, t, reduction="none") * (1 - co_lambda)
    loss_pick_2 = F.cross_entropy(y_2, t, reduction="none") * (1 - co_lambda)
    loss_pick = (
        loss_pick_1 + loss_pick_2 + co_lambda * kl_loss_compute(y_1, y_2) + co_lambda * kl_loss_compute(y_2, y_1)
    )
    ind_sorted = loss_pick.detach().argsort()
    num_remember = int((1 - forget_rate) * t.size(0))
    return loss_pick[ind_sorted[:num_remember]].mean()


def images(n, protos, noise):
    y = torch.randint(0, 5, (n,))
    x = protos[y] + 0.8 * torch.randn(n, 1, 8, 8)
    wrong = torch.rand(n) < noise
    return x, torch.where(wrong, torch.randint(0, 5, (n,)), y)


def accuracy(model):
    torch.manual_seed(43)
    protos = torch.randn(5, 1, 8, 8)
    x, y = images(300, protos, 0.0)
    model.eval()
    with torch.no_grad():
        return (model.model1(x).argmax(1) == y).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(43)
    protos = torch.randn(5, 1, 8, 8)
    pool_x, pool_y = images(1024, protos, 0.45)
    nets = JoCoR()
    optimizer = torch.optim.Adam(list(nets.model1.parameters()) + list(nets.model2.parameters()), lr=1e-3)
    tick.model(nets)
    tick.optimizer(optimizer)
    losses = []
    for step in range(160):
        forget_rate = 0.4 * min(1.0, step / 60)
        idx = torch.randint(0, 1024, (64,))
        x, t = pool_x[idx], pool_y[idx]
        loss = loss_jocor(nets.model1(x), nets.model2(x), t, forget_rate)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
