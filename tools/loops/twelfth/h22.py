"""Binary weights and activations, straight-through gradients, clamped latent weights, and a squared hinge loss after MatthieuCourbariaux/BinaryNet (mnist.py)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SignTheano(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        return torch.where(tensor >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class DenseLayer(nn.Linear):
    def __init__(self, i, o, binary_input=True):
        super().__init__(i, o)
        self.binary_input = binary_input

    def forward(self, input):
        if self.binary_input:
            input = SignTheano.apply(input)
        return F.linear(input, SignTheano.apply(self.weight), self.bias)


class Net(nn.Module):
    def __init__(self, dim=48, hidden=96, classes=8):
        super().__init__()
        self.fc1 = DenseLayer(dim, hidden, binary_input=False)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = DenseLayer(hidden, hidden)
        self.bn2 = nn.BatchNorm1d(hidden)
        self.fc3 = DenseLayer(hidden, classes)
        self.bn3 = nn.BatchNorm1d(classes)

    def forward(self, x):
        x = F.hardtanh(self.bn1(self.fc1(x)))
        x = F.hardtanh(self.bn2(self.fc2(x)))
        return self.bn3(self.fc3(x))


def digits(n, protos):
    y = torch.randint(0, 8, (n,))
    return protos[y] + 1.0 * torch.randn(n, 48), y


def train(tick, mended=False):
    torch.manual_seed(52)
    protos = torch.randn(8, 48)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        data, target = digits(64, protos)
        hot = 2.0 * F.one_hot(target, 8) - 1.0
        loss = F.relu(1.0 - hot * model(data)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for m in (model.fc1, model.fc2, model.fc3):
            m.weight.data.clamp_(-1, 1)
        tick.step(loss)
        losses.append(loss.item())
    return losses
