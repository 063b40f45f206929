"""karpathy/nanoGPT#605: "loss = loss / gradient_accumulation_steps, should it be micro_step + 1?" """

import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 120
OTHERS: list = []
LOG: list = []


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(x).view(b, t, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(n), CausalSelfAttention(n, 2), nn.LayerNorm(n)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=16, block=16, n=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n), nn.Embedding(block, n)
        self.h = nn.Sequential(Block(n), Block(n))
        self.ln_f = nn.LayerNorm(n)
        self.lm_head = nn.Linear(n, vocab, bias=False)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        logits = self.lm_head(self.ln_f(self.h(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(bad: bool):
    torch.manual_seed(42)
    LOG.clear()
    OTHERS.clear()
    gen = torch.Generator().manual_seed(42)
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=5e-3, betas=(0.9, 0.95)
    )
    gradient_accumulation_steps = 5

    def get_lr(it):
        if it < 10:
            return 5e-3 * (it + 1) / 11
        return 5e-4 + 0.5 * (1 + math.cos(math.pi * (it - 10) / (STEPS - 10))) * 4.5e-3

    def step(i):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(i)
        for _ in range(gradient_accumulation_steps):
            start = torch.randint(0, 16, (8, 1), generator=gen)
            stride = torch.randint(1, 4, (8, 1), generator=gen)
            seq = (start + stride * torch.arange(17)) % 16
            loss = model(seq[:, :-1], seq[:, 1:]) / gradient_accumulation_steps
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        LOG.append(loss.item() * gradient_accumulation_steps)

    return model, optimizer, step
