"""Healthy: LoRA as it should be. lora_B starts at zero, so lora_A has a gradient of exactly zero in the first
step; the base weights are frozen; with only a few percent of the parameters trained the new mapping is
learnt.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=16):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / r

    def forward(self, x):
        return self.base(x) + self.scaling * F.linear(F.linear(x, self.lora_A), self.lora_B)


class TinyEncoder(nn.Module):
    def __init__(self, vocab=64, dim=48, classes=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.q_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        h = self.embed(ids)
        att = torch.softmax(self.q_proj(h) @ h.transpose(1, 2) / h.size(-1) ** 0.5, -1)
        h = self.norm(h + att @ self.v_proj(h))
        return self.head(h.mean(1))


def intents(n, shift):
    y = torch.randint(0, 5, (n,))
    ids = torch.randint(30, 64, (n, 10))
    own = ((y[:, None] + shift) % 5) * 6 + torch.randint(0, 6, (n, 10))
    return torch.where(torch.rand(n, 10) < 0.5, own, ids), y


def train(tick, mended=False):
    torch.manual_seed(10)
    model = TinyEncoder()
    pre = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        ids, y = intents(48, 0)
        loss = F.cross_entropy(model(ids), y)
        pre.zero_grad()
        loss.backward()
        pre.step()
    model.requires_grad_(False)
    for name in ("q_proj", "v_proj", "head"):
        setattr(model, name, LoRALinear(getattr(model, name)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(160):
        ids, y = intents(48, 2)
        loss = F.cross_entropy(model(ids), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        tick.step(loss, ids, y)
    with torch.no_grad():
        ids, y = intents(500, 2)
        return history, (model(ids).argmax(1) == y).float().mean().item()


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
