"""microsoft/LoRA#59: how can B be optimised when it is all zero? Its gradient goes through A, which is not.

In the first step A gets no gradient at all and the model is the pretrained one; then both move.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 180
OTHERS: list[torch.optim.Optimizer] = []
LOG: list[float] = []


class MergedLinear(nn.Linear):
    def __init__(self, in_features: int, out_features: int, r: int, lora_alpha: int) -> None:
        super().__init__(in_features, out_features)
        self.lora_A = nn.Parameter(torch.empty(r, in_features))
        self.lora_B = nn.Parameter(torch.zeros(out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=5**0.5)
        self.scaling = lora_alpha / r

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(40, 24, mode="mean")
        self.hidden = MergedLinear(24, 32, r=4, lora_alpha=16)
        self.out = MergedLinear(32, 5, r=2, lora_alpha=8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(4 * self.hidden(self.embed(tokens))))


def mark_only_lora_as_trainable(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name


def build(bad: bool = False) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], None]]:
    torch.manual_seed(6)
    OTHERS.clear()
    LOG.clear()
    generator = torch.Generator().manual_seed(7)
    model = Classifier()
    mark_only_lora_as_trainable(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)

    def reviews(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        label = torch.randint(0, 5, (batch,), generator=generator)
        topical = label[:, None] * 8 + torch.randint(0, 8, (batch, 6), generator=generator)
        common = torch.randint(0, 40, (batch, 4), generator=generator)
        return torch.cat([topical, common], dim=1), label

    def step(i: int) -> None:
        tokens, label = reviews(48)
        loss = F.cross_entropy(model(tokens), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        LOG.append(loss.item())

    return model, optimizer, step
