"""The one place that every way of capturing reports to: calls come in here, a trace goes out.

A :class:`~fxdebug.capture.recorder.frame.Frame` is one call of one module. Frames stand on a stack per
thread. Nothing raised in here reaches the model: what fails becomes a note.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from fxdebug.capture import reasons
from fxdebug.capture.hooks import thread_origin
from fxdebug.capture.reasons import Words
from fxdebug.capture.recorder import generators
from fxdebug.capture.recorder.frame import NO_INPUTS, NOWHERE, Frame, Site, called_as, failure, has_submodules
from fxdebug.capture.recorder.generators import Steps
from fxdebug.capture.recorder.open_calls import Listener, Open, RunObserver, report_return
from fxdebug.capture.tape.run_taped import Bodies
from fxdebug.capture.tape.source_line import Line, caller_line
from fxdebug.capture.tape.tracebacks import came_through
from fxdebug.capture.tensors.nested_items import ItemBuilder
from fxdebug.capture.tensors.value_table import Keeper, ValueTable
from fxdebug.capture.torch_state.grad_mode import context_now, no_gradients
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Note
from fxdebug.data.values import Inputs, Outputs, fast_constructor
from fxdebug.errors import first_line

_quick_inputs, _quick_outputs = fast_constructor(Inputs), fast_constructor(Outputs)


class Recorder:
    """Collects the calls and values of one trace.

    ``names`` are the names of parameters and buffers by ``id``. ``keeper`` takes each new value's
    data; with ``keep_all`` false only values that the standard tree shows are given to it.
    ``shown`` is the ``repr`` to show objects with. ``no_grad`` runs every forward without gradients.
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
        unchanged: Callable[[Any, Any], Any] | None = None,
        watcher: RunObserver | None = None,
    ) -> None:
        self.frames: list[Frame] = []
        self.notes: list[Note] = []
        self.values = ValueTable(names, keeper, self.say, measuring, unchanged)
        self.structure = ItemBuilder(self.values, self.say, shown)
        self._lines: dict[tuple[int, int], Line] = {}  # the lines of the users' code that were met: notes share them
        self.bodies = Bodies(self.values, self._lines, self.say, watcher) if graph else None
        self._keep_all = keep_all
        self._listeners = listeners
        self._watcher = watcher
        if watcher is not None:
            watcher.begins(self.frames)
        self._no_grad = no_grad
        self._owner = get_ident()
        self._stacks: dict[int, Open] = {self._owner: Open()}
        self._counts: dict[str, int] = {}
        self._said: set[tuple[int | None, str]] = set()
        self._finished = itertools.count()
        self._lock = threading.RLock()  # calls begin and end in any thread; no code of the user's runs inside

    def listen(self, listeners: tuple[Listener, ...]) -> None:
        """Add listeners."""
        self._listeners = (*self._listeners, *listeners)

    # What happens to a call ----------------------------------------------------------------------

    def run(
        self, site: Site, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a forward, recorded: its result is returned and its exception passes through."""
        stack = self.stack()
        frame = self._enter(stack, site, module, run, args, kwargs)
        try:
            if self.bodies is not None:
                output = self.bodies.run(frame.index, args, kwargs, frame.line)
            elif self._no_grad:
                with no_gradients():
                    output = run(*args, **kwargs)
            else:
                output = run(*args, **kwargs)
        except BaseException as error:
            self._fail(stack, frame, error)
            raise
        self._leave(stack, frame, output)
        if self._watcher is not None:
            report_return(self._watcher, frame, output, self.say)
        if type(output) in generators.KINDS and (frame.parent is not None or site.path):
            noted = 0 if self.bodies is None else self.bodies.holds(frame.index, output)
            if sys.getrefcount(output) <= 2 + noted:  # the forward's own: one that somebody keeps stays itself
                return generators.relayed(output, Steps(self, frame, module))
        return output

    def stack(self) -> Open:
        """The calls open in this thread, outermost first."""
        thread = get_ident()
        stack = self._stacks.get(thread)
        if stack is None:
            stack = self._stacks[thread] = Open()
        return stack

    def idle(self, *, everywhere: bool = False) -> bool:
        """Is no call open in this thread, or in any?"""
        return not (any(list(self._stacks.values())) if everywhere else self._stacks.get(get_ident()))

    def innermost(self) -> Frame | None:
        """The innermost call open in this thread; where none is, the one in which the thread was started."""
        stack = self._stacks.get(get_ident())
        return stack[-1] if stack else thread_origin.origin(self)

    def not_again(self, frame: Frame, why: Words) -> None:
        """The body of this call must not be run once more to explain it."""
        body = None if self.bodies is None else self.bodies.by_index.get(frame.index)
        if body is not None:
            body.untraceable = body.untraceable or why

    def swapped(self, tensors: tuple[Tensor, ...]) -> None:
        """Two tensors are about to exchange what they are; nothing may refer to them."""
        for tensor in tensors:
            self.values.forget(tensor)
        for frame in self._stacks.get(get_ident()) or ():
            self.not_again(frame, reasons.SWAPS_TENSORS())

    def _enter(
        self,
        stack: Open,
        site: Site,
        module: nn.Module,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Frame:
        arrived = perf_counter()
        below = stack[-1] if stack else None
        parent = below if below is not None else self._elsewhere(site)
        with self._lock:
            number = self._counts.get(site.path, 0)
            self._counts[site.path] = number + 1
            frame = Frame(site, module, len(self.frames), number, parent)
            self.frames.append(frame)
        previous, stack.subject = stack.subject, frame
        context = context_now()
        try:
            if below is not None and below.finished is not None:  # a generator's: its consumer's is below it
                running = [other.index for other in stack if other.finished is None]
                frame.invoked_in = running[-1] if running else NOWHERE
            frame.training = bool(getattr(module, "training", False))
            frame.grad = context[0] and not self._no_grad
            frame.line = caller_line(self._lines)
            if get_ident() != self._owner:
                frame.thread = threading.current_thread().name
            if len(site.aliases) > 1:
                frame.called_as = called_as(self.frames, frame)
        except Exception as error:
            self._unrecorded(error)
        try:
            frame.inputs = self._inputs(args, kwargs)
        except Exception as error:
            self._unrecorded(error)
        if self.bodies is not None:
            self.bodies.begin(frame.index, module, run, args, kwargs, context)
        if self._listeners:
            try:
                with self._lock:
                    for listener in self._listeners:
                        listener.began(frame)
            except Exception as error:
                self._unrecorded(error)
        stack.subject = previous
        stack.append(frame)
        now = perf_counter()
        stack.lost += now - arrived
        frame.began = now - stack.lost
        return frame

    def _unrecorded(self, error: Exception) -> None:
        self.say(f"what it was given was not recorded: {type(error).__name__}: {first_line(error)}")

    def _leave(self, stack: Open, frame: Frame, output: Any) -> None:
        arrived = perf_counter()
        frame.duration = arrived - stack.lost - frame.began
        self._pop(stack, frame)
        previous, stack.subject = stack.subject, frame
        try:
            if frame.thread is not None:
                self.not_again(frame, reasons.OWN_THREAD())
            if type(output) in generators.KINDS:
                self.not_again(frame, reasons.GOES_ON())
            frame.outputs = self._outputs(output, self._keep_all or not frame.has_submodules or frame.parent is None)
            if self._listeners:
                with self._lock:
                    for listener in self._listeners:
                        listener.ended(frame)
        except Exception as error:
            self.say(f"what it returned was not recorded: {type(error).__name__}: {first_line(error)}")
        stack.subject = previous
        stack.lost += perf_counter() - arrived

    def _fail(self, stack: Open, frame: Frame, error: BaseException) -> None:
        frame.duration = perf_counter() - stack.lost - frame.began
        self._pop(stack, frame)
        try:
            self._left_by(frame, error)
            with self._lock:
                for listener in self._listeners:
                    listener.ended(frame)
        except Exception as second:
            self.say(f"how it failed was not recorded: {type(second).__name__}: {first_line(second)}")

    def _left_by(self, frame: Frame, error: BaseException) -> None:
        """This left a call. One that was caught may be gone, and its id the next one's: the ways they took differ."""
        frame.raised = id(error)
        below = any(other.raised == frame.raised for other in self.frames[frame.index + 1 :])
        frame.error = failure(error, here=not (below and came_through(error, _WAYS_OUT)))

    def _pop(self, stack: Open, frame: Frame) -> None:
        while stack:  # frames above ours were left without our hearing of it (a generator thrown away)
            if stack.pop() is frame:
                break
        frame.has_submodules = frame.module is not None and has_submodules(frame.module)
        frame.module = None
        frame.finished = next(self._finished)

    # Forwards that go on after they returned -----------------------------------------------------

    def resume(self, frame: Frame, module: nn.Module) -> None:
        """A generator runs on: its call is open again in this thread."""
        frame.module = module
        stack = self.stack()
        stack.append(frame)
        frame.began = perf_counter() - stack.lost

    def suspend(self, frame: Frame, error: BaseException | None) -> None:
        """It stops again, for now or for good."""
        stack = self.stack()
        while stack and stack.pop() is not frame:
            pass
        frame.module = None
        frame.duration += perf_counter() - stack.lost - frame.began
        if error is not None and not isinstance(error, (StopIteration, StopAsyncIteration, GeneratorExit)):
            self._left_by(frame, error)

    def gave(self, frame: Frame, key: Any, thing: Any) -> None:
        """Something came out of it."""
        stack = self.stack()
        previous, stack.subject = stack.subject, frame
        try:
            with untracked():
                if frame.gave is None:
                    frame.gave = []
                frame.gave.append((key, self.structure.build(thing, keep=self._keep_all)))
        except Exception as error:
            self.say(f"what it yielded was not recorded: {type(error).__name__}: {first_line(error)}")
        stack.subject = previous

    # Where a call belongs ------------------------------------------------------------------------

    def _elsewhere(self, site: Site) -> Frame | None:
        """The call that one with nothing open below it in its thread belongs to.

        It is the call in which the thread was started. Where that is not known, it is an open call of
        the nearest module above this one, or the innermost open one of the thread the run began in.
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

    def around(self, site: Site, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a whole ``module(...)`` whose hooks may replace what goes in and out, and note if they do."""
        first = len(self.frames)
        output = run(*args, **kwargs)
        try:
            frame = next((f for f in self.frames[first:] if f.site is site), None)
            if frame is not None:
                self._hooked(frame, args, kwargs, output)
        except Exception as error:
            self.say(f"what its hooks did was not recorded: {type(error).__name__}: {first_line(error)}")
        return output

    def _hooked(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        stack = self.stack()
        previous, stack.subject = stack.subject, frame
        given = self._inputs(args, kwargs, keep=self._keep_all)
        returned = self._outputs(output, keep=self._keep_all)
        if given != frame.inputs:
            frame.given = given
        if returned != frame.outputs:
            frame.returned = returned
        stack.subject = previous

    # Values --------------------------------------------------------------------------------------

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
        """What is given to something that is no module call."""
        try:
            return self._inputs(args, kwargs, keep=self._keep_all)
        except Exception as error:
            self.say(f"what the method was given was not recorded: {type(error).__name__}: {first_line(error)}")
            return NO_INPUTS

    def returned(self, output: Any) -> Outputs | None:
        """What it returns."""
        try:
            return self._outputs(output, self._keep_all)
        except Exception as error:
            self.say(f"what the method returned was not recorded: {type(error).__name__}: {first_line(error)}")
            return None

    def _inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any], keep: bool = True) -> Inputs:
        with untracked():
            item = self.structure.build
            items = [item(thing, keep=keep, reopen=False) for thing in (*args, *kwargs.values())]
        if not kwargs:
            return _quick_inputs(tuple(items), {})
        return _quick_inputs(tuple(items[: len(args)]), dict(zip(kwargs, items[len(args) :])))

    def _outputs(self, output: Any, keep: bool) -> Outputs:
        with untracked():
            return _quick_outputs(self.structure.build(output, keep=keep))

    def release(self) -> None:
        """The trace is made: let go of each other, or all of this stays until Python looks for circles."""
        self.values.release_notes()
        self.structure.release_notes()

    def say(self, what: str) -> None:
        """Make a note on the call at hand, once."""
        subject = self.stack().subject or self.innermost()
        call = None if subject is None else subject.index
        if (call, what) not in self._said:
            self._said.add((call, what))
            where = "" if subject is None else subject.site.path
            self.notes.append(Note(what, where, call))


_WAYS_OUT = (Recorder.run.__code__, generators.STEPPED)  # what leaves a call leaves one of these
