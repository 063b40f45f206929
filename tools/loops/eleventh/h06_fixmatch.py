"""After kekmodel/FixMatch-pytorch.

A handful of labelled examples and many unlabelled; the pseudo-label loss is zero
for most of the batch at the start. Nesterov SGD, cosine schedule, EMA copy.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

LAST = None


class WideNet(nn.Module):
    def __init__(self, d=10, n=3):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(d, 48), nn.BatchNorm1d(48), nn.LeakyReLU(0.1))
        self.block2 = nn.Sequential(nn.Linear(48, 48), nn.BatchNorm1d(48), nn.LeakyReLU(0.1))
        self.fc = nn.Linear(48, n)

    def forward(self, x):
        return self.fc(self.block2(self.block1(x)))


class ModelEMA:
    def __init__(self, model, decay=0.99):
        self.ema = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for k, v in self.ema.state_dict().items():
            src = model.state_dict()[k]
            v.copy_(v * self.decay + src * (1 - self.decay)) if v.is_floating_point() else v.copy_(src)


def weak(x):
    return x + 0.1 * torch.randn_like(x)


def strong(x):
    return x * (torch.rand_like(x) > 0.2) + 0.4 * torch.randn_like(x)


def train(tick, mended=False):
    global LAST
    torch.manual_seed(0)
    centre = 1.6 * torch.randn(3, 10)
    y_all = torch.arange(900) % 3
    x_all = centre[y_all] + torch.randn(900, 10)
    x_lab, y_lab, x_unlab = x_all[:12], y_all[:12], x_all[12:]
    model = WideNet()
    ema = ModelEMA(model)
    decay = [p for n, p in model.named_parameters() if "bias" not in n]
    no_decay = [p for n, p in model.named_parameters() if "bias" in n]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": no_decay, "weight_decay": 0.0}],
        lr=0.03,
        momentum=0.9,
        nesterov=True,
    )
    total = 150
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: max(0.0, math.cos(math.pi * 7 / 16 * s / total)))
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(total):
        rows = torch.randint(0, 12, (12,))
        u = x_unlab[torch.randint(0, len(x_unlab), (84,))]
        logits = model(torch.cat([weak(x_lab[rows]), weak(u), strong(u)]))
        lx, lw, ls = logits.split([12, 84, 84])
        Lx = F.cross_entropy(lx, y_lab[rows])
        max_probs, targets_u = torch.softmax(lw.detach(), -1).max(-1)
        mask = max_probs.ge(0.95).float()
        Lu = (F.cross_entropy(ls, targets_u, reduction="none") * mask).mean()
        loss = Lx + Lu
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        ema.update(model)
        tick.step(loss)
        losses.append(loss.item())
    model.eval()
    LAST = (model(x_unlab).argmax(1) == y_all[12:]).float().mean().item()
    return losses
