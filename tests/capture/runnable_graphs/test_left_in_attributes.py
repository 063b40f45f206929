"""A call may leave a tensor where its caller finds it: the caller's graph reads it anew, or is only recorded."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import UsageError
from support.same import difference
from support.trees import Does


class Leaves(nn.Module):
    """Leaves a loss in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.loss: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        self.loss = y.pow(2).mean()
        return y


class ReplacesABuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = x.mean(0)
        return x * 2


class Holder:
    seen: Any = None


class Finds(nn.Module):
    """Leaves tensors inside of attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, Any] = {}
        self.kept = Holder()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.found = {"mean": x.mean(0), "pair": (x, x.amax(0))}
        self.kept.seen = x.amin(0)
        return x * 2


class KeepsOnce(nn.Module):
    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.arange(4.0)
        return x * 2


class Scales(nn.Module):
    def forward(self, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return x * by


def all_losses(self: Any, x: torch.Tensor) -> Any:
    for layer in self.layers:
        x = layer(x)
    return x, sum(module.loss for module in self.modules() if isinstance(module, Leaves))


def hooked() -> nn.Module:
    body = Does(lambda s, x: s.a(x) + s.a.seen, a=nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    body.a[1].register_forward_hook(lambda module, args, result: setattr(body.a, "seen", result))
    return body


ATTRIBUTES: dict[str, Callable[[], nn.Module]] = {
    "a loss": lambda: Does(lambda s, x: (s.a(x), s.a.loss), a=Leaves()),
    "all losses": lambda: Does(all_losses, layers=nn.ModuleList([Leaves(), Leaves(), Leaves()])),
    "the last loss": lambda: Does(lambda s, x: s.a(s.a(x)) + s.a.loss, a=Leaves()),
    "a loss deep inside": lambda: Does(lambda s, x: s.a(x) + s.a[0][0].loss, a=nn.Sequential(nn.Sequential(Leaves()))),
    "passed on": lambda: Does(lambda s, x: s.b(s.a(x), s.a.loss), a=Leaves(), b=Scales()),
    "a buffer": lambda: Does(lambda s, x: s.a(x) + s.a.mean, a=ReplacesABuffer()),
    "a table that is made once": lambda: Does(lambda s, x: s.a(x) + s.a.table, a=KeepsOnce()),
    "by a hook": hooked,
    "in a dict": lambda: Does(lambda s, x: s.a(x) * s.a.found["mean"], a=Finds()),
    "in a tuple in a dict": lambda: Does(lambda s, x: s.a(x) * s.a.found["pair"][1], a=Finds()),
    "in an object": lambda: Does(lambda s, x: s.a(x) * s.a.kept.seen, a=Finds()),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_what_a_call_leaves_in_an_attribute_is_read_anew(name: str) -> None:
    torch.manual_seed(0)
    model = ATTRIBUTES[name]()
    call = fx_debug(model, torch.randn(3, 4)).root
    assert call.status == "verified", call.reason
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        for graph in (call.fx, copy.copy(call.fx)):
            assert difference(graph(x), model(x)) is None


def read_between(self: Any, x: torch.Tensor) -> Any:
    y = self.a(x)
    between = self.a.loss
    return self.a(y) + between


def taken_away(self: Any, x: torch.Tensor) -> Any:
    y = self.a(x)
    loss, self.a.loss = self.a.loss, None
    return y * loss


class LeavesIn(nn.Module):
    def __init__(self, place: Any) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = self.place() if isinstance(self.place, types.FunctionType) else self.place
        if isinstance(place, list):
            place.append(x.mean(0))
        elif isinstance(place, dict):
            place["seen"] = x.mean(0)
        else:
            place.seen = x.mean(0)
        return x * 2


class Throws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("too large", x.mean(0))


def caught(self: Any, x: torch.Tensor) -> Any:
    try:
        return self.a(x)
    except ValueError as error:
        return x * error.args[1]


HOLDER, LIST, DICT = Holder(), list[torch.Tensor](), dict[str, torch.Tensor]()
WEIGHT = nn.Parameter(torch.ones(4))

ELSEWHERE: dict[str, Callable[[], nn.Module]] = {
    "read between two calls": lambda: Does(read_between, a=Leaves()),
    "taken away": lambda: Does(taken_away, a=Leaves()),
    "in a list": lambda: Does(lambda s, x: s.a(x) + LIST[-1], a=LeavesIn(LIST)),
    "in a list of the module": lambda: Does(lambda s, x: s.a(x) + s.a.place[-1], a=LeavesIn([])),
    "in a dict": lambda: Does(lambda s, x: s.a(x) + DICT["seen"], a=LeavesIn(lambda: DICT)),
    "in an object": lambda: Does(lambda s, x: s.a(x) + HOLDER.seen, a=LeavesIn(lambda: HOLDER)),
    "in a class": lambda: Does(lambda s, x: s.a(x) + Holder.seen, a=LeavesIn(Holder)),
    "on a weight": lambda: Does(lambda s, x: s.a(x) + WEIGHT.seen, a=LeavesIn(WEIGHT)),
    "in an exception": lambda: Does(caught, a=Throws()),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_a_call_leaves_elsewhere_is_no_constant_of_a_verified_graph(name: str) -> None:
    LIST.clear()
    call = fx_debug(ELSEWHERE[name](), torch.randn(3, 4)).root
    assert call.status == "recorded"
    assert " takes a tensor that was made inside " in call.reason and "test_left_in_attributes.py:" in call.reason


class Reads(nn.Module):
    given: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.given


def test_what_is_put_into_another_module_is_never_stale() -> None:
    """After the run it is there already, so that running the body again changes nothing."""

    def body(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.a(x)
        self.reads.given = self.a.loss
        return self.reads(y)  # type: ignore[no-any-return]

    call = fx_debug(Does(body, a=Leaves(), reads=Reads()), torch.randn(3, 4)).root
    for rows in (3, 5):
        with pytest.raises(UsageError, match="Reads in it does something else than alone at test_left_in"):
            call.fx(torch.randn(rows, 4))
