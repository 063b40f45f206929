"""Trace every forward in a block, each as a separate trace: loops, ``generate``, several threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.capture.hooks import patched_functions, thread_origin
from fxdebug.capture.recorder import collectives, generators
from fxdebug.capture.recorder.frame import Site
from fxdebug.capture.recorder.generators import RecordedSteps
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.build_trace import Options, Recording, start_recording, trace_of
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.data.trace import TraceData


class EveryForward:
    """Makes a trace of each forward of the model, and of each group of calls outside one.

    ``begin`` makes the options for a recording and ``done`` gets its trace, both in the thread of the forward.
    Exceptions of either are in ``errors``: they do not reach the program.
    """

    def __init__(
        self,
        model: nn.Module,
        begin: Callable[[], Options],
        done: Callable[[TraceData, Options], None],
        **settings: Any,
    ) -> None:
        self.errors: list[Exception] = []
        self._sites = Sites(model)
        self._root = self._sites.root()
        self._begin = begin
        self._done = done
        self._settings = settings
        self._owner = threading.get_ident()
        self._lock = threading.RLock()
        self._local = threading.local()
        self._open: list[_OpenTrace] = []  # forwards of the root that are running, oldest first
        self._loose: _OpenTrace | None = None  # calls outside any forward

    @uncounted
    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record a forward: in the recording that is on, or in one that begins with it."""
        site = self._sites.of(module)
        if site is None:
            return run(*args, **kwargs)
        current: Recording | None = getattr(self._local, "recording", None)
        if current is not None:
            return current.recorder.run_call(site, module, run, args, kwargs)
        open_trace = self._enter_trace(site)
        if open_trace is None:
            return run(*args, **kwargs)
        self._local.recording = open_trace.recording
        output: Any = None
        goes_on = False
        try:
            output = open_trace.recording.recorder.run_call(site, module, run, args, kwargs)
            # A generator that the program keeps must stay the same object. If nobody keeps it, this reference is all.
            goes_on = open_trace.root and type(output) in generators.KINDS and sys.getrefcount(output) <= 2
        finally:
            self._local.recording = None
            if not goes_on:
                self._leave_trace(open_trace)
        if goes_on:
            return generators.relay(output, _RootSteps(self._local, open_trace, module, self._leave_trace))
        return output

    @uncounted
    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the changes that hooks make around a whole ``module(...)``."""
        site, current = self._sites.of(module), getattr(self._local, "recording", None)
        if site is None or current is None:
            return run(*args, **kwargs)
        return current.recorder.run_with_hooks(site, run, args, kwargs)

    def wants(self, module: nn.Module) -> bool:
        """Should this call of an unregistered module be recorded?"""
        current: Recording | None = getattr(self._local, "recording", None)
        return current is not None and self._attached.wants(module, current.recorder)

    def _enter_trace(self, site: Site) -> _OpenTrace | None:
        """Return the trace that an outermost call of this thread belongs to.

        It is the trace in which the thread was started, if there is one. Otherwise a call of the root begins a trace; a
        call of another module belongs to the latest forward that is running in another thread or, if there is none, to
        the calls outside any forward. ``None``: the call is not recorded.
        """
        if (
            threading.get_ident() != self._owner
            and site is not self._root
            and thread_origin.is_calling(self._sites.model)
        ):
            return None  # part of a forward that began before the recording
        with self._lock:
            running = [each for each in self._open if not each.recording.recorder.is_idle(everywhere=True)]
            found = next(
                (open_trace for open_trace in running if thread_origin.origin(open_trace.recording.recorder)), None
            )
            if found is None and site is not self._root:
                found = running[-1] if running else self._loose
            if found is not None:
                found.users += 1
                return found
        if site is self._root:
            self._finish_loose()
        return self._start(site is self._root)

    def _start(self, root: bool) -> _OpenTrace | None:
        try:
            options = self._begin()
            open_trace = _OpenTrace(start_recording(self._sites, options), options, root)
        except Exception as error:
            self.errors.append(error)
            return None
        patched_functions.begin(open_trace.recording.recorder)
        if open_trace.recording.recorder.tape is not None:
            collectives.begin(open_trace.recording.recorder.tape)
        for text in self._attached.notes():
            open_trace.recording.recorder.note(text)
        with self._lock:
            if root:
                self._open.append(open_trace)
            else:
                self._loose = open_trace
        return open_trace

    def _leave_trace(self, open_trace: _OpenTrace) -> None:
        """Leave a trace at the end of a call. The trace of a root's forward is over when all of its calls are."""
        with self._lock:
            open_trace.users -= 1
            over = not open_trace.users and open_trace is not self._loose
        if over:
            self._finish(open_trace)

    def _finish_loose(self) -> None:
        """Make a trace of the calls outside any forward so far, as soon as none of them is open."""
        with self._lock:
            open_trace, self._loose = self._loose, None
            over = open_trace is not None and not open_trace.users
        if open_trace is not None and over:
            self._finish(open_trace)

    def _finish(self, open_trace: _OpenTrace) -> None:
        with self._lock:
            if open_trace.done:
                return
            open_trace.done = True
            self._open = [other for other in self._open if other is not open_trace]
        patched_functions.end(open_trace.recording.recorder)
        collectives.end(open_trace.recording.recorder.tape)
        try:
            self._done(trace_of(open_trace.recording, self._settings), open_trace.options)
        except Exception as error:
            self.errors.append(error)

    def __enter__(self) -> EveryForward:
        self._attached = Attached(self, self._sites)
        self._attached.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._attached.__exit__()
        self._finish_loose()
        for open_trace in list(self._open):  # a generator that did not run to its end, a thread that goes on
            self._finish(open_trace)


@dataclass(eq=False)
class _OpenTrace:
    """A trace that is being recorded, with its options."""

    recording: Recording
    options: Options
    root: bool  # is it of a forward of the root, or of calls outside any?
    users: int = 1  # calls that entered it and are not over
    done: bool = False


class _RootSteps:
    """The steps of a root whose forward is a generator: they belong to the trace that the call began."""

    def __init__(
        self, local: threading.local, open_trace: _OpenTrace, module: nn.Module, leave: Callable[[_OpenTrace], None]
    ) -> None:
        self._local = local
        self._open_trace = open_trace
        self._leave_trace = leave
        recorder = open_trace.recording.recorder
        self._steps = RecordedSteps(recorder, recorder.frames[0], module)
        self.yielded, self.returned = self._steps.yielded, self._steps.returned

    def step(self) -> _RootSteps:
        return self

    def __enter__(self) -> None:
        self._before = getattr(self._local, "recording", None)
        self._local.recording = self._open_trace.recording
        self._steps.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        self._steps.__exit__(kind, error, at)
        self._local.recording = self._before

    def closed(self) -> None:
        self._leave_trace(self._open_trace)
