"""Two runs of one model that draws: the operation that drew is told as random, whatever makes the numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug


class Draws(nn.Module):
    def __init__(self, drawn: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.drawn = nn.Linear(8, 8), nn.Linear(8, 4), drawn

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drawn(self.first(x)))  # type: ignore[no-any-return]


LSTM = nn.LSTM(8, 8, num_layers=2, dropout=0.5, batch_first=True)
HEADS = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
DRAWN: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "lstm": lambda x: LSTM(x)[0],
    "multi_head_attention_forward": lambda x: HEADS(x, x, x)[0],
    "bernoulli": lambda x: x * torch.empty_like(x).bernoulli_(0.5),
    "uniform": lambda x: x + torch.empty_like(x).uniform_(),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "dropout": lambda x: F.dropout(x, 0.5, True),
}


@pytest.mark.parametrize("op", DRAWN)
def test_two_runs_of_a_model_that_draws_differ_at_the_draw(op: str) -> None:
    torch.manual_seed(0)
    model, x = Draws(DRAWN[op]), torch.randn(2, 6, 8)
    with torch.no_grad():
        found = fxdebug.compare(*[fxdebug.fx_debug(model, x, values="tensors") for _ in range(2)])
    assert found.first is not None
    assert (found.first.kind, found.first.op) == ("random", op)
