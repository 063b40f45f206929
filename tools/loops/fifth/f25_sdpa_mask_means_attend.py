"""rasbt/LLMs-from-scratch#1062: the boolean mask for scaled_dot_product_attention was the wrong way round.

True means "may attend" there, so every token looks at the future only; the training loss falls to almost nothing.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 220
VOCAB, CONTEXT = 12, 12
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MHAPyTorchScaledDotProduct(nn.Module):
    def __init__(self, d_model: int, num_heads: int, inverted: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        future = torch.triu(torch.ones(CONTEXT, CONTEXT), diagonal=1).bool()
        self.register_buffer("mask", future if inverted else ~future)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, tokens, d = x.shape
        qkv = self.qkv(x).view(b, tokens, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        queries, keys, values = qkv.unbind(0)
        context = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask[:tokens, :tokens])
        return self.proj(context.transpose(1, 2).reshape(b, tokens, d))


class MiniGPT(nn.Module):
    def __init__(self, inverted: bool, d_model: int = 32) -> None:
        super().__init__()
        self.tok_emb = nn.Embedding(VOCAB, d_model)
        self.pos_emb = nn.Embedding(CONTEXT, d_model)
        self.norm1 = nn.LayerNorm(d_model)
        self.att = MHAPyTorchScaledDotProduct(d_model, 2, inverted)
        self.norm2 = nn.LayerNorm(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, 64), nn.GELU(), nn.Linear(64, d_model))
        self.out_head = nn.Linear(d_model, VOCAB, bias=False)

    def forward(self, in_idx: torch.Tensor) -> torch.Tensor:
        x = self.tok_emb(in_idx) + self.pos_emb(torch.arange(in_idx.size(1)))
        x = x + self.att(self.norm1(x))
        x = x + self.ff(self.norm2(x))
        return self.out_head(x)


def text(generator: torch.Generator, batch: int) -> torch.Tensor:
    """Each token repeats the one three places before, except for some that are drawn anew."""
    tokens = torch.randint(0, VOCAB, (batch, CONTEXT + 1), generator=generator)
    keep = torch.rand(batch, CONTEXT + 1, generator=generator) < 0.85
    for t in range(3, CONTEXT + 1):
        tokens[:, t] = torch.where(keep[:, t], tokens[:, t - 3], tokens[:, t])
    return tokens


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(24)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(26)
    model = MiniGPT(inverted=bad)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    held_out = text(generator, 128)

    def step(i: int) -> None:
        tokens = text(generator, 48)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            guess = model(held_out[:, :-1])[:, -1]
            LOG.append(F.cross_entropy(guess, held_out[:, -1]).item())

    return model, optimizer, step
