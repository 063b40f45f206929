"""Code that ``torch.compile``, scripting and tracing made: it runs as it would, and is one operation or one call.

What a program compiles for the first time while it is traced runs in a process of its own: dynamo is not loaded yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.api.trace import Trace
from support.reasons import reason_of
from support.watched import watched

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.jit's and the compiler's own


class Sub(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.l(x)) * 2


class Base(nn.Module):
    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.l = nn.Linear(8, 8)
        self.sub = Sub()
        self.setup()

    def setup(self) -> None:
        pass


class Function(Base):
    """A function that is compiled in forward and calls a module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        twice = torch.compile(lambda v: self.l(v).relu() * 2, backend=self.backend)
        return twice(x + 1) - 1


class KeptFunction(Base):
    """A function that was compiled before, called with keywords, and writes to what it is given."""

    def setup(self) -> None:
        def scale(v: torch.Tensor, *, by: float) -> dict[str, torch.Tensor]:
            v.mul_(by)
            return {"scaled": v, "sum": v.sum()}

        self.scale = torch.compile(scale, backend=self.backend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        return self.scale(y, by=3.0)["sum"] + y


class ModuleInForward(Base):
    """A module that is compiled when it is needed first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "c" not in self.__dict__:
            self.__dict__["c"] = torch.compile(self.sub, backend=self.backend)
        return self.__dict__["c"](x + 1) - 1


class InPlaceInForward(Base):
    """``module.compile()`` in forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.sub.compile(backend=self.backend)
        return self.sub(x + 1) - 1


class Module(Base):
    """A module that was compiled before."""

    def setup(self) -> None:
        self.c = torch.compile(self.sub, backend=self.backend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(x + 1) - 1


class InPlace(Base):
    """``module.compile()`` before."""

    def setup(self) -> None:
        self.sub.compile(backend=self.backend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sub(x + 1) - 1


class Broken(Base):
    """A graph break: in the middle a module runs that is not to be compiled."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        @torch.compiler.disable
        def plain(v: torch.Tensor) -> torch.Tensor:
            return self.sub(v) * 2

        def whole(v: torch.Tensor) -> torch.Tensor:
            return plain(v + 1).relu()

        return torch.compile(whole, backend=self.backend)(x + 1) - 1


class Branch(Base):
    """A branch on a value inside compiled code, and nothing beside it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        @torch.compile(backend=self.backend)
        def chosen(v: torch.Tensor) -> torch.Tensor:
            return v * 2 if v.sum() > 0 else self.sub(v)

        return chosen(x)


class Raises(Base):
    """Compiled code that raises: what follows is noted again."""

    def setup(self) -> None:
        def wrong(v: torch.Tensor) -> torch.Tensor:
            return v.view(5, 5)

        self.wrong = torch.compile(wrong, backend=self.backend)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.l(x)
        try:
            return self.wrong(y)
        except Exception:
            return y * 2


MADE = "it runs code that torch.compile made"
WHOLE = "torch.compile runs it as one piece"
WITHIN = "inside code that torch.compile made"
# (status, reason without its line) by call; the backend "eager" compiles nothing, so modules compiled before are open
EXPECTED: dict[str, dict[str, tuple[str, str]]] = {
    "Function": {"#0": ("recorded", MADE)},
    "KeptFunction": {"#0": ("recorded", MADE), "l#0": ("verified", "")},
    "ModuleInForward": {"#0": ("verified", ""), "c#0": ("opaque", WHOLE)},
    "InPlaceInForward": {"#0": ("recorded", MADE)},
    "Module": {"#0": ("verified", ""), "c#0": ("opaque", WHOLE)},
    "Module eager": {
        "#0": ("verified", ""),
        "c#0": ("verified", ""),
        "sub#0": ("verified", ""),
        "sub.l#0": ("verified", ""),
    },
    "InPlace": {"#0": ("verified", ""), "sub#0": ("opaque", WHOLE)},
    "InPlace eager": {"#0": ("verified", ""), "sub#0": ("verified", ""), "sub.l#0": ("verified", "")},
    "Broken": {"#0": ("recorded", MADE), "sub#0": ("opaque", WITHIN), "sub.l#0": ("opaque", WITHIN)},
    "Branch": {"#0": ("opaque", WHOLE)},
    "Raises": {"#0": ("recorded", MADE), "l#0": ("verified", "")},
}
RAN = "was compiled with the backend 'eager', which compiles nothing: its Python ran"
SHUT = (
    "is compiled and ran as one piece: the modules inside it are not seen, as if never called. "
    "To see them, trace the model without torch.compile"
)
NOTES = {
    "Module": [f"c {SHUT}"],
    "Module eager": [f"c {RAN}"],
    "InPlace": [f"sub {SHUT}"],
    "InPlace eager": [f"sub {RAN}"],
}
KINDS = [name for name in EXPECTED if " " not in name]


def compared(kind: str, backend: str) -> Trace:
    """Trace twice, run untraced twice, before and after; all five give the same bits."""
    torch.manual_seed(0)
    model, x = globals()[kind](backend), torch.randn(3, 8)
    trace = fxdebug.fx_debug(model, x)
    told = {call.id: (call.status, call.reason.partition(" (")[0]) for call in trace.calls}
    assert told == EXPECTED.get(f"{kind} {backend}", EXPECTED[kind]), told
    assert [note.what for note in trace.notes] == NOTES.get(f"{kind} {backend}", NOTES.get(kind, []))
    again = fxdebug.fx_debug(model, x)
    assert again.root.status == trace.root.status
    torch.manual_seed(0)
    fresh = globals()[kind](backend)
    x = torch.randn(3, 8)
    for other in (again.output, fresh(x), fresh(x), model(x)):
        assert torch.equal(trace.output, other)
        assert trace.output.requires_grad == other.requires_grad
    assert torch._C._len_torch_function_stack() == 0
    return trace


@pytest.mark.parametrize(
    ("kind", "backend"), [*((kind, "aot_eager") for kind in KINDS), ("Module", "eager"), ("InPlace", "eager")]
)
def test_compiled_code(kind: str, backend: str) -> None:
    torch._dynamo.reset()
    compared(kind, backend)


@pytest.mark.parametrize("kind", ["Function"])
def test_code_that_is_compiled_for_the_first_time_while_it_is_traced(kind: str) -> None:
    """In a fresh process, as dynamo is not loaded when the run begins."""
    code = (
        "import sys, torch, warnings; warnings.simplefilter('ignore'); torch.set_num_threads(1);"
        "import test_compiled_regions as t;"
        "assert 'torch._dynamo' not in sys.modules; before = list(sys.meta_path);"
        f"t.compared({kind!r}, 'aot_eager');"
        "assert 'torch._dynamo' in sys.modules; assert sys.meta_path == before;"
        "dynamo = sys.modules['torch._dynamo.eval_frame'];"
        "assert not dynamo._maybe_set_eval_frame.__module__.startswith('fxdebug')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_compiled_code_is_one_operation_with_what_went_in_and_out() -> None:
    torch._dynamo.reset()
    model = KeptFunction("aot_eager")
    trace = fxdebug.fx_debug(model, torch.ones(2, 8))
    assert trace.root.graph is not None
    ops = [(op.kind, op.op) for op in trace.root.graph.ops]
    assert ops == [
        ("placeholder", "placeholder"), ("call_module", "Linear"), ("call_function", "scale"),
        ("call_function", "getitem"), ("call_function", "getitem"), ("call_method", "add"), ("output", "output"),
    ]  # fmt: skip
    assert trace.root.body is not None
    assert len(trace.root.body.writes) == 1  # it wrote to what it was given
    with pytest.raises(fxdebug.UsageError, match=MADE):
        _ = trace.root.fx


# Dynamo of other versions ---------------------------------------------------------------------------------------------


def compiled_of_torch_2_9(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a region that has what it returns in no variable."""
    prior = None
    try:
        torch._dynamo.eval_frame._maybe_set_eval_frame(compiled_of_torch_2_9)
        return fn(*args, **kwargs)
    finally:
        torch._dynamo.eval_frame._maybe_set_eval_frame(prior)


def disabled_of_torch_2_14(fn: Any, *args: Any, prior: Any = None) -> Any:
    """Run code that is not to be compiled, of which only the end is announced."""
    try:
        return fn(*args)
    finally:
        if prior is not None:
            torch._dynamo.eval_frame._maybe_set_eval_frame(prior)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def scaled_apart(x: torch.Tensor) -> torch.Tensor:
    return disabled_of_torch_2_14(scaled, x, prior=compiled_of_torch_2_9)


def scaled_in_two(x: torch.Tensor) -> torch.Tensor:
    return compiled_of_torch_2_9(scaled, x)


class Beside(nn.Module):
    """A region, with a call before it and an operation after it."""

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return compiled_of_torch_2_9(self.scale, self.l(x)) - 1


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Announcements of regions that dynamo itself takes no part in."""
    monkeypatch.setattr(torch._dynamo.eval_frame, "_maybe_set_eval_frame", lambda callback: None)


def ops_of(trace: Trace) -> list[str]:
    assert trace.root.graph is not None
    return [op.op for op in trace.root.graph.ops]


@pytest.mark.parametrize("scale", [scaled, scaled_apart, scaled_in_two])
def test_a_graph_goes_on_after_a_region_whatever_is_announced_inside_it(scale: Any, announced: None) -> None:
    trace = fxdebug.fx_debug(Beside(scale), torch.ones(2, 8))
    assert ops_of(trace) == ["placeholder", "Linear", scale.__name__, "sub", "output"]
    assert sys.getprofile() is None


def test_an_end_without_a_beginning_begins_no_region(announced: None) -> None:
    class Apart(Beside):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scaled_apart(self.l(x)) - 1

    trace = fxdebug.fx_debug(Apart(None), torch.ones(2, 8))
    assert trace.root.status == "verified"
    assert ops_of(trace) == ["placeholder", "Linear", "mul", "sub", "output"]


def test_under_a_profiler_what_an_older_torch_does_not_show_is_no_constant(announced: None) -> None:
    seen: list[str] = []

    class Profiled(Beside):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sys.setprofile(lambda frame, event, result: seen.append(event))
            try:
                return super().forward(x)
            finally:
                sys.setprofile(None)

    trace = fxdebug.fx_debug(Profiled(scaled), torch.ones(2, 8))
    told = "it runs code that torch.compile made, and this torch does not show what that returned"
    assert (trace.root.status, trace.root.reason, trace.root.graph) == ("opaque", told, None)
    assert trace.find("l")[0].status == "verified"
    assert seen[-2:] == ["return", "c_call"]  # the profiler is on to its end


def test_a_region_that_outlives_the_recordings_hides_none_of_the_next(announced: None) -> None:
    began, may_end = threading.Event(), threading.Event()

    def waiting() -> None:
        began.set()
        assert may_end.wait(60)

    def traced_once_more() -> Trace:
        compiled_of_torch_2_9(waiting)
        return fxdebug.fx_debug(Beside(scaled), torch.ones(2, 8))

    class Starts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            threads.append(thread.submit(traced_once_more))
            assert began.wait(60)
            return x + 1

    threads: list[Any] = []
    with ThreadPoolExecutor(1) as thread:
        fxdebug.fx_debug(Starts(), torch.ones(2, 8))
        may_end.set()
        assert ops_of(threads[0].result()) == ["placeholder", "Linear", "scaled", "sub", "output"]


@pytest.mark.parametrize("kind", [KeptFunction, Module, InPlace])
def test_how_often_something_is_compiled_is_not_changed_by_tracing(kind: Any) -> None:
    from torch._dynamo.testing import CompileCounter

    def compiled(traced: bool) -> int:
        torch._dynamo.reset()
        counter = CompileCounter()
        model = kind(counter)
        for _ in range(3):
            out = fxdebug.fx_debug(model, torch.ones(2, 8)) if traced else model(torch.ones(2, 8))
            assert not traced or out.root.status
        return int(counter.frame_count)

    assert compiled(True) == compiled(False) == 1


# TorchScript ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(3, 8))])
def test_a_scripted_or_traced_module_is_one_opaque_call(make: Any) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sub = make(Sub())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.sub(x) + 1

    def build() -> Any:
        return Outer(), torch.randn(3, 8)

    seen = watched(build)
    assert seen.root.status == "verified"
    assert seen.not_verified() == {
        "sub#0": f"opaque: {type(seen.model.sub).__name__} runs fused or compiled code that watching would switch off"
    }


def test_a_traced_module_with_submodules_does_not_keep_the_parameters_of_the_others_from_being_told() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Linear(8, 8, bias=False)
            self.traced = torch.jit.trace(nn.Sequential(nn.Linear(8, 8, bias=False)), torch.ones(3, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.traced(self.own(x))

    trace = fxdebug.fx_debug(Outer(), torch.randn(3, 8))
    assert "own.weight" in [parameter.name for parameter in trace.parameters]
    assert not [note for note in trace.notes if "parameters" in note.what]


def test_what_a_scripted_function_returns_comes_from_nowhere_as_far_as_python_can_see() -> None:
    @torch.jit.script
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return scaled(x) - 1

    seen = watched(lambda: (Outer(), torch.randn(3, 8)))
    words, line = reason_of(seen.root)
    assert (seen.root.status, words, line) == ("recorded", "it runs a scripted function", "return scaled(x) - 1")
