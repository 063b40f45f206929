"""Pause a run: the thread of the forward waits at a moment until another thread lets it go on, or gives it work.

While it waits, the run is looked at and edited from its own thread, with its gradient mode, autocast and devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import get_ident
from time import perf_counter
from typing import Any, TypeVar

import torch
from torch import Tensor

from fxdebug.capture.pausing.edits import Edit, Edits, changed_at
from fxdebug.capture.pausing.held_state import HeldState
from fxdebug.capture.pausing.moments import Moment, MomentKind
from fxdebug.capture.recorder.frame import Frame, failure
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.source.source_line import Line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.op_traits import op_name
from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Failure
from fxdebug.data.values import Outputs, Value

T = TypeVar("T")
Until = Callable[[Moment], bool]


class Quit(BaseException):
    """Raised in a paused forward that is to end; it passes through the model and reaches no user."""


class Ended:
    """The last message of a run: nothing more will happen."""


class Pauses:
    """A stepper that pauses a run at moments where ``until`` is true, and at the end of the model's call.

    ``moments`` are all moments so far, in order. ``content`` is what goes on from the present one: the arguments of a
    call, the result of an operation or a call, a gradient. ``gradients``: also pause in the backward.
    """

    def __init__(self, *, gradients: bool = False, caller: Line | None = None) -> None:
        self.moments: list[Moment] = []
        self.until: Until | None = None
        self.pause_soon = False
        self.quitting = False
        self.passed_until = False  # was ``until`` true at the present moment?
        self.failed: BaseException | None = None  # what ``until`` raised at the present moment
        self.content: Any = None
        self.edits: list[Edit] = []
        self.held: HeldState | None = None  # copies what an operation is about to write to
        self.arrivals: SimpleQueue[Moment | Ended] = SimpleQueue()
        self.present: Moment | Ended | None = None  # what arrived last, while it waits
        self._orders: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._edit_failed: BaseException | None = None
        self._gradients = gradients
        self._caller = caller  # the line that started the run, in the thread that did
        self._handles: list[Any] = []
        self._followed: set[TensorId] = set()  # tensors with a hook on their gradient
        self._edits = Edits(())
        self._before: list[tuple[int, Any]] = []  # contents before the edits at the present moment
        self._written: dict[TensorId, list[tuple[int, Value]]] = {}
        self._read = 0  # moments whose writes are in that table
        self.name_of = functools.cache(op_name)
        self._names: dict[int, tuple[list[str], dict[str, int]]] = {}  # of a call: of each entry, how often each was
        self._tensors: dict[int, TensorId] = {}  # number of a value → its tensor
        self._tensors_read = 0

    def begin(self, recorder: Recorder) -> None:
        """Begin with a recording: its thread is the one that is paused."""
        self.recorder = recorder
        self._thread = get_ident()
        self._edits.begin(recorder)

    @property
    def root_name(self) -> str:
        """The name of the model's own call."""
        return self.recorder.frames[0].site.type

    def set_edits(self, edits: list[Edit]) -> None:
        """Make these edits at every place that they name, from now on."""
        self.edits = edits
        self._edits = Edits(edits)
        self._edits.begin(self.recorder)

    # In the thread of the forward ------------------------------------------------------------------

    def before_call(
        self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pause where a call begins."""
        if get_ident() != self._thread:
            return args, kwargs
        if frame.parent is None:
            frame.line = self._caller
        was = args, kwargs
        args, kwargs = self._edited(was, lambda: self._edits.before_call(frame, args, kwargs))
        given = (args, kwargs)
        return self._arrive(
            "call", frame, self._tape_of(frame), -1, given, edited=args is not was[0] or kwargs is not was[1]
        )

    def after_call(self, frame: Frame, output: Any) -> Any:
        """Pause where a call is about to end."""
        if get_ident() != self._thread:
            return output
        was = output
        output = self._edited(was, lambda: self._edits.after_call(frame, was))
        output = self._arrive("return", frame, self._tape_of(frame), -1, output, edited=output is not was)
        if self._gradients and torch.is_grad_enabled():
            self._follow(output, frame, f"{frame.site.path or self.root_name}#{frame.number}", frame.line)
        return output

    def failed_call(self, frame: Frame, error: BaseException) -> None:
        """Pause where an exception is about to leave a call."""
        if get_ident() != self._thread or isinstance(error, Quit):
            return
        here = not (self.moments and self.moments[-1].failure is not None)
        self._arrive("return", frame, self._tape_of(frame), -1, None, error=failure(error, here=here))

    def before_op(self, function: Any, args: Any, kwargs: Any) -> None:
        """Copy what an operation may write to: a run that is quit puts it back."""
        if self.held is not None:
            self.held.before_op(function, args, kwargs)

    def after_op(self, call_tape: CallTape, entry: TapeEntry, result: Any) -> Any:
        """Pause after an operation."""
        if get_ident() != self._thread:
            return result
        frame = self.recorder.frames[call_tape.index]
        was = result
        result = self._edited(was, lambda: self._edits.after_op(call_tape, entry, was))
        result = self._arrive("op", frame, call_tape, len(call_tape.entries) - 1, result, edited=result is not was)
        if self._gradients and torch.is_grad_enabled():
            self._follow(result, frame, self.moments[-1].id, entry.line)
        return result

    def _edited(self, content: T, edit: Callable[[], T]) -> T:
        """Return what an edit makes of something; where it fails, the thing itself, and the run pauses to say so."""
        self._edit_failed = None
        if not self.edits:
            return content
        try:
            return edit()
        except Exception as error:
            self._edit_failed = error
            return content

    def _tape_of(self, frame: Frame) -> CallTape | None:
        tape = self.recorder.tape
        return None if tape is None else tape.call_tapes.get(frame.index)

    def _arrive(
        self,
        kind: MomentKind,
        frame: Frame,
        tape: CallTape | None,
        entry: int,
        content: Any,
        *,
        error: Failure | None = None,
        edited: bool = False,
    ) -> Any:
        moment = Moment(self, len(self.moments), kind, frame, tape, entry)
        moment.failure = error
        self.moments.append(moment)
        if edited:
            self.content = content
            moment.replaced = self._values_now(moment)
        return self._at(moment, content)

    def _at(self, moment: Moment, content: Any) -> Any:
        """Pause at a moment if it is one to pause at; return what goes on from it."""
        if self.quitting:
            raise Quit
        until, holds = self.until, False
        self.content = content
        self.failed, self._edit_failed = self._edit_failed, None
        is_last = moment.kind == "return" and moment.frame.parent is None and not self._gradients
        if until is not None:
            try:
                with self.recorder.unwatched():
                    holds = until(moment)
            except RecursionError:
                pass  # the model recurses without end: there is no room here for a condition
            except BaseException as error:  # it reaches the thread that set the condition
                self.failed = error
        if holds or is_last or self.pause_soon or self.failed is not None:
            self.passed_until = holds
            content = self._pause(moment)
        self.content = moment.replaced = None
        return content

    def _pause(self, moment: Moment) -> Any:
        began = perf_counter()
        self.pause_soon = False
        self._before.clear()
        self.arrivals.put(moment)
        self.present = moment
        while True:
            order = self._orders.get()
            if order is None:
                break
            self._answers.put(self._obeyed(order))
        if moment.kind != "op":  # behind an operation the tape does it
            self.recorder.stack().own_time.seconds += perf_counter() - began
        if self.quitting:
            raise Quit
        return self.content

    def _obeyed(self, order: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            with self.recorder.unwatched():
                return order(), None
        except BaseException as error:
            return None, error

    # The backward ----------------------------------------------------------------------------------

    def _follow(self, content: Any, frame: Frame, name: str, line: Line | None) -> None:
        """Pause where the gradients of these tensors are made."""
        for slot, tensor in named_tensors(content):
            if not tensor.requires_grad:
                continue
            with untracked():
                number = self.recorder.values.ref_of(tensor).tensor_id
            if number not in self._followed:
                self._followed.add(number)
                with internals.DisableTorchFunction():
                    hook = tensor.register_hook(self._reader(frame, f"{name}{slot}", line))
                self._handles.append(hook)

    def _reader(self, frame: Frame, name: str, line: Line | None) -> Callable[[Tensor | None], Tensor | None]:
        def read(gradient: Tensor | None) -> Tensor | None:
            if gradient is None:
                return None
            with untracked():
                value = self.recorder.values.value_of(gradient, keep=False)
            moment = Moment(self, len(self.moments), "op", frame, None, -1)
            moment.gradient = (name, value, line)
            self.moments.append(moment)
            made = self._at(moment, gradient)
            if made is gradient:
                return None  # which torch takes as: unchanged
            with untracked():
                moment.gradient = (name, self.recorder.values.value_of(made, keep=False), line)
            return made

        return read

    def remove_hooks(self) -> None:
        """Take the hooks on gradients off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # In another thread, while it is paused -----------------------------------------------------------

    def release(self) -> None:
        """Let the forward go on."""
        self.present = None
        self._orders.put(None)

    def inside(self, order: Callable[[], Any]) -> Any:
        """Run a function in the thread of the paused forward; return its result or raise its exception."""
        self._orders.put(order)
        result, error = self._answers.get()
        if error is not None:
            raise error
        return result

    def replace(self, slot: str, keys: tuple[int | str, ...], change: Callable[[Any], Any]) -> None:
        """Change what goes on from the present moment. ``slot`` is ``out``, or ``args`` or ``kwargs`` of a call."""
        moment = self.moments[-1]
        before = self.content

        def changed() -> Any:
            if moment.kind != "call":
                return changed_at(before, keys, change, moment.id)
            args, kwargs = before
            if slot == "kwargs":
                kwargs = {name: None for name in keys[:1] if name not in kwargs} | kwargs  # it has its default
                return args, changed_at(kwargs, keys, change, moment.id)
            return changed_at(args, keys, change, moment.id), kwargs

        self.content = self.inside(changed)
        self._before.append((moment.number, before))
        self._show(moment)

    def undo(self) -> bool:
        """Take the last change at the present moment back; return whether there was one."""
        moment = self.moments[-1]
        if not self._before or self._before[-1][0] != moment.number:
            return False
        self.content = self._before.pop()[1]
        self._show(moment)
        return True

    def _show(self, moment: Moment) -> None:
        """Note the tensors that go on, for those who look at the moment while it lasts."""
        moment.replaced = self.inside(lambda: self._values_now(moment))

    def _values_now(self, moment: Moment) -> list[tuple[str, Value]]:
        with untracked():
            value_of = self.recorder.values.value_of
            return [(slot, value_of(tensor, keep=False)) for slot, tensor in self.tensors_now(moment)]

    def tensors_now(self, moment: Moment) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors that go on from the present moment, with their slots."""
        if moment.kind != "call":
            yield from named_tensors(self.content)
            return
        args, kwargs = self.content
        for position, thing in enumerate(args):
            yield from named_tensors(thing, f"args[{position}]")
        yield from named_tensors(kwargs)

    # What is known ------------------------------------------------------------------------------------

    def outputs_now(self, moment: Moment) -> Outputs | None:
        """Return the record of what the call of the present moment returns."""
        if moment is not self.moments[-1] or self.content is None:
            return None
        return self.recorder.outputs_so_far(moment.frame, self.content)

    def name_in_call(self, call_tape: CallTape, entry: int) -> str:
        """Return the name of an operation in its call, as in the graph: ``add``, the second time ``add_1``."""
        names, counts = self._names.setdefault(call_tape.index, ([], {}))
        for other in call_tape.entries[len(names) : entry + 1]:
            name = "" if other.tape is not None else self.name_of(other.what)
            count = counts[name] = counts.get(name, -1) + 1
            names.append(f"{name}_{count}" if count else name)
        return names[entry]

    def version_at(self, value: Value, number: int) -> Value:
        """Return the version that the tensor of a value had behind a moment."""
        self._read_writes()
        firsts = self.recorder.values.first_values
        for tensor in range(self._tensors_read, len(firsts)):
            self._tensors.setdefault(firsts[tensor].number, TensorId(tensor))
        self._tensors_read = len(firsts)
        found = self._tensors.get(value.number)
        return value if found is None else self.value_before(found, number + 1)

    def value_before(self, tensor: TensorId, number: int) -> Value:
        """Return the value that a tensor had before the operation of a moment."""
        self._read_writes()
        found = self.recorder.values.first_values[tensor]
        for at, value in self._written.get(tensor, ()):
            if at >= number:
                break
            found = value
        return found

    def _read_writes(self) -> None:
        for moment in self.moments[self._read :]:
            tape = moment.call_tape
            if moment.kind == "op" and tape is not None and moment.entry >= 0:
                for written, value in tape.entries[moment.entry].writes:
                    self._written.setdefault(written, []).append((moment.number, value))
                    self._tensors.setdefault(value.number, written)
        self._read = len(self.moments)
