"""After yz93/LAVT-RIS#25: "About zero initialization" (of the language gate).

Referring segmentation: visual features are fused with word features through a
pixel-word attention module, a gate lets the fused features into the backbone.
"""

import torch
import torch.nn.functional as F
from torch import nn


class PWAM(nn.Module):
    def __init__(self, dim, l_dim):
        super().__init__()
        self.vis_project = nn.Conv2d(dim, dim, 1)
        self.f_key = nn.Linear(l_dim, dim)
        self.f_value = nn.Linear(l_dim, dim)
        self.project_mm = nn.Conv2d(dim, dim, 1)

    def forward(self, x, text):
        q = self.vis_project(x).flatten(2).transpose(1, 2)
        attn = (q @ self.f_key(text).transpose(1, 2) / q.size(-1) ** 0.5).softmax(-1)
        lang = (attn @ self.f_value(text)).transpose(1, 2).view_as(x)
        return self.project_mm(F.relu(x) * lang)


class LanguageGate(nn.Module):
    def __init__(self, dim, mended):
        super().__init__()
        self.res_gate = nn.Sequential(
            nn.Conv2d(dim, dim, 1, bias=False), nn.ReLU(), nn.Conv2d(dim, dim, 1, bias=False), nn.Tanh()
        )
        if not mended:
            nn.init.zeros_(self.res_gate[0].weight)
        nn.init.zeros_(self.res_gate[2].weight)

    def forward(self, x):
        return self.res_gate(x) * x


class LAVT(nn.Module):
    def __init__(self, mended, dim=24, vocab=6):
        super().__init__()
        self.bert = nn.Embedding(vocab, 16)
        self.stage1 = nn.Sequential(nn.Conv2d(3, dim, 3, padding=1), nn.ReLU())
        self.fusion = PWAM(dim, 16)
        self.gate = LanguageGate(dim, mended)
        self.stage2 = nn.Sequential(nn.Conv2d(dim, dim, 3, padding=1), nn.ReLU())
        self.classifier = nn.Conv2d(dim, 2, 1)

    def forward(self, x, text):
        words = self.bert(text)
        v = self.stage1(x)
        v = v + self.gate(self.fusion(v, words))
        return self.classifier(self.stage2(v))


COL = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])


def batch(n):
    x = 0.1 * torch.randn(n, 3, 10, 10)
    mask = torch.zeros(n, 10, 10, dtype=torch.long)
    want = torch.randint(0, 3, (n,))
    for i in range(n):
        for c in torch.randperm(3).tolist():
            a, b = torch.randint(0, 7, (2,)).tolist()
            x[i, :, a : a + 4, b : b + 4] = COL[c][:, None, None] + 0.1 * torch.randn(3, 4, 4)
            mask[i, a : a + 4, b : b + 4] = int(c == want[i])
    return x, torch.stack([torch.full((n,), 3), want, torch.full((n,), 4)], 1), mask


def score(model, mended):
    torch.manual_seed(3)
    x, t, m = batch(80)
    with torch.no_grad():
        p = model(x, t).argmax(1)
    return ((p == 1) & (m == 1)).sum().item() / max(1, ((p == 1) | (m == 1)).sum().item())


def train(tick, mended=False):
    torch.manual_seed(0)
    model = LAVT(mended)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for _ in range(110):
        x, text, target = batch(12)
        loss = F.cross_entropy(model(x, text), target, weight=torch.tensor([0.9, 1.1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        tick.step(loss)
    return losses
