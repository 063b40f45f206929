"""Does a body do what its graph does for inputs of other sizes? It runs once, and the tape tells.

It runs on fake tensors, which have sizes and no data, or else on copies: parameters, buffers and whatever
other tensors the body gets at are others in the operations, and what its Python changes is put back.
"""

from __future__ import annotations

import contextvars
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from fxdebug.capture import wrap
from fxdebug.capture.aside import aside
from fxdebug.capture.body import Body
from fxdebug.capture.context import context_now, in_context
from fxdebug.capture.hidden import hidden_input
from fxdebug.capture.hush import hushed
from fxdebug.capture.match import Match
from fxdebug.capture.pattern import Pattern
from fxdebug.capture.reach import Reach
from fxdebug.capture.source import short
from fxdebug.capture.state import State
from fxdebug.capture.values import Values, first_line


def differs_elsewhere(pattern: Pattern, module: nn.Module, args: Any, kwargs: Any) -> str | None:
    """Run the body on inputs like these and match the tape; ``None`` if the pattern is what it does.

    On fake tensors, for nothing; where these cannot tell (a branch on a value, an operation that has no fake
    version, Python that looks whether tensors are fake), on copies of the real ones.
    """
    problem: str | None = None
    for instead in (_Faked, _Copied):
        state = State(module)
        try:
            with state.kept(), hushed(), warnings.catch_warnings(), in_context(pattern.context):
                warnings.simplefilter("ignore")
                body, values = contextvars.copy_context().run(_tape, instead, module, args, kwargs)
        except Exception as error:
            problem = f"it cannot be checked for these inputs ({type(error).__name__}: {first_line(error)})"
            continue
        finally:
            state.put_back()
        attempt = Match(pattern, body, values)
        problem = hidden_input(body, body) if attempt.holds() else _difference(attempt, pattern)
        if problem is None:
            return None
    return problem


def _tape(instead: type[_Faked] | type[_Copied], module: nn.Module, args: Any, kwargs: Any) -> tuple[Body, Values]:
    with instead(module) as inside:
        given = tree_map(inside.own, (args, kwargs))
        return tape_of(module, *given)


class _Instead(TorchFunctionMode):
    """Gives every operation a tensor of its own in the place of the model's; one that it returns stays itself."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[int, tuple[Tensor, Tensor]] = {}  # id of the model's → it, and ours
        self._back: dict[int, Tensor] = {}  # id of ours → the model's
        self._inputs: dict[int, Tensor] = {}  # id of an input → ours

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
        with torch._C.DisableTorchFunction():
            return self.make(tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(self._put, (args, kwargs or {}))
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


class _Faked(_Instead):
    """Fake tensors: they have sizes and no data."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def make(self, tensor: Tensor) -> Tensor:
        return self._mode.from_tensor(tensor, static_shapes=True)

    def is_foreign(self, tensor: Tensor) -> bool:
        return not isinstance(tensor, FakeTensor) and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)

    def __enter__(self) -> Any:
        self._mode.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._mode.__exit__(*error)


class _Copied(_Instead):
    """Copies of what the module holds and of its inputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._held = Reach(module).tensors

    def make(self, tensor: Tensor) -> Tensor:
        if tensor.requires_grad and not tensor.is_leaf:
            return tensor.clone()
        return _copied(tensor.detach()).requires_grad_(tensor.requires_grad)

    def is_foreign(self, tensor: Tensor) -> bool:
        return id(tensor) in self._held


def _copied(tensor: Tensor) -> Tensor:
    """A copy with the same strides, on which ``contiguous`` and others do what they would do on the tensor."""
    copy = tensor.clone()
    if tensor.layout is not torch.strided or tensor.is_nested or copy.stride() == tensor.stride():
        return copy
    memory = tensor.untyped_storage().clone()  # expanded, or with gaps
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        memory, tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def _difference(attempt: Match, pattern: Pattern) -> str:
    """Where the tape leaves the graph, in words."""
    index = attempt.failed_at
    entries = attempt.body.entries
    if index is None:
        return "its arguments or results are arranged differently for these inputs"
    if index >= len(pattern.nodes) or index >= len(entries):
        entry = entries[index] if index < len(entries) else None
        more = "more" if entry is not None else "fewer"
        line = entry.line if entry is not None else pattern.nodes[index].line
        return f"for these sizes it runs {more} operations{_at(line)}"
    return f"for these sizes it does something else{_at(entries[index].line)}"


def _at(line: Any) -> str:
    return "" if line is None else f" at {short(line)}"


# The tape of one forward -------------------------------------------------------------------------


def tape_of(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Body, Values]:
    """Run one forward for real (on fake tensors, say) and return its tape."""
    from fxdebug.capture.bodies import Bodies

    values = Values({}, None, lambda what: None, measuring=False)
    bodies = Bodies(values, {}, lambda what: None)
    watcher = _Watcher(bodies)
    wrap.begin(watcher)
    try:
        wrap.watch(watcher, list(module.modules()))
        module.forward(*args, **kwargs)
    finally:
        wrap.end(watcher)
    return bodies.by_index[0], values


class _Watcher:
    """Puts every call of a module's forward on a tape."""

    def __init__(self, bodies: Any) -> None:
        self._bodies = bodies
        self._thread = threading.get_ident()
        self._count = 0

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:
            return run(*args, **kwargs)
        self._count += 1
        index, context = self._count - 1, context_now()
        with aside():
            self._bodies.begin(index, module, run, args, kwargs, context)
        return self._bodies.run(index, args, kwargs)

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(*args, **kwargs)

    def meets(self, module: nn.Module) -> bool:
        return self._count > 0 and threading.get_ident() == self._thread  # one that is made in the body
