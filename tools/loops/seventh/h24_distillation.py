"""Healthy: knowledge distillation with a temperature of 4. The teacher is frozen and part of the same module,
the soft loss is multiplied by T squared, the student is small and has dropout; a floor remains that the
teacher sets.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

W = torch.randn(16, 6, generator=torch.Generator().manual_seed(24))


class MLP(nn.Module):
    def __init__(self, hidden, p=0.0):
        super().__init__()
        self.fc1 = nn.Linear(16, hidden)
        self.fc2 = nn.Linear(hidden, 6)
        self.p = p

    def forward(self, x):
        return self.fc2(F.dropout(F.relu(self.fc1(x)), self.p, self.training))


class Distiller(nn.Module):
    def __init__(self, teacher, student, T=4.0, alpha=0.9):
        super().__init__()
        self.teacher, self.student = teacher, student
        self.T, self.alpha = T, alpha
        self.teacher.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, x, y):
        with torch.no_grad():
            t = self.teacher(x)
        s = self.student(x)
        soft = F.kl_div(F.log_softmax(s / self.T, 1), F.softmax(t / self.T, 1), reduction="batchmean") * self.T**2
        return self.alpha * soft + (1 - self.alpha) * F.cross_entropy(s, y)


def rows(n):
    x = torch.randn(n, 16)
    return x, (x @ W + 0.5 * torch.sin(3 * x[:, :6])).argmax(1)


def train(tick, mended=False):
    torch.manual_seed(24)
    teacher = MLP(128)
    opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for _ in range(200):
        x, y = rows(128)
        loss = F.cross_entropy(teacher(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model = Distiller(teacher, MLP(20, p=0.1))
    optimizer = torch.optim.Adam(model.student.parameters(), lr=6e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    model.train()
    for _step in range(250):
        x, y = rows(64)
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    model.eval()
    with torch.no_grad():
        x, y = rows(1000)
        return history, (model.student(x).argmax(1) == y).float().mean().item()


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
