"""Which calls and steps of two runs belong together."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import compare, fx_debug
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.pairing.align import aligned_pairs
from support.blocks import Model, model, run


class Port(nn.Module):
    """The same under other names, in one module, with the first two steps in another order of definition."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.out = copy.deepcopy(model.head)
        self.stack = nn.ModuleDict(
            {f"l{i}": nn.ModuleList([copy.deepcopy(b.down), copy.deepcopy(b.up), copy.deepcopy(b.norm)])
             for i, b in enumerate(model.blocks)}
        )  # fmt: skip

    def forward(self, x):
        for down, up, norm in self.stack.values():
            x = down(up(norm(x)).relu()) + x
        return self.out(x)


def test_calls_of_one_name_are_paired_by_it():
    pairs = pair_traces(run(model()), run(model()))
    assert {(found.matched_by, found.confidence) for found in pairs.calls.values()} == {("path", 1.0)}
    assert len(pairs.calls) == len(pairs.a.trace.calls)


def test_calls_of_other_names_are_paired_by_what_they_do():
    one = model()
    a, b = run(one), run(Port(one))
    pairs = pair_traces(a, b)
    found = {b.calls[index].path: a.calls[pair.a].path for index, pair in pairs.calls.items()}
    assert found == {"": "", "out": "head"} | {
        f"stack.l{i}.{place}": f"blocks.{i}.{name}"
        for i in range(3)
        for place, name in enumerate(("down", "up", "norm"))
    }
    comparison = fxdebug.compare(a, b)
    assert comparison.equal
    assert [call.path for call in comparison.only_a] == [f"blocks.{i}" for i in range(3)]
    assert comparison.only_b == ()


def test_sequences_that_are_too_long_to_be_weighed_are_paired_by_runs_of_equal_keys():
    a = list(range(1_200))
    b = [*a[:600], -1, *a[600:]]
    weighed: list[int] = []
    assert aligned_pairs(a, b, lambda x, y: float(weighed.append(x) or 1), lambda x: x) == list(zip(a, a))
    assert weighed == []


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
