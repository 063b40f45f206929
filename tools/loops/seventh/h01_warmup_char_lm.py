"""Healthy: a character language model with a long linear warm-up that starts at a learning rate of exactly zero
and a decay to zero at the end; the loss hardly moves in the first quarter and in the last steps.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = (
    "the quick brown fox jumps over the lazy dog and then the dog sleeps under the old tree while the fox runs home "
    "over the hill to the small house by the river where the other foxes wait for the night "
) * 4
CHARS = sorted(set(TEXT))
DATA = torch.tensor([CHARS.index(c) for c in TEXT])


class CausalBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        n = x.size(1)
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        h = self.ln1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, dim=32, block_size=24):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(block_size, dim)
        self.blocks = nn.ModuleList([CausalBlock(dim, 4) for _ in range(2)])
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for b in self.blocks:
            x = b(x)
        return self.lm_head(self.ln_f(x))


def get_batch(n=16, block=20):
    i = torch.randint(0, len(DATA) - block - 1, (n,))
    x = torch.stack([DATA[j : j + block] for j in i])
    y = torch.stack([DATA[j + 1 : j + block + 1] for j in i])
    return x, y


def train(tick, mended=False):
    torch.manual_seed(1)
    model = CharLM(len(CHARS))
    max_steps, warmup = 200, 40
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)

    def lr_lambda(step):
        if step < warmup:
            return (step / warmup) ** 2
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (max_steps - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    tick.model(model)
    tick.optimizer(optimizer)
    history = []
    for _step in range(max_steps):
        x, y = get_batch()
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        history.append(loss.item())
        tick.step(loss, x, y)
    with torch.no_grad():
        x, y = get_batch(100)
        return history, (model(x).argmax(-1) == y).float().mean().item()


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
