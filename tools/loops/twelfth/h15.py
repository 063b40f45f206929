"""Distillation from a frozen trained teacher after haitongli/knowledge-distillation-pytorch (loss_fn_kd)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.fc1 = nn.Linear(width * 16, 4 * width)
        self.fc2 = nn.Linear(4 * width, classes)

    def forward(self, s):
        s = F.relu(self.bn1(self.conv1(s)))
        s = F.relu(self.bn2(self.conv2(s)))
        return self.fc2(F.relu(self.fc1(s.flatten(1))))


class Distiller(nn.Module):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        for p in self.teacher.parameters():
            p.requires_grad = False

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            t = self.teacher(x)
        return self.student(x), t


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=6.0):
    kd = F.kl_div(F.log_softmax(outputs / T, dim=1), F.softmax(teacher_outputs / T, dim=1), reduction="batchmean")
    return kd * (alpha * T * T) + F.cross_entropy(outputs, labels) * (1.0 - alpha)


def images(n, protos):
    y = torch.randint(0, 10, (n,))
    return protos[y] + 0.9 * torch.randn(n, 1, 8, 8), y


def train(tick, mended=False):
    torch.manual_seed(45)
    protos = torch.randn(10, 1, 8, 8)
    teacher = Net(16)
    pre = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(100):
        x, y = images(48, protos)
        pre.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        pre.step()
    teacher.zero_grad(set_to_none=True)
    model = Distiller(Net(4), teacher)
    model.train()
    optimizer = torch.optim.Adam(model.student.parameters(), lr=3e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        x, y = images(48, protos)
        out, t_out = model(x)
        loss = loss_fn_kd(out, y, t_out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
