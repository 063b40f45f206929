"""After jaehong31/CGES#1: a convolutional net with exclusive group sparsity.

A reader of the code saw a minor bug between mnist_model.py and main.py.  On
many classes the net hardly learns.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MnistConv(nn.Module):
    def __init__(self, n_classes=20, mended=False):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv2d(8, 16, 5, padding=2)
        self.fc1 = nn.Linear(16 * 3 * 3, 64)
        self.fc2 = nn.Linear(64, n_classes)
        self.mended = mended
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(m.weight, std=0.1)
                nn.init.constant_(m.bias, 0.1)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.conv1(x)), 2)
        h = F.max_pool2d(F.relu(self.conv2(h)), 2)
        h = F.relu(self.fc1(h.flatten(1)))
        output = self.fc2(h)
        if self.mended:
            return output
        return F.softmax(output, dim=1)


def exclusive_sparsity(weight):
    w = weight.flatten(1).abs()
    return 0.5 * (w.sum(dim=1) ** 2).sum() / w.numel()


def group_sparsity(weight):
    return weight.flatten(1).pow(2).sum(0).add(1e-12).sqrt().sum() / weight.numel()


def digits(n, protos):
    y = torch.randint(0, protos.size(0), (n,))
    return protos[y] + 0.4 * torch.randn(n, 1, 12, 12), y


def accuracy(model):
    torch.manual_seed(12)
    protos = torch.rand(20, 1, 12, 12)
    x, y = digits(400, protos)
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def train(tick, mended=False):
    torch.manual_seed(12)
    protos = torch.rand(20, 1, 12, 12)
    model = MnistConv(mended=mended)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cross_entropy = nn.CrossEntropyLoss()
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    lamb, mu = 1e-4, 0.5
    for step in range(300):
        batch_x, batch_y = digits(32, protos)
        y_conv = model(batch_x)
        ff_loss = cross_entropy(y_conv, batch_y)
        reg = sum(
            (1 - mu) * group_sparsity(w) + mu * exclusive_sparsity(w)
            for w in (model.conv1.weight, model.conv2.weight, model.fc1.weight)
        )
        loss = ff_loss + lamb * reg
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
