"""Healthy. After peterliht/knowledge-distillation-pytorch: a frozen teacher in eval
mode, KL at temperature T times T squared, and warm restarts of the learning rate.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 24)
        self.bn1 = nn.BatchNorm1d(24)
        self.fc2 = nn.Linear(24, 8)
        self.dropout_rate = 0.2

    def forward(self, x):
        return self.fc2(F.dropout(F.relu(self.bn1(self.fc1(x))), self.dropout_rate, self.training))


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=6.0):
    kd = F.kl_div(F.log_softmax(outputs / T, 1), F.softmax(teacher_outputs / T, 1), reduction="batchmean") * (
        alpha * T * T
    )
    return kd + F.cross_entropy(outputs, labels) * (1 - alpha)


def train(tick, mended=False):
    torch.manual_seed(0)
    teacher = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    w = torch.randn(20, 8)
    x = torch.randn(1500, 20)
    y = (x @ w + torch.sin(2 * x) @ w).argmax(1)
    opt_t = torch.optim.Adam(teacher.parameters(), lr=2e-3)
    for _ in range(60):
        opt_t.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        opt_t.step()
    teacher.eval()
    student = Student()
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=50)
    tick.model(student)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(250):
        idx = torch.randint(0, 1500, (64,))
        with torch.no_grad():
            teacher_out = teacher(x[idx])
        loss = loss_fn_kd(student(x[idx]), y[idx], teacher_out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
