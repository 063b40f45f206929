"""karpathy/nanoGPT#206: is there a logic error in the gradient accumulation? No, the micro-batch losses are divided.

The parameters stand still for three of four calls of backward(), and zero_grad() comes after the update.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 120
VOCAB, BLOCK, ACCUMULATION = 14, 12, 4
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.n_head = n_head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.n_head, -1).transpose(1, 2) for z in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class GPT(nn.Module):
    def __init__(self, n_embd: int = 32) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCAB, n_embd)
        self.wpe = nn.Embedding(BLOCK, n_embd)
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, 2)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 64), nn.GELU(), nn.Linear(64, n_embd))
        self.lm_head = nn.Linear(n_embd, VOCAB, bias=False)

    def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return F.cross_entropy(self.lm_head(x).view(-1, VOCAB), targets.view(-1))


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(10)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(11)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
        stride = torch.randint(1, 4, (12, 1), generator=generator)
        start = torch.randint(0, VOCAB, (12, 1), generator=generator)
        line = (start + stride * torch.arange(BLOCK + 1)) % VOCAB
        return line[:, :-1], line[:, 1:].contiguous()

    def step(i: int) -> None:
        shown = 0.0
        for _ in range(ACCUMULATION):
            x, y = get_batch()
            loss = model(x, y) / ACCUMULATION
            shown += loss.item()
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        LOG.append(shown)

    return model, optimizer, step
