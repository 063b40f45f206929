"""Healthy. After kekmodel/FixMatch-pytorch: a confidence mask keeps the unlabelled part
at zero for a while, Nesterov SGD with lr 0.03, a cosine, an EMA copy of the model.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


class WideNet(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(30, c), nn.BatchNorm1d(c, momentum=0.01)
        self.fc2, self.bn2 = nn.Linear(c, c), nn.BatchNorm1d(c, momentum=0.01)
        self.fc = nn.Linear(c, 5)

    def forward(self, x):
        h = F.leaky_relu(self.bn1(self.fc1(x)), 0.1)
        return self.fc(F.leaky_relu(self.bn2(self.fc2(h)), 0.1))


class ModelEMA:
    def __init__(self, model, decay):
        self.ema, self.decay = copy.deepcopy(model).eval(), decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        msd = model.state_dict()
        for k, v in self.ema.state_dict().items():
            v.copy_(v * self.decay + (1 - self.decay) * msd[k] if v.is_floating_point() else msd[k])


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.randn(5, 30)
    xl = protos[torch.arange(5).repeat(4)] + 0.8 * torch.randn(20, 30)
    yl = torch.arange(5).repeat(4)
    xu = protos[torch.randint(0, 5, (800,))] + 0.8 * torch.randn(800, 30)
    model = WideNet()
    no_decay = ["bias", "bn"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)], "weight_decay": 5e-4},
        {"params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.03, momentum=0.9, nesterov=True)
    total = 200
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, math.cos(math.pi * 7 / 16 * s / total)))
    ema_model = ModelEMA(model, 0.99)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(total):
        b = torch.randint(0, 20, (8,))
        u = xu[torch.randint(0, 800, (56,))]
        weak, strong = u + 0.1 * torch.randn_like(u), u * (torch.rand_like(u) > 0.3) + 0.5 * torch.randn_like(u)
        logits = model(torch.cat([xl[b] + 0.1 * torch.randn(8, 30), weak, strong]))
        lx, (lw, ls) = logits[:8], logits[8:].chunk(2)
        prob, targets = torch.softmax(lw.detach(), -1).max(-1)
        mask = prob.ge(0.95).float()
        loss = F.cross_entropy(lx, yl[b]) + (F.cross_entropy(ls, targets, reduction="none") * mask).mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema_model.update(model)
        model.zero_grad()
        losses.append(loss.item())
        tick.step(loss)
    return losses
