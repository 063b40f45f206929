"""Healthy: mean teacher. The teacher lives in the same module, has no gradients, is in no optimizer and changes
by an exponential moving average; most of each batch has no label; the consistency weight is ramped up, so the
loss rises at first.
"""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

MEANS = torch.randn(6, 20, generator=torch.Generator().manual_seed(11)) * 1.2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)
        self.fc3 = nn.Linear(64, 6)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Net()
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.detach_()

    @torch.no_grad()
    def update_teacher(self, step, alpha=0.97):
        a = min(1 - 1 / (step + 1), alpha)
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.mul_(a).add_(s, alpha=1 - a)


def sensor_rows(n):
    y = torch.randint(0, 6, (n,))
    return MEANS[y] + torch.randn(n, 20), y


def train(tick, mended=False):
    torch.manual_seed(11)
    model = MeanTeacher()
    optimizer = torch.optim.Adam(model.student.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for step in range(250):
        x, y = sensor_rows(64)
        labelled = 12
        out = model.student(x + 0.3 * torch.randn_like(x))
        with torch.no_grad():
            ema = model.teacher(x + 0.3 * torch.randn_like(x))
        weight = 8.0 * math.exp(-5 * (1 - min(1, step / 120)) ** 2)
        class_loss = F.cross_entropy(out[:labelled], y[:labelled])
        consistency = F.mse_loss(out.softmax(1), ema.softmax(1))
        loss = class_loss + weight * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.update_teacher(step)
        history.append(loss.item())
        tick.step(loss, x, y[:labelled])
    with torch.no_grad():
        x, y = sensor_rows(1000)
        return history, (model.teacher(x).argmax(1) == y).float().mean().item()


class Quiet:
    def model(self, model):
        pass

    def optimizer(self, optimizer):
        pass

    def step(self, loss, x, y):
        pass


if __name__ == "__main__":
    for mended in (False, True):
        h, metric = train(Quiet(), mended)
        print(f"first {h[0]:.6g} last {h[-1]:.6g}", f"metric {metric:.4f}")
