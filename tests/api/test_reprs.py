"""The repr of every public object is a line or two, however much it holds: a notebook's file has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.brief import MOST
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Thing

LONGEST = 2 * MOST  # two lines


class Many(nn.Module):
    """A model whose run has long lists of everything, and texts without end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(40))

    def forward(self, x: torch.Tensor, *, words: list[str]) -> dict[str, Any]:
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1]) / 0)
        return {"states": states, "said": "a long answer " * 100, "last": states[-1]}


def mean(output: dict[str, Any]) -> torch.Tensor:
    return output["last"].nan_to_num().mean()


def things() -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs, kwargs = Many(), torch.ones(2, 4), {"words": ["word"] * 300}
    trace = fx_debug(model, inputs, kwargs=kwargs, values="tensors")
    other = fx_debug(Many(), inputs, kwargs=kwargs)
    with pytest.raises(ZeroDivisionError):
        fx_debug(lambda_that_raises := Raises(), inputs)
    failed = fxdebug.last_failed()
    assert failed is not None and lambda_that_raises is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, every=1, save=None, histograms=True) as watched:
        for _ in range(3):
            mean(model(inputs, **kwargs)).backward()
            optimizer.step()
    return {
        "trace": trace,
        "failed": failed,
        "graphs": trace.call_graphs,
        "comparison": fxdebug.compare(trace, other),
        "watch": watched,
        "training": watched.report(),
        "record": watched._record(),
        "findings": trace.check(),
        "network": trace.ops(),
        "measures": trace.measures if hasattr(trace, "measures") else None,
        "summary": fxdebug.summary(model, inputs, kwargs=kwargs),
        "flops": fxdebug.flops(model, inputs, kwargs=kwargs),
        "memory": fxdebug.memory(model, inputs, kwargs=kwargs, loss=mean),
        "profile": fxdebug.profile(model, inputs, kwargs=kwargs, loss=mean, repeats=1, warmup=0),
        "check": fxdebug.check(model, inputs, mean, kwargs=kwargs),
        "weights": fxdebug.weights(model),
        "gradients": fxdebug.gradients(model, inputs, mean, kwargs=kwargs),
        "activations": fxdebug.activations(model, inputs, kwargs=kwargs),
        "attention": fxdebug.attention(model, inputs, kwargs=kwargs),
        "shadow": fxdebug.shadow(model, inputs, kwargs=kwargs),
    }


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("a reason " * 300)


def reached(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Yield every object of ours that can be reached from one through its fields."""
    pending = [thing]
    while pending:
        one = pending.pop()
        if id(one) in seen or isinstance(one, (str, int, float, type(None))):
            continue
        seen.add(id(one))
        if isinstance(one, (tuple, list)):
            pending.extend(one)
        elif isinstance(one, dict):
            pending.extend(one.values())
        elif dataclasses.is_dataclass(one):
            yield one
            pending.extend(getattr(one, field.name) for field in dataclasses.fields(one))
        elif type(one).__module__.startswith("fxdebug"):
            yield one


def test_every_repr_is_a_line_or_two() -> None:
    seen: set[int] = set()
    kinds: dict[str, int] = {}
    for thing in things().values():
        for one in reached(thing, seen):
            text = repr(one)
            assert len(text) <= LONGEST and text.count("\n") <= 1, (type(one), text)
            kinds[type(one).__name__] = len(text)
    expected = "Trace Call Op Graph RunGraphs Value Stats Parameter Report Findings Comparison Watch StepRecord Node"
    assert not set(expected.split()) - set(kinds)


def test_what_reprs_say() -> None:
    trace = fx_debug(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.zeros(1, 2))
    assert repr(trace) == "<trace of Sequential: 3 calls, 5 values>"
    assert repr(trace.graphs) == f"({', '.join(map(repr, trace.graphs))})"
    assert repr(trace.graphs[0]).startswith("Graph(ops=<")
    assert repr(fxdebug.summary(nn.Linear(2, 2), torch.ones(1, 2))) == "<summary of Linear: 1 row>"
    assert repr(trace.check()) == str(trace.check())
    assert repr(TraceData("Net", ())) == "<trace of Net: 0 calls, 0 values>"


def test_a_repr_is_no_deeper_than_what_it_shows(tmp_path: Path) -> None:
    item: Any = Thing("leaf", "leaf")
    for _ in range(5_000):
        item = Group("sequence", "list", (item,))
    assert repr(item) == "Group(kind='sequence', type='list', items=(Group(…),))"
    escaped = Thing("x\x1b[31m", "text" * 500)
    assert "\x1b" not in repr(escaped) and len(repr(escaped)) < MOST
