"""huggingface/peft#793: after one step the lora_B weights look untouched; they start at zero on purpose.

In the first step lora_A has no gradient at all, and the base model never has any.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

STEPS: int = 200
HISTORY: list[float] = []
BATCH, VOCAB, LENGTH, DIM, RANK = 32, 30, 10, 32, 4


class LoraLinear(nn.Module):
    def __init__(self, base: nn.Linear, alpha: float = 16.0) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(RANK, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, RANK))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.scaling = alpha / RANK

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.q_proj, self.v_proj = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.query = nn.Parameter(torch.randn(DIM) / DIM**0.5)
        self.score = nn.Linear(DIM, 2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        weights = (self.q_proj(x) @ self.query).softmax(dim=-1)
        return self.score(torch.einsum("bt,btd->bd", weights, self.v_proj(x)))


def reviews(valued: Tensor) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    return ids, (valued[ids].sum(dim=1) > 0).long()


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(6)
    HISTORY.clear()
    valued = torch.randn(VOCAB)
    model = Classifier().requires_grad_(False)
    model.q_proj = LoraLinear(model.q_proj)
    model.v_proj = LoraLinear(model.v_proj)
    trainable = [p for n, p in model.named_parameters() if "lora_" in n]
    optimizer = torch.optim.AdamW(trainable, lr=5e-3, weight_decay=0.0)

    def step(i: int) -> None:
        ids, label = reviews(valued)
        loss = nn.functional.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        HISTORY.append(loss.item())

    return model, optimizer, step
