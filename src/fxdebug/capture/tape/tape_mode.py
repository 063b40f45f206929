"""The tape: every torch function that a forward calls, noted as it runs.

Reading order: after ``tape/run_taped``, which runs a forward under it; then ``tensors/value_table``, which knows the
tensors it meets.

A :class:`Tape` is a ``TorchFunctionMode``. It notes function, arguments and results as codes (see
``coding``), the grad and autocast state and the user's line, and has every new result measured. It
computes nothing itself and keeps no tensor alive. What asks a tensor for its metadata (``shape``,
``dtype``) is not noted; what asks for its values (``bool``, ``item``) is, with the answer.

Where an active mode would change what runs (fused kernels, compiled code) this mode alone is taken
off the thread's stack, and put back afterwards.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, TensorRefs, unnoted
from fxdebug.capture.tape.encoding import ATOMS, Copies, OpaqueArg, Struct, members_of, opaque_in
from fxdebug.capture.tape.op_traits import (
    ESCAPES,
    FOREIGN,
    LEVELS,
    METADATA,
    NORMS,
    called,
    running_statistics,
    shares_memory,
)
from fxdebug.capture.tape.source_line import Line, at, user_line
from fxdebug.capture.tensors.describe import PLAIN, shape_of
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef, version_of
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.grad_mode import Context, context_now
from fxdebug.capture.torch_state.mode_stack import is_traced, may_be_traced, put_on, take_off
from fxdebug.capture.torch_state.untracked import no_modes_active, untracked
from fxdebug.data.values import Value

_iterate = Tensor.__iter__
_new = tuple.__new__
NO_KWARGS: dict[str, Any] = {}  # shared by all operations that have none: nobody writes to it

_Region = tuple[CallTape, Any, tuple[Any, Any], TensorRefs]


class Tape(TorchFunctionMode):
    """Notes the operations of the calls that are open, in every thread that runs one.

    ``call_tapes`` has the tape of each call, by its index. ``kept`` are the tensors that the program keeps when the
    run is over (``run_taped.close_tape``).
    """

    def __init__(self, values: ValueTable, lines: dict[tuple[int, int], Line]) -> None:
        super().__init__()
        self.values = values
        self.call_tapes: dict[int, CallTape] = {}
        self.kept: frozenset[TensorId] = frozenset()
        self._stacks: dict[int, list[CallTape]] = {}  # thread → its open calls, innermost last
        self._opaque = False
        self._lines = lines
        self.opaque: dict[int, Any] = {}  # all objects that were met and are told apart by identity
        self._wrote = False  # has any operation written to memory that was there before?

    # Operations ----------------------------------------------------------------------------------

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        bodies = None if func in METADATA else self._stacks.get(get_ident())
        if not bodies:
            return func(*args, **kwargs) if kwargs else func(*args)
        body = bodies[-1]
        if may_be_traced() and is_traced():
            body.hazard = body.hazard or reasons.TRACED_BY_TORCH()
            return func(*args, **kwargs) if kwargs else func(*args)
        met = TensorRefs()
        coded: tuple[Any, Any] | None = None
        try:
            coded = self._codes(args, kwargs, met)
            if met and torch.is_grad_enabled():
                self._check_gradients(body, met, asked=True)
            if self._wrote:
                self._catch_up(body, met)
            if met.left < 0:
                body.hazard = body.hazard or met.full
        except Exception as error:
            body.hazard = body.hazard or unnoted(reasons.ARGUMENT_UNNOTED, error)
        if func is _iterate and args and args[0].dim():  # iterating calls unbind unseen: note its results
            result = args[0].unbind(0)
        else:
            result = func(*args, **kwargs) if kwargs else func(*args)
        if coded is not None:
            try:
                self._note(body, func, coded, met, result, sys._getframe(1))
            except Exception as error:
                body.hazard = body.hazard or unnoted(reasons.OPERATION_UNNOTED, error)
        return iter(result) if func is _iterate and type(result) is tuple else result

    def _note(
        self, body: CallTape, func: Any, coded: tuple[Any, Any], met: TensorRefs, result: Any, frame: FrameType | None
    ) -> None:
        line = user_line(frame, self._lines, body.code, body.line)
        if line is not None and line.code.co_filename.startswith("<frozen importlib"):
            return  # a library that is imported meanwhile: no operation of the body
        name = getattr(func, "__name__", "")
        if shares_memory(func, name):
            self._escaped(met)
        elif name in NORMS:
            self.values.rewritten(met, running_statistics(func, *coded))
        if name in ESCAPES:
            body.hazard = body.hazard or at(reasons.CHANGED_UNSEEN(function=called(func)), line)
        elif name in LEVELS:
            body.hazard = body.hazard or at(reasons.FORWARD_AD(), line)
        context = context_now()
        changed = None
        if met.plain and type(result) is Tensor and not context[0] and no_modes_active():
            writes = self._written(met)
            known = self.values.seen(result)
            if known is None:
                known = self.values.first(result)
            else:
                changed = self._changed(known, result)
            out = known.uid
            values: tuple[Value, ...] = (known.value,)
        else:
            with untracked():
                writes = self._written(met)
                if issubclass(type(result), Tensor):
                    known_before = self.values.seen(result)
                    if known_before is not None:
                        changed = self._changed(known_before, result)
                results = TensorRefs()
                out = self._code(result, results)
                body.hazard = body.hazard or results.full
                values = tuple([entry.value for entry in results])
        if name in FOREIGN:
            self._escaped([seen for seen in (self.values.seen(result),) if seen is not None])
        # a tuple made the short way: there is one for every operation
        body.entries.append(_new(TapeEntry, (func, *coded, out, context, line, changed, writes, values, None)))

    def _written(self, met: TensorRefs) -> tuple[tuple[TensorId, Value], ...]:
        """Which of an operation's arguments it has written to, and what they are now."""
        writes: tuple[tuple[TensorId, Value], ...] = ()
        for entry in met:
            tensor = entry()
            if tensor is None:
                continue
            gradient = tensor.requires_grad
            if entry.version is not None and tensor._version != entry.version:
                writes = (*writes, (entry.uid, self.values.see(tensor, keep=False)))
                self._wrote = True
                base = tensor._base
                whole = None if base is None else self.values.seen(base)
                if base is not None and whole is not None:  # what is written into a part, the whole depends on
                    whole.gradient = base.requires_grad
                gradient = tensor.requires_grad
            entry.gradient = gradient
        return writes

    def _escaped(self, met: list[TensorRef]) -> None:
        with untracked():
            for entry in met:
                self.values.escapes(entry)

    def _catch_up(self, body: CallTape, met: TensorRefs) -> None:
        """A view of memory that was written to through another tensor has another value since that operation."""
        with untracked():
            for seen in met:
                tensor = seen()
                if tensor is None or seen.version is None or version_of(tensor) == seen.version:
                    continue
                value = self.values.see(tensor, keep=False, weights=False)
                for place in reversed(range(len(body.entries))):
                    entry = body.entries[place]
                    if any(written.storage == value.storage for _, written in entry.writes):
                        body.entries[place] = entry._replace(writes=(*entry.writes, (seen.uid, value)))
                        break

    def _check_gradients(self, body: CallTape, met: list[TensorRef], asked: bool = False) -> None:
        """A tensor whose gradient flag changed since it was noted went through code the tape does not see."""
        if not met or body.hazard is not None:
            return
        with internals.DisableTorchFunction():  # a subclass, or a mode, is not to hear of the question
            known = [(entry(), entry.gradient) for entry in met]
            changed = [tensor is not None and tensor.requires_grad != gradient for tensor, gradient in known]
        if any(changed):
            line = user_line(sys._getframe(2), self._lines) if asked else None
            reason = reasons.GRADIENT_CHANGED if line is None else reasons.GRADIENT_CHANGED_BEFORE
            body.hazard = at(reason(), line)

    def _changed(self, known: TensorRef, tensor: Tensor) -> tuple[int, tuple[int, ...], torch.dtype, bool] | None:
        """What an in-place operation made of a tensor's metadata, if it changed it."""
        first = self.values.objects[known.uid]
        if tensor.is_nested:
            return None
        now = shape_of(tensor), str(tensor.dtype)[6:], tensor.requires_grad
        if now == (first.shape, first.dtype, first.requires_grad):
            return None
        return known.uid, now[0], tensor.dtype, now[2]

    # Codes ---------------------------------------------------------------------------------------

    def _codes(self, args: Any, kwargs: Any, met: TensorRefs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The codes of positional and keyword arguments. Most are tensors and numbers: those need no function."""
        seen = self.values.by_id
        codes = []
        for arg in args:
            kind = type(arg)
            if kind is Tensor or kind is Parameter:
                entry = seen.get(id(arg))
                if entry is None or entry() is not arg:
                    entry = self.values.met(arg)
                met.append(entry)
                codes.append(entry.uid)
            elif kind in ATOMS:
                codes.append(arg)
            else:
                codes.append(self._code(arg, met))
        named = {name: self._code(arg, met) for name, arg in kwargs.items()} if kwargs else NO_KWARGS
        return tuple(codes), named

    def _code(self, thing: Any, met: TensorRefs, depth: int = 0) -> Any:
        """The code of any argument or result; ``met`` collects the tensors in it."""
        kind = type(thing)
        if kind in ATOMS:
            return thing
        if issubclass(kind, Tensor):  # isinstance would ask the object, which may say anything
            entry = self.values.met(thing)
            met.append(entry)
            if kind not in PLAIN:
                met.plain = False
            return entry.uid
        below = depth + 1
        if kind is tuple:
            if met.room_for(thing, depth):
                if ATOMS.issuperset(map(type, thing)):
                    return thing
                return tuple([self._code(item, met, below) for item in thing])
        elif kind is list:
            if met.room_for(thing, depth):
                return [self._code(item, met, below) for item in thing]
        elif kind is dict:
            if met.room_for(thing, depth):
                return {key: self._code(item, met, below) for key, item in thing.items()}
        elif kind is slice:
            return slice(*[self._code(bound, met, below) for bound in (thing.start, thing.stop, thing.step)])
        else:
            members = members_of(thing)
            if members is not None and met.room_for(members[1], depth):
                return Struct(kind, members[0], [self._code(item, met, below) for item in members[1]])
            if issubclass(kind, (int, float, complex, str)):
                return thing
        self._opaque = True
        self.opaque[id(thing)] = thing
        return OpaqueArg(thing)

    # Calls ---------------------------------------------------------------------------------------

    def stack(self) -> list[CallTape]:
        """Return the calls open in this thread, innermost last."""
        thread = get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = []
        return stack

    def enter_call(
        self,
        index: int,
        module: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        context: Context,
    ) -> CallTape:
        """Begin the tape of a call with its arguments."""
        body = self.call_tapes[index] = CallTape(index, module, forward, context)
        try:
            stack = self.stack()
            self._note_arguments(body, args, kwargs, stack[-1] if stack else None)
        except Exception as error:
            body.hazard = body.hazard or unnoted(reasons.CALL_UNNOTED, error)
        return body

    def _note_arguments(
        self, body: CallTape, args: tuple[Any, ...], kwargs: dict[str, Any], parent: CallTape | None
    ) -> None:
        """Note what a call was given, and what that looked like."""
        self._opaque = False
        met = TensorRefs()
        body.args, body.kwargs = self._codes(args, kwargs, met)
        body.opaque = self._opaque
        if met.left < 0:
            body.hazard = met.full
        if parent is not None and body.context[0]:
            self._check_gradients(parent, met)
        with untracked():
            for entry in met:
                tensor = entry()
                if tensor is None:
                    continue
                entry.gradient = tensor.requires_grad
                if not tensor.is_nested:
                    body.before[entry.uid] = shape_of(tensor), tensor.dtype, entry.gradient
                    body.given[entry.uid] = self.values.see(tensor, keep=False, weights=False)
            if body.opaque:
                body.copies = Copies([*opaque_in(body.args), *opaque_in(body.kwargs)])

    def fail_call(self, body: CallTape, parent: CallTape | None, error: BaseException) -> None:
        """Note that a call raised."""
        body.hazard = reasons.RAISED(error=type(error).__name__)
        if parent is not None:  # it may go on: what it called then is on no tape
            parent.hazard = parent.hazard or reasons.CALL_RAISED(error=type(error).__name__)

    def leave_call(self, body: CallTape, parent: CallTape | None, output: Any) -> None:
        """Note what a call returned, on its own tape and as an entry on its caller's."""
        try:
            self._note_output(body, parent, output)
        except Exception as error:
            body.hazard = body.hazard or unnoted(reasons.CALL_UNNOTED, error)

    def _note_output(self, body: CallTape, parent: CallTape | None, output: Any) -> None:
        met = TensorRefs()
        try:
            known = self.values.seen(output) if type(output) in PLAIN else None
            if known is not None:
                met.append(known)
                body.out = known.uid
            else:
                with contextlib.nullcontext() if type(output) is tuple else untracked():
                    body.out = self._code(output, met)
                body.hazard = body.hazard or met.full
        except Exception as error:  # the caller's tape has the call all the same
            body.out, body.hazard = OpaqueArg(output), unnoted(reasons.RESULT_UNNOTED, error)
        context = context_now()
        if met and context[0]:
            self._check_gradients(body, met)
        if parent is not None:
            line = body.line or user_line(sys._getframe(3), self._lines)
            values = tuple([entry.value for entry in met])
            called = body.module, body.args, body.kwargs, body.out, context, line, None, (), values, body
            parent.entries.append(_new(TapeEntry, called))

    # The thread's stack of modes -----------------------------------------------------------------

    @contextlib.contextmanager
    def switched_on(self) -> Iterator[None]:
        """A block in which this mode is on in this thread; what became of the stack meanwhile is not its business."""
        internals.push_on_torch_function_stack(self)
        try:
            yield
        finally:
            take_off(self)

    def is_among(self, count: int) -> bool:
        """Does this mode hear of this thread's operations, as one of so many that are on?"""
        if count == 1:
            return internals.get_function_stack_at(0) is self
        return any(internals.get_function_stack_at(i) is self for i in range(count))

    # Compiled code ------------------------------------------------------------------------------

    def enter_region(self, function: Any, args: Any, kwargs: Any) -> _Region | None:
        """Compiled code is about to run in the innermost open body, for which it is one operation."""
        bodies = self._stacks.get(get_ident())
        if not bodies:
            return None
        body = bodies[-1]
        body.hazard = body.hazard or at(reasons.RUNS_COMPILED(), user_line(sys._getframe(2), self._lines))
        try:
            with untracked():
                met = TensorRefs()
                coded = self._codes(args, kwargs, met)
        except Exception:
            return None
        return body, function, coded, met

    def leave_region(self, region: _Region, result: Any) -> None:
        """It returned ``result``."""
        body = region[0]
        try:
            self._note(*region, result, sys._getframe(1))
            body.regions += 1
        except Exception:
            body.hazard = reasons.RUNS_COMPILED_UNNOTED()

    @contextlib.contextmanager
    def switched_off(self) -> Iterator[None]:
        """A block in which this mode, and no other, is off in this thread."""
        above = take_off(self)
        try:
            yield
        finally:
            if above is not None:
                put_on(self, above)
