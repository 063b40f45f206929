"""Objects that a body changes are changed once, although bodies run a second time.

Each model does something whose repetition would show. ``watched`` compares output, state and random numbers with an
untraced run, and checks verified graphs. Each test adds the state outside of the modules (``outside``), and the status
and reason of the call.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from support.watched import VERIFIED, Layer, saw, watched

KEEPS = ("recorded", "the program keeps a tensor of it in a place of its own", "")

OTHER_TENSOR = (
    "a tensor is passed that was not there when it ran: from outside, or made by no operation (from_numpy), in {}"
)

COUNT = 0

LOG: list[Any] = []

TABLE: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def restored_globals() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    global COUNT
    COUNT = 0
    LOG.clear()
    TABLE.clear()
    globals().pop("MADE", None)


def test_a_global_counter_counts_once() -> None:
    class Counts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global COUNT
            COUNT += 1
            return self.l(x)

    assert saw(Counts, before=forget, outside=lambda model: COUNT) == VERIFIED


def test_a_global_that_a_forward_creates_is_created_once() -> None:
    class Makes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global MADE
            MADE = globals().get("MADE", 0) + 1
            return self.l(x)

    assert saw(Makes, before=forget, outside=lambda model: globals().get("MADE")) == VERIFIED


def test_a_body_that_computes_with_a_counter_is_recorded_as_its_second_run_differs() -> None:
    class Uses(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global COUNT
            COUNT += 1
            return self.l(x) * COUNT

    reason = ("recorded", "the constant 2 stands where 1 was, in mul", "return self.l(x) * COUNT")
    assert saw(Uses, before=forget, outside=lambda model: COUNT) == reason


def test_a_list_of_numbers_grows_once() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            LOG.append(x.shape[0])
            return self.l(x)

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED


def test_a_list_of_activations_has_those_of_the_run() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            LOG.append(y)
            return y * 2

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED


def test_a_list_of_outputs_has_the_tensors_that_were_returned() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            LOG.append(y)
            return y

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED
    assert all(type(kept) is torch.Tensor for kept in LOG)


def test_a_model_may_return_its_argument() -> None:
    class Returns(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.l(x)
            return x

    assert saw(Returns) == VERIFIED


def test_a_list_of_arguments_that_are_returned_has_those_tensors() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            LOG.append(x)
            return x

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED
    assert LOG and all(type(kept) is torch.Tensor for kept in LOG)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict, weakref.WeakValueDictionary])
def test_a_dict_of_activations_has_those_of_the_run(kind: Any) -> None:
    table = kind()

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = table["x"] = self.l(x)
            return y * 2

    assert saw(Stores, before=table.clear, outside=lambda model: dict(table)) == VERIFIED


@pytest.mark.parametrize("kind", [set, collections.deque])
def test_a_set_or_a_deque_of_activations_has_those_of_the_run(kind: Any) -> None:
    kept = kind()

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            (kept.add if kind is set else kept.append)(y)
            return y * 2

    assert saw(Stores, before=kept.clear, outside=lambda model: list(kept)) == VERIFIED


def test_a_list_that_is_reached_through_its_append_method_has_the_tensors_of_the_run() -> None:
    kept: list[torch.Tensor] = []
    put = kept.append

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            put(y)
            return y * 2

    assert saw(Stores, before=kept.clear, outside=lambda model: list(kept)) == VERIFIED


def test_a_place_that_cannot_be_reached_from_the_model_keeps_the_tensors_of_the_run() -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)
    context = contextvars.copy_context()  # made by C: nothing tells what is in it

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            context.run(variable.set, y)
            return y * 2

    def before() -> None:
        context.run(variable.set, None)

    assert saw(Stores, before=before, outside=lambda model: [context[variable]]) == KEEPS


def test_outputs_and_arguments_may_be_kept_in_such_a_place_too() -> None:
    """Other references to them are known: only the number of references tells that there is one more."""
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)
    context = contextvars.copy_context()

    class StoresResult(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x) * 2
            context.run(variable.set, y)
            return y

    class StoresArgument(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            context.run(variable.set, x)
            return self.l(x) * 2

    def before() -> None:
        context.run(variable.set, None)

    for kind in (StoresResult, StoresArgument):
        assert saw(kind, before=before, outside=lambda model: [context[variable]]) == KEEPS


def test_a_closure_variable_is_assigned_once() -> None:
    last: Any = None

    class Remembers(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal last
            last = self.l(x)
            return last * 2

    assert saw(Remembers, outside=lambda model: last) == VERIFIED


def test_the_slots_of_an_object_change_once() -> None:
    class Record:
        __slots__ = ("count", "last")

        def __init__(self) -> None:
            self.count = 0

    class Remembers(Layer):
        def setup(self) -> None:
            self.record = Record()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.record.count += 1
            return self.l(x)

    assert saw(Remembers, outside=lambda model: model.record.count) == VERIFIED


def test_a_class_attribute_changes_once() -> None:
    class Remembers(Layer):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            type(self).calls += 1
            return self.l(x)

    def reset() -> None:
        Remembers.calls = 0

    assert saw(Remembers, before=reset, outside=lambda model: Remembers.calls) == VERIFIED


HERE = threading.local()


def test_a_thread_local_variable_changes_once() -> None:
    class Counts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            HERE.count = getattr(HERE, "count", 0) + 1
            return self.l(x)

    seen = watched(
        lambda: (Counts(), torch.randn(3, 8)),
        before=lambda: vars(HERE).clear(),
        outside=lambda model: HERE.count,
    )
    assert seen.not_verified() == {}


def test_an_attribute_of_a_function_changes_once() -> None:
    def counted(x: torch.Tensor) -> torch.Tensor:
        counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * 2

    class Calls(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return counted(self.l(x))

    assert saw(Calls, before=lambda: vars(counted).clear(), outside=lambda model: dict(vars(counted))) == VERIFIED


def test_a_mutable_default_argument_changes_once() -> None:
    class Defaults(Layer):
        def forward(self, x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
            seen.append(1)
            return self.l(x)

    defaults: Any = Defaults.forward.__defaults__
    assert saw(Defaults, before=defaults[0].clear, outside=lambda model: list(defaults[0])) == VERIFIED


def test_an_attribute_of_the_module_changes_once() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.l(x)

    assert saw(Counts, outside=lambda model: model.calls) == VERIFIED


def test_a_body_that_assigns_a_new_buffer_is_recorded() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = self.calls + 1
            return self.l(x)

    status, words, line = saw(Counts)
    replaced = "since it ran, calls was replaced by another tensor, in add"
    assert (status, words, line) == ("recorded", replaced, "self.calls = self.calls + 1")


def test_a_buffer_that_is_written_to_is_written_to_once() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.l(x) * self.calls

    assert saw(Counts) == VERIFIED


def test_a_module_may_be_registered_in_a_forward() -> None:
    class Grows(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "late"):
                self.late = nn.ReLU()
            return self.late(self.l(x))

    assert saw(Grows, outside=lambda model: list(model._modules)) == VERIFIED


def test_a_body_that_fills_a_cache_is_verified_with_the_cache_as_it_was_before() -> None:
    class Caches(Layer):
        def setup(self) -> None:
            self.masks: dict[int, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            if n not in self.masks:
                self.masks[n] = torch.ones(n, 1)
            return self.l(x) * self.masks[n]

    assert saw(Caches, outside=lambda model: dict(model.masks))[0] == "verified"


def test_a_child_that_fills_a_dataclass_of_its_caller_is_verified_and_the_caller_too() -> None:
    @dataclasses.dataclass
    class Notes:
        found: dict[str, torch.Tensor]
        last: torch.Tensor | None = None

    class Fills(nn.Module):
        def forward(self, x: torch.Tensor, notes: Notes) -> torch.Tensor:
            notes.found["x"] = x + 1
            return x + 2

    class Sets(nn.Module):
        def forward(self, x: torch.Tensor, notes: Notes) -> torch.Tensor:
            notes.last = x + 1
            return x + 2

    class Parent(Layer):
        def setup(self) -> None:
            self.fills, self.sets = Fills(), Sets()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fills(x, Notes({})) + self.sets(x, Notes({}))

    assert watched(lambda: (Parent(), torch.randn(3, 8))).not_verified() == {}
