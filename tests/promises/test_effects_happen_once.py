"""Side effects of a forward happen once, although its body runs a second time to verify its graph."""

from __future__ import annotations

import array
import collections
import csv
import ctypes
import functools
import gc
import io
import itertools
import linecache
import logging
import os
import random
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.backends import cudnn

from fxdebug import fx_debug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.replay import reachable

Count = Callable[[], Any]


class Calls(nn.Module):
    """Calls a function before it computes."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.call = call

    def forward(self, x: torch.Tensor, *more: Any) -> torch.Tensor:
        self.call(*more)
        return self.linear(x)


class Meter:
    total: list[int] = []

    def add(self) -> None:
        self.total.append(1)


def keyword_default() -> tuple[Any, Count]:
    def call(*, seen: list[int] = []) -> None:  # noqa: B006
        seen.append(1)

    return call, lambda: len(call.__kwdefaults__["seen"])


def attribute_of_a_weight() -> tuple[Any, Count]:
    weight = nn.Parameter(torch.ones(2))
    weight.uses = 0

    def call() -> None:
        weight.uses += 1

    return call, lambda: weight.uses


def bound_method_of_a_list() -> tuple[Any, Count]:
    rows: list[Any] = []
    return functools.partial(rows.append, 1), lambda: len(rows)


def bound_method_of_a_generator() -> tuple[Any, Count]:
    draws = random.Random(0)
    return draws.random, draws.getstate


def bound_method_of_an_iterator() -> tuple[Any, Count]:
    count = itertools.count()
    return count.__next__, lambda: repr(count)


def list_of_a_helper_s_class() -> tuple[Any, Count]:
    meter = Meter()
    return lambda: meter.add(), lambda: len(Meter.total)


def module_imported_in_the_body() -> tuple[Any, Count]:
    made = sys.modules["made_up_module"] = types.ModuleType("made_up_module")
    made.count = 0

    def call() -> None:
        import made_up_module

        made_up_module.count += 1

    return call, lambda: made.count


def behind_a_weak_reference() -> tuple[Any, Count]:
    trainer = types.SimpleNamespace(steps=0)
    holder = Holder(trainer)
    sys.modules["made_up_holder"] = types.ModuleType("made_up_holder")
    sys.modules["made_up_holder"].holder = holder  # somebody keeps it
    reference = weakref.ref(holder)

    def call() -> None:
        reference().held.steps += 1

    return call, lambda: trainer.steps


class Holder:
    kept: list[Any] = []

    def __init__(self, held: Any) -> None:
        self.held = held


def rows_of_a_table() -> tuple[Any, Count]:
    file = io.StringIO()
    writer = csv.writer(file)
    return lambda: writer.writerow([1]), file.getvalue


def numbers_of_an_array() -> tuple[Any, Count]:
    numbers = array.array("l", [0])
    return lambda: numbers.append(1), lambda: len(numbers)


def list_in_an_array_of_objects() -> tuple[Any, Count]:
    held = np.empty(1, object)
    held[0] = []
    return lambda: held[0].append(1), lambda: len(held[0])


def set_of_weak_references() -> tuple[Any, Count]:
    parts = [Meter() for _ in range(9)]
    seen: weakref.WeakSet[Meter] = weakref.WeakSet()
    return lambda: seen.add(parts[len(seen)]), lambda: len(seen)


def attribute_of_a_text() -> tuple[Any, Count]:
    class Name(str):
        uses = 0

    name = Name("a")

    def call() -> None:
        name.uses += 1

    return call, lambda: name.uses


def iterator_in_a_tuple() -> tuple[Any, Count]:
    held = (itertools.count(), "numbers")
    return lambda: next(held[0]), lambda: repr(held[0])


def iterator_in_a_deque() -> tuple[Any, Count]:
    held = collections.deque([itertools.count()])
    return lambda: next(held[0]), lambda: repr(held[0])


def argument_of_a_partial() -> tuple[Any, Count]:
    numbers = itertools.count()
    return functools.partial(next, numbers), lambda: repr(numbers)


def iterator_as_a_default() -> tuple[Any, Count]:
    numbers = itertools.count()

    def call(numbers: Any = numbers) -> None:
        next(numbers)

    return call, lambda: repr(numbers)


def file_in_a_tuple() -> tuple[Any, Count]:
    held = (io.StringIO(), 1)
    return lambda: held[0].write("x"), lambda: held[0].tell()


def numbers_of_c() -> tuple[Any, Count]:
    held = (ctypes.c_int * 2)()

    def call() -> None:
        held[0] += 1

    return call, lambda: held[0]


def a_view_of_bytes() -> tuple[Any, Count]:
    held = bytearray(1)
    view = memoryview(held)
    return lambda: view.__setitem__(0, view[0] + 1), lambda: held[0]


def object_that_a_function_remembers() -> tuple[Any, Count]:
    remember = functools.lru_cache(Tally)
    tallies = [remember(1), remember("a"), remember(1, "a")]

    def call() -> None:
        for key in ((1,), ("a",), (1, "a")):
            remember(*key).steps += 1

    return call, lambda: [tally.steps for tally in tallies]


def object_that_a_function_remembers_for_ever() -> tuple[Any, Count]:
    remember = functools.cache(Tally)
    tally = remember(1)

    def call() -> None:
        remember(1).steps += 1

    return call, lambda: tally.steps


class Tally:
    def __init__(self, *names: Any) -> None:
        self.names, self.steps = names, 0


EFFECTS = [
    keyword_default, attribute_of_a_weight, bound_method_of_a_list, bound_method_of_a_generator,
    bound_method_of_an_iterator, list_of_a_helper_s_class, module_imported_in_the_body, behind_a_weak_reference,
    rows_of_a_table, numbers_of_an_array, a_view_of_bytes, list_in_an_array_of_objects,
    set_of_weak_references, attribute_of_a_text, iterator_in_a_tuple, iterator_in_a_deque, argument_of_a_partial,
    iterator_as_a_default, file_in_a_tuple, numbers_of_c, object_that_a_function_remembers,
    object_that_a_function_remembers_for_ever,
]  # fmt: skip


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_happens_once(effect: Callable[[], tuple[Any, Count]]) -> None:
    call, count = effect()
    model = Calls(call)
    before = count()
    trace = fx_debug(model, torch.ones(2, 3))
    after = count()
    assert before != after
    statuses = [each.status for each in trace.calls]
    assert count() == after and statuses[0] in ("verified", "recorded")


semaphore = threading.Semaphore(5)
logger = logging.getLogger("made up")
options = torch._tensor_str.PRINT_OPTS


def write_umask(mask: int) -> None:
    os.umask(mask)


def read_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# what a forward does, how that is read, how it is put back
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any]]] = {
    "how tensors are printed": (
        lambda: torch.set_printoptions(precision=options.precision + 1), lambda: options.precision,
        lambda precision: torch.set_printoptions(precision=precision),
    ),
    "what is logged": (
        lambda: logger.addHandler(logging.NullHandler()), lambda: list(logger.handlers),
        lambda handlers: setattr(logger, "handlers", handlers),
    ),
    "which warnings are shown": (
        lambda: warnings.filterwarnings("ignore", message=str(len(warnings.filters))), lambda: list(warnings.filters),
        lambda filters: warnings.filters.__setitem__(slice(None), filters),
    ),
    "a semaphore": (semaphore.release, lambda: semaphore._value, lambda value: setattr(semaphore, "_value", value)),
    "when garbage is collected": (
        lambda: gc.set_threshold(gc.get_threshold()[0] + 1), gc.get_threshold,
        lambda thresholds: gc.set_threshold(*thresholds),
    ),
    "where modules are": (
        lambda: sys.path.append("nowhere"), lambda: list(sys.path),
        lambda path: sys.path.__setitem__(slice(None), path),
    ),
    "how threads take turns": (
        lambda: sys.setswitchinterval(sys.getswitchinterval() + 0.01), sys.getswitchinterval, sys.setswitchinterval,
    ),
    "who may read new files": (lambda: write_umask(read_umask() + 1), read_umask, write_umask),
    "how gradients are checked": (
        lambda: torch.autograd.set_detect_anomaly(not torch.is_anomaly_enabled()), torch.is_anomaly_enabled,
        torch.autograd.set_detect_anomaly,
    ),
    "how convolutions are computed": (
        lambda: setattr(cudnn, "benchmark", not cudnn.benchmark), lambda: cudnn.benchmark,
        lambda benchmark: setattr(cudnn, "benchmark", benchmark),
    ),
    "how often torch warns": (
        lambda: torch.set_warn_always(not torch.is_warn_always_enabled()), torch.is_warn_always_enabled,
        torch.set_warn_always,
    ),
    "lines of files": (
        lambda: linecache.cache.__setitem__(str(len(linecache.cache)), (0, 0.0, [], "")),
        lambda: dict(linecache.cache),
        lambda lines: (linecache.clearcache(), linecache.cache.update(lines)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_changed_once(name: str) -> None:
    change, read, put_back = SETTINGS[name]
    model, found = Calls(change), read()
    try:
        trace = fx_debug(model, torch.ones(2, 3))
        after = read()
        assert after != found
        assert trace.root.status in ("verified", "recorded")
        assert read() == after
    finally:
        put_back(found)


def test_a_line_printed_to_a_file_of_the_program_is_printed_once() -> None:
    log = io.StringIO()
    trace = fx_debug(Calls(lambda: print("a line", file=log)), torch.ones(2, 3))
    assert trace.root.status == "verified" and log.getvalue() == "a line\n"


def test_warnings_ignored_for_a_block_are_no_lasting_change() -> None:
    def quietly() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("nobody hears", stacklevel=1)

    before = list(warnings.filters)
    trace = fx_debug(Calls(quietly), torch.ones(2, 3))
    assert trace.root.status == "verified" and warnings.filters == before


def test_a_callback_that_is_passed_to_a_body_has_its_effect_once() -> None:
    rows: list[int] = []

    def callback() -> None:
        rows.append(1)

    trace = fx_debug(Calls(lambda given: given()), (torch.ones(2, 3), callback))
    assert len(rows) == 1 and trace.root.status == "verified" and len(rows) == 1


def test_a_body_does_not_run_again_where_the_model_reaches_too_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, "MAX_OBJECTS", 50)
    held = [[] for _ in range(100)]
    rows: list[int] = []

    def call() -> None:
        rows.append(len(held))

    trace = fx_debug(Calls(call), torch.ones(2, 3))
    assert trace.root.reason == "the program holds more objects than could be put back if it were run again"
    assert trace.find("linear")[0].status == "verified"
    assert len(rows) == 1


def test_a_function_of_torch_that_the_program_replaced_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, linear = [0], torch.nn.functional.linear

    def counting(*args: Any, **kwargs: Any) -> Any:
        counted[0] += 1
        return linear(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "linear", counting)
    trace = fx_debug(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.ones(1, 2))
    assert trace.call_graphs is not None
    assert counted == [1]


class Draws(nn.Module):
    """Draws a random number of Python, and then takes from an iterator, which ends its trace."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + next(self.numbers) if random.random() < 2 else x


def test_numbers_drawn_in_a_trace_that_ends_early_are_not_counted_for_the_next_body() -> None:
    x, second = torch.ones(1, 3), Calls(lambda: None)
    forget_templates()
    trace = fx_debug(nn.Sequential(Draws(), second), x)
    assert [(call.id, call.status) for call in trace.calls][:3] == [
        ("#0", "verified"), ("0#0", "recorded"), ("1#0", "verified")
    ]  # fmt: skip
    assert torch.equal(trace.find("1")[0].fx(x), second(x))
