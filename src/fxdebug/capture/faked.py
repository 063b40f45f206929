"""Does a body do what its graph does for inputs of other sizes? It runs once on fake tensors, and the tape tells.

Nothing real is computed, read or written meanwhile: parameters, buffers and whatever other tensors the
body gets at are fake ones in the operations, and what its Python changes is put back.
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
from fxdebug.capture.context import in_context
from fxdebug.capture.hidden import hidden_input
from fxdebug.capture.hush import hushed
from fxdebug.capture.match import Match
from fxdebug.capture.pattern import Pattern
from fxdebug.capture.source import short
from fxdebug.capture.state import State
from fxdebug.capture.tape import Body
from fxdebug.capture.values import Values, first_line


def differs_on_fake(pattern: Pattern, module: nn.Module, args: Any, kwargs: Any) -> str | None:
    """Run the body on fake tensors like these and match the tape; ``None`` if the pattern is what it does."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    state = State(module)
    try:
        fakes = tree_map(lambda x: mode.from_tensor(x, static_shapes=True) if isinstance(x, Tensor) else x, args)
        named = tree_map(lambda x: mode.from_tensor(x, static_shapes=True) if isinstance(x, Tensor) else x, kwargs)
        with state.kept(), hushed(), warnings.catch_warnings(), mode, in_context(pattern.context), _Faked(mode):
            warnings.simplefilter("ignore")
            body, values = contextvars.copy_context().run(tape_of, module, fakes, named)
    except Exception as error:
        return f"it cannot be checked for these inputs without running it ({type(error).__name__}: {first_line(error)})"
    finally:
        state.put_back()
    attempt = Match(pattern, body, values)
    return hidden_input(body, body) if attempt.holds() else _difference(attempt, pattern)


class _Faked(TorchFunctionMode):
    """Gives every operation a fake tensor in the place of a real one; a real one that it returns stays itself."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self._mode = mode
        self._real: dict[int, tuple[Tensor, Tensor]] = {}  # by the id of the fake one, which is kept alive

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(self._fake, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return self._real.get(id(result), (None, result))[1]

    def _fake(self, thing: Any) -> Any:
        if (
            not isinstance(thing, Tensor)
            or isinstance(thing, FakeTensor)
            or torch._C._functorch.is_functorch_wrapped_tensor(thing)
        ):
            return thing
        with torch._C.DisableTorchFunction():
            fake = self._mode.from_tensor(thing, static_shapes=True)
        self._real[id(fake)] = fake, thing
        return fake


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
    bodies = Bodies(values, lambda what: None)
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
        return self._bodies.run(self._count - 1, module, run, args, kwargs)

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return run(*args, **kwargs)

    def meets(self, module: nn.Module) -> bool:
        return False
