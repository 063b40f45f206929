"""Does a body do what its graph does for inputs of other sizes? It runs once, and the tape tells.

It runs on fake tensors, which have sizes and no data, or else on copies: parameters, buffers and whatever
other tensors the body gets at are others in the operations, and what its Python changes is put back.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.graphs.match import Match
from fxdebug.capture.graphs.template import GraphTemplate
from fxdebug.capture.graphs.to_fx import Built
from fxdebug.capture.hooks import module_call
from fxdebug.capture.hooks.compiled_modules import compiled_in
from fxdebug.capture.hooks.observers import hidden_from_recordings
from fxdebug.capture.reasons import CannotTrace, Words
from fxdebug.capture.replay.paused import gc_paused
from fxdebug.capture.replay.reachable import ReachableObjects
from fxdebug.capture.replay.side_effects import side_effects_blocked, standing_in
from fxdebug.capture.replay.snapshot import State
from fxdebug.capture.rerun.check_nested_calls import differs_inside
from fxdebug.capture.rerun.execute import Executor
from fxdebug.capture.rerun.hidden_inputs import hidden_input
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.tape.encoding import is_same
from fxdebug.capture.tape.op_traits import HOOKS, LAYOUT
from fxdebug.capture.tape.run_taped import run_taped
from fxdebug.capture.tape.source_line import begins, short
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.describe import PLAIN
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import context_now, in_context
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.errors import first_line


def checked(
    built: Built, module: nn.Module, args: Any, kwargs: Any, tensors: Sequence[Tensor], on_copies: bool = False
) -> Words | None:
    """Run the body on inputs like these and match the tape: why is the graph not what it does? ``None`` if it is.

    On fake tensors, for nothing; where these cannot tell (a branch on a value, a size that depends on values,
    an operation that has no fake version, Python that looks whether tensors are fake), on copies of the real ones;
    there at once where they are known not to (``on_copies``). The graph runs too, to see that the calls in it do
    what they do in the body.
    """
    problem: Words | None = None
    for instead in (_Copied,) if on_copies or _has_scripted(module) else (_Faked, _Copied):
        try:
            native = _tape(built.pattern, instead, module, None, (args, kwargs))
            attempt = Match(built.pattern, *native)
            holds = attempt.holds()
            problem = _answer(attempt, built.pattern)
            if problem is None:
                problem = hidden_input(native[0], native[0]) if holds else _difference(attempt, built.pattern)
            if problem is None and any(node.module is not None for node in built.pattern.nodes):
                graph = _Runs(built, module)
                with_graph = _tape(built.pattern, instead, module, graph, (tuple(tensors), {}))
                problem = differs_inside(native, with_graph)
        except Exception as error:
            what = error.reason if type(error) is CannotTrace else f"{type(error).__name__}: {first_line(error)}"
            problem = reasons.NOT_CHECKED(error=what)
        if problem is None:
            break
    return problem


def _has_scripted(module: nn.Module) -> bool:
    """Is there scripted code in it that keeps its tensors where no mode reaches them?"""
    return any(isinstance(inner, torch.jit.ScriptModule) for inner in module.modules())


class _Runs:
    """The graph in the place of a body."""

    def __init__(self, built: Built, module: nn.Module) -> None:
        self._built = built
        self._module = module
        self.unregistered = [held for held in built.objects.values() if isinstance(held, nn.Module)]

    def __call__(self, *tensors: Tensor) -> Any:
        return Executor(self._built, self._module).run(*tensors)


_Taped = tuple[CallTape, ValueTable]  # what ran


def _tape(
    pattern: GraphTemplate, instead: type[_Faked] | type[_Copied], module: nn.Module, graph: _Runs | None, passed: Any
) -> _Taped:
    """The tape of a body, or of a graph that runs instead; nothing is left changed."""

    def run() -> _Taped:
        with instead(module) as inside:
            args, kwargs = internals.tree_map(inside.own, passed)
            return tape_of(module, args, kwargs, graph)

    with gc_paused(), hidden_from_recordings():
        state = State(module, given=passed)
        if state.why_not:
            raise CannotTrace(state.why_not)
        try:
            with (
                _scripted_kept(module), _uncompiled(module), state.kept(), side_effects_blocked(), warnings.catch_warnings(),
                in_context(pattern.context),
            ):  # fmt: skip
                warnings.simplefilter("ignore")
                return contextvars.copy_context().run(run)
        finally:
            state.put_back()


@contextlib.contextmanager
def _scripted_kept(module: nn.Module) -> Iterator[None]:
    """A block after which the tensors of scripted modules are what they were: such code works on the real ones."""
    scripted = [inner for inner in module.modules() if isinstance(inner, torch.jit.ScriptModule)]
    held = [tensor for inner in scripted for tensor in (*inner.parameters(False), *inner.buffers(False))]
    before = [(tensor, tensor._version, tensor.detach().clone()) for tensor in held if not tensor.is_inference()]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, version, copy in before:
                if tensor._version != version:
                    tensor.copy_(copy)


@contextlib.contextmanager
def _uncompiled(module: nn.Module) -> Iterator[None]:
    """A block in which compiled modules run as they are written: nothing is compiled for a check."""
    compiled = compiled_in(module.modules())
    try:
        compiled.open_all()
        yield
    finally:
        compiled.end()


class _Instead(TorchFunctionMode):
    """Gives every operation a tensor of its own in the place of the model's; one that it returns stays itself."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[int, tuple[Tensor, Tensor]] = {}  # id of the model's → it, and ours
        self._back: dict[int, Tensor] = {}  # id of ours → the model's
        self._inputs: dict[int, Tensor] = {}  # id of an input → ours
        self._originals: dict[int, Tensor] = {}  # id of ours → what it stands for

    def make(self, tensor: Tensor) -> Tensor:
        """What stands for a tensor."""
        raise NotImplementedError

    def is_foreign(self, tensor: Tensor) -> bool:
        """Is it the model's?"""
        raise NotImplementedError

    def own(self, thing: Any) -> Any:
        """What stands for a tensor among the inputs."""
        if not isinstance(thing, Tensor):
            return thing
        if id(thing) not in self._inputs:
            self._inputs[id(thing)] = self._made(thing)
        return self._inputs[id(thing)]

    def _made(self, tensor: Tensor) -> Tensor:
        with internals.DisableTorchFunction():
            made = self.make(tensor)
        vars(made).update(vars(tensor))  # the program's own attributes
        self._originals[id(made)] = tensor
        return made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOOKS and args:
            return func(self._originals.get(id(args[0]), args[0]))
        args, kwargs = internals.tree_map(self._put, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return self._back.get(id(result), result)

    def _put(self, thing: Any) -> Any:
        if not isinstance(thing, Tensor) or not self.is_foreign(thing):
            return thing
        if id(thing) not in self._given:
            ours = self._made(thing)
            self._given[id(thing)] = thing, ours
            self._back[id(ours)] = thing
        return self._given[id(thing)][1]


class _NotToldByFakes(Exception):
    """Fake tensors do not have what the body asks for: copies are asked next. No user reads this."""


class _Faked(_Instead):
    """Fake tensors: they have sizes and no data."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._kind, mode = internals.fake_tensors()
        self._mode = mode(allow_non_fake_inputs=True)

    def make(self, tensor: Tensor) -> Tensor:
        return self._mode.from_tensor(tensor, static_shapes=True)

    def is_foreign(self, tensor: Tensor) -> bool:
        return not isinstance(tensor, self._kind) and not internals.is_functorch_wrapped_tensor(tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LAYOUT and args and id(args[0]) not in self._originals and not self.is_foreign(args[0]):
            raise _NotToldByFakes("how a result lies in memory")
        if func in _READING or (func in _MAKING and _has_tensors_inside((*args, *(kwargs or {}).values()))):
            raise _NotToldByFakes("the numbers in memory")
        return super().__torch_function__(func, types, args, kwargs)

    def __enter__(self) -> Any:
        self._mode.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._mode.__exit__(*error)


# C code that takes the memory of its arguments for granted: without it, the process ends.
_READING = frozenset((Tensor.apply_, Tensor.map_, Tensor.map2_))  # type: ignore[attr-defined]
_MAKING = frozenset((torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor))  # of tensors in lists, they do


def _has_tensors_inside(args: Sequence[Any]) -> bool:
    lists = [arg for arg in args if type(arg) in (list, tuple)]
    return any(isinstance(leaf, Tensor) for leaf in internals.tree_leaves(lists))


class _Result(torch.autograd.Function):
    """Makes a copy what the original was: the result of an operation, to gradients."""

    @staticmethod
    def forward(context: Any, leaf: Tensor, copies: list[Tensor]) -> Tensor:
        return copies[0]

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return None, None


class _Copied(_Instead):
    """Copies of what the module holds and of its inputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._held = ReachableObjects(module).tensors
        self._memories: dict[int, tuple[Any, Any]] = {}  # by the address of torch's object: it, and its copy

    def make(self, tensor: Tensor) -> Tensor:
        if tensor.requires_grad and not tensor.is_leaf:
            leaf = torch.empty(0, requires_grad=True)
            with torch.enable_grad():
                return _Result.apply(leaf, [self._copied(tensor.detach())])  # type: ignore[no-any-return]
        made = self._copied(tensor.detach()).requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            made.grad = self._copied(tensor.grad)
        return made

    def _copied(self, tensor: Tensor) -> Tensor:
        """A copy in a copy of its memory, as its strides have it: what shares the one shares the other."""
        is_plain = tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)
        if type(tensor) not in PLAIN or not is_plain:
            return tensor.clone()
        if tensor.is_conj():  # or negated: to be carried out when it is read
            return self._copied(tensor.conj()).conj()
        if tensor.is_neg():
            return internals.neg_view(self._copied(internals.neg_view(tensor)))
        memory = tensor.untyped_storage()
        if memory._cdata not in self._memories:
            self._memories[memory._cdata] = memory, memory.clone()
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            self._memories[memory._cdata][1], tensor.storage_offset(), tensor.shape, tensor.stride()
        )

    def is_foreign(self, tensor: Tensor) -> bool:
        return id(tensor) in self._held

    def __enter__(self) -> Any:
        self._scripted = standing_in(self._put)
        self._scripted.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._scripted.__exit__(*error)


def _answer(attempt: Match, pattern: GraphTemplate) -> Words | None:
    """The first question about a value that has another answer here."""
    last = len(pattern.nodes) if attempt.failed_at is None else attempt.failed_at + 1
    reached = min(len(attempt.body.entries), last)
    for guard in pattern.guards:
        if guard.node is None or guard.node >= reached:
            continue
        answer, expected = attempt.body.entries[guard.node].out, pattern.nodes[guard.node].out
        if type(answer) is not type(expected) or not is_same(answer, expected):
            return reasons.OTHER_ANSWER(assumption=guard, answer=repr(answer))
    return None


def _difference(attempt: Match, pattern: GraphTemplate) -> Words:
    """Where the tape leaves the graph."""
    index = attempt.failed_at
    entries = attempt.body.entries
    if index is None:
        return reasons.ARRANGED_OTHERWISE()
    if index >= len(pattern.nodes) or index >= len(entries):
        entry = entries[index] if index < len(entries) else None
        runs = reasons.RUNS_MORE if entry is not None else reasons.RUNS_FEWER
        line = entry.line if entry is not None else pattern.nodes[index].line
        return runs(place=_at(line))
    return reasons.RUNS_OTHER(place=_at(entries[index].line))


def _at(line: Any) -> str:
    return "" if line is None else f" at {short(line)}"


# The tape of one forward -------------------------------------------------------------------------


@begins
def tape_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], instead: _Runs | None = None
) -> tuple[CallTape, ValueTable]:
    """Run one forward for real (on fake tensors, say), or its graph ``instead`` of it, and return the tape."""
    values = ValueTable({}, None, lambda what: None, measuring=False)
    tape = Tape(values, {})
    watcher = _Watcher(tape)
    module_call.begin(watcher)
    try:
        more = () if instead is None else instead.unregistered
        module_call.attach(watcher, [inner for each in (module, *more) for inner in each.modules()])
        if instead is None:
            module.forward(*args, **kwargs)
        else:
            watcher.around_forward(module, instead, args, kwargs)
    finally:
        module_call.end(watcher)
    return tape.call_tapes[0], values


class _Watcher:
    """Puts every call of a module's forward on a tape."""

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
            body = self._tape.enter_call(index, module, run, args, kwargs, context)
        return run_taped(self._tape, body, args, kwargs)

    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return run(*args, **kwargs)

    def wants(self, module: nn.Module) -> bool:
        return self._count > 0 and threading.get_ident() == self._thread  # one that is made in the body
