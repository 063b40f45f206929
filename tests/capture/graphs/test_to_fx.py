"""What bodies hand on besides tensors is in ``call.fx`` what it was: shapes, tuples, numbers of numpy's."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

import fxdebug
from fxdebug import fx_debug


class Does(nn.Module):
    """Its forward is a function; what it calls stands in ``inner``."""

    def __init__(self, body: Callable[..., Any], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.inner = body, inner

    def forward(self, x: Tensor, *more: Any) -> Any:
        return self.body(x, *more) if self.inner is None else self.body(self.inner, x, *more)


class Members(tuple):
    """A tuple that is made of one thing, as ``tuple`` itself is."""


class Normal(collections.namedtuple("Normal", "p")):
    def __new__(cls, p: Tensor) -> Normal:
        return super().__new__(cls, p / p.sum() + 1)


@dataclasses.dataclass
class Halved(ModelOutput):
    y: Tensor | None = None
    z: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.y = self.y / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    p: Tensor
    q: Tensor


class HasDict:
    pass


@dataclasses.dataclass(slots=True)
class Both(HasDict):
    p: Tensor
    q: int

    def __post_init__(self) -> None:
        self.q += 1
        self.r = self.p * 2


def numbers_of(x: Tensor, shape: Any) -> Tensor:
    """A tensor of a ``torch.Size``, and one of the numbers in a tuple, are not the same to ``new``."""
    return x * x.new(shape).fill_(1.0).sum()


def ordered(x: Tensor) -> Any:
    return collections.OrderedDict([("0", x + 1), ("1", x * 2)])


BODIES = {
    "a shape to new": Does(lambda x: numbers_of(x, x.size())),
    "numbers to new": Does(lambda x: x * x.new((3, 4)).sum()),
    "a shape to a child": Does(lambda inner, x: inner(x, x.shape), Does(numbers_of)),
    "a shape from a child": Does(lambda inner, x: numbers_of(x, inner(x)), Does(lambda x: x.shape)),
    "is it a shape": Does(lambda x: x + 1 if isinstance(x.shape[:1] + (2,), torch.Size) else x),
    "a shape in text": Does(lambda x: x + 1 if str(x.shape) == "torch.Size([3, 4])" else x),
    "a shape, returned": Does(lambda x: (x + 1, x.shape, (5,) + x.shape, 2 * x.shape)),
    "a tuple of its own": Does(lambda x: Members((x * 2,))),
    "two members": Does(lambda inner, x: inner(x)[0] + inner(x)[1], Does(lambda x: Members((x * 2, x + 1)))),
    "a named tuple that computes": Does(lambda x: Normal(x.exp())),
    "an output that computes": Does(lambda x: Halved(y=x * 2)),
    "a child's output that computes": Does(lambda inner, x: inner(x).y + 1, Does(lambda x: Halved(y=x * 2))),
    "slots": Does(lambda inner, x: inner(Slots(x + 1, x)).q * 2, Does(lambda held: Slots(held.p * held.q, held.p))),
    "slots, returned": Does(lambda x: Slots(x + 1, x * 2)),
    "slots and attributes": Does(lambda inner, x: inner(x).r + inner(x).q, Does(lambda x: Both(x + 1, 4))),
    "slots and attributes, returned": Does(lambda x: Both(x + 1, 4)),
    "an ordered dict": Does(lambda inner, x: {k: v + 1 for k, v in inner(x).items()}, Does(ordered)),
    "an ordered dict, returned": Does(ordered),
    "an integer of numpy's": Does(lambda x: x[:, : np.int64(2)] * np.prod([2, 2])),
    "a float of numpy's": Does(lambda x: x.clamp(min=np.finfo(np.float32).min) * np.float32(0.5)),
    "a number of numpy's, returned": Does(lambda x: (x * 2, np.int64(4))),
}


def parts(thing: Any) -> Any:
    """Something with its types, to compare."""
    if isinstance(thing, Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return type(thing), {key: parts(item) for key, item in thing.items()}
    if isinstance(thing, (Slots, Both)):
        names = ["p", "q", *getattr(thing, "__dict__", ())]
        return type(thing), [(name, parts(getattr(thing, name))) for name in names]
    return (type(thing), list(map(parts, thing))) if isinstance(thing, (tuple, list)) else (type(thing), thing)


@pytest.mark.parametrize("name", BODIES)
def test_a_graph_hands_on_what_the_body_does(name: str) -> None:
    model, x = BODIES[name], torch.arange(12.0).view(3, 4)
    for _ in range(2):  # traced, and matched with what was traced
        trace = fx_debug(model, x)
        assert {call.id: (call.status, call.reason) for call in trace.calls if call.status != "verified"} == {}
        assert parts(trace.root.fx(x)) == parts(model(x))


def test_a_graph_with_a_shape_in_it_holds_for_other_sizes() -> None:
    call = fx_debug(BODIES["a shape to new"], torch.ones(3, 4)).root
    other = torch.ones(2, 5)
    assert torch.equal(call.fx(other), BODIES["a shape to new"](other))


def test_attributes_of_an_output_are_those_that_it_has() -> None:
    call = fx_debug(BODIES["an output that computes"], torch.ones(2)).root
    made = call.fx(torch.ones(2))
    assert type(made) is Halved and list(made) == ["y"] and made.z is None and torch.equal(made.y, torch.ones(2))
    assert made.to_tuple()[0] is made.y is made["y"]


def test_a_guard_of_a_library_s_module_names_the_line_that_called_it() -> None:
    model = Does(lambda inner, x: inner(x)[0], nn.GRU(6, 6))
    line = model.body.__code__.co_firstlineno
    trace = fx_debug(model, torch.ones(1, 2, 6))
    guards = [str(guard) for guard in trace.find("inner")[0].guards]
    assert guards and all(guard.endswith(f"test_to_fx.py:{line})") for guard in guards)


def test_a_refusal_names_no_line_of_who_asks() -> None:
    call = fx_debug(nn.GRU(6, 6), torch.ones(1, 2, 6)).root
    with pytest.raises(fxdebug.UsageError) as refused:
        call.fx(torch.ones(2, 6))
    assert "test_to_fx" not in str(refused.value)


def test_a_model_with_a_part_compiled_by_the_eager_backend_can_be_run() -> None:
    part = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
    model, x = Does(lambda inner, x: inner(x) + 1, part), torch.ones(3, 4)
    trace = fx_debug(model, x)
    assert torch.equal(trace.root.fx(x), model(x))
    assert torch.equal(trace.find("inner")[0].fx(x), part(x))
