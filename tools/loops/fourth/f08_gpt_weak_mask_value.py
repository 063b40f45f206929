"""karpathy/minGPT#75: the causal mask's fill value is too small, attention looks at future tokens around it.

Training and validation loss are near zero while generation from a prefix is rubbish.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS: int = 250
HISTORY: list[float] = []
VOCAB, HALF, BATCH, DIM = 12, 6, 48, 32


class Block(nn.Module):
    def __init__(self, masked_bias: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 64), nn.GELU(), nn.Linear(64, DIM))
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.masked_bias = masked_bias

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln1(x)).chunk(3, dim=-1)
        att = q @ k.transpose(-2, -1) / math.sqrt(DIM)
        keep = torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
        att = att.masked_fill(~keep, self.masked_bias).softmax(dim=-1)
        x = x + self.proj(att @ v)
        return x + self.mlp(self.ln2(x))


class TinyGpt(nn.Module):
    def __init__(self, masked_bias: float) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, DIM)
        self.wpe = nn.Parameter(0.1 * torch.randn(2 * HALF, DIM))
        self.blocks = nn.Sequential(Block(masked_bias), Block(masked_bias))
        self.ln_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.ln_f(self.blocks(self.wte(ids) + self.wpe[: ids.shape[1]])))


def copies(n: int) -> Tensor:
    first = torch.randint(0, VOCAB, (n, HALF))
    return torch.cat([first, first], dim=1)


def evaluate(model: TinyGpt) -> float:
    """Loss on the copied half when the model is fed only the prefix it would have when generating."""
    state = torch.get_rng_state()
    torch.manual_seed(77)
    ids, total = copies(128), 0.0
    with torch.no_grad():
        for t in range(HALF, 2 * HALF):
            total += F.cross_entropy(model(ids[:, :t])[:, -1], ids[:, t]).item()
    torch.set_rng_state(state)
    return total / HALF


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(4)
    HISTORY.clear()
    model = TinyGpt(masked_bias=-1.0 if bad else float("-inf"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)

    def step(i: int) -> None:
        ids = copies(BATCH)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
