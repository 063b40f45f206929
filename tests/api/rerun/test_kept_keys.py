"""Keys of a cache of as many places as a window has, beside those that the whole sequence attends to."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import fxdebug

WINDOW, PROMPT = 4, 2


class Window:
    """A cache that moves by one place when it is full, or one step too early."""

    def __init__(self, fault: str) -> None:
        self.keys, self.values, self.fault = torch.zeros(1, WINDOW, 8), torch.zeros(1, WINDOW, 8), fault

    def update(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        full = WINDOW - (self.fault == "early")
        if start >= full:
            self.keys, self.values = self.keys.roll(-1, 1), self.values.roll(-1, 1)
        at = min(start, WINDOW - 1)
        places = torch.arange(at, at + keys.shape[1])
        self.keys = self.keys.index_copy(1, places, keys)
        self.values = self.values.index_copy(1, places, values)
        return self.keys, self.values


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor, start: int, cache: Window | None) -> Tensor:
        keys, values, rows = self.k(x), self.v(x), torch.arange(start, start + x.shape[1])[:, None]
        if cache is None:
            columns = torch.arange(x.shape[1])
            seen = (columns <= rows) & (columns > rows - WINDOW)
        else:
            keys, values = cache.update(keys, values, start)
            seen = torch.arange(WINDOW) <= rows.clamp(max=WINDOW - 1)
        scores = (self.q(x) @ keys.mT).masked_fill(~seen, -torch.inf)
        return scores.softmax(-1) @ values


class Decoder(nn.Module):
    def __init__(self, fault: str | None) -> None:
        super().__init__()
        self.attention, self.fault = Attention(), fault

    def forward(self, x: Tensor) -> Tensor:
        if self.fault is None:
            return self.attention(x, 0, None)
        cache, ends = Window(self.fault), [0, PROMPT, *range(PROMPT + 1, x.shape[1] + 1)]
        return torch.cat([self.attention(x[:, a:b], a, cache) for a, b in pairwise(ends)], 1)


@pytest.mark.parametrize(("fault", "told"), [("none", []), ("early", ["position 3 attends to 0:4 in a"])])
def test_a_window_that_moves_too_early_is_told_with_what_it_holds(fault: str, told: list[str]) -> None:
    x = torch.randn(1, 7, 8, generator=torch.Generator().manual_seed(1))
    runs = [fxdebug.fx_debug(Decoder(each).eval(), x, values="tensors") for each in (None, fault)]
    rows = fxdebug.compare(*runs).findings
    assert [row.because.partition(";")[0] for row in rows[:1]] == told
    for row in rows[:1]:
        assert (row.path, row.op) == ("attention", "index_copy")
        assert row.because.startswith(f"{told[0]}; here it attends to 1:4 and 1 empty place (called on 6 parts in b")
