"""After TorchSSL/TorchSSL#59: "fix bug in gradient clipping" (automatic mixed precision).

Semi-supervised image classification with SGD, a gradient scaler and clipping.
"""

import torch
import torch.nn.functional as F
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(c), nn.Conv2d(c, c, 3, padding=1, bias=False)

    def forward(self, x):
        h = self.conv1(F.leaky_relu(self.bn1(x), 0.1))
        return x + self.conv2(F.leaky_relu(self.bn2(h), 0.1))


class WideResNet(nn.Module):
    def __init__(self, num_classes=4, c=12):
        super().__init__()
        self.conv1 = nn.Conv2d(3, c, 3, padding=1)
        self.block1 = BasicBlock(c)
        self.fc = nn.Linear(c, num_classes)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.block1(self.conv1(x)), 0.1).amax((2, 3)))


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.randn(4, 3, 8, 8)

    def draw(y):
        return protos[y] + 0.8 * torch.randn(len(y), 3, 8, 8)

    model = WideResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    clip, p_cutoff, lambda_u = 1.0, 0.8, 0.5
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _it in range(150):
        y_lb = torch.randint(0, 4, (24,))
        x_lb, x_ulb = draw(y_lb), draw(torch.randint(0, 4, (24,)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(torch.cat([x_lb, x_ulb, x_ulb + 0.3 * torch.randn_like(x_ulb)])).float()
        lb, uw, us = logits.split(24)
        sup_loss = F.cross_entropy(lb, y_lb)
        prob, pseudo = uw.detach().softmax(-1).max(-1)
        unsup_loss = (F.cross_entropy(us, pseudo, reduction="none") * (prob > p_cutoff)).mean()
        loss = sup_loss + lambda_u * unsup_loss
        scaler.scale(loss).backward()
        if mended:
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
        tick.step(loss)
    return losses
