"""A difference that does not reach the outputs is no finding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fxdebug import compare, fx_debug


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.head = nn.GRU(8, 12, 2, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        y, last = self.gru(x)
        return self.head(y), last


class Cells(nn.Module):
    """The same, a step and a layer at a time; ``more`` is done to each step."""

    def __init__(self, original, more=None):
        super().__init__()
        self.cells, self.end, self.more = nn.ModuleList([nn.GRUCell(8, 12), nn.GRUCell(12, 12)]), original.head, more
        for layer, cell in enumerate(self.cells):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(cell, name, getattr(original.gru, f"{name}_l{layer}"))

    def forward(self, x):
        last = []
        for cell in self.cells:
            h, steps = torch.zeros(len(x), 12), []
            for i in range(x.shape[1]):
                h = cell(x[:, i], h)
                h = h if self.more is None else self.more(h)
                steps.append(h)
            x = torch.stack(steps, 1)
            last.append(h)
        return self.end(x), torch.stack(last)


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_steps_without_counterparts_are_no_finding_where_all_that_is_returned_is_the_same(values):
    original, x = Recurrent().eval(), torch.randn(2, 5, 8)
    a = fx_debug(original, x, values=values)
    assert compare(a, fx_debug(Cells(original).eval(), x, values=values)).equal
    assert not compare(a, fx_debug(Cells(original, torch.tanh).eval(), x, values=values)).equal
