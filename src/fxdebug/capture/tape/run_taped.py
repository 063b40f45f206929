"""The bodies of a run's calls: opened and closed with the calls, the tape running over them.

One stack of open bodies per thread. The tape's mode is on a thread's stack of modes while that thread
has a body open, and off again where it would change what runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks.nested_observers import innermost
from fxdebug.capture.reasons import Words
from fxdebug.capture.replay.ambient_state import dispatch_modes, function_modes, names_of_modes
from fxdebug.capture.replay.introspect import members_in
from fxdebug.capture.replay.references import ArgumentReferences, KnownReferences, references_to
from fxdebug.capture.tape.call_tape import CallTape, debugger_failure
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.tape.encoding import OpaqueArg
from fxdebug.capture.tape.observed_tape import ObservedTape, OpObserver
from fxdebug.capture.tape.op_traits import written_form
from fxdebug.capture.tape.source_line import Line, is_users
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import Context
from fxdebug.capture.torch_state.mode_stack import allows_mode_around


class Bodies:
    """Runs forwards under the tape. ``by_index`` has each call's body."""

    def __init__(
        self,
        values: ValueTable,
        lines: dict[tuple[int, int], Line],
        say: Callable[[str], None],
        watcher: OpObserver | None = None,
    ) -> None:
        self.by_index: dict[int, CallTape] = {}
        self.kept: frozenset[TensorId] = frozenset()
        self._values = values
        self._stacks: dict[int, list[CallTape]] = {}
        self.tape = Tape(values, self._stacks, lines)
        if watcher is not None:
            self.tape = ObservedTape(values, self._stacks, lines, say, watcher)

    def begin(
        self,
        index: int,
        module: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: Context,
    ) -> None:
        """Note what a forward is given."""
        body = self.by_index[index] = CallTape(index, module, forward, context)
        try:
            stack = self._stack()
            self.tape.enter_call(body, args, kwargs, stack[-1] if stack else None)
        except Exception as error:
            body.untraceable = body.untraceable or debugger_failure(reasons.CALL_UNNOTED, error)

    def run(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any], line: Line | None = None) -> Any:
        """Run the forward that began with its operations noted; its result is returned, its exception passes through.

        ``line`` is where it was called, if that is known.
        """
        body = self.by_index[index]
        stack = self._stack()
        parent = stack[-1] if stack else None
        module, forward = body.module, body.forward
        body.outermost = parent is None
        functions = internals.len_torch_function_stack()
        if parent is not None and parent.unobserved is not None:
            is_fused = parent.unobserved == _fused(parent.module)
            body.unobserved = reasons.INSIDE_FUSED(module=_kind(parent.module)) if is_fused else parent.unobserved
        elif parent is not None and not self.tape.is_on(functions):
            body.unobserved = _unheard()
        elif not allows_mode_around(module):
            body.unobserved = _fused(module)
        body.line = line if line is not None and is_users(line) else None
        unusual = [thing for thing in (*args, *kwargs.values()) if type(thing) not in _SIMPLE]
        containers = _containers(unusual) if unusual else ()
        stack.append(body)
        body.function_modes = functions
        if functions > stack[0].function_modes + 1 or internals.len_torch_dispatch_stack():  # 1: the tape
            self._note_modes(body, stack[0])
        try:
            if (parent is None) is (body.unobserved is None):  # the mode must be put on, or taken off
                with self.tape.switched_on() if parent is None else self.tape.switched_off():
                    output = forward(*args, **kwargs)
            else:
                output = forward(*args, **kwargs)
        except BaseException as error:
            body.untraceable = reasons.RAISED(error=type(error).__name__)
            if parent is not None:  # it may go on: what it called then is on no tape
                parent.untraceable = parent.untraceable or reasons.CALL_RAISED(error=type(error).__name__)
            raise
        finally:
            while stack and stack.pop() is not body:
                pass
            body.forward = innermost(forward)  # it may be run again: other recordings are not to hear of that
        for container, before in containers:
            if _items(container) != before:
                body.untraceable = body.untraceable or reasons.CHANGES_ARGUMENT(container=_a(type(container).__name__))
        if body.compiled_ops and body.compiled_ops == len(body.entries):
            body.unobserved = reasons.COMPILED()
        try:
            self.tape.leave_call(body, parent, output)
        except Exception as error:
            body.untraceable = body.untraceable or debugger_failure(reasons.CALL_UNNOTED, error)
        if unusual and any(hasattr(type(thing), "__next__") for thing in unusual):
            body.untraceable = body.untraceable or reasons.GIVEN_ITERATOR()
        return output

    @staticmethod
    def _note_modes(body: CallTape, outermost: CallTape) -> None:
        """A mode that a caller put on for this call is in no graph, and computes instead of what is in it."""
        names = names_of_modes(function_modes(outermost.function_modes + 1))
        body.callers_modes = reasons.RAN_UNDER_CALLERS_MODE(modes=names) if names else None
        modes = dispatch_modes()
        if body is outermost:
            body.dispatch_modes = modes
        elif modes != outermost.dispatch_modes:
            body.untraceable = body.untraceable or reasons.CALLERS_MODE(modes=names_of_modes(modes))

    def holds(self, index: int, output: Any) -> int:
        """How many references to what a call returned are ours."""
        return isinstance(self.by_index[index].out, OpaqueArg) + (id(output) in self.tape.opaque_objects)

    def _stack(self) -> list[CallTape]:
        thread = threading.get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = []
        return stack

    def close(self, output: Any, references: int, model: nn.Module, passed: ArgumentReferences) -> None:
        """The run is over: find the tensors that the program keeps where a trace would leave stand-ins.

        ``references``: how many there are to the output itself, if it is a tensor.
        """
        opaque = list(self.tape.opaque_objects.values())
        self.tape.opaque_objects.clear()
        for body in self.by_index.values():
            if body.argument_copies is not None:
                opaque.append(body.argument_copies.copy)
        more = passed.added
        known = KnownReferences([output, *opaque], passed.arguments, model)
        held = [(u, t) for u, t in self._values.live_tensors() if not self._values.is_weight(t)]
        kept = set()
        while held:
            tensor_id, tensor = held.pop()
            grown = more.get(id(tensor))
            if grown is None and tensor is output:
                grown = references
            count = references_to(tensor) - 1 if grown is None else grown  # 1: this variable
            if known.has_unknown(tensor, count, is_argument=id(tensor) in more):
                kept.add(tensor_id)
        self.kept = frozenset(kept)


def _kind(module: nn.Module) -> str:
    return type(module).__name__


def _fused(module: nn.Module) -> Words:
    return reasons.FUSED(module=_kind(module))


def _a(noun: str) -> str:
    """A noun with its article."""
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _unheard() -> Words:
    """Why the tape does not hear of the operations of a call that begins now, below one of which it does."""
    if CompiledRegions.is_inside():
        return reasons.INSIDE_COMPILED()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not Tape.__torch_function__.__code__:
        frame = frame.f_back
    if frame is None:
        return reasons.MODE_TAKEN_OFF()
    return reasons.INSIDE_OPERATION(function=written_form(frame.f_locals["func"]))


def _containers(things: list[Any]) -> list[tuple[Any, list[int]]]:
    """The lists, dicts and dataclasses among arguments, each with the ids of what it holds."""
    found: list[tuple[Any, list[int]]] = []
    pending = [thing for thing in things if _is_filled(thing)]
    while pending and len(found) < 1000:
        container = pending.pop()
        if type(container) is not tuple:
            found.append((container, _items(container)))
        pending.extend([thing for thing in _inside(container) if _is_filled(thing)])
    return found


def _is_filled(thing: Any) -> bool:
    kind = type(thing)
    return kind in _FILLED or (hasattr(kind, "__dataclass_fields__") and members_in(thing) is not None)


def _items(container: Any) -> list[int]:
    keys = container if type(container) is dict else ()
    return list(map(id, (*keys, *_inside(container))))


def _inside(container: Any) -> Iterable[Any]:
    if type(container) is dict:
        return container.values()
    return container if type(container) in _FILLED else (members_in(container) or {}).values()


_FILLED = (list, dict, tuple)
_SIMPLE = frozenset((*PLAIN, type(None), bool, int, float, str))  # what nearly all arguments are
