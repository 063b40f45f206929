"""Healthy. After facebookresearch/dino: student and EMA teacher, centring and
sharpening, frozen last layer in the first epoch, weight decay that grows.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class DINOHead(nn.Module):
    def __init__(self, in_dim=32, out_dim=64, bottleneck=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(in_dim, 32), nn.GELU(), nn.Linear(32, bottleneck))
        self.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(bottleneck, out_dim, bias=False))

    def forward(self, x):
        return self.last_layer(F.normalize(self.mlp(x), dim=-1))


class MultiCropWrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 32))
        self.head = DINOHead()

    def forward(self, x):
        return self.head(self.backbone(x))


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = 2 * torch.randn(20, 40)
    student = MultiCropWrapper()
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    center = torch.zeros(1, 64)
    niter = 250
    tick.model(student)
    tick.optimizer(optimizer)
    losses = []
    for it in range(niter):
        for g in optimizer.param_groups:
            g["weight_decay"] = 0.4 + 0.5 * (0.04 - 0.4) * (1 + math.cos(math.pi * it / niter))
            g["lr"] = 2e-3 * min(1, (it + 1) / 30)
        x = protos[torch.randint(0, 20, (64,))]
        v1, v2 = x + 0.4 * torch.randn_like(x), x + 0.4 * torch.randn_like(x)
        s1, s2 = student(v1), student(v2)
        with torch.no_grad():
            t1, t2 = teacher(v1), teacher(v2)
            q1, q2 = F.softmax((t1 - center) / 0.04, -1), F.softmax((t2 - center) / 0.04, -1)
        loss = -0.5 * (
            (q1 * F.log_softmax(s2 / 0.1, -1)).sum(-1).mean() + (q2 * F.log_softmax(s1 / 0.1, -1)).sum(-1).mean()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 3.0)
        if it < 15:
            for n, p in student.named_parameters():
                if "last_layer" in n:
                    p.grad = None
        optimizer.step()
        with torch.no_grad():
            m = 1 - (1 - 0.98) * (math.cos(math.pi * it / niter) + 1) / 2
            for ps, pt in zip(student.parameters(), teacher.parameters()):
                pt.mul_(m).add_((1 - m) * ps)
            center = center * 0.9 + 0.1 * torch.cat([t1, t2]).mean(0, keepdim=True)
        losses.append(loss.item())
        tick.step(loss)
    return losses
