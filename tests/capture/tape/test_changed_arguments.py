"""Lists and dicts that a call is given and changes: the graphs of the call and of its caller hold the change."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from support.same import difference
from support.watched import Layer, watched


class Appends(Layer):
    def forward(self, x: torch.Tensor, outs: list[torch.Tensor]) -> torch.Tensor:
        outs.append(self.l(x))
        return x + 1


class Replaces(Layer):
    def forward(self, outs: list[torch.Tensor]) -> list[torch.Tensor]:
        for i, x in enumerate(outs):
            outs[i] = self.l(x)
        return [x.relu() for x in outs]


class Updates(Layer):
    def forward(self, data: dict[str, Any]) -> None:
        data.update({"b": self.l(data["a"]), "scale": 2.0})
        del data["old"]


class Pops(Layer):
    def forward(self, x: torch.Tensor, *, pending: list[torch.Tensor]) -> torch.Tensor:
        return x + self.l(pending.pop())


class Passes(Layer):
    """Hands on the list to a child that changes it."""

    def setup(self) -> None:
        self.inner = Appends()

    def forward(self, x: torch.Tensor, outs: list[torch.Tensor]) -> torch.Tensor:
        return self.inner(self.inner(x, outs), outs)  # type: ignore[no-any-return]


class AppendsTwice(Layer):
    def setup(self) -> None:
        self.appends = Appends()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs: list[torch.Tensor] = [x * 2]
        y = self.appends(self.appends(x, outs), outs)
        return torch.cat([*outs, y], 1)


class ReplacesAll(Layer):
    def setup(self) -> None:
        self.replaces = Replaces()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs = [x, x + 1]
        more = self.replaces(outs)
        return outs[0] * more[1] - outs[1]


class UpdatesADict(Layer):
    def setup(self) -> None:
        self.updates = Updates()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        data: dict[str, Any] = {"a": x, "old": 3}
        self.updates(data)
        return data["b"] * data["scale"] + len(data)  # type: ignore[no-any-return]


class PopsOne(Layer):
    def setup(self) -> None:
        self.pops = Pops()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pending = [x, x * 3]
        y = self.pops(x, pending=pending)
        return y + pending[0] * len(pending)


class PassesOn(Layer):
    def setup(self) -> None:
        self.passes = Passes()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs: list[torch.Tensor] = []
        return self.passes(x, outs) + outs[0] + outs[-1]


class Found:
    def __init__(self, box: torch.Tensor) -> None:
        self.box = box


class Finds(Layer):
    def forward(self, x: torch.Tensor, found: list[Found]) -> torch.Tensor:
        found.append(Found(self.l(x)))
        return x + 1


class AppendsAnObject(Layer):
    def setup(self) -> None:
        self.finds = Finds()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: list[Found] = []
        return self.finds(x, found) * found[0].box


class AppendsAround(Appends):
    """Computes around its ``forward``, and adds what the caller puts into an attribute."""

    more: torch.Tensor

    def __call__(self, x: torch.Tensor, outs: list[torch.Tensor]) -> Any:
        return super().__call__(x * 2, outs) - 1

    def forward(self, x: torch.Tensor, outs: list[torch.Tensor]) -> torch.Tensor:
        return super().forward(x, outs) + self.more


class HandsOver(Layer):
    def setup(self) -> None:
        self.appends = AppendsAround()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs: list[torch.Tensor] = []
        self.appends.more = x.relu()
        return self.appends(x, outs) + outs[0]


class FillsInside(Layer):
    """Changes a dict in a list, and a list in a tuple in a dict."""

    def forward(self, x: torch.Tensor, tables: list[dict[str, torch.Tensor]], more: dict[str, Any]) -> torch.Tensor:
        tables[0]["keys"] = torch.cat([tables[0]["keys"], self.l(x)])
        more["pair"][1].append(x * 2)
        return x + tables[0]["keys"].sum(0)


class ChangesInside(Layer):
    def setup(self) -> None:
        self.fills = FillsInside()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tables, more = [{"keys": x + 1}, {"keys": x}], {"pair": (x, [x])}
        first = tables[0]
        y = self.fills(self.fills(x, tables, more=more), tables, more)
        return y + first["keys"].sum(0) + more["pair"][1][-1] + tables[1]["keys"]  # type: ignore[index]


@dataclass
class State:
    hidden: torch.Tensor
    steps: int = 0
    seen: list[torch.Tensor] = field(default_factory=list)


class Steps(Layer):
    def forward(self, x: torch.Tensor, state: State, states: dict[str, State]) -> torch.Tensor:
        state.hidden = state.hidden + self.l(x)
        state.steps += 1
        state.seen.append(x)
        states["other"].hidden = x.relu()
        return state.hidden * state.steps


class StepsTwice(Layer):
    def setup(self) -> None:
        self.steps = Steps()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, states = State(x), {"other": State(x * 2)}
        y = self.steps(self.steps(x, state, states), state, states)
        return y + state.hidden * state.steps + states["other"].hidden + state.seen[1]


class MovesToTheEnd(Layer):
    def forward(self, x: torch.Tensor, features: OrderedDict[str, Any]) -> torch.Tensor:
        features["out"] = self.l(x)
        features.setdefault("rows", []).append(features.pop("x") * 2)
        features.move_to_end("first")
        return features["rows"][0]  # type: ignore[no-any-return]


class OrdersItsDict(Layer):
    def setup(self) -> None:
        self.moves = MovesToTheEnd()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features: OrderedDict[str, Any] = OrderedDict(first=x, x=x + 1)
        y = self.moves(x, features)
        first, *others = (each for each in reversed(features.values()) if isinstance(each, torch.Tensor))
        return y + first - others[0] + features["rows"][0]  # type: ignore[no-any-return]


class Pair(NamedTuple):
    rows: list[torch.Tensor]
    named: dict[str, torch.Tensor]


class FillsAPair(Layer):
    def forward(self, pair: Pair) -> torch.Tensor:
        pair.rows.insert(0, self.l(pair.rows[-1]))
        pair.named.update(last=pair.rows[0] * 2)
        return pair.rows[0]


class FillsAPairTwice(Layer):
    def setup(self) -> None:
        self.fills = FillsAPair()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pair = Pair([x], {})
        y = self.fills(pair) + self.fills(pair)
        return y + pair.rows[0] - pair.rows[1] + pair.named["last"]  # type: ignore[no-any-return]


MODELS = (
    AppendsTwice, ReplacesAll, UpdatesADict, PopsOne, PassesOn, AppendsAnObject, HandsOver, ChangesInside, StepsTwice,
    OrdersItsDict, FillsAPairTwice,
)  # fmt: skip


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_every_call_is_verified(kind: type[nn.Module]) -> None:
    assert watched(lambda: (kind().eval(), torch.randn(3, 8))).not_verified() == {}


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_call_fx_computes_the_same_for_another_batch(kind: type[nn.Module]) -> None:
    model, x = kind().eval(), torch.randn(5, 8)
    with torch.no_grad():
        graph = fx_debug(model, torch.randn(3, 8)).root.fx
        assert torch.equal(graph(x), model(x))


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_a_plain_copy_of_call_fx_changes_the_containers_too(kind: type[nn.Module]) -> None:
    model, x = kind().eval(), torch.randn(3, 8)
    with torch.no_grad():
        plain = copy.copy(fx_debug(model, x).root.fx)
        assert torch.equal(plain(x), model(x))


def test_call_fx_of_the_changing_call_changes_what_it_is_given() -> None:
    model, x = Appends().eval(), torch.randn(3, 8)
    with torch.no_grad():
        graph = fx_debug(model, (x, [x])).root.fx
        outs, expected = [x], [x]
        assert torch.equal(graph(x, outs), model(x, expected))
    assert len(outs) == 2 and torch.equal(outs[1], expected[1])


def test_what_a_call_appended_comes_from_that_call() -> None:
    model = AppendsTwice().eval()
    with torch.no_grad():
        trace = fx_debug(model, torch.randn(3, 8))
    cat = trace.ops("cat")[0]
    assert {"appends.l#0", "appends.l#1"} <= {node.call.id for node in trace.upstream(cat)}


class Twice(Layer):
    def setup(self) -> None:
        self.both = Both()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs: list[torch.Tensor] = [x]
        return self.both(outs, outs) + outs[1]  # type: ignore[no-any-return]


class Both(Layer):
    def forward(self, a: list[torch.Tensor], b: list[torch.Tensor]) -> torch.Tensor:
        a.append(self.l(b[0]))
        return b[1]


def test_a_list_given_twice_is_only_recorded() -> None:
    reasons = watched(lambda: (Twice().eval(), torch.randn(3, 8))).not_verified()
    assert reasons["both#0"] == "recorded: it changes a list that it was given"


def test_call_fx_changes_what_is_inside_its_arguments() -> None:
    def given() -> Any:
        return torch.ones(3, 8), [{"keys": torch.ones(2, 8)}], {"pair": (torch.ones(1), [])}

    model, ours, theirs = FillsInside().eval(), given(), given()
    with torch.no_grad():
        graph = fx_debug(model, given()).root.fx
        assert difference((graph(*ours), ours), (model(*theirs), theirs)) is None


def test_call_fx_changes_a_dataclass() -> None:
    def given() -> Any:
        return torch.ones(3, 8), State(torch.ones(3, 8)), {"other": State(torch.ones(3, 8))}

    model, ours, theirs = Steps().eval(), given(), given()
    with torch.no_grad():
        graph = fx_debug(model, given()).root.fx
        assert difference((graph(*ours), ours), (model(*theirs), theirs)) is None


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (MovesToTheEnd, lambda x: (x, OrderedDict(first=x, x=x + 1))),
        (FillsAPair, lambda x: (Pair([x, x + 1], {}),)),
        (FillsAPair, lambda x: (Pair([x], {"last": x}),)),
    ],
)
def test_call_fx_changes_an_ordered_dict_and_what_is_in_a_named_tuple(kind: type[nn.Module], given: Any) -> None:
    model = kind().eval()
    ours, theirs = given(torch.ones(5, 8)), given(torch.ones(5, 8))
    with torch.no_grad():
        graph = fx_debug(model, given(torch.ones(3, 8))).root.fx
        assert difference((graph(*ours), ours), (model(*theirs), theirs)) is None
