"""hnuzhy/SSDA-YOLO#21: a mean teacher makes pseudo labels for the foreign domain; after some epochs the
teacher's predictions are nonsense and training becomes worse than without it."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Conv(nn.Module):
    def __init__(self, c1, c2, s):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, 3, s, 1, bias=False)
        self.bn = nn.BatchNorm2d(c2)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


class Detector(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.backbone = nn.Sequential(Conv(1, 12, 1), Conv(12, 16, 2), Conv(16, 24, 2))
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.backbone(x).mean((2, 3)))


class WeightEMA:
    def __init__(self, teacher, student, alpha, with_buffers):
        self.teacher, self.student, self.alpha = teacher, student, alpha
        self.with_buffers = with_buffers

    @torch.no_grad()
    def step(self):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.mul_(self.alpha).add_(s, alpha=1 - self.alpha)
        if self.with_buffers:
            for t, s in zip(self.teacher.buffers(), self.student.buffers()):
                t.copy_(s)


def make_domain(n, proto, gain, offset):
    y = torch.randint(0, len(proto), (n,))
    x = proto[y] + 0.7 * torch.randn(n, 1, 12, 12)
    return gain * x + offset, y


def train(tick, mended=False):
    torch.manual_seed(0)
    proto = torch.randn(4, 1, 12, 12).repeat_interleave(1, 0)
    proto = F.interpolate(F.avg_pool2d(proto, 2), scale_factor=2) * 2
    source, source_y = make_domain(240, proto, 3.0, 4.0)
    target, target_y = make_domain(240, proto, 3.4, 3.0)
    student = Detector()
    teacher = copy.deepcopy(student).requires_grad_(False)
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    ema = WeightEMA(teacher, student, alpha=0.9, with_buffers=mended)
    tick.model(student)
    tick.optimizer(optimizer)
    losses = []
    for epoch in range(9):
        for i in torch.randperm(240).split(16):
            logits_s = student(source[i])
            with torch.no_grad():
                pseudo = teacher(target[i]).softmax(1)
            conf, hard = pseudo.max(1)
            logits_t = student(target[i])
            keep = (conf > 0.5).float() * (epoch > 1)
            loss_sup = F.cross_entropy(logits_s, source_y[i])
            loss_distill = (F.cross_entropy(logits_t, hard, reduction="none") * keep).mean()
            loss = loss_sup + 2.0 * loss_distill
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.step()
            losses.append(loss.item())
            tick.step(loss)
    student.eval()
    with torch.no_grad():
        train.final = (
            (student(target).argmax(1) == target_y).float().mean().item(),
            (teacher(target).argmax(1) == target_y).float().mean().item(),
        )
    return losses
