"""Every forward in a block becomes a trace of its own: loops, ``generate``, several threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.capture.hooks import patched_functions, thread_origin
from fxdebug.capture.recorder import generators
from fxdebug.capture.recorder.frame import Site
from fxdebug.capture.recorder.generators import Steps
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.build_trace import Options, Recording
from fxdebug.data.trace import TraceData


class EveryForward:
    """Each forward of the model, and each group of calls outside one, becomes a trace of its own.

    ``begin`` makes the options for a recording and ``done`` takes its trace, both in the thread of the
    forward. What goes wrong in either is in ``errors``: it does not reach the program.
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
        self._open: list[_Started] = []  # forwards of the root that are running, oldest first
        self._loose: _Started | None = None  # calls outside any forward

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module's forward: in the recording that is on, or in one that begins with it."""
        site = self._sites.of(module)
        if site is None:
            return run(*args, **kwargs)
        current: Recording | None = getattr(self._local, "recording", None)
        if current is not None:
            return current.recorder.run(site, module, run, args, kwargs)
        started = self._entered(site)
        if started is None:
            return run(*args, **kwargs)
        self._local.recording = started.recording
        output: Any = None
        goes_on = False
        try:
            output = started.recording.recorder.run(site, module, run, args, kwargs)
            # A generator that somebody keeps stays itself: of the forward's own there is this one reference.
            goes_on = started.root and type(output) in generators.KINDS and sys.getrefcount(output) <= 2
        finally:
            self._local.recording = None
            if not goes_on:
                self._left(started)
        if goes_on:
            return generators.relayed(output, _Inside(self._local, started, module, self._left))
        return output

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A whole ``module(...)`` with its hooks."""
        site, current = self._sites.of(module), getattr(self._local, "recording", None)
        if site is None or current is None:
            return run(*args, **kwargs)
        return current.recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        """Is this call of a module that nobody registered to be recorded?"""
        current: Recording | None = getattr(self._local, "recording", None)
        return current is not None and self._attached.takes(module, current.recorder)

    def _entered(self, site: Site) -> _Started | None:
        """The recording for a call with nothing open below it in this thread.

        It is the one in which the thread was started. Otherwise the root begins a forward, and a part
        of it belongs to a forward that is running in another thread, or else to no forward.
        """
        if (
            threading.get_ident() != self._owner
            and site is not self._root
            and thread_origin.is_calling(self._sites.model)
        ):
            return None  # a forward that began before us
        with self._lock:
            running = [started for started in self._open if not started.recording.recorder.idle(everywhere=True)]
            found = next((started for started in running if thread_origin.origin(started.recording.recorder)), None)
            if found is None and site is not self._root:
                found = running[-1] if running else self._loose
            if found is not None:
                found.users += 1
                return found
        if site is self._root:
            self._finish_loose()
        return self._start(site is self._root)

    def _start(self, root: bool) -> _Started | None:
        try:
            options = self._begin()
            started = _Started(Recording(self._sites, options), options, root)
        except Exception as error:
            self.errors.append(error)
            return None
        patched_functions.begin(started.recording.recorder)
        with self._lock:
            if root:
                self._open.append(started)
            else:
                self._loose = started
        return started

    def _left(self, started: _Started) -> None:
        """A call that entered a recording is over. So is a forward of the root, when all of its calls are."""
        with self._lock:
            started.users -= 1
            over = not started.users and started is not self._loose
        if over:
            self._finish(started)

    def _finish_loose(self) -> None:
        """The calls outside any forward so far become a trace, as soon as none of them is on."""
        with self._lock:
            started, self._loose = self._loose, None
            over = started is not None and not started.users
        if started is not None and over:
            self._finish(started)

    def _finish(self, started: _Started) -> None:
        with self._lock:
            if started.done:
                return
            started.done = True
            self._open = [other for other in self._open if other is not started]
        patched_functions.end(started.recording.recorder)
        try:
            self._done(started.recording.trace(self._settings), started.options)
        except Exception as error:
            self.errors.append(error)

    def __enter__(self) -> EveryForward:
        self._attached = Attached(self, self._sites)
        self._attached.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._attached.__exit__()
        self._finish_loose()
        for started in list(self._open):  # a generator that was not run to its end, a thread that is not done
            self._finish(started)


@dataclass(eq=False)
class _Started:
    """A recording that is on, and what it was begun with."""

    recording: Recording
    options: Options
    root: bool  # a forward of the root, or calls outside any
    users: int = 1  # calls that entered it and are not over
    done: bool = False


class _Inside:
    """The steps of a root whose forward is a generator: they belong to the recording that the call began."""

    def __init__(
        self, local: threading.local, started: _Started, module: nn.Module, left: Callable[[_Started], None]
    ) -> None:
        self._local = local
        self._started = started
        self._left = left
        recorder = started.recording.recorder
        self._steps = Steps(recorder, recorder.frames[0], module)
        self.yielded, self.returned = self._steps.yielded, self._steps.returned

    def step(self) -> _Inside:
        return self

    def __enter__(self) -> None:
        self._before = getattr(self._local, "recording", None)
        self._local.recording = self._started.recording
        self._steps.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        self._steps.__exit__(kind, error, at)
        self._local.recording = self._before

    def closed(self) -> None:
        self._left(self._started)
