"""Check that a body does for other inputs what its graph does: run the body once, and match its tape with the graph.

The body runs on substitutes for all tensors: fake tensors, which have sizes and no data, or else copies. Everything
that its Python changes is restored.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.match import Match, assigned_tensors
from fxdebug.capture.graphs.template import GraphTemplate, is_call
from fxdebug.capture.graphs.to_fx import FxBuild
from fxdebug.capture.hooks import module_call
from fxdebug.capture.hooks.compiled_modules import compiled_in
from fxdebug.capture.reasons import CannotTrace, ReasonText
from fxdebug.capture.replay.sandbox import sandboxed
from fxdebug.capture.runnable_graphs.check_nested_calls import differing_call
from fxdebug.capture.runnable_graphs.execute import Executor, inputs_of
from fxdebug.capture.runnable_graphs.hidden_inputs import hidden_input
from fxdebug.capture.runnable_graphs.substitutes import FakeTensors, TensorCopies
from fxdebug.capture.source.source_line import Line, runs_user_code, short_line
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.changed_arguments import change_arguments
from fxdebug.capture.tape.encoding import is_same
from fxdebug.capture.tape.run_taped import run_taped
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import context_now, in_context
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.errors import first_line


def mismatch_for_inputs(
    build: FxBuild,
    module: nn.Module,
    args: Any,
    kwargs: Any,
    inputs: Sequence[Tensor | int],
    objects: Mapping[int, Any],
    on_copies: bool = False,
) -> ReasonText | None:
    """Run the body on inputs like these; return the reason if the graph does something else, and ``None`` otherwise.

    It runs on fake tensors first, which cost almost nothing. If that shows a problem, it runs on copies of the real
    tensors, because fake tensors may be the cause: at a branch on a value, a size that depends on values, an operation
    without a fake version, or Python that checks whether tensors are fake. With ``on_copies``, or for scripted code, it
    runs on copies at once. The graph runs too, as the calls in it must do what they do in the body.
    """
    problem: ReasonText | None = None
    template = build.template
    for substitutes in (TensorCopies,) if on_copies or _has_scripted(module) else (FakeTensors, TensorCopies):
        try:
            native = _tape_on(substitutes, template, module, None, (args, kwargs))
            match = Match(template, *native)
            holds = match.holds()
            problem = _other_answer(match)
            if problem is None and not (holds and _has_same_objects(match, objects)):
                problem = _difference(match)
            if problem is None:
                problem = hidden_input(native[0], *native, match.handed_over())
            if problem is None and any(map(is_call, template.entries)):
                graph = _GraphAsBody(build, module, objects)
                with_graph = _tape_on(substitutes, template, module, graph, (args, kwargs))
                problem = differing_call(native, with_graph, match.tensor_ids[: template.inputs])
        except Exception as error:
            what = error.reason if type(error) is CannotTrace else f"{type(error).__name__}: {first_line(error)}"
            problem = reasons.NOT_CHECKED(error=what)
        if problem is None:
            break
    return problem


def _has_scripted(module: nn.Module) -> bool:
    """Does the module contain scripted code? It keeps its tensors where no mode reaches them."""
    return any(isinstance(inner, torch.jit.ScriptModule) for inner in modules_of(module))


class _GraphAsBody:
    """A graph that runs in the place of a body."""

    def __init__(self, build: FxBuild, module: nn.Module, objects: Mapping[int, Any]) -> None:
        self._build = build
        self._module = module
        self._objects = objects
        self.unregistered = [
            each for each in (*build.constants.values(), *objects.values()) if isinstance(each, nn.Module)
        ]

    def on(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the graph for these arguments of the body, and the tensors and sizes that it takes of them."""
        objects = dict(self._objects)
        inputs = inputs_of(self._build.template, args, kwargs, objects)

        def run(*inputs: Tensor | int) -> Any:
            output = Executor(self._build, self._module, objects=objects).run(*inputs)
            return change_arguments(output, args, kwargs)

        return run, tuple(inputs)


_Taped = tuple[CallTape, ValueTable]  # a tape, and its tensors


def _tape_on(
    substitutes: type[FakeTensors] | type[TensorCopies],
    template: GraphTemplate,
    module: nn.Module,
    graph: _GraphAsBody | None,
    inputs: Any,
) -> _Taped:
    """Return the tape of a body on substitutes, or of a graph that runs instead; nothing is left changed."""

    def run() -> _Taped:
        with warnings.catch_warnings(), in_context(template.context):
            warnings.simplefilter("ignore")
            with substitutes(module) as mode:
                args, kwargs = internals.tree_map(mode.own, inputs, is_leaf=_is_size)  # else a size becomes a tuple
                tape, values = tape_of(module, args, kwargs, graph)
                tape.tensors_assigned = assigned_tensors(module, template.places_assigned(), values)
                return tape, values

    with sandboxed(module, inputs) as sandbox:
        snapshot = sandbox.snapshot()  # before anything is patched
        if snapshot.cannot_restore:
            raise CannotTrace(snapshot.cannot_restore)
        with _scripted_tensors_restored(module), _uncompiled(module):
            return sandbox.run(run)


def _is_size(argument: Any) -> bool:
    return type(argument) is torch.Size


def _has_same_objects(match: Match, objects: Mapping[int, Any]) -> bool:
    return all(match.objects.get(number, each) is each for number, each in objects.items())


@contextlib.contextmanager
def _scripted_tensors_restored(module: nn.Module) -> Iterator[None]:
    """Restore the tensors of scripted modules after the block: such code works on the real ones."""
    scripted = [inner for inner in modules_of(module) if isinstance(inner, torch.jit.ScriptModule)]
    tensors = [tensor for inner in scripted for tensor in (*inner.parameters(False), *inner.buffers(False))]
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors if not tensor.is_inference()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, copy in before:
                if tensor._version != version:
                    tensor.copy_(copy)


@contextlib.contextmanager
def _uncompiled(module: nn.Module) -> Iterator[None]:
    """Run the original forward of compiled modules inside the block: nothing is compiled for a check."""
    compiled = compiled_in(list(modules_of(module)))
    try:
        compiled.open_all()
        yield
    finally:
        compiled.end()


def _other_answer(match: Match) -> ReasonText | None:
    """Return the reason if a question about a value has another answer here; otherwise ``None``."""
    expected, entries = match.template.entries, match.tape.entries
    last = len(expected) if match.failed_at is None else match.failed_at + 1
    reached = min(len(entries), last)
    for guard in match.template.guards:
        if guard.entry is None or guard.entry >= reached:
            continue
        answer, before = entries[guard.entry].out, expected[guard.entry].out
        if type(answer) is not type(before) or not is_same(answer, before):
            return reasons.OTHER_ANSWER(assumption=guard, answer=repr(answer))
    return None


def _difference(match: Match) -> ReasonText:
    """Return the place at which the tape leaves the graph, as a reason."""
    index, expected, entries = match.failed_at, match.template.entries, match.tape.entries
    if index is None:
        return reasons.ARRANGED_OTHERWISE()
    if index >= len(expected) or index >= len(entries):
        entry = entries[index] if index < len(entries) else None
        runs = reasons.RUNS_MORE if entry is not None else reasons.RUNS_FEWER
        return runs(place=_at(expected[index].line if entry is None else entry.line))
    return reasons.RUNS_OTHER(place=_at(entries[index].line))


def _at(line: Line | None) -> str:
    return "" if line is None else f" at {short_line(line)}"


# The tape of one forward -------------------------------------------------------------------------


@runs_user_code
def tape_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], graph: _GraphAsBody | None = None
) -> _Taped:
    """Run one forward (on fake tensors, say), or its graph in its place, and return the tape."""
    values = ValueTable({}, None, lambda what: None, measuring=False)
    tape = Tape(values, {})
    observer = _TapeObserver(tape)
    module_call.begin(observer)
    try:
        more = () if graph is None else graph.unregistered
        module_call.attach(observer, [inner for each in (module, *more) for inner in modules_of(each)])
        if graph is None:
            module.forward(*args, **kwargs)
        else:
            run, inputs = graph.on(args, kwargs)
            observer.around_forward(module, run, inputs, {})
    finally:
        module_call.end(observer)
    return tape.call_tapes[0], values


class _TapeObserver:
    """Observer that puts every call of a module's forward on a tape."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._thread = threading.get_ident()
        self._count = 0

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if threading.get_ident() != self._thread:
            return run(*args, **kwargs)
        self._count += 1
        index, context = self._count - 1, context_now()
        with untracked():
            call_tape = self._tape.enter_call(index, module, run, args, kwargs, context)
        return run_taped(self._tape, call_tape, args, kwargs)

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return run(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        return self._count > 0 and threading.get_ident() == self._thread  # a module that is made in the body
