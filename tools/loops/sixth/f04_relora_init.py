"""Guitaricet/relora#18: training of the wrapped model "is stuck"; only the low-rank layers are trainable."""

import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 150
OTHERS: list = []
LOG: list = []


class ReLoRaLinear(nn.Module):
    def __init__(self, linear, r=4, lora_alpha=8, keep_original_weights=True):
        super().__init__()
        self.weight = nn.Parameter(linear.weight.data.clone(), requires_grad=False)
        self.bias = nn.Parameter(linear.bias.data.clone(), requires_grad=False)
        self.lora_A = nn.Linear(linear.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, linear.out_features, bias=False)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        if keep_original_weights:
            nn.init.zeros_(self.lora_A.weight)
        self.scaling = lora_alpha / r

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + self.lora_B(self.lora_A(x)) * self.scaling


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up_proj = nn.Linear(d, 2 * d)
        self.down_proj = nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down_proj(F.silu(self.up_proj(x)))


class LlamaStub(nn.Module):
    def __init__(self, vocab=20, d=32):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Block(d), Block(d)])
        self.norm = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def build(bad: bool):
    torch.manual_seed(2)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(2)
    table = torch.randperm(20, generator=gen)
    model = LlamaStub()
    for p in model.parameters():
        p.requires_grad_(False)
    for layer in model.layers:
        layer.up_proj = ReLoRaLinear(layer.up_proj, keep_original_weights=bad)
        layer.down_proj = ReLoRaLinear(layer.down_proj, keep_original_weights=bad)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)

    def step(i):
        ids = torch.randint(0, 20, (8, 16), generator=gen)
        logits = model(ids)
        loss = F.cross_entropy(logits.view(-1, 20), table[ids].view(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
