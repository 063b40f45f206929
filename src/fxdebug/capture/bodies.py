"""The bodies of a run's calls: opened and closed with the calls, the tape running over them.

One stack of open bodies per thread. The tape's mode is on a thread's stack of modes while that thread
has a body open, and off again where it would change what runs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from fxdebug.capture.state import References
from fxdebug.capture.tape import Body, Tape, makes_no_difference, put_on, take_off
from fxdebug.capture.values import Uid, Values


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
            body.hazard = body.hazard or f"it could not be noted ({type(error).__name__}: {error})"

    def _stack(self) -> list[Body]:
        thread = threading.get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = []
        return stack

    def close(self, output: Any, model: nn.Module, output_kept: bool) -> None:
        """The run is over: find the tensors that the program's own state keeps."""
        produced: set[Uid] = set()
        opaque: list[Any] = []
        given = {uid for body in self.by_index.values() if body.outermost for uid in body.before}
        for body in self.by_index.values():
            for entry in body.entries:
                produced |= set(_uids(entry.out)) - given
                opaque += _things(entry.args) + _things(entry.kwargs) + _things(entry.out)
            if body.copies is not None:
                opaque.append(body.copies.copy)
        references = References([output, *opaque], model)
        held = [(u, t) for u, t in self._values.alive() if u in produced and not self._values.is_named(t)]
        kept = set()
        while held:
            uid, tensor = held.pop()
            if output_kept if tensor is output else references.kept_elsewhere(tensor):
                kept.add(uid)
        self.kept = frozenset(kept)


def _uids(code: Any) -> Iterator[Uid]:
    from fxdebug.capture.coding import uids_in

    return uids_in(code)


def _things(code: Any) -> list[Any]:
    from fxdebug.capture.coding import opaque_in

    return list(opaque_in(code))


# torch.compile'd functions -----------------------------------------------------------------------


class CompiledRegions:
    """Takes a tape off while compiled code runs, wherever it is called from.

    A mode would make ``torch.compile`` run its functions eagerly. Dynamo announces the beginning and end
    of each region to ``_maybe_set_eval_frame``; that name is pointed here for the length of a recording.
    """

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._above = threading.local()
        self._dynamo: Any = None
        self._original: Any = None

    def begin(self) -> None:
        """From now on, if dynamo is loaded at all."""
        self._dynamo = sys.modules.get("torch._dynamo.eval_frame")
        if self._dynamo is not None:
            self._original = self._dynamo._maybe_set_eval_frame
            self._dynamo._maybe_set_eval_frame = self._changed

    def end(self) -> None:
        """No longer."""
        if self._dynamo is not None and self._dynamo._maybe_set_eval_frame == self._changed:
            self._dynamo._maybe_set_eval_frame = self._original

    def _changed(self, callback: Any) -> Any:
        inside = callable(callback)
        above = getattr(self._above, "value", None)
        if inside and above is None:
            self._above.value = take_off(self._tape)
        elif not inside and above is not None:
            put_on(self._tape, above)
            self._above.value = None
        return self._original(callback)
