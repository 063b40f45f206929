"""Calls of modules with other names are paired by the operations in them."""

from __future__ import annotations

import copy

from torch import nn

import fxdebug
from fxdebug.comparison.compare_traces import pair_traces
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
