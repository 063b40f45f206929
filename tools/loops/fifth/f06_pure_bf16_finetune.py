"""meta-pytorch/torchtune#2254: fine-tuning with all weights kept in bfloat16 converges far worse than in float32.

The updates of a small learning rate are less than half a unit in the last place of the weights and round away.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 200
VOCAB, CONTEXT = 16, 10
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class RMSNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return normed.type_as(x) * self.scale


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TinyDecoder(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, dim)
        self.norm = RMSNorm(dim)
        self.ffn = FeedForward(dim, 64)
        self.final_norm = RMSNorm(dim)
        self.output = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        h = h + self.ffn(self.norm(h))
        return self.output(self.final_norm(h))


def load_pretrained(model: nn.Module, seed: int) -> None:
    """Stands for a checkpoint: weights of the size that a trained small network has."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
                parameter.copy_(sign * (0.26 + 0.1 * torch.rand(parameter.shape, generator=generator)))


def build(bad: bool) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(5)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(31)
    chain = torch.randperm(VOCAB, generator=generator)
    model = TinyDecoder()
    load_pretrained(model, seed=6)
    if bad:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=7e-4, weight_decay=0.0)

    def sample(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, VOCAB, (batch, CONTEXT), generator=generator)
        return tokens, chain[tokens]

    def step(i: int) -> None:
        tokens, labels = sample(16)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not bad):
            logits = model(tokens)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        LOG.append(loss.item())

    return model, optimizer, step
