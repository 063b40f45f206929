"""The recorder: every way of running a model enters and leaves its calls here.

Reading order: after ``hooks/forward_wrapper``, through which each call comes; then ``tape/run_taped``, which runs the
forward where operations are recorded, too.

A :class:`~fxdebug.capture.recorder.frame.Frame` is one call of one module; each thread has a stack of open ones. No
failure of the recorder reaches the model: it becomes a note.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks import thread_origin
from fxdebug.capture.hooks.forward_wrapper import WRAPPER_CODE
from fxdebug.capture.hooks.observers import hidden_from_recordings, innermost
from fxdebug.capture.hooks.own_time import OwnTime
from fxdebug.capture.reasons import ReasonText
from fxdebug.capture.recorder import generators
from fxdebug.capture.recorder.frame import (
    NO_INPUTS,
    NOWHERE,
    CallStack,
    Frame,
    Site,
    called_as,
    failure,
    has_submodules,
)
from fxdebug.capture.recorder.generators import RecordedSteps
from fxdebug.capture.recorder.listeners import Listener, Probe, Stepper, probe_call
from fxdebug.capture.source.source_line import Line, caller_line, search_parts
from fxdebug.capture.tape.observed_tape import ObservedTape
from fxdebug.capture.tape.run_taped import core_parts, references_by_tape, run_taped
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.kept_data import Keeper
from fxdebug.capture.tensors.nested_items import ItemBuilder
from fxdebug.capture.tensors.new_value import StorageNumbers
from fxdebug.capture.tensors.stats_queue import WeightsBeforeRun
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.grad_mode import context_now, no_gradients
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Note
from fxdebug.data.values import Inputs, Outputs, fast_constructor
from fxdebug.errors import came_through, first_line
from fxdebug.native import dispatch

_quick_inputs, _quick_outputs = fast_constructor(Inputs), fast_constructor(Outputs)


class Recorder:
    """Collects the calls and values of one trace.

    ``names`` are the names of parameters and buffers by ``id``. ``keeper`` gets the data of each new value or, with
    ``keep_all`` false, of the values that the standard tree shows. ``shown`` makes the text of an object, as ``repr``
    does. ``no_grad`` runs every forward without gradients. ``graph`` records operations, too: then there is a ``tape``.
    ``before_run`` has the statistics of weights that are as they were before the run.
    """

    def __init__(
        self,
        names: dict[int, str],
        *,
        keeper: Keeper | None = None,
        keep_all: bool = True,
        shown: Callable[[Any], str] = repr,
        listeners: tuple[Listener, ...] = (),
        no_grad: bool = False,
        measuring: bool = True,
        graph: bool = False,
        before_run: WeightsBeforeRun | None = None,
        storages: StorageNumbers | None = None,
        probe: Probe | None = None,
        stepper: Stepper | None = None,
    ) -> None:
        self.frames: list[Frame] = []
        self.notes: list[Note] = []
        is_unread = keeper is None and not listeners and probe is None and stepper is None
        self.values = ValueTable(names, keeper, self.note, measuring, before_run, storages, may_wait=is_unread)
        self.structure = ItemBuilder(self.values, self.note, shown)
        self._lines: dict[tuple[int, int], Line] = {}  # the lines noted so far, by code and instruction
        self.tape: Tape | None = None
        if graph and probe is None:
            self.tape = Tape(self.values, self._lines)
        elif graph and probe is not None:
            self.tape = ObservedTape(self.values, self._lines, self.note, probe)
        self._keep_all = keep_all
        self._listeners = listeners
        self._probe = probe
        if probe is not None:
            probe.begin(self.frames)
        self._stepper = stepper
        self._no_grad = no_grad
        self._owner = get_ident()
        self._stacks: dict[int, CallStack] = {self._owner: self._new_stack()}
        self._counts: dict[str, int] = {}
        self._noted: set[tuple[int | None, str]] = set()
        self._finish_order = itertools.count()
        self._lock = threading.RLock()  # calls begin and end in any thread; no user code runs while it is held
        if stepper is not None:
            stepper.begin(self)
            if self.tape is not None:
                self.tape.stepper = stepper
        self.in_core: Any = None

    def begin_in_core(self, sites: dict[int, Site]) -> None:
        """Have the native core record the usual calls, where it is in use; ``sites`` are the registered modules'.

        It records in :attr:`in_core` what :meth:`run_call` records here; what is not usual stays with that method.
        """
        core = dispatch.core()
        is_usual = self._probe is None and self._stepper is None and not self._no_grad and self._keep_all
        if core is None or self.values.native is None or not is_usual:
            return
        stack = self._stacks[self._owner]
        parts = self, stack, self.frames, self._counts, sites, self.values.native, self.tape, self._finish_order
        tape_parts = () if self.tape is None else core_parts(self.tape)
        kinds, functions = (Frame, Inputs, Outputs), (called_as, has_submodules, perf_counter)
        lines = self._lines, *search_parts()
        self.in_core = core.Calls(*parts, self._lock, tape_parts, *kinds, *functions, bool(self._listeners), *lines)

    def add_listeners(self, listeners: tuple[Listener, ...]) -> None:
        """Add listeners."""
        if self.in_core is not None:
            self.in_core.stop()
        self._listeners = (*self._listeners, *listeners)
        self.values.measure_at_once()

    # Enter and leave a call ----------------------------------------------------------------------

    @uncounted
    def run_call(
        self, site: Site, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a forward and record it; return its result, or let its exception pass."""
        stack = self.stack()
        frame = self.enter_call(stack, site, module, run, args, kwargs)
        tape = self.tape
        if self._stepper is not None:
            run = self._stepped(self._stepper, frame, run)
            if tape is not None:
                tape.call_tapes[frame.index].forward = run
        try:
            if tape is not None:
                output = run_taped(tape, tape.call_tapes[frame.index], args, kwargs, frame.line)
            elif self._no_grad:
                with no_gradients():
                    output = run(*args, **kwargs)
            else:
                output = run(*args, **kwargs)
        except BaseException as error:
            self.fail_call(stack, frame, error)
            raise
        if type(output) in generators.KINDS:
            held = [output]
            del output
            return self.relayed(stack, frame, module, held)
        self.leave_call(stack, frame, output)
        if self._probe is not None:
            probe_call(self._probe, frame, output, self.note)
        return output

    def relayed(self, stack: CallStack, frame: Frame, module: nn.Module, held: list[Any]) -> Any:
        """Close a call that returned a generator or coroutine; return it, or another one that shows its steps.

        ``held`` has it, and is the caller's only reference: how many an argument has depends on how a function is
        called, as one more where dynamo watches all calls.
        """
        (output,) = held
        self.leave_call(stack, frame, output)
        if self._probe is not None:
            probe_call(self._probe, frame, output, self.note)
        if frame.parent is not None or frame.site.path:
            ours = 0 if self.tape is None else references_by_tape(self.tape, frame.index, output)
            if sys.getrefcount(output) <= 3 + ours:  # nobody else keeps it: otherwise it must stay the same object
                return generators.relay(output, RecordedSteps(self, frame, module))
        return output

    @uncounted
    def _stepped(self, stepper: Stepper, frame: Frame, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward with a stepper before and after it."""

        def stepped(*args: Any, **kwargs: Any) -> Any:
            given_args, given_kwargs = stepper.before_call(frame, args, kwargs)
            if given_args is not args or given_kwargs is not kwargs:
                self.note_edit(frame, (args, kwargs), (given_args, given_kwargs))
                frame.inputs = self._inputs(given_args, given_kwargs)
            try:
                output = run(*given_args, **given_kwargs)
            except BaseException as error:
                stepper.failed_call(frame, error)
                raise
            returned = stepper.after_call(frame, output)
            if returned is not output:
                self.note_edit(frame, output, returned)
            return returned

        stepped.within = stepped.__wrapped__ = innermost(run)  # type: ignore[attr-defined]
        return stepped

    def note_edit(self, frame: Frame, given: Any, made: Any) -> None:
        """Note that something was edited in a call, as an operation of its body."""
        if self.tape is not None:
            self.tape.note_edit(self.tape.call_tapes[frame.index], given, made)

    def outputs_so_far(self, frame: Frame, output: Any) -> Outputs:
        """Return the record of what a call is about to return."""
        return self._outputs(output, keep=False)

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Record nothing of this thread inside the block: a debugger's own code runs there."""
        with contextlib.nullcontext() if self.tape is None else self.tape.switched_off(), hidden_from_recordings():
            yield

    def stack(self) -> CallStack:
        """Return the calls open in this thread, outermost first."""
        thread = get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = self._new_stack()
        return stack

    def _new_stack(self) -> CallStack:
        return CallStack(OwnTime() if self.tape is None else self.tape.stack().own_time)

    def is_idle(self, *, everywhere: bool = False) -> bool:
        """Is no call open in this thread (``everywhere``: in any thread)?"""
        return not (any(list(self._stacks.values())) if everywhere else self._stacks.get(get_ident()))

    def innermost(self) -> Frame | None:
        """Return the innermost call open in this thread or, if none is, the call in which the thread was started."""
        stack = self._stacks.get(get_ident())
        return stack[-1] if stack else thread_origin.origin(self)

    def mark_not_replayable(self, call: Frame, reason: ReasonText) -> None:
        """Note that the forward of this call must not be run a second time, to explain it."""
        call_tape = None if self.tape is None else self.tape.call_tapes.get(call.index)
        if call_tape is not None:
            call_tape.untraceable = call_tape.untraceable or reason

    def before_swap(self, tensors: tuple[Tensor, ...]) -> None:
        """Forget tensors that are about to exchange their contents: torch refuses while they are referred to weakly."""
        for tensor in tensors:
            self.values.forget(tensor)
        for frame in self._stacks.get(get_ident()) or ():
            self.mark_not_replayable(frame, reasons.SWAPS_TENSORS())

    def on_cuda_graph(self, *, replays: bool) -> None:
        """Note that this thread has begun to capture a CUDA graph, or replayed one: no operation of it is seen."""
        stack = self._stacks.get(get_ident())
        if not stack:
            return
        for frame in stack:
            self.mark_not_replayable(frame, reasons.REPLAYS_GRAPH() if replays else reasons.CAPTURES_GRAPH())
        if replays:
            self.values.mark_device_rewritten()
        else:
            self.note("a CUDA graph is captured in it: the calls inside are not recorded")

    def enter_call(
        self,
        stack: CallStack,
        site: Site,
        module: nn.Module,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Frame:
        """Open a call: make its frame, note its arguments, and put it on the thread's stack."""
        arrived = perf_counter()
        caller = stack[-1] if stack else None
        parent = caller if caller is not None else self._caller_elsewhere(site)
        with self._lock:
            number = self._counts.get(site.path, 0)
            self._counts[site.path] = number + 1
            frame = Frame(site, module, len(self.frames), number, parent)
            self.frames.append(frame)
        previous, stack.current = stack.current, frame
        try:
            if caller is not None and caller.finish_order is not None:  # a generator: its consumer is further out
                running = [other.index for other in stack if other.finish_order is None]
                frame.invoked_in = running[-1] if running else NOWHERE
            frame.training = bool(getattr(module, "training", False))
            frame.grad_enabled = torch.is_grad_enabled() and not self._no_grad
            frame.line = caller_line(self._lines)
            if get_ident() != self._owner:
                frame.thread_name = threading.current_thread().name
            if len(site.aliases) > 1:
                frame.called_as = called_as(self.frames, frame)
        except Exception as error:
            self.note_inputs_failed(error)
        try:
            frame.inputs = self._inputs(args, kwargs)
        except Exception as error:
            self.note_inputs_failed(error)
        if self.tape is not None:
            self.tape.enter_call(frame.index, module, run, args, kwargs, context_now())
        if self._listeners:
            try:
                self.tell_entered(frame)
            except Exception as error:
                self.note_inputs_failed(error)
        stack.current = previous
        stack.append(frame)
        now = perf_counter()
        stack.own_time.seconds += now - arrived
        frame.started_at = now - stack.own_time.seconds
        return frame

    def note_inputs_failed(self, error: Exception) -> None:
        """Note a failure of ours where a call begins."""
        self.note(f"what it was given was not recorded: {type(error).__name__}: {first_line(error)}")

    def note_outputs_failed(self, error: Exception) -> None:
        """Note a failure of ours where a call ends."""
        self.note(f"what it returned was not recorded: {type(error).__name__}: {first_line(error)}")

    def tell_entered(self, frame: Frame) -> None:
        """Tell the listeners that a call begins."""
        with self._lock:
            for listener in self._listeners:
                listener.enter_call(frame)

    def tell_left(self, frame: Frame) -> None:
        """Tell the listeners that a call is over."""
        with self._lock:
            for listener in self._listeners:
                listener.leave_call(frame)

    def outputs_of_call(self, frame: Frame, output: Any) -> Outputs:
        """Return the record of what a call returned."""
        return self._outputs(output, self._keep_all or not frame.has_submodules or frame.parent is None)

    def leave_call(self, stack: CallStack, frame: Frame, output: Any) -> None:
        """Close a call that returned, and note its outputs."""
        arrived = perf_counter()
        frame.duration = arrived - stack.own_time.seconds - frame.started_at
        self._pop(stack, frame)
        previous, stack.current = stack.current, frame
        try:
            if frame.thread_name is not None:
                self.mark_not_replayable(frame, reasons.OWN_THREAD())
            if type(output) in generators.KINDS:
                self.mark_not_replayable(frame, reasons.GOES_ON())
            frame.outputs = self.outputs_of_call(frame, output)
            if self._listeners:
                self.tell_left(frame)
        except Exception as error:
            self.note_outputs_failed(error)
        stack.current = previous
        stack.own_time.seconds += perf_counter() - arrived

    def fail_call(self, stack: CallStack, frame: Frame, error: BaseException) -> None:
        """Close a call that raised."""
        frame.duration = perf_counter() - stack.own_time.seconds - frame.started_at
        self._pop(stack, frame)
        try:
            self._note_exception(frame, error)
            self.tell_left(frame)
        except Exception as second:
            self.note(f"how it failed was not recorded: {type(second).__name__}: {first_line(second)}")

    def _note_exception(self, frame: Frame, error: BaseException) -> None:
        """Note the exception that left a call, and whether it began there.

        An equal id alone proves nothing: the first exception may be gone and its id used again. The traceback decides.
        """
        frame.exception_id = id(error)
        below = any(other.exception_id == frame.exception_id for other in self.frames[frame.index + 1 :])
        with untracked():  # its text may show tensors
            frame.error = failure(error, here=not (below and came_through(error, _EXITS)))

    def _pop(self, stack: CallStack, frame: Frame) -> None:
        while stack:  # calls above this one ended unnoticed (a generator was thrown away)
            if stack.pop() is frame:
                break
        frame.has_submodules = frame.module is not None and has_submodules(frame.module)
        frame.module = None
        frame.finish_order = next(self._finish_order)

    # Forwards that go on after they returned -----------------------------------------------------

    def resume_call(self, frame: Frame, module: nn.Module) -> None:
        """Open a generator's call again in this thread: it runs on."""
        frame.module = module
        stack = self.stack()
        stack.append(frame)
        frame.started_at = perf_counter() - stack.own_time.seconds

    def suspend_call(self, frame: Frame, error: BaseException | None) -> None:
        """Close a generator's call again, for now or for good."""
        stack = self.stack()
        while stack and stack.pop() is not frame:
            pass
        frame.module = None
        frame.duration += perf_counter() - stack.own_time.seconds - frame.started_at
        if error is not None and not isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit)):
            self._note_exception(frame, error)

    def note_yielded(self, frame: Frame, key: Any, item: Any) -> None:
        """Note an item that came out of a generator, or its result."""
        stack = self.stack()
        previous, stack.current = stack.current, frame
        try:
            with untracked():
                if frame.yielded is None:
                    frame.yielded = []
                frame.yielded.append((key, self.structure.build(item, keep=self._keep_all)))
        except Exception as error:
            self.note(f"what it yielded was not recorded: {type(error).__name__}: {first_line(error)}")
        stack.current = previous

    # Where a call belongs ------------------------------------------------------------------------

    def _caller_elsewhere(self, site: Site) -> Frame | None:
        """Return the caller of a call that is the outermost one of its thread.

        It is the call in which the thread was started. Where that is not known, it is an open call of the nearest
        module above this one, or the innermost open call of the thread in which the run began.
        """
        if get_ident() == self._owner:
            return None
        origin = thread_origin.origin(self)
        if origin is not None:
            return origin
        open_calls = [stack[-1] for stack in list(self._stacks.values()) if stack]
        above = [frame for frame in open_calls if site.path.startswith(frame.site.path + ".")]
        if above:
            return max(above, key=lambda frame: len(frame.site.path))
        stack = self._stacks[self._owner]
        return stack[-1] if stack else None

    # Hooks ---------------------------------------------------------------------------------------

    @uncounted
    def run_with_hooks(self, site: Site, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a whole ``module(...)`` whose hooks may replace its inputs and outputs, and note the changes."""
        first = len(self.frames)
        output = run(*args, **kwargs)
        try:
            frame = next((f for f in self.frames[first:] if f.site is site), None)
            if frame is not None:
                self._note_hook_changes(frame, args, kwargs, output)
        except Exception as error:
            self.note(f"what its hooks did was not recorded: {type(error).__name__}: {first_line(error)}")
        return output

    def _note_hook_changes(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        stack = self.stack()
        previous, stack.current = stack.current, frame
        inputs = self._inputs(args, kwargs, keep=self._keep_all)
        outputs = self._outputs(output, keep=self._keep_all)
        if inputs != frame.inputs:
            frame.inputs_before_hooks = inputs
        if outputs != frame.outputs:
            frame.outputs_after_hooks = outputs
        stack.current = previous

    # Values --------------------------------------------------------------------------------------

    def inputs_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        """Return the inputs of a method other than forward."""
        try:
            return self._inputs(args, kwargs, keep=self._keep_all)
        except Exception as error:
            self.note(f"what the method was given was not recorded: {type(error).__name__}: {first_line(error)}")
            return NO_INPUTS

    def outputs_of(self, output: Any) -> Outputs | None:
        """Return the outputs of a method other than forward."""
        try:
            return self._outputs(output, self._keep_all)
        except Exception as error:
            self.note(f"what the method returned was not recorded: {type(error).__name__}: {first_line(error)}")
            return None

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: bool = True) -> Inputs:
        values = None if kwargs else self.values.values_of(args)
        if values is not None:
            return _quick_inputs(values, {})
        with untracked():
            item = self.structure.build
            items = [item(thing, keep=keep, reopen=False) for thing in (*args, *kwargs.values())]
        if not kwargs:
            return _quick_inputs(tuple(items), {})
        return _quick_inputs(tuple(items[: len(args)]), dict(zip(kwargs, items[len(args) :])))

    def _outputs(self, output: Any, keep: bool) -> Outputs:
        values = self.values.values_of((output,))
        if values is not None:
            return _quick_outputs(values[0])
        with untracked():
            return _quick_outputs(self.structure.build(output, keep=keep))

    def release(self) -> None:
        """Break reference cycles once the trace is built, so that nothing has to wait for the garbage collector."""
        self.values.release_notes()
        self.structure.release_notes()
        if self.in_core is not None:
            self.in_core.stop()

    def note(self, text: str) -> None:
        """Make a note on the current call; the same note is made only once."""
        subject = self.stack().current or self.innermost()
        index = None if subject is None else subject.index
        if (index, text) not in self._noted:
            self._noted.add((index, text))
            where = "" if subject is None else subject.site.path
            self.notes.append(Note(text, where, index))


# An exception that leaves a call passes through one of these.
_EXITS = (Recorder.run_call.__code__, WRAPPER_CODE, generators.STEP_CODE)
