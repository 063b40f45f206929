"""The bodies of a run's calls: opened and closed with the calls, the tape running over them.

One stack of open bodies per thread. The tape's mode is on a thread's stack of modes while that thread
has a body open, and off again where it would change what runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from torch import nn

from fxdebug.capture.coding import opaque_in, uids_in
from fxdebug.capture.state import Passed, References, references_to
from fxdebug.capture.tape import Body, Tape, makes_no_difference, put_on, take_off
from fxdebug.capture.values import Uid, Values, first_line


class Bodies:
    """Runs forwards under the tape. ``by_index`` has each call's body."""

    def __init__(self, values: Values, say: Callable[[str], None]) -> None:
        self.by_index: dict[int, Body] = {}
        self.kept: frozenset[Uid] = frozenset()
        self._values = values
        self._say = say
        self._stacks: dict[int, list[Body]] = {}
        self.tape = Tape(values, self._stack, say)

    def run(
        self, index: int, module: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run one forward with its operations noted; its result is returned, its exception passes through."""
        stack = self._stack()
        parent = stack[-1] if stack else None
        body = self.by_index[index] = Body(index, module, forward)
        body.outermost = parent is None
        self._guarded(body, self.tape.began, body, args, kwargs)
        if parent is not None and parent.suspended is not None:
            body.suspended = parent.suspended if parent.suspended.startswith("inside") else f"inside {parent.suspended}"
        elif not makes_no_difference(module):
            body.suspended = f"{type(module).__name__} runs fused or compiled code that watching would switch off"
        containers = _containers(args, kwargs)
        stack.append(body)
        try:
            with self._mode(first=parent is None, off=body.suspended is not None):
                output = forward(*args, **kwargs)
        except BaseException as error:
            body.hazard = f"it raised {type(error).__name__}"
            raise
        finally:
            while stack and stack.pop() is not body:
                pass
        for container, before in containers:
            if _items(container) != before:
                body.hazard = body.hazard or f"it changes a {type(container).__name__} that it was given"
        self._guarded(body, self.tape.ended, body, None if body.suspended == "inside" else parent, output)
        return output

    def _mode(self, *, first: bool, off: bool) -> contextlib.AbstractContextManager[Any]:
        if first and not off:
            return self.tape
        if off and not first:
            return self.tape.lifted()
        return contextlib.nullcontext()

    def _guarded(self, body: Body, step: Callable[..., None], *args: Any) -> None:
        """Nothing that goes wrong in noting reaches the model: the body is then shown as far as it is known."""
        try:
            step(*args)
        except Exception as error:
            body.hazard = body.hazard or f"it could not be noted ({type(error).__name__}: {first_line(error)})"

    def _stack(self) -> list[Body]:
        thread = threading.get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = []
        return stack

    def close(self, output: Any, references: int, model: nn.Module, passed: Passed) -> None:
        """The run is over: find the tensors that the program keeps where a trace would leave stand-ins.

        ``references``: how many there are to the output itself, if it is a tensor.
        """
        met: set[Uid] = set()
        opaque: list[Any] = []
        for body in self.by_index.values():
            codes = [body.args, body.kwargs]
            for entry in body.entries:
                codes += [entry.args, entry.kwargs, entry.out]
                met.update(uids_in(entry.out))
            met.update(uids_in(body.args))
            met.update(uids_in(body.kwargs))
            opaque += [thing for code in codes for thing in opaque_in(code)]
            if body.copies is not None:
                opaque.append(body.copies.copy)
        more = passed.more()
        known = References([output, *opaque], passed.things, model)
        held = [(u, t) for u, t in self._values.alive() if u in met and not self._values.is_named(t)]
        kept = set()
        while held:
            uid, tensor = held.pop()
            grown = more.get(id(tensor))
            if grown is None and tensor is output:
                grown = references
            count = references_to(tensor) - 1 if grown is None else grown  # 1: this variable
            if known.unknown(tensor, count, passed=id(tensor) in more):
                kept.add(uid)
        self.kept = frozenset(kept)


def _containers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Any, list[int]]]:
    """The lists and dicts among the arguments, each with the ids of what is in it: they keep nothing alive."""
    found: list[tuple[Any, list[int]]] = []
    pending = [thing for thing in (*args, *kwargs.values()) if type(thing) in _FILLED]
    while pending and len(found) < 1000:
        container = pending.pop()
        if type(container) is not tuple:
            found.append((container, _items(container)))
        inside = container.values() if type(container) is dict else container
        pending.extend([thing for thing in inside if type(thing) in _FILLED])
    return found


def _items(container: Any) -> list[int]:
    return list(map(id, (*container, *container.values()) if type(container) is dict else container))


_FILLED = (list, dict, tuple)


# torch.compile'd functions -----------------------------------------------------------------------


class CompiledRegions:
    """Takes a tape off while compiled code runs, wherever it is called from.

    A mode would make ``torch.compile`` run its functions eagerly. Dynamo announces the beginning and end
    of each region to ``_maybe_set_eval_frame``; that name is pointed here while recordings are on.
    """

    _lock = threading.Lock()
    _on: tuple[CompiledRegions, ...] = ()
    _put_back: Callable[[], None] | None = None

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._above = threading.local()

    def begin(self) -> None:
        """From now on, if dynamo is loaded at all."""
        dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
        with CompiledRegions._lock:
            CompiledRegions._on = (*CompiledRegions._on, self)
            if dynamo is not None and CompiledRegions._put_back is None:
                CompiledRegions._put_back = _announced(dynamo)

    def end(self) -> None:
        """No longer; recordings may end in any order."""
        with CompiledRegions._lock:
            CompiledRegions._on = tuple([other for other in CompiledRegions._on if other is not self])
            put_back = CompiledRegions._put_back
            if not CompiledRegions._on and put_back is not None:
                CompiledRegions._put_back = None
                put_back()

    def changed(self, inside: bool) -> None:
        """Compiled code begins, or ends."""
        above = getattr(self._above, "value", None)
        if inside and above is None:
            self._above.value = take_off(self._tape)
        elif not inside and above is not None:
            put_on(self._tape, above)
            self._above.value = None


def _announced(dynamo: Any) -> Callable[[], None]:
    """Hear of compiled regions; what is returned puts dynamo's own function back."""
    original = dynamo._maybe_set_eval_frame

    def ours(callback: Any) -> Any:
        inside = callable(callback)
        for regions in CompiledRegions._on if inside else reversed(CompiledRegions._on):
            regions.changed(inside)
        return original(callback)

    def put_back() -> None:
        if dynamo._maybe_set_eval_frame is ours:
            dynamo._maybe_set_eval_frame = original

    dynamo._maybe_set_eval_frame = ours
    return put_back
