"""Explaining a run runs bodies a second time: what their Python touches is touched once, as far as anyone can see.

Each model does something whose repetition would show: in its objects, in the process, in the world.
``watched`` holds result, state and random numbers against an untraced run and judges verified graphs;
each test adds what is outside the modules, and says what the call's status and reason are.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import itertools
import logging
import os
import queue
import random
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from reasons import reason_of
from torch import nn
from watched import Layer, watched

import fxdebug

Saw = tuple[str | None, str, str]


def saw(kind: type[nn.Module], **options: Any) -> Saw:
    """Status, words of the reason and line of the root, after all that :func:`watched` asserts."""
    seen = watched(lambda: (kind(), torch.randn(3, 8)), **options)
    return (seen.root.status, *reason_of(seen.root))


VERIFIED = ("verified", "", "")
KEEPS = ("recorded", "the program keeps a tensor of it in a place of its own", "")
OTHER_TENSOR = (
    "a tensor is passed that was not there when it ran: from outside, or made by no operation (from_numpy), in {}"
)

# Places that hold things ---------------------------------------------------------------------------------------------

COUNT = 0
LOG: list[Any] = []
TABLE: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def globals_as_they_were() -> Iterator[None]:
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


def test_a_global_that_a_forward_makes_is_made_once() -> None:
    class Makes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global MADE
            MADE = globals().get("MADE", 0) + 1
            return self.l(x)

    assert saw(Makes, before=forget, outside=lambda model: globals().get("MADE")) == VERIFIED


def test_a_counter_that_is_used_gives_a_recorded_graph_as_its_second_run_computes_something_else() -> None:
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


def test_a_list_that_keeps_activations_keeps_those_of_the_run() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            LOG.append(y)
            return y * 2

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED


def test_a_list_that_keeps_what_is_also_returned_keeps_the_returned_tensor() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            LOG.append(y)
            return y

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED
    assert all(type(kept) is torch.Tensor for kept in LOG)


def test_a_model_that_returns_what_it_was_given_keeps_nothing() -> None:
    class Returns(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.l(x)
            return x

    assert saw(Returns) == VERIFIED


def test_a_list_that_keeps_what_is_given_and_returned_keeps_that_tensor() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            LOG.append(x)
            return x

    assert saw(Appends, before=forget, outside=lambda model: list(LOG)) == VERIFIED
    assert LOG and all(type(kept) is torch.Tensor for kept in LOG)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.defaultdict, weakref.WeakValueDictionary])
def test_a_dict_that_keeps_activations_by_name(kind: Any) -> None:
    table = kind()

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = table["x"] = self.l(x)
            return y * 2

    assert saw(Stores, before=table.clear, outside=lambda model: dict(table)) == VERIFIED


@pytest.mark.parametrize("kind", [set, collections.deque])
def test_a_set_or_a_deque_that_keeps_activations(kind: Any) -> None:
    kept = kind()

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            (kept.add if kind is set else kept.append)(y)
            return y * 2

    assert saw(Stores, before=kept.clear, outside=lambda model: list(kept)) == VERIFIED


def test_a_list_that_is_known_by_a_method_of_it() -> None:
    kept: list[torch.Tensor] = []
    put = kept.append

    class Stores(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            put(y)
            return y * 2

    assert saw(Stores, before=kept.clear, outside=lambda model: list(kept)) == VERIFIED


def test_a_place_that_cannot_be_found_from_the_model_keeps_the_tensors_of_the_run() -> None:
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


def test_a_closed_over_variable() -> None:
    last: Any = None

    class Remembers(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            nonlocal last
            last = self.l(x)
            return last * 2

    assert saw(Remembers, outside=lambda model: last) == VERIFIED


def test_an_object_of_the_programs_own_with_slots() -> None:
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


def test_a_class_attribute() -> None:
    class Remembers(Layer):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            type(self).calls += 1
            return self.l(x)

    def reset() -> None:
        Remembers.calls = 0

    assert saw(Remembers, before=reset, outside=lambda model: Remembers.calls) == VERIFIED


HERE = threading.local()


def test_a_variable_of_a_thread() -> None:
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


def test_an_attribute_of_a_function() -> None:
    def counted(x: torch.Tensor) -> torch.Tensor:
        counted.calls = getattr(counted, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * 2

    class Calls(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return counted(self.l(x))

    assert saw(Calls, before=lambda: vars(counted).clear(), outside=lambda model: dict(vars(counted))) == VERIFIED


def test_a_mutable_default_argument() -> None:
    class Defaults(Layer):
        def forward(self, x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
            seen.append(1)
            return self.l(x)

    defaults: Any = Defaults.forward.__defaults__
    assert saw(Defaults, before=defaults[0].clear, outside=lambda model: list(defaults[0])) == VERIFIED


def test_an_attribute_of_the_module_that_counts() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.l(x)

    assert saw(Counts, outside=lambda model: model.calls) == VERIFIED


def test_a_buffer_that_is_assigned_anew() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = self.calls + 1
            return self.l(x)

    status, words, line = saw(Counts)
    replaced = "since it ran, calls was replaced by another tensor, in add"
    assert (status, words, line) == ("recorded", replaced, "self.calls = self.calls + 1")


def test_a_call_that_raises_and_is_caught_is_why_its_caller_is_not_explained() -> None:
    class Tries(Layer):
        def setup(self) -> None:
            self.wrong = nn.Linear(5, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.wrong(x)
            except RuntimeError:
                return self.l(x)

    assert saw(Tries) == ("recorded", "a call in it raised RuntimeError", "")


def test_a_buffer_that_is_written_to_is_written_to_once() -> None:
    class Counts(Layer):
        def setup(self) -> None:
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.l(x) * self.calls

    assert saw(Counts) == VERIFIED


def test_a_module_that_is_registered_in_forward() -> None:
    class Grows(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "late"):
                self.late = nn.ReLU()
            return self.late(self.l(x))

    assert saw(Grows, outside=lambda model: list(model._modules)) == VERIFIED


def test_a_cache_that_is_filled_once_and_read_ever_after() -> None:
    class Caches(Layer):
        def setup(self) -> None:
            self.masks: dict[int, torch.Tensor] = {}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            if n not in self.masks:
                self.masks[n] = torch.ones(n, 1)
            return self.l(x) * self.masks[n]

    status, words, line = saw(Caches, outside=lambda model: dict(model.masks))
    assert (status, words) == ("recorded", "run again, it calls the module Linear where ones ran")
    assert line == "return self.l(x) * self.masks[n]"


@functools.lru_cache
def mask(size: int) -> torch.Tensor:
    return torch.ones(size, 1)


@functools.lru_cache
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_an_lru_cache_computes_nothing_with_stand_ins() -> None:
    class Cached(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * mask(x.shape[0])

    assert saw(Cached, before=mask.cache_clear, outside=lambda model: mask.cache_info()) == VERIFIED
    status, words, _ = saw(Cached, before=lambda: mask(3), outside=lambda model: mask.cache_info().currsize)
    assert (status, words) == ("recorded", "run again, it calls ones where mul ran")


def test_an_lru_cache_with_a_tensor_as_its_key() -> None:
    class Cached(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return doubled(self.l(x))

    assert saw(Cached, before=doubled.cache_clear, outside=lambda model: doubled.cache_info()) == VERIFIED
    doubled.cache_clear()


# Things that are used up ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda: itertools.count(1), lambda: iter([1, 2, 3, 4]), lambda: (i for i in range(1, 9))],
    ids=["count", "list iterator", "generator"],
)  # fmt: skip
def test_an_iterator_is_taken_from_once(make: Callable[[], Iterator[int]]) -> None:
    class Takes(Layer):
        def setup(self) -> None:
            self.numbers = make()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * next(self.numbers)

    status, words, line = saw(Takes)
    assert (status, words) == ("recorded", "it takes from an iterator that the program holds")
    assert line == "return self.l(x) * next(self.numbers)"
    model = Takes()
    assert fxdebug.fx_debug(model, torch.ones(3, 8)).root.status == "recorded"
    assert next(model.numbers) == 2


def test_a_queue_gives_and_takes_once() -> None:
    class Queues(Layer):
        def setup(self) -> None:
            self.queue: queue.Queue[int] = queue.Queue()
            self.queue.put(5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = self.queue.get_nowait()
            return self.l(x) * n

    assert saw(Queues, outside=lambda model: model.queue.qsize())[:2] == (
        "recorded",
        "it takes something from a queue",
    )


def test_random_numbers_of_every_generator_go_on_as_if_nothing_had_been() -> None:
    class Draws(Layer):
        def setup(self) -> None:
            self.own = random.Random(3)
            self.numpy = np.random.default_rng(3)
            self.old = np.random.RandomState(3)
            self.torch = torch.Generator().manual_seed(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            noise = torch.rand(8, generator=self.torch) + torch.rand(())
            drawn = self.own.random(), self.numpy.random(), self.old.rand(), random.random(), np.random.rand()
            return self.l(x) + noise if drawn else x

    def states(model: Any) -> Any:
        return (
            model.own.getstate(), str(model.numpy.bit_generator.state), model.old.get_state(), model.torch.get_state(),
        )  # fmt: skip

    assert saw(Draws, outside=states, not_alone=("#0",)) == VERIFIED  # the audit rewinds torch's own generator only


def test_a_python_random_number_in_the_result_gives_a_recorded_graph() -> None:
    class Draws(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * random.random()

    status, words, line = saw(Draws)
    assert (status, line) == ("recorded", "return self.l(x) * random.random()")
    assert words.startswith("the constant 0.") and words.endswith(" was, in mul")


def test_a_seed_that_a_forward_sets_is_not_set_again() -> None:
    class Seeds(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(3)
            return self.l(x) + torch.rand(8)

    assert saw(Seeds) == (
        "recorded",
        "its Python sets the state of torch's random numbers before an operation",
        "return self.l(x) + torch.rand(8)",
    )


def test_a_random_state_that_a_forward_sets_and_puts_back_gives_a_recorded_graph() -> None:
    class Forks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                noise = torch.rand(8)
            return self.l(x) + noise

    class DrawsTheSameTwice(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.get_rng_state()
            noise = torch.rand(8)
            torch.set_rng_state(state)
            return self.l(x) + noise + torch.rand(8)

    words = "its Python sets the state of torch's random numbers before an operation"
    assert saw(Forks) == ("recorded", words, "noise = torch.rand(8)")
    assert saw(DrawsTheSameTwice) == ("recorded", words, "return self.l(x) + noise + torch.rand(8)")


def test_a_dataclass_that_a_child_fills_is_the_childs_hazard() -> None:
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

    seen = watched(lambda: (Parent(), torch.randn(3, 8)), audited=False)  # the judge copies no dataclass
    assert seen.not_verified() == {
        "fills#0": "recorded: it changes a dict that it was given",
        "sets#0": "recorded: it changes a Notes that it was given",
    }


# The process and the world -------------------------------------------------------------------------------------------


def test_prints_warnings_and_log_records_appear_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Talks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("forward")
            sys.stdout.write("written\n")
            print("to stderr", file=sys.stderr)
            os.write(1, b"by the system\n")
            warnings.warn("careful", stacklevel=1)
            logging.getLogger("talks").warning("logged")
            return self.l(x)

    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        trace = fxdebug.fx_debug(Talks(), torch.ones(3, 8))
        assert trace.root.status == "recorded"
    assert reason_of(trace.root) == ("it writes to a file (os.write)", 'os.write(1, b"by the system\\n")')
    out, err = capfd.readouterr()
    assert (out, err) == ("forward\nwritten\nby the system\n", "to stderr\n")
    assert [str(w.message) for w in caught] == ["careful"]
    assert [record.message for record in caplog.records] == ["logged"]


def test_a_forward_that_prints_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    class Talks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("shape", x.shape)
            return self.l(x)

    trace = fxdebug.fx_debug(Talks(), torch.ones(3, 8))
    assert trace.root.status == "verified"
    assert capsys.readouterr().out == "shape torch.Size([3, 8])\n"


def test_a_file_is_written_once(tmp_path: Any) -> None:
    path = tmp_path / "log.txt"

    class Writes(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            with open(path, "a") as file:
                file.write("once\n")
            return y

    reason = ("recorded", "it writes to a file", 'with open(path, "a") as file:')
    assert saw(Writes, before=lambda: path.unlink(missing_ok=True), outside=lambda model: path.read_text()) == reason


def test_a_file_that_is_held_open_is_written_to_once(tmp_path: Any) -> None:
    path = tmp_path / "log.txt"

    class Writes(Layer):
        def setup(self) -> None:
            self.file = path.open("w", encoding="utf-8")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            self.file.write("once\n")
            self.file.flush()
            return y

    reason = ("recorded", "it uses a file that the program holds open", 'self.file.write("once\\n")')
    assert saw(Writes, outside=lambda model: path.read_text()) == reason


@pytest.mark.parametrize("what", ["mkdir", "remove", "system", "Path.write_text"])
def test_the_file_system_and_processes_are_acted_on_once(what: str, tmp_path: Any) -> None:
    (tmp_path / "there").write_text("x")
    acts: dict[str, Callable[[], Any]] = {
        "mkdir": lambda: os.mkdir(tmp_path / f"made{len(os.listdir(tmp_path))}"),
        "remove": lambda: os.remove(tmp_path / sorted(os.listdir(tmp_path))[0]),
        "system": lambda: os.system(f"echo once >> {tmp_path}/system.txt"),
        "Path.write_text": lambda: (tmp_path / f"{len(os.listdir(tmp_path))}.txt").write_text("x"),
    }

    class Acts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            acts[what]()
            return y

    before = sorted(os.listdir(tmp_path))
    trace = fxdebug.fx_debug(Acts(), torch.ones(3, 8))
    after = sorted(os.listdir(tmp_path))
    assert after != before
    assert trace.root.status == "recorded"
    assert trace.root.reason
    assert sorted(os.listdir(tmp_path)) == after
    if what == "system":
        assert (tmp_path / "system.txt").read_text() == "once\n"


def test_environment_variables_are_as_the_run_left_them() -> None:
    class Sets(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            os.environ["FXDEBUG_TEST"] = str(int(os.environ.get("FXDEBUG_TEST", "0")) + 1)
            return self.l(x)

    try:
        reset = functools.partial(os.environ.pop, "FXDEBUG_TEST", None)
        assert saw(Sets, before=reset, outside=lambda model: os.environ["FXDEBUG_TEST"]) == VERIFIED
    finally:
        os.environ.pop("FXDEBUG_TEST", None)


def test_a_thread_is_started_once() -> None:
    started: list[str] = []

    class Starts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            thread = threading.Thread(target=started.append, args=("ran",))
            thread.start()
            thread.join()
            return y

    reason = ("recorded", "it starts threads", "")
    assert saw(Starts, before=started.clear, outside=lambda model: list(started)) == reason


def test_a_library_that_is_imported_while_a_body_runs_again_is_imported_whole(tmp_path: Any) -> None:
    """Python keeps what a library imported before it failed: the program could never import it again."""
    (tmp_path / "needs_a_folder.py").write_text("import os\nos.makedirs(os.path.dirname(__file__) + '/made')\n")

    class Imports(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if COUNT:  # in the second run only
                import needs_a_folder  # type: ignore[import-not-found] # noqa: F401
            return self.l(x)

    sys.path.insert(0, str(tmp_path))
    try:
        trace = fxdebug.fx_debug(Imports(), torch.ones(3, 8))
        globals()["COUNT"] = 1
        assert trace.root.status == "verified"
        assert "needs_a_folder" in sys.modules
        assert (tmp_path / "made").is_dir()
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("needs_a_folder", None)


def test_nobody_waits_twice() -> None:
    class Sleeps(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(0.3)
            return self.l(x)

    trace = fxdebug.fx_debug(Sleeps(), torch.ones(3, 8))
    began = time.perf_counter()
    assert trace.root.status == "verified"
    assert time.perf_counter() - began < 0.25


def test_a_callback_of_the_program_is_called_once() -> None:
    class Meter:
        def __init__(self) -> None:
            self.history: list[float] = []

        def update(self, value: float) -> None:
            self.history.append(value)

    class Measured(Layer):
        def setup(self) -> None:
            self.meter = Meter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            self.meter.update(float(y.mean()))
            return y

    assert saw(Measured, outside=lambda model: list(model.meter.history))[0] == "verified"


def test_an_exception_that_a_body_handles_is_handled_the_same_way() -> None:
    class Handles(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.l(x.view(5, 5))
            except RuntimeError:
                return self.l(x)

    assert saw(Handles)[0] in ("verified", "recorded")


def test_a_bare_except_in_a_body_cannot_hide_that_the_trace_went_wrong() -> None:
    class Hides(Layer):
        def setup(self) -> None:
            self.numbers = iter(range(1, 9))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                n = next(self.numbers)
            except BaseException:
                n = 0
            return self.l(x) * n

    assert saw(Hides)[0] == "recorded"


def test_a_flag_that_changes_between_run_and_explanation_gives_no_wrong_graph() -> None:
    class Switched(Layer):
        def setup(self) -> None:
            self.flag = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) if self.flag else -self.l(x)

    model = Switched()
    trace = fxdebug.fx_debug(model, torch.ones(3, 8))
    model.flag = False
    assert trace.root.status == "recorded"
    assert reason_of(trace.root)[0] == "run again, it goes on with neg after all that ran"
    assert [op.op for op in trace.root.graph.ops] == ["placeholder", "Linear", "output"]  # type: ignore[union-attr]


def test_an_attribute_that_is_set_on_a_tensor_is_set_on_a_stand_in_too() -> None:
    class Sets(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.l(x)
            y.scale = 3.0  # type: ignore[attr-defined]
            return y * y.scale  # type: ignore[attr-defined]

    assert saw(Sets) == VERIFIED


def test_names_on_tensors_that_a_caller_set_are_not_on_stand_ins() -> None:
    class Asks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * (2.0 if hasattr(x, "scale") else 1.0)

    def make() -> Any:
        x = torch.randn(3, 8)
        x.scale = 3.0  # type: ignore[attr-defined]
        return Asks(), x

    seen = watched(make)
    line = 'return self.l(x) * (2.0 if hasattr(x, "scale") else 1.0)'
    assert (seen.root.status, *reason_of(seen.root)) == (
        "recorded",
        "the constant 1.0 stands where 2.0 was, in mul",
        line,
    )


def test_a_layer_with_a_constant_that_only_compares_equal_has_a_graph_of_its_own() -> None:
    class Scales(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    seen = watched(lambda: (nn.Sequential(Scales(0.0), nn.ReLU(), Scales(-0.0)), torch.randn(3, 8)))
    assert seen.not_verified() == {}
    assert ["-0.0" in seen.call(path).code for path in ("0", "2")] == [False, True]


def test_a_layer_that_returns_its_keys_in_another_order_has_a_graph_of_its_own() -> None:
    class Returns(nn.Module):
        def __init__(self, keys: str) -> None:
            super().__init__()
            self.keys = keys

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            found = {"a": x + 1, "b": x + 2}
            return {key: found[key] for key in self.keys}

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Returns("ab"), Returns("ba")

        def forward(self, x: torch.Tensor) -> Any:
            return self.first(x), self.second(x)

    seen = watched(lambda: (Parent(), torch.randn(3, 8)))
    assert seen.not_verified() == {}
    with torch.no_grad():
        assert list(seen.call("second").fx(torch.randn(3, 8))) == ["b", "a"]
