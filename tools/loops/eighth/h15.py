"""karpathy/nanoGPT: a character model with gradients accumulated over four micro batches, warm-up from nearly nought,
cosine decay, tied embedding and output, weight decay on matrices only."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(n_embd), CausalSelfAttention(n_embd, n_head)
        self.ln_2, self.mlp = (
            nn.LayerNorm(n_embd),
            nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block_size=24, n_embd=32, n_head=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head) for _ in range(2)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, 0.0, 0.02)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def get_lr(it, max_lr=6e-3, warmup=20, decay=110):
    if it < warmup:
        return max_lr * (it + 1) / (warmup + 1)
    return max_lr * (0.1 + 0.45 * (1 + math.cos(math.pi * (it - warmup) / (decay - warmup))))


def train(tick, mended=False):
    torch.manual_seed(1337)
    text = "the quick brown fox jumps over the lazy dog and then the dog sleeps in the warm sun. " * 12
    chars = sorted(set(text))
    data = torch.tensor([chars.index(c) for c in text])
    model = GPT(len(chars))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    nodecay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}], lr=6e-3, betas=(0.9, 0.95)
    )
    accumulation = 4
    tick.model(model)
    tick.optimizer(optimizer)
    losses = []
    for it in range(110):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        for _micro_step in range(accumulation):
            ix = torch.randint(0, len(data) - 25, (4,))
            x = torch.stack([data[i : i + 24] for i in ix])
            y = torch.stack([data[i + 1 : i + 25] for i in ix])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / accumulation
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item() * accumulation)
        tick.step(loss * accumulation)
    train.final = losses[-1]
    return losses
