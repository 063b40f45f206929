"""microsoft/LoRA: a trained base with a new output map; everything is frozen but the low-rank factors, B starts
at zero, so A has no gradient in the first step, and the bulk of the model never moves."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Linear):
    def __init__(self, in_features, out_features, r=0, lora_alpha=16):
        super().__init__(in_features, out_features)
        self.r = r
        if r > 0:
            self.lora_A = nn.Parameter(self.weight.new_zeros(r, in_features))
            self.lora_B = nn.Parameter(self.weight.new_zeros(out_features, r))
            self.scaling = lora_alpha / r
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)
        if self.r > 0:
            y = y + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling
        return y


class Attention(nn.Module):
    def __init__(self, dim, r):
        super().__init__()
        self.q, self.k, self.v = LoRALinear(dim, dim, r), nn.Linear(dim, dim), LoRALinear(dim, dim, r)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        w = (self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5).softmax(-1)
        return self.proj(w @ self.v(x))


class Classifier(nn.Module):
    def __init__(self, vocab=30, dim=24, classes=4, r=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, r)
        self.norm2, self.mlp = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x.mean(1))


def mark_only_lora_as_trainable(model):
    for n, p in model.named_parameters():
        p.requires_grad = "lora_" in n


def sentences(n, mapping):
    y = torch.randint(0, 4, (n,))
    tokens = torch.randint(8, 30, (n, 10))
    tokens[:, :3] = (mapping[y] * 2)[:, None] + torch.randint(0, 2, (n, 3))
    return tokens, y


def run_epoch(model, optimizer, data, batch, after):
    for idx in torch.randperm(len(data[0])).split(batch):
        loss = F.cross_entropy(model(data[0][idx]), data[1][idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after(loss)


def train(tick, mended=False):
    torch.manual_seed(0)
    model = Classifier()
    base = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(3):
        run_epoch(model, base, sentences(800, torch.tensor([0, 1, 2, 3])), 40, lambda loss: None)
    new_task = torch.tensor([2, 0, 3, 1])
    mark_only_lora_as_trainable(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.01)
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []

    def after(loss):
        losses.append(loss.item())
        tick.step(loss)

    data = sentences(800, new_task)
    for _ in range(5):
        run_epoch(model, optimizer, data, 40, after)
    xt, yt = sentences(300, new_task)
    with torch.no_grad():
        train.final = (model(xt).argmax(1) == yt).float().mean().item()
    return losses
