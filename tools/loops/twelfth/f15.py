"""After carpedm20/visual-analogy-tensorflow#1: a : b = c : ? with an encoder and a decoder.

The author warns everybody who trained with the code before a certain commit;
the decoded shapes had come out poor.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, size=10, hid=96, emb=32):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(size * size, hid), nn.ReLU(), nn.Linear(hid, emb))

    def forward(self, x):
        return self.net(x)


class Decoder(nn.Module):
    def __init__(self, size=10, hid=96, emb=32, mended=False):
        super().__init__()
        layers = [nn.Linear(emb, hid), nn.ReLU(), nn.Linear(hid, size * size)]
        if not mended:
            layers.append(nn.ReLU())
        self.net = nn.Sequential(*layers)
        self.size = size

    def forward(self, z):
        return self.net(z).view(-1, self.size, self.size)


class VisualAnalogy(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.f = Encoder()
        self.g = Decoder(mended=mended)
        self.deep = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, a, b, c):
        fa, fb, fc = self.f(a), self.f(b), self.f(c)
        t = self.deep(torch.cat([fb - fa, fc], dim=1))
        return self.g(fc + t)


def draw(pos, wide, size=10):
    img = -torch.ones(len(pos), size, size)
    for i, (p, w) in enumerate(zip(pos.tolist(), wide.tolist())):
        img[i, 2 : 2 + w, p : p + w] = 1
    return img


def analogies(n):
    p1, p2 = torch.randint(0, 6, (n,)), torch.randint(0, 6, (n,))
    w1, w2 = torch.randint(2, 5, (n,)), torch.randint(2, 5, (n,))
    return draw(p1, w1), draw(p2, w1), draw(p1, w2), draw(p2, w2)


def train(tick, mended=False):
    torch.manual_seed(14)
    model = VisualAnalogy(mended)
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    tick.model(model)
    tick.optimizer(optim)
    losses = []
    for step in range(300):
        a, b, c, d = analogies(48)
        loss = F.mse_loss(model(a, b, c), d)
        optim.zero_grad()
        loss.backward()
        optim.step()
        tick.step(loss)
        losses.append(loss.item())
    return losses
