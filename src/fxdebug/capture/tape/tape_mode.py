"""The tape: every torch function that a forward calls, noted as it runs.

A :class:`Tape` is a ``TorchFunctionMode``. It notes function, arguments and results as codes (see
:mod:`~fxdebug.capture.tape.encoding`), the grad and autocast state and the user's line, and has every new result
measured. It computes nothing itself and keeps no tensor alive. Questions about a tensor's metadata (``shape``,
``dtype``) are not noted; questions about its values (``bool``, ``item``) are, with the answer.

Where an active mode would change what runs (fused kernels, compiled code), this mode alone is taken off the thread's
stack, and put back afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from threading import get_ident
from time import perf_counter
from types import EllipsisType, FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.hooks.own_time import OwnTime
from fxdebug.capture.source.source_line import Line, search_parts, user_line, with_line
from fxdebug.capture.tape.argument_copies import ArgumentCopies
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry, TensorRefs, debugger_failure
from fxdebug.capture.tape.changed_arguments import Place, changes_in, code_of_changes, note_changes, result_in
from fxdebug.capture.tape.encoding import (
    ATOMS,
    OpaqueArg,
    Struct,
    are_plain_keys,
    members_of,
    note_contents,
    opaque_objects_in,
)
from fxdebug.capture.tape.in_place import InPlaceWrites
from fxdebug.capture.tape.op_traits import (
    ATTENTION,
    FORWARD_AD,
    METADATA,
    NORMS,
    SHARE_FOREIGN_MEMORY,
    UNTRACKED_WRITES,
    running_statistics,
    shares_memory,
    written_form,
)
from fxdebug.capture.tape.raised import raised_by_call, raised_by_operation
from fxdebug.capture.tape.stepped_ops import OpStepper, edited, put_result
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.tensor_ref import TensorId, TensorRef
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.callers_frame import as_called_there, called_twice_and_warns
from fxdebug.capture.torch_state.distributed import communicates, is_functional_collective, wait_for
from fxdebug.capture.torch_state.grad_mode import CONTEXTS, Context, context_now
from fxdebug.capture.torch_state.mode_stack import insert_mode, remove_mode
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch, may_be_traced
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.untracked import no_modes_active, untracked
from fxdebug.capture.torch_state.whose_code import answers_by_program
from fxdebug.data.values import Value
from fxdebug.native import dispatch
from fxdebug.operators.attention import ATTENTIONS

_iterate = Tensor.__iter__
_new = tuple.__new__
NO_KWARGS: dict[str, Any] = {}  # shared by all operations that have none: never written to

_ELSEWHERE = object()  # the native core's answer where an operation is to be run and noted here
_OWN_WAYS = NORMS | UNTRACKED_WRITES | FORWARD_AD | ATTENTION | SHARE_FOREIGN_MEMORY

UNSEEN: Any = object()
"""Stands for what compiled code returned where torch does not show it."""
_Region = tuple[CallTape, Any, tuple[Any, Any], TensorRefs]  # the arguments of ``Tape._note`` before the result


def _is_unusual(kept: frozenset[str], function: Any) -> bool | EllipsisType | Callable[..., tuple[Any, ...]] | None:
    """Does noting an operation take more than its arguments and results? ``None`` where running it does, too.

    ``kept`` are the names of operations whose data are kept.

    ``...``: it is to be run by :func:`as_called_there`. A function: where this gives anything for the operation's
    function, arguments and keyword arguments, as codes.
    """
    if function is _iterate:
        return None
    name = getattr(function, "__name__", "")
    is_unusual = name in _OWN_WAYS or name in kept or shares_memory(function, name) or communicates(function)
    if called_twice_and_warns(function):
        return None if is_unusual else ...
    return running_statistics if name in NORMS else is_unusual


class OpenTapes(list[CallTape]):
    """The tapes of the calls that are open in one thread, innermost last."""

    __slots__ = ("own_time", "writers")

    def __init__(self) -> None:
        super().__init__()
        self.own_time = OwnTime()
        self.writers: list[Callable[[CallTape], None]] = []  # tell what the operation that runs writes unseen


class Tape(TorchFunctionMode):
    """Notes the operations of the bodies that are open, in every thread that runs one.

    ``call_tapes`` has the tape of each call, by its index; ``opaque_objects`` all objects in arguments and results that
    are compared by identity. ``kept`` are the tensors that the program keeps when the run is over
    (``run_taped.close_tape``). ``stepper`` sees each operation when it has been noted, and may replace its result.
    """

    stepper: OpStepper | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Tape:
        core = dispatch.core() if cls is Tape else None
        return super().__new__(cls if core is None else _without_frame(core))

    def __init__(self, values: ValueTable, lines: dict[tuple[int, int], Line]) -> None:
        super().__init__()
        self.values = values
        self.opaque_objects: dict[int, Any] = {}
        self.call_tapes: dict[int, CallTape] = {}
        self.kept: frozenset[TensorId] = frozenset()
        self.stacks: dict[int, OpenTapes] = {}  # by thread
        self.lines = lines
        self._writes = InPlaceWrites(values, lines)
        self.compares_attributes: dict[type[nn.Module], bool | None] = {}  # by class; see ``run_taped``
        self._is_unusual = functools.partial(_is_unusual, ATTENTIONS if values.keeps_attention else frozenset())
        self._unusual: dict[Any, bool] = {}  # by function: does noting it take more than arguments and results?
        self._met_opaque = False  # was an opaque object coded since this was last set to False?
        self._run_op = self._in_core()

    def _in_core(self) -> Callable[..., Any] | None:
        """Return the function of the native core that runs and notes one operation; ``None`` where it is not in use."""
        core = dispatch.core()
        if core is None or self.values.native is None:
            return None
        self._running_op = core.running_op()
        run_op: Callable[..., Any] = core.run_op(
            self.stacks, METADATA, self.values.native, {}, self._is_unusual, TensorRefs, TapeEntry, ATOMS, CONTEXTS,
            context_now, NO_KWARGS, _ELSEWHERE, as_called_there, self.lines, *search_parts(),
        )  # fmt: skip
        return run_op

    # Operations ----------------------------------------------------------------------------------

    @uncounted
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tapes = None if func in METADATA else self.stacks.get(get_ident())
        if not tapes:
            return func(*args, **kwargs) if kwargs else func(*args)
        began, tape = perf_counter(), tapes[-1]
        if may_be_traced() and is_traced_by_torch():
            tape.untraceable = tape.untraceable or reasons.TRACED_BY_TORCH()
            return func(*args, **kwargs) if kwargs else func(*args)
        refs = TensorRefs()
        codes: tuple[Any, Any] | None = None
        try:
            codes = self._codes(args, kwargs, refs)
            if refs and torch.is_grad_enabled():
                self._writes.check_gradients(tape, refs, by_operation=True)
            if self._writes.any:
                self._writes.catch_up(tape, refs)
            if refs.items_left < 0:
                tape.untraceable = tape.untraceable or refs.untraceable
        except Exception as error:
            tape.untraceable = tape.untraceable or debugger_failure(reasons.ARGUMENT_UNNOTED, error)
        if self.stepper is not None:
            self.stepper.before_op(func, args, kwargs)
        own_time = tapes.own_time
        own_time.seconds += perf_counter() - began
        try:
            if func is _iterate and args and args[0].dim():  # iterating calls unbind, unseen by modes
                result = args[0].unbind(0)
            else:
                result = as_called_there(func, args, kwargs)
        except Exception as error:
            if codes is not None:
                self.note_raised(tape, func, codes, error)
            raise
        began = perf_counter()
        if codes is not None:
            try:
                self._note(tape, func, codes, refs, result, sys._getframe(1))
            except Exception as error:
                self.note_failed(tape, error)
            else:
                if self.stepper is not None:
                    result = self._stepped(tape, self.stepper, refs, result)
        own_time.seconds += perf_counter() - began
        return iter(result) if func is _iterate and type(result) is tuple else result

    def codes_of(self, tensors: tuple[Tensor, ...], refs: TensorRefs) -> tuple[Any, ...]:
        """Return the codes of tensors that an operation is given past this mode; their entries go to ``refs``."""
        return self._codes(tensors, None, refs)[0]

    def expects_writes(self) -> None:
        """Look at the versions of arguments from now on: something writes to tensors past this mode."""
        self._writes.any = True

    def running_op(self) -> Any:
        """Return the operation that this thread runs and notes; ``None`` where it runs none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not _IN_PYTHON:
            frame = frame.f_back
        if frame is not None:
            return frame.f_locals["func"]
        return None if self._run_op is None else self._running_op()

    def note_raised(self, tape: CallTape, func: Any, codes: tuple[Any, Any], error: Exception) -> None:
        """Note an operation that raised; the native core does so, too."""
        self.stack().writers.clear()
        with contextlib.suppress(Exception):
            tape.raised = (*tape.raised, raised_by_operation(tape, func, codes, context_now(), error))

    def _note(
        self, tape: CallTape, func: Any, codes: tuple[Any, Any], refs: TensorRefs, result: Any, frame: FrameType | None
    ) -> None:
        line = user_line(frame, self.lines, tape.code, tape.line)
        if line is not None and line.code.co_filename.startswith("<frozen importlib"):
            return  # the import of a library: no operation of the body
        is_unusual = self._unusual.get(func)
        if is_unusual is None:
            is_unusual = self._unusual[func] = self._is_unusual(func) is not False
        if is_unusual:
            self._note_effects(tape, func, codes, refs, line)
            if is_functional_collective(func):
                with untracked():
                    wait_for(result)
        context = context_now()
        kernels = internals.attention_kernels() if is_unusual and getattr(func, "__name__", "") in ATTENTION else None
        changed = None
        if refs.plain and type(result) is Tensor and not context[0] and no_modes_active():
            writes = self._writes.written(refs)
            known = self.values.lookup(result)
            if known is None:
                known = self.values.add(result)
            else:
                changed = self._writes.changed_layout(known, result)
            out = known.tensor_id
            values: tuple[Value, ...] = (known.value,)
        else:
            with untracked():
                writes = self._writes.written(refs)
                if issubclass(type(result), Tensor):
                    known_before = self.values.lookup(result)
                    if known_before is not None:
                        changed = self._writes.changed_layout(known_before, result)
                results = TensorRefs()
                out = self._code(result, results)
                tape.untraceable = tape.untraceable or results.untraceable
                values = tuple([entry.value for entry in results])
        if is_unusual and getattr(func, "__name__", "") in SHARE_FOREIGN_MEMORY:
            known = self.values.lookup(result)
            self._writes.note_escape([] if known is None else [known])
        # a tuple made the fast way: this runs for every operation
        tape.entries.append(_new(TapeEntry, (func, *codes, out, context, line, changed, writes, values, None, kernels)))
        writers = self.stack().writers if is_unusual else ()
        if writers:
            self.expects_writes()
        while writers:
            writers.pop()(tape)
        if is_unusual and self.values.keeps_attention and getattr(func, "__name__", "") in ATTENTIONS:
            self._keep_data((*refs, *self.values.refs_of(result)))

    def _note_effects(
        self, tape: CallTape, func: Any, codes: tuple[Any, Any], refs: TensorRefs, line: Line | None
    ) -> None:
        """Note what one of the unusual operations does that its arguments and results do not show."""
        name = getattr(func, "__name__", "")
        if shares_memory(func, name):
            self._writes.note_escape(refs)
        elif name in NORMS:
            self.values.mark_rewritten(refs, running_statistics(func, *codes))
        if name in UNTRACKED_WRITES:
            tape.untraceable = tape.untraceable or with_line(reasons.CHANGED_UNSEEN(function=written_form(func)), line)
        elif name in FORWARD_AD:
            tape.untraceable = tape.untraceable or with_line(reasons.FORWARD_AD(), line)

    def note_failed(self, tape: CallTape, error: Exception) -> None:
        """Note that an operation ran and could not be noted."""
        tape.untraceable = tape.untraceable or debugger_failure(reasons.OPERATION_UNNOTED, error)

    def _stepped(self, tape: CallTape, stepper: OpStepper, refs: TensorRefs, result: Any) -> Any:
        """Show an operation that was noted to the stepper, and return the result that goes on."""
        entry = tape.entries[-1] if tape.entries else None
        if entry is None or entry.tape is not None:
            return result  # the import of a library: see ``_note``
        new = stepper.after_op(tape, entry, result)
        if new is result:
            return result
        tape.untraceable = tape.untraceable or with_line(reasons.EDITED(), entry.line)
        new = put_result(result, new, refs)
        found = TensorRefs()
        with untracked():
            out = self._code(new, found)
            values = tuple([self.values.value_of(tensor) for ref in found if (tensor := ref()) is not None])
        tape.entries[-1] = entry._replace(out=out, values=values)
        return new

    def note_edit(self, call_tape: CallTape, given: Any, made: Any) -> None:
        """Note that the arguments or the result of a call were edited, as an operation of its body."""
        call_tape.untraceable = call_tape.untraceable or reasons.EDITED()
        try:
            with untracked():
                args, refs = (self._code(given, TensorRefs()),), TensorRefs()
                out = self._code(made, refs)
                values = tuple([ref.value for ref in refs])
            call_tape.entries.append(
                TapeEntry(edited, args, NO_KWARGS, out, context_now(), call_tape.line, values=values)
            )
        except Exception as error:
            call_tape.untraceable = debugger_failure(reasons.OPERATION_UNNOTED, error)

    def _keep_data(self, refs: Iterable[TensorRef]) -> None:
        """Keep the data of tensors, where the run keeps those of calls."""
        with untracked():
            for ref in refs:
                tensor = ref()
                if tensor is not None:
                    self.values.value_of(tensor, weights=False)

    # Codes ---------------------------------------------------------------------------------------

    def _codes(self, args: Any, kwargs: Any, refs: TensorRefs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the codes of positional and keyword arguments. Most are tensors and numbers, coded right here."""
        by_id = self.values.refs
        codes = []
        for arg in args:
            kind = type(arg)
            if kind is Tensor or kind is Parameter:
                ref = by_id.get(id(arg))
                if ref is None or ref() is not arg:
                    ref = self.values.ref_of(arg)
                refs.append(ref)
                codes.append(ref.tensor_id)
            elif kind in ATOMS:
                codes.append(arg)
            else:
                codes.append(self._code(arg, refs))
        named = {name: self._code(arg, refs) for name, arg in kwargs.items()} if kwargs else NO_KWARGS
        return tuple(codes), named

    def _code(self, argument: Any, refs: TensorRefs, depth: int = 0) -> Any:
        """Return the code of any argument or result; the tensors in it are added to ``refs``."""
        kind: Any = type(argument)
        if kind in ATOMS:
            return argument
        if issubclass(kind, Tensor):  # isinstance would ask the object's ``__class__``, which may lie
            ref = self.values.ref_of(argument)
            refs.append(ref)
            if kind not in PLAIN:
                refs.plain = False
            return ref.tensor_id
        below = depth + 1
        if kind is tuple:
            if refs.may_enter(argument, depth):
                if ATOMS.issuperset(map(type, argument)):
                    return argument
                return tuple([self._code(item, refs, below) for item in argument])
        elif kind is list:
            if refs.may_enter(argument, depth):
                return [self._code(item, refs, below) for item in argument]
        elif kind is dict:
            if are_plain_keys(argument) and refs.may_enter(argument, depth):
                return {key: self._code(item, refs, below) for key, item in argument.items()}
        elif kind is slice:
            return slice(*[self._code(bound, refs, below) for bound in (argument.start, argument.stop, argument.step)])
        elif issubclass(kind, Enum) and not answers_by_program(kind):
            return argument
        else:
            members = members_of(argument)
            if members is not None and refs.may_enter(members[1], depth):
                return Struct(kind, members[0], [self._code(item, refs, below) for item in members[1]])
            if issubclass(kind, (int, float, complex, str)) and not answers_by_program(kind):
                return argument
        self._met_opaque = True
        self.opaque_objects[id(argument)] = argument
        return OpaqueArg(argument)

    # Calls ---------------------------------------------------------------------------------------

    def stack(self) -> OpenTapes:
        """Return the calls open in this thread, innermost last."""
        thread = get_ident()
        stack = self.stacks.get(thread)
        if stack is None:
            stack = self.stacks[thread] = OpenTapes()
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
        tape = self.call_tapes[index] = CallTape(index, module, forward, context)
        try:
            stack = self.stack()
            self._note_arguments(tape, args, kwargs, stack[-1] if stack else None)
        except Exception as error:
            tape.untraceable = tape.untraceable or debugger_failure(reasons.CALL_UNNOTED, error)
        return tape

    def _note_arguments(
        self, tape: CallTape, args: tuple[Any, ...], kwargs: dict[str, Any], parent: CallTape | None
    ) -> None:
        """Note the arguments of a call, with their present layouts and values."""
        self._met_opaque = False
        refs = TensorRefs()
        tape.args, tape.kwargs = self._codes(args, kwargs, refs)
        tape.has_opaque_args = self._met_opaque
        if refs.items_left < 0:
            tape.untraceable = refs.untraceable
        if parent is not None and tape.context[0]:
            self._writes.check_gradients(parent, refs)
        self.values.note_inputs(refs, tape.input_layouts, tape.input_values)
        if tape.has_opaque_args:
            with untracked():
                objects = [*opaque_objects_in(tape.args), *opaque_objects_in(tape.kwargs)]
                tape.argument_copies = ArgumentCopies(objects)

    def fail_call(self, tape: CallTape, parent: CallTape | None, error: BaseException) -> None:
        """Note that a call raised."""
        if parent is not None:  # it may go on
            try:
                if not isinstance(error, Exception):
                    parent.untraceable = parent.untraceable or reasons.CALL_RAISED(error=type(error).__name__)
                else:
                    parent.raised = (*parent.raised, raised_by_call(parent, tape, error))
            except Exception as failure:
                parent.untraceable = parent.untraceable or debugger_failure(reasons.CALL_UNNOTED, failure)
        tape.untraceable = reasons.RAISED(error=type(error).__name__)

    def leave_call(
        self, tape: CallTape, parent: CallTape | None, output: Any, changed: dict[Place, Any] | None = None
    ) -> None:
        """Note the result of a call that ends, on its own tape and as an entry on its caller's.

        ``changed`` are the lists and dicts among its arguments that it changed.
        """
        try:
            self._note_output(tape, parent, output, changed or {})
        except Exception as error:
            tape.untraceable = tape.untraceable or debugger_failure(reasons.CALL_UNNOTED, error)

    def _note_output(self, tape: CallTape, parent: CallTape | None, output: Any, changed: dict[Place, Any]) -> None:
        refs = TensorRefs()
        self._met_opaque = False
        try:
            known = self.values.lookup(output) if type(output) in PLAIN else None
            if known is not None:
                refs.append(known)
                tape.out = known.tensor_id
            else:
                with contextlib.nullcontext() if type(output) is tuple else untracked():
                    tape.out = self._code(output, refs)
                tape.untraceable = tape.untraceable or refs.untraceable
            if changed:
                with untracked():
                    contents = {place: self._code(content, refs) for place, content in changed.items()}
                tape.out = code_of_changes(tape.out, contents)
                tape.untraceable = tape.untraceable or refs.untraceable
            if self._met_opaque or tape.has_opaque_args:
                objects = self._note_contents(tape)
                if objects:
                    tape.out = code_of_changes(result_in(tape.out), changes_in(tape.out), objects)
        except Exception as error:  # the caller's tape gets its entry all the same
            tape.out, tape.untraceable = OpaqueArg(output), debugger_failure(reasons.RESULT_UNNOTED, error)
        context = context_now()
        if refs and context[0]:
            self._writes.check_gradients(tape, refs)
        if parent is not None:
            line = tape.line or user_line(sys._getframe(3), self.lines)
            values = tuple([ref.value for ref in refs])
            call = tape.module, tape.args, tape.kwargs, tape.out, context, line, None, (), values, tape, None
            parent.entries.append(_new(TapeEntry, call))

    def _note_contents(self, tape: CallTape) -> list[OpaqueArg]:
        """Note what the objects hold that a call returns, and those that it was given; return those that it changed."""
        given, refs = (tape.args, tape.kwargs), TensorRefs()
        known = set(map(id, opaque_objects_in(given)))
        changed: list[OpaqueArg] = []
        with untracked():
            note_contents(tape.out, lambda member: self._code(member, refs), known)
            if tape.argument_copies is None:
                pass
            elif tape.argument_copies.are_as_before():
                note_contents(given, lambda member: self._code(member, refs), set())
            elif tape.argument_copies.has_refilled():
                changed = note_changes(given, tape.argument_copies, lambda member: self._code(member, refs))
        tape.untraceable = tape.untraceable or refs.untraceable
        return changed

    # The thread's stack of modes -----------------------------------------------------------------

    @contextlib.contextmanager
    def switched_on(self) -> Iterator[None]:
        """Put this mode on in this thread for a block; then take it off, wherever on the stack it is by that time."""
        internals.push_on_torch_function_stack(self)
        try:
            yield
        finally:
            remove_mode(self)

    @contextlib.contextmanager
    def switched_off(self) -> Iterator[None]:
        """Take this mode, and no other, off in this thread for a block."""
        above = remove_mode(self)
        try:
            yield
        finally:
            if above is not None:
                insert_mode(self, above)

    def is_on(self, count: int) -> bool:
        """Is this mode among the ``count`` function modes that are on in this thread?"""
        if count == 1:
            return internals.get_function_stack_at(0) is self
        return any(internals.get_function_stack_at(i) is self for i in range(count))

    # Compiled code ------------------------------------------------------------------------------

    def enter_region(self, function: Any, args: Any, kwargs: Any) -> _Region | None:
        """Note that compiled code is about to run: one operation of the innermost open body."""
        tapes = self.stacks.get(get_ident())
        if not tapes:
            return None
        tape = tapes[-1]
        line = user_line(sys._getframe(2), self.lines)
        tape.untraceable = tape.untraceable or with_line(reasons.RUNS_COMPILED(), line)
        try:
            with untracked():
                refs = TensorRefs()
                codes = self._codes(args, kwargs, refs)
        except Exception:
            tape.untraceable = reasons.RUNS_COMPILED_UNNOTED()
            return None
        return tape, function, codes, refs

    def leave_region(self, region: _Region, result: Any) -> None:
        """Note the result of compiled code, or that it is :data:`UNSEEN`."""
        tape = region[0]
        try:
            self._note(*region, None if result is UNSEEN else result, sys._getframe(1))
            tape.compiled_ops += 1
            tape.has_unseen_results = tape.has_unseen_results or result is UNSEEN
        except Exception:
            tape.untraceable = reasons.RUNS_COMPILED_UNNOTED()


@functools.lru_cache(4)
def _without_frame(core: ModuleType) -> type[Tape]:
    """Return the class of a tape on which the native core runs operations: no frame of ours lies around these."""
    method = core.as_method()(core.torch_function(Tape.__torch_function__, _ELSEWHERE))
    return type(Tape.__name__, (Tape,), {"__torch_function__": method, "__module__": __name__})


_IN_PYTHON = Tape.__torch_function__.__code__
