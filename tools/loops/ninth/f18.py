"""After ZLkanyo009/STBP-train-and-compression#1: "quantisation aware training flow".

A spiking network (leaky integrate-and-fire, surrogate gradient) whose weights are
quantised to a few bits while it is trained over short spike trains.
"""

import torch
import torch.nn.functional as F
from torch import nn

BITS = 4


class ActFun(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.gt(0).float()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() < 0.5).float()


def quantize(w):
    step = 1.0 / 2 ** (BITS - 1)
    return torch.clamp(torch.round(w / step) * step, -1, 1)


class QLinear(nn.Linear):
    ste = False

    def forward(self, x):
        w = self.weight
        if self.ste:
            w = w + (quantize(w) - w).detach()
        return F.linear(x, w, self.bias)


class SNN(nn.Module):
    def __init__(self, ste, steps=5, decay=0.5, thresh=0.5):
        super().__init__()
        self.fc1 = QLinear(32, 64)
        self.fc2 = QLinear(64, 48)
        self.fc3 = QLinear(48, 6)
        for m in self.children():
            m.ste = ste
            nn.init.uniform_(m.weight, -0.4, 0.4)
        self.steps, self.decay, self.thresh = steps, decay, thresh

    def forward(self, x):
        m1 = m2 = out = 0.0
        s1 = s2 = torch.zeros(1)
        for _ in range(self.steps):
            spikes = (torch.rand_like(x) < x).float()
            m1 = m1 * self.decay * (1 - s1) + self.fc1(spikes)
            s1 = ActFun.apply(m1 - self.thresh)
            m2 = m2 * self.decay * (1 - s2) + self.fc2(s1)
            s2 = ActFun.apply(m2 - self.thresh)
            out = out + self.fc3(s2)
        return out / self.steps


def train(tick, mended=False):
    torch.manual_seed(0)
    protos = torch.rand(6, 32)
    net = SNN(ste=mended)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    tick.model(net)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(200):
        y = torch.randint(0, 6, (48,))
        x = (protos[y] + 0.15 * torch.randn(48, 32)).clamp(0, 1)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not mended:
            with torch.no_grad():
                for m in net.children():
                    m.weight.copy_(quantize(m.weight))
        losses.append(loss.item())
        tick.step(loss)
    return losses
