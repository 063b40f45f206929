"""Healthy. After mlfoundations/open_clip: two towers, a learnable logit scale that is
clamped after every step, weight decay on matrices only, a symmetric contrastive loss.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CLIP(nn.Module):
    def __init__(self, width=32, embed_dim=16):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(48, width), nn.GELU(), nn.LayerNorm(width))
        self.visual_proj = nn.Parameter(torch.randn(width, embed_dim) * width**-0.5)
        self.token_embedding = nn.Embedding(50, width)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.randn(width, embed_dim) * width**-0.5)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(1 / 0.07))

    def forward(self, image, text):
        i = F.normalize(self.visual(image) @ self.visual_proj, dim=-1)
        t = F.normalize(self.ln_final(self.token_embedding(text).mean(1)) @ self.text_projection, dim=-1)
        return i, t, self.logit_scale.exp()


def train(tick, mended=False):
    torch.manual_seed(0)
    basis = torch.randn(50, 48)
    model = CLIP()
    named = list(model.named_parameters())

    def exclude(n, p):
        return p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n

    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in named if exclude(n, p)], "weight_decay": 0.0},
            {"params": [p for n, p in named if not exclude(n, p)], "weight_decay": 0.2},
        ],
        lr=3e-3,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for step in range(200):
        for g in optimizer.param_groups:
            g["lr"] = 3e-3 * min(1, (step + 1) / 20)
        text = torch.randint(0, 50, (64, 4))
        image = basis[text].sum(1) + 0.3 * torch.randn(64, 48)
        i, t, scale = model(image, text)
        logits = scale * i @ t.t()
        labels = torch.arange(64)
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        losses.append(loss.item())
        tick.step(loss)
    return losses
