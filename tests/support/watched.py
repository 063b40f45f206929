"""A model run three times from the same start: untraced, traced, and traced again for the audit.

:func:`watched` asserts what must hold for every model: the user's result, arguments, module state and
random numbers are those of the untraced run, no placeholder stays alive, every call has a graph or a
reason, and every verified graph, executed, gives the bits that the call gave.
"""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import fxdebug
from fxdebug.capture.graphs.known_templates import forget_templates
from fxdebug.capture.graphs.placeholder_tensor import count_placeholders
from fxdebug.capture.graphs.verify import GraphVerifier, VerifiedCall
from fxdebug.capture.runs.build_trace import Options
from fxdebug.capture.runs.run_once import SingleRun
from support import audit
from support.reasons import reason_of
from support.same import difference

Made = tuple[nn.Module, Any]  # a model and its inputs: a tensor, a tuple of arguments, or a dict of them


class Layer(nn.Module):
    """A linear layer of eight, and what a test adds."""

    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.setup()

    def setup(self) -> None:
        pass


class Watched:
    """What became of one model: its trace, and what the audit has to say of its verified graphs."""

    def __init__(self, trace: fxdebug.Trace, model: nn.Module) -> None:
        self.trace = trace
        self.model = model

    @property
    def root(self) -> fxdebug.Call:
        return self.trace.root

    def call(self, path: str, number: int = 0) -> fxdebug.Call:
        return next(call for call in self.trace.calls if (call.path, call.number) == (path, number))

    def statuses(self) -> dict[str, str | None]:
        return {call.id: call.status for call in self.trace.calls}

    def not_verified(self) -> dict[str, str]:
        """Every call that is not verified, with its reason."""
        return {call.id: f"{call.status}: {call.reason}" for call in self.trace.calls if call.status != "verified"}


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, dict):
        return (), inputs
    return inputs if isinstance(inputs, tuple) else (inputs,), {}


def made(make: Callable[[], Made]) -> Made:
    """A model and its inputs, from the same seeds each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        return make()


def seed() -> None:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)


def randomness() -> Any:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything the model's modules hold: parameters, buffers, attributes, their gradients."""
    held: dict[str, Any] = {}
    for path, module in model.named_modules():
        for name, thing in vars(module).items():
            if "hooks" not in name:  # by handles whose numbers go on
                held[f"{path}.{name}"] = thing
    for name, parameter in model.named_parameters():
        held[f"{name}.grad"] = parameter.grad
    return held


def watched(
    make: Callable[[], Made],
    *,
    grad: bool = False,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    before: Callable[[], Any] = lambda: None,
    after: Callable[[nn.Module, Any], Any] = lambda model, output: None,
    outside: Callable[[nn.Module], Any] = lambda model: None,
    audited: bool = True,
    not_alone: tuple[str, ...] = (),
    method: str = "forward",
) -> Watched:
    """Run, trace and audit; assert what must hold for every model.

    ``around`` is entered for each run, ``before`` called before it (to reset what is global), ``after`` with
    its model and output (a backward pass, say; what it returns is compared). ``outside`` returns what
    the program holds outside its modules; it is compared after the run and after explaining.
    ``not_alone``: ids of calls whose graph the audit cannot execute alone.
    """
    forget_templates()
    gc.collect()
    alive = count_placeholders()
    with torch.random.fork_rng(devices=[]):
        model, inputs = made(make)
        args, kwargs = arguments(inputs)
        before()
        seed()
        with torch.set_grad_enabled(grad), around():
            output = getattr(model, method)(*args, **kwargs) if method != "forward" else model(*args, **kwargs)
            further = after(model, output)
        plain = (output, further, inputs, state_of(model), outside(model), randomness())

        model, inputs = made(make)
        before()
        seed()
        with torch.set_grad_enabled(grad), around():
            trace = fxdebug.fx_debug(model, inputs, method=method)
            further = after(model, trace.output)
        ours = (trace.output, further, inputs, state_of(model), outside(model), randomness())
        assert_same(plain, ours, "after the run")
        kept_by_program = _explained_quietly(trace)
        assert_same(
            plain, (trace.output, further, inputs, state_of(model), outside(model), randomness()), "after explaining"
        )
        gc.collect()
        assert count_placeholders() == alive, "a placeholder is still alive"
        for call in trace.calls:
            assert call.status in ("verified", "recorded", "opaque"), call.id
            assert call.status == "verified" or call.reason, call.id
        if audited:
            before()
            problems = _audited(make, grad, around, kept_by_program, method)
            wrong = {at: problem for at, problem in problems.items() if at not in not_alone}
            assert wrong == {}, wrong
    return Watched(trace, model)


def assert_same(plain: tuple[Any, ...], ours: tuple[Any, ...], when: str) -> None:
    for name, a, b in zip(
        ("output", "what followed", "inputs", "state", "state outside", "random numbers"), plain, ours
    ):
        found = difference(a, b, f"{name} {when}")
        assert found is None, found


def _explained_quietly(trace: fxdebug.Trace) -> Any:
    """Ask for the graphs; the tensor_ids of tensors that the program keeps."""
    live: Any = trace.graph_source
    assert trace.call_graphs is not None
    return live._tape.kept


def _audited(make: Any, grad: bool, around: Any, kept_by_program: Any, method: str) -> dict[str, str]:
    """What the audit finds wrong, by the call's path and index."""
    model, inputs = made(make)
    args, kwargs = arguments(inputs)
    seed()
    with torch.set_grad_enabled(grad), around():
        with audit.keeping() as kept, SingleRun(model, Options(graph=True)) as run:
            getattr(model, method)(*args, **kwargs) if method != "forward" else model(*args, **kwargs)
        recorder = run._recorder
        assert recorder.tape is not None
        bodies = [recorder.tape.call_tapes[index] for index in sorted(recorder.tape.call_tapes)]
        explained = GraphVerifier(model, list(model.modules()), recorder.values, kept_by_program).verify(bodies)
        names = {frame.index: f"{frame.site.path}#{frame.number}" for frame in recorder.frames}
        problems = {}
        for each in explained:
            if each.status == "verified":
                problem = _problem(each, kept)
                if problem is not None:
                    problems[names[each.tape.index]] = problem
    return problems


def _problem(explained: VerifiedCall, kept: Any) -> str | None:
    try:
        return audit.problem_with(explained, kept)
    except Exception as error:
        return f"cannot be executed: {type(error).__name__}: {error}"


VERIFIED = ("verified", "", "")
Saw = tuple[str | None, str, str]


def saw(kind: type[nn.Module], **options: Any) -> Saw:
    """Status, words of the reason and line of the root, after all that :func:`watched` asserts."""
    seen = watched(lambda: (kind(), torch.randn(3, 8)), **options)
    return (seen.root.status, *reason_of(seen.root))
