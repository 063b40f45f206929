"""After a trace, however it ended, the model, torch and the process are as they were before it."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import itertools
import os
import pickle
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._tensor_str
import torch.fx.experimental.symbolic_shapes  # brings in sympy, which adds a filter of its own to warnings
from torch import nn
from torch.nn.modules import module as torch_module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.native import dispatch
from support.trees import Does, calls, linear, ones, tree

HOOKS = [name for name in vars(nn.Module()) if "hooks" in name]


def plus_zero(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    """A hook that replaces the output."""
    return output + 0


class Model(nn.Module):
    """Has something of everything that a tracer may disturb; ``meanwhile`` runs in the middle of its forward."""

    meanwhile: Callable[[nn.Module, torch.Tensor], Any] = staticmethod(lambda model, x: None)

    def __init__(self) -> None:
        super().__init__()
        self.first = linear()
        self.norm = nn.BatchNorm1d(4).eval()
        self.shared = nn.Sequential(linear(), nn.Dropout())
        self.again = self.shared
        self.own = nn.Identity()
        self.own.forward = lambda x: x * 2  # type: ignore[method-assign]
        self.first.register_forward_hook(plus_zero)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        type(self).meanwhile(self, x)
        return self.own(self.again(self.shared(x)))


PATHS = ["", "first", "norm", "shared", "shared.0", "shared.1", "shared", "shared.0", "shared.1", "own"]


def of_model(model: nn.Module) -> list[Any]:
    """Return the contents of every module: attributes by identity, hooks, training flags."""
    found: list[Any] = []
    for module in model.modules():
        found.append({name: (id(value), value) for name, value in vars(module).items() if name not in HOOKS})
        found.append({name: list(getattr(module, name).items()) for name in HOOKS if getattr(module, name) is not None})
        found.append((type(module), module.training, [parameter.requires_grad for parameter in module.parameters()]))
    return found


def of_process() -> dict[str, Any]:
    """Return the state of torch, Python and the process that a tracer could leave changed."""
    return {
        "nn.Module": {name: id(value) for name, value in vars(nn.Module).items()},
        "call code": nn.Module._call_impl.__code__,
        "torch.nn.modules.module": set(vars(torch_module)) - {"__warningregistry__"},
        "global hooks": [len(getattr(torch_module, name)) for name in vars(torch_module) if name.startswith("_global_")
                         and isinstance(getattr(torch_module, name), dict)],
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "functorch": torch._C._functorch.peek_interpreter_stack(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
        "print options": (id(torch._tensor_str.PRINT_OPTS), torch._tensor_str.get_printoptions()),
        "dtype": (torch.get_default_dtype(), torch.get_num_threads()),
        "recursion": (sys.getrecursionlimit(), threading.stack_size()),
        "streams": (sys.stdout, sys.stderr, sys.displayhook, sys.excepthook, threading.excepthook),
        "threads": (threading.Thread.start, threading.Thread.run, ThreadPoolExecutor.submit),
        "tracing": (sys.gettrace(), sys.getprofile(), gc.isenabled()),
        "warnings": list(warnings.filters),
        "folder": (Path.cwd(), {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}),
        "dynamo": id(getattr(sys.modules.get("torch._dynamo.eval_frame"), "_maybe_set_eval_frame", None)),
    }  # fmt: skip


def of_random() -> tuple[Any, ...]:
    """Return the states of the random number generators."""
    return bytes(torch.get_rng_state().numpy().tobytes()), random.getstate()


@pytest.fixture(autouse=True)
def everything_is_as_before() -> Iterator[None]:
    """Check the promise of this file around every test in it, and that threads that were started have ended."""
    before, threads = of_process(), set(threading.enumerate())
    yield
    Model.meanwhile = staticmethod(lambda model, x: None)
    assert of_process() == before
    left = [thread for thread in threading.enumerate() if thread not in threads]
    for thread in left:
        thread.join(100)
    assert not [thread.name for thread in left if thread.is_alive()]


@contextlib.contextmanager
def unchanged(*models: nn.Module) -> Iterator[None]:
    """Check after the block that these models are as before it, whatever it raised."""
    before = [of_model(model) for model in models]
    try:
        yield
    finally:
        assert [of_model(model) for model in models] == before


TOOLS = ["stats", "repr", "tensors", "saved", "context", "context with files"]


def run(tool: str, model: nn.Module, folder: Path, x: torch.Tensor | None = None) -> Any:
    """Run one forward under one of the tools, and return the output of the model."""
    x = ones(2) if x is None else x
    if tool.startswith("context"):
        with drop_in(model, folder, use_repr=tool == "context"):
            return model(x)
    values = "tensors" if tool == "saved" else tool
    return fx_debug(model, x, values=values, save=folder if tool == "saved" else None).output


def meanwhile(action: Callable[[nn.Module, torch.Tensor], Any]) -> None:
    """Set what the forward of the model does in its middle."""
    Model.meanwhile = staticmethod(action)


# Runs that end well and runs that do not ---------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
def test_after_a_run(tool: str, tmp_path: Path) -> None:
    model = Model()
    state = of_random()
    with torch.random.fork_rng(devices=[]):
        expected = model(ones(2))
        after = of_random()
    with unchanged(model):
        assert torch.equal(run(tool, model, tmp_path), expected)
    assert of_random() == after != state


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(), GeneratorExit(), RecursionError()]
)
def test_after_an_exception(tool: str, error: BaseException, tmp_path: Path) -> None:
    model = Model()

    def fails(model: nn.Module, x: torch.Tensor) -> None:
        raise error

    meanwhile(fails)
    with unchanged(model), pytest.raises(type(error)) as caught:
        run(tool, model, tmp_path)
    assert caught.value is error


@pytest.mark.parametrize("tool", ["stats", "context"])
def test_after_endless_recursion(tool: str, tmp_path: Path) -> None:
    model = Model()
    meanwhile(lambda model, x: model(x))
    with unchanged(model), pytest.raises(RecursionError):
        run(tool, model, tmp_path)


def interrupted_at(count: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is but for its ``count``-th call, at which Ctrl-C is pressed."""
    calls = itertools.count(1)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == count:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    return interrupted


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("where", ["enter_call", "leave_call", "_outputs", "_inputs", "note"])
def test_after_an_interrupt_of_our_own_work(tool: str, where: str, tmp_path: Path) -> None:
    from fxdebug.capture.recorder.recorder import Recorder

    model = Model()
    interrupted = interrupted_at(3, getattr(Recorder, where))
    method = lambda self, *args, **kwargs: interrupted(self, *args, **kwargs)  # noqa: E731
    with dispatch.using(None), mock.patch.object(Recorder, where, method), unchanged(model):
        if where == "note":  # a run without a remark notes nothing
            run(tool, model, tmp_path)
        else:
            with pytest.raises(KeyboardInterrupt):
                run(tool, model, tmp_path)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("count", range(1, 13))
def test_after_an_interrupt_while_a_call_is_entered_or_left(count: int, graph: bool) -> None:
    """The recorder reads the clock where it begins and ends each of its parts, in either way."""
    model = Model()
    clock = interrupted_at(count, time.perf_counter)
    patched = mock.patch("fxdebug.capture.recorder.recorder.perf_counter", clock)
    with patched, unchanged(model), pytest.raises(KeyboardInterrupt):
        fx_debug(model, ones(2), graph=graph)
    with unchanged(model):
        assert [call.path for call in fx_debug(model, ones(2), graph=graph).calls] == PATHS


@pytest.mark.parametrize("tool", ["saved", "context", "context with files"])
def test_after_a_failing_disk(tool: str, tmp_path: Path) -> None:
    model = Model()
    (tmp_path / "file").write_text("in the way")
    with unchanged(model):
        with pytest.raises(fxdebug.SaveError, match="file"):
            run(tool, model, tmp_path / "file")
        full = OSError(28, "No space left on device")
        with (
            mock.patch("fxdebug.store.tensors.safetensors_file._write", side_effect=full),
            mock.patch("fxdebug.store.deep_json.write_indented", side_effect=full),
            pytest.raises(fxdebug.SaveError, match="No space left"),
        ):
            run(tool, model, tmp_path / "full")
    assert (tmp_path / "file").read_text() == "in the way"
    assert not (tmp_path / "full").exists()


def test_after_hooks_that_raise(tmp_path: Path) -> None:
    model = Model()

    def fails(*args: Any) -> None:
        raise ValueError("in a hook")

    for register in (nn.Module.register_forward_hook, nn.Module.register_forward_pre_hook):
        handle = register(model.shared, fails)
        for tool in ("stats", "context"):
            with unchanged(model), pytest.raises(ValueError, match="in a hook"):
                run(tool, model, tmp_path)
        handle.remove()


# Traces inside traces ----------------------------------------------------------------------------


@pytest.mark.parametrize("outer", ["stats", "context"])
@pytest.mark.parametrize("inner", ["repr", "context with files"])
@pytest.mark.parametrize("which", ["itself", "a part", "another"])
def test_after_a_trace_inside_a_trace(outer: str, inner: str, which: str, tmp_path: Path) -> None:
    model, another, seen = Model(), Model(), []

    def traces(model: nn.Module, x: torch.Tensor) -> None:
        meanwhile(lambda model, x: None)
        traced = {"itself": model, "a part": model.shared, "another": another}[which]
        seen.append(run(inner, traced, tmp_path / "inner", x))

    meanwhile(traces)
    with unchanged(model, another):
        run(outer, model, tmp_path / "outer")
    assert len(seen) == 1
    meanwhile(traces)
    trace = fx_debug(model, ones(2))
    inside = {"itself": "  Model", "a part": "  shared", "another": "  <Model>"}[which]
    assert calls(trace)[3] == inside
    assert len(trace.calls) == 10 + {"itself": 10, "a part": 3, "another": 10}[which]


def test_after_contexts_that_end_first_in_first_out(tmp_path: Path) -> None:
    model, another = Model(), Model()
    with unchanged(model, another):
        first, second, third = (drop_in(m, tmp_path / n) for m, n in ((model, "1"), (another, "2"), (model, "3")))
        for context in (first, second, third):
            context.__enter__()
        model(ones(2)), another(ones(2))
        first.__exit__(None, None, None)
        model(ones(2))
        assert not second.__exit__(ValueError, ValueError("no"), None)  # it does not swallow the exception
        another(ones(2))
        third.__exit__(None, None, None)
    assert [len(list((tmp_path / name).glob("*SUMMARY*"))) for name in "123"] == [1, 1, 2]


def test_after_a_context_that_a_forward_opens_and_leaves_open(tmp_path: Path) -> None:
    model, context = Model(), []

    def opens(model: nn.Module, x: torch.Tensor) -> None:
        context.append(drop_in(model, tmp_path))
        context[0].__enter__()

    meanwhile(opens)
    with unchanged(model):
        fx_debug(model, ones(2))
        meanwhile(lambda model, x: None)
        model(ones(2))
        context[0].__exit__(None, None, None)
    assert tree(tmp_path, "SUMMARY")["children"][0]["module_path"] == "Model.first"


def test_after_a_context_that_is_left_inside_a_forward(tmp_path: Path) -> None:
    model = Model()
    context = drop_in(model, tmp_path)
    meanwhile(lambda model, x: context.__exit__(None, None, None))
    with unchanged(model):
        context.__enter__()
        model(ones(2))
    assert len(list(tmp_path.glob("*SUMMARY*"))) == 1


def test_after_a_context_that_is_never_left(tmp_path: Path) -> None:
    model = Model()
    with unchanged(model):
        context = drop_in(model, tmp_path)
        context.__enter__()
        model(ones(2))
        del context  # the generator behind it is closed
        gc.collect()


# Threads -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("same", [True, False])
def test_after_two_threads_that_trace_at_once(tool: str, same: bool, tmp_path: Path) -> None:
    models = [Model().eval()] * 2 if same else [Model().eval(), Model().eval()]
    barrier = threading.Barrier(2)
    meanwhile(lambda model, x: barrier.wait(100))
    with unchanged(*models), ThreadPoolExecutor(2) as pool, torch.no_grad():
        jobs = [pool.submit(run, tool, model, tmp_path / str(i), ones(i + 1)) for i, model in enumerate(models)]
        outputs = [job.result(100) for job in jobs]
        meanwhile(lambda model, x: None)
        expected = [model(ones(i + 1)) for i, model in enumerate(models)]
    assert all(map(torch.equal, outputs, expected))


def test_after_a_trace_while_another_thread_uses_the_model(tmp_path: Path) -> None:
    model, stop = Model().eval(), threading.Event()
    expected = model(ones(2))

    def uses() -> int:
        count = 0
        while not stop.is_set():
            assert torch.equal(model(ones(2)), expected)
            count += 1
        return count

    with unchanged(model), ThreadPoolExecutor(1) as pool:
        job = pool.submit(uses)
        traces = [fx_debug(model, ones(2), graph=False) for _ in range(30)]
        stop.set()
        assert job.result(100) > 0
    assert {tuple(calls(trace)) for trace in traces} == {tuple(calls(traces[0]))} and len(traces[0].calls) == 10


# Generators, copies, changes ---------------------------------------------------------------------


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_after_a_generator_that_is_abandoned(tool: str, steps: int, tmp_path: Path) -> None:
    closed: list[int] = []

    def steps_of(self: Any, x: torch.Tensor) -> Iterator[torch.Tensor]:
        try:
            for _ in range(5):
                x = self.layer(x)
                yield x
        finally:
            closed.append(len(closed))

    def forward(self: Any, x: torch.Tensor) -> Any:
        generator = self.generates(x)
        for _ in range(steps):
            next(generator)
        kept.append(generator)
        return x

    kept: list[Any] = []
    model = Does(forward, generates=Does(steps_of, layer=linear()))
    with unchanged(model):
        run(tool, model, tmp_path)
        if steps:
            next(kept[0])  # it goes on after the trace
        kept.clear()
        assert closed == ([0] if steps else [])


@pytest.mark.parametrize("tool", TOOLS)
def test_after_a_root_that_is_a_generator(tool: str, tmp_path: Path) -> None:
    def forward(self: Any, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(3):
            x = self.layer(x)
            yield x

    model = Does(forward, layer=Does(lambda self, x: x + 1))
    with unchanged(model):
        generator = run(tool, model, tmp_path)
        assert [x[0, 0].item() for x in generator] == [2.0, 3.0, 4.0]
        with drop_in(model, tmp_path / "half"):
            generator = model(ones())
            next(generator)
        assert next(generator)[0, 0].item() == 3.0


@pytest.mark.parametrize("tool", TOOLS)
def test_after_a_forward_that_calls_itself(tool: str, tmp_path: Path) -> None:
    model = Model()
    meanwhile(lambda model, x: model(x[:1]) if len(x) > 1 else None)
    with unchanged(model):
        run(tool, model, tmp_path)


@pytest.mark.parametrize("tool", TOOLS)
def test_copies_made_during_a_run_have_none_of_our_wrappers(tool: str, tmp_path: Path) -> None:
    copies: list[nn.Module] = []
    outputs: list[torch.Tensor] = []

    def is_copied(model: nn.Module, x: torch.Tensor) -> None:
        model.own.forward = nn.Identity().forward  # a lambda cannot be pickled
        buffer = io.BytesIO()
        torch.save(model, buffer)
        buffer.seek(0)
        copies.append(copy.deepcopy(model))
        copies.append(pickle.loads(pickle.dumps(model)))
        copies.append(torch.load(buffer, weights_only=False))
        shallow, replica = copy.copy(model.first), model.first._replicate_for_data_parallel()
        for made in (shallow, replica):  # with weights of their own
            made._parameters = {"weight": nn.Parameter(torch.zeros(4, 4)), "bias": nn.Parameter(torch.ones(4))}
            copies.append(made)
        meanwhile(lambda model, x: None)
        for made in copies:
            outputs.append(made(x))

    meanwhile(is_copied)
    model = Model().eval()
    run(tool, model, tmp_path)
    for made in copies:
        names = [path for path, module in made.named_modules() if "forward" in vars(module)]
        assert names == ([] if isinstance(made, nn.Linear) else ["own"])
    assert [path for path, module in model.named_modules() if "forward" in vars(module)] == ["own"]
    for output, made in zip(outputs, copies):
        if isinstance(made, nn.Linear):  # a copy runs on its own weights, meanwhile and afterwards
            assert torch.equal(output, torch.ones(2, 4)) and torch.equal(made(ones(2)), output)
        else:
            assert torch.equal(output, outputs[0]) and torch.equal(made(ones(2)), model(ones(2)))


@pytest.mark.parametrize("tool", TOOLS)
def test_changes_that_the_program_makes_during_a_run_stay(tool: str, tmp_path: Path) -> None:
    mine = lambda x: x * 3  # noqa: E731
    options = torch._tensor_str.get_printoptions()

    def changes(model: Any, x: torch.Tensor) -> None:
        model.shared.forward = mine
        model.added = nn.Sequential(linear())
        model.first = linear()
        model.norm.train()
        model.own.register_forward_hook(lambda module, args, output: None)
        sys.setrecursionlimit(1234)
        torch.set_printoptions(precision=2)

    limit, model = sys.getrecursionlimit(), Model()
    meanwhile(changes)
    try:
        output = run(tool, model, tmp_path)
        assert sys.getrecursionlimit() == 1234
        assert torch._tensor_str.get_printoptions()["precision"] == 2
    finally:
        sys.setrecursionlimit(limit)
        torch.set_printoptions(**options)
    assert output.shape == (2, 4)
    assert model.shared.forward is mine and "forward" not in vars(model.first)
    assert model.norm.training and len(model.own._forward_hooks) == 1
    assert not [
        path for path, module in model.named_modules() if path not in ("shared", "own") and "forward" in vars(module)
    ]


@pytest.mark.parametrize("tool", ["stats", "context"])
def test_a_class_or_module_patched_while_it_is_traced_runs_as_patched(tool: str, tmp_path: Path) -> None:
    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    model = Does(lambda self, x: self.b(self.a(x)), a=Layer(), b=Layer())

    def patched(self: Any, x: torch.Tensor) -> torch.Tensor:
        with mock.patch.object(Layer, "forward", lambda self, x: x * 2):
            x = self.b(self.a(x))
        with mock.patch.object(self.a, "forward", lambda x: x * 10):
            x = self.a(x)
        return self.a(x)

    model.does = patched
    with unchanged(model):
        assert run(tool, model, tmp_path, ones())[0, 0].item() == 40.0
    assert calls(fx_debug(model, ones())) == ["Does", "  a", "  b", "  a", "  a"]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_program_may_resize_its_tensors_after_a_run(tool: str, tmp_path: Path) -> None:
    """``Tensor.numpy()`` would forbid it for good; sharded modules free their parameters that way."""
    kept: list[torch.Tensor] = []

    class Keeps(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept[:] = [x, x * 2, x.to(torch.float64) + 1, x.to(torch.int64) + 1, x.to(torch.bfloat16) + 1, x > 0]
            return sum(self.inner(each).to(torch.float32) for each in kept) + self.weight

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.weight = nn.Identity(), nn.Parameter(torch.ones(4))

    model = Keeps()
    x = torch.ones(1, 4)
    if tool.startswith("context"):
        with fxdebug.model_addition_debugger_context(model, str(tmp_path), use_repr=tool == "context"):
            model(x)
    else:
        fxdebug.fx_debug(model, x, values=tool if tool in ("stats", "repr", "tensors") else "stats")
    for tensor in (model.weight.detach(), x, *kept):
        tensor.untyped_storage().resize_(0)


def test_blocked_side_effects_are_restored_after_graphs_are_made() -> None:
    import builtins
    import subprocess
    import time

    from fxdebug.capture.torch_state.internals import STARTS_THREADS

    def functions() -> list[Any]:
        return [
            builtins.print, builtins.open, subprocess.Popen.__init__, warnings.warn, time.sleep,
            torch.set_num_threads, *(getattr(threading, name) for name in STARTS_THREADS),
        ]  # fmt: skip

    before = functions()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    trace = fx_debug(model, torch.randn(3, 4))
    assert trace.root.status == "verified"
    assert all(now is then for now, then in zip(functions(), before, strict=True))


@pytest.mark.parametrize("graph", [False, True])
def test_a_finished_run_frees_its_recorder_without_the_collector(graph: bool) -> None:
    from fxdebug.capture.recorder.frame import Frame
    from fxdebug.capture.recorder.recorder import Recorder

    def alive() -> list[Any]:
        return [thing for thing in gc.get_objects() if type(thing) in (Recorder, Frame)]

    gc.collect()
    before = alive()  # those that other tests keep: held here, so that nothing new gets their places
    gc.disable()
    try:
        trace = fx_debug(Model(), ones(), graph=graph)
        left = [type(thing).__name__ for thing in alive() if all(thing is not other for other in before)]
    finally:
        gc.enable()
    assert trace.calls and left == []


# At the end of the stack -------------------------------------------------------------------------


class _Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class _Hearing(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def _deeper(frames: int) -> None:
    if frames:
        _deeper(frames - 1)
    else:
        with untracked():
            pass


def _frames() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize("mode", [contextlib.nullcontext, _Passing, _Hearing])
def test_our_own_work_leaves_torch_as_it_was_even_at_the_recursion_limit(mode):
    """Once, torch functions stayed disabled in the thread, and nothing could be traced in it any more."""
    raised = 0
    for left in range(40):
        with mode(), torch.set_grad_enabled(left % 2 == 0):
            before = switches()
            try:
                _deeper(sys.getrecursionlimit() - _frames() - left)
            except RecursionError:
                raised += 1
            assert switches() == before, left
    assert 0 < raised < 40


def switches() -> tuple[object, ...]:
    stacks = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()
    return torch._C._is_torch_function_enabled(), *stacks, torch.is_grad_enabled()
