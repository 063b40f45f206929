"""Running a model under a recorder: one trace for one call, or one for every forward in a block."""

from __future__ import annotations

import contextlib
import datetime
import platform
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fxdebug.capture import wrap
from fxdebug.capture.compiled import compiled_in
from fxdebug.capture.parameters import Parameters
from fxdebug.capture.recorder import Listener, Recorder, Site, failure, to_call
from fxdebug.capture.sites import Sites
from fxdebug.capture.values import Keeper, first_line
from fxdebug.trace import NO_OUTPUT, Call, Failure, Note, Parameter, Trace
from fxdebug.values import Inputs, Value

OUTSIDE = "(outside forward)"  # the method of a root that stands for calls made outside the model's forward
FRAMES_PER_CALL = 6  # Python frames we add to each nested module call


@dataclass(frozen=True)
class Options:
    """How to record; see :class:`~fxdebug.capture.recorder.Recorder` and ``Parameters``."""

    keeper: Keeper | None = None
    keep_all: bool = True
    shown: Callable[[Any], str] = repr
    listeners: tuple[Listener, ...] = ()
    no_grad: bool = False
    weights: bool | None = None
    watching: Callable[[str, list[Value]], tuple[Listener, ...]] | None = None  # listeners that need the values


class _Recording:
    """A recorder with what a trace also needs: the parameters before the run, the clock."""

    def __init__(self, sites: Sites, options: Options) -> None:
        self.sites = sites
        self._parameters: Parameters | None = None
        failed: Exception | None = None
        try:
            self._parameters = Parameters(sites.model, options.weights)
        except Exception as error:  # the debugger never breaks the debugged
            failed = error
        self.recorder = Recorder(
            self._parameters.names() if self._parameters is not None else {},
            keeper=options.keeper,
            keep_all=options.keep_all,
            shown=options.shown,
            listeners=options.listeners,
            no_grad=options.no_grad,
        )
        if failed is not None:
            self.recorder.say(f"parameters were not recorded: {type(failed).__name__}: {first_line(failed)}")
        if options.watching is not None:
            self.recorder.listen(options.watching(sites.root().type, self.recorder.values.all))
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self.began = time.perf_counter()
        self.root_open = False

    def trace(self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None) -> Trace:
        """What was recorded. A call that stands for the whole run is put on top where several stand there."""
        duration = time.perf_counter() - self.began
        recorder = self.recorder
        method = str(settings.get("method", "forward"))
        calls = [to_call(frame) for frame in recorder.frames]
        parameters = self._changed_parameters()
        notes = list(recorder.notes)
        tops = [call for call in calls if call.parent_index is None]
        if method != "forward" or len(tops) != 1 or tops[0].path:
            calls, notes = _under_one_root(self.sites.root(), calls, notes, method, duration, error)
        return Trace(
            model=self.sites.root().type,
            calls=tuple(calls),
            values=tuple(recorder.values.all),
            parameters=parameters,
            modules=self.sites.modules,
            notes=tuple(notes),
            started=self.started,
            duration=duration,
            versions=versions(),
            settings=settings,
            _output=output,
        )

    def _changed_parameters(self) -> tuple[Parameter, ...]:
        try:
            return () if self._parameters is None else self._parameters.after(self.recorder.values)
        except Exception as error:
            self.recorder.say(f"what became of the parameters was not recorded: {type(error).__name__}: {error}")
            return ()


def _under_one_root(
    site: Site, calls: list[Call], notes: list[Note], method: str, duration: float, error: BaseException | None
) -> tuple[list[Call], list[Note]]:
    """A root above the calls that have none: the method that made them, or nothing but the run itself."""
    from dataclasses import replace

    failed: Failure | None = None
    if error is not None:
        failed = failure(error, here=all(call.error is None for call in calls))
    label = method if method != "forward" else OUTSIDE
    root = Call(0, "", site.type, 0, Inputs(), error=failed, method=label, duration=duration, has_submodules=True)
    moved = [
        replace(
            call,
            index=call.index + 1,
            parent_index=0 if call.parent_index is None else call.parent_index + 1,
            invoked_in=None if call.invoked_in is None else call.invoked_in + 1,
            depth=call.depth + 1,
            number=call.number + (call.path == ""),  # the root above is number 0 of its path
        )
        for call in calls
    ]
    return [root, *moved], [replace(note, call=None if note.call is None else note.call + 1) for note in notes]


class OneRun:
    """Everything that happens while one call of the model runs goes into one trace."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        self._sites = Sites(model)
        self._root = self._sites.root()
        self._recording = _Recording(self._sites, options)
        self._recorder = self._recording.recorder
        self._owner = threading.get_ident()

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._sites.of(module)
        if site is None or self._is_unrelated(site):
            return run(*args, **kwargs)
        return self._recorder.run(site, module, run, args, kwargs)

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._sites.of(module)
        if site is None or self._is_unrelated(site):
            return run(*args, **kwargs)
        return self._recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        stack = self._recorder.stack()
        if not stack or self._attached.is_closed(stack[-1].module):
            return False
        self._sites.discover(module, stack)
        return True

    def _is_unrelated(self, site: Site) -> bool:
        """Another thread calling the same model for itself: it enters at the root with nothing open."""
        return site is self._root and threading.get_ident() != self._owner and self._recorder.idle()

    def __enter__(self) -> OneRun:
        self._attached = _Attached(self, self._sites)
        self._attached.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._attached.__exit__()

    def trace(self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None) -> Trace:
        """What the run left behind."""
        return self._recording.trace(settings, output, error)


class EveryForward:
    """Each forward of the model, and each group of calls outside one, becomes a trace of its own.

    ``begin`` makes the options for a recording and ``done`` takes its trace, both in the thread of the
    forward. What goes wrong in either is in ``errors``: it does not reach the program.
    """

    def __init__(
        self, model: nn.Module, begin: Callable[[], Options], done: Callable[[Trace, Options], None], **settings: Any
    ) -> None:
        self.errors: list[Exception] = []
        self._sites = Sites(model)
        self._root = self._sites.root()
        self._begin = begin
        self._done = done
        self._settings = settings
        self._lock = threading.RLock()
        self._local = threading.local()
        self._open: list[_Started] = []  # forwards of the root that are running, oldest first
        self._loose: _Started | None = None  # calls outside any forward

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._sites.of(module)
        if site is None:
            return run(*args, **kwargs)
        current: _Recording | None = getattr(self._local, "recording", None)
        if current is not None:
            return current.recorder.run(site, module, run, args, kwargs)
        started = self._entered(site)
        if started is None:
            return run(*args, **kwargs)
        self._local.recording = started.recording
        try:
            return started.recording.recorder.run(site, module, run, args, kwargs)
        finally:
            self._local.recording = None
            if started in self._open and site is self._root:
                with self._lock:
                    self._open.remove(started)
                self._finish(started)

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site, current = self._sites.of(module), getattr(self._local, "recording", None)
        if site is None or current is None:
            return run(*args, **kwargs)
        return current.recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        current = getattr(self._local, "recording", None)
        stack = [] if current is None else current.recorder.stack()
        if not stack or self._attached.is_closed(stack[-1].module):
            return False
        self._sites.discover(module, stack)
        return True

    def _entered(self, site: Site) -> _Started | None:
        """The recording for a call with nothing open below it in this thread.

        The root begins a forward; a part of it belongs to the forward that is running in another
        thread, or else to no forward.
        """
        if site is self._root:
            self._finish_loose()
            started = self._start()
            if started is not None:
                with self._lock:
                    self._open.append(started)
            return started
        with self._lock:
            if self._open:
                return self._open[-1]
            if self._loose is None:
                self._loose = self._start()
            return self._loose

    def _start(self) -> _Started | None:
        try:
            options = self._begin()
            return _Started(_Recording(self._sites, options), options)
        except Exception as error:
            self.errors.append(error)
            return None

    def _finish_loose(self) -> None:
        with self._lock:
            started, self._loose = self._loose, None
        if started is not None:
            self._finish(started)

    def _finish(self, started: _Started) -> None:
        try:
            self._done(started.recording.trace(self._settings), started.options)
        except Exception as error:
            self.errors.append(error)

    def __enter__(self) -> EveryForward:
        self._attached = _Attached(self, self._sites)
        self._attached.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._attached.__exit__()
        self._finish_loose()


@dataclass(eq=False)
class _Started:
    """A recording that is on, and what it was begun with."""

    recording: _Recording
    options: Options


class _Attached:
    """An observer on all modules of a model, for the length of a block."""

    def __init__(self, observer: wrap.Observer, sites: Sites) -> None:
        self._observer = observer
        self._sites = sites
        self._compiled = compiled_in(sites.model)

    def is_closed(self, module: nn.Module | None) -> bool:
        """Is this a compiled module, whose inside (the compiler's own modules too) is not looked at?"""
        return any(module is closed for closed in self._compiled.closed)

    def __enter__(self) -> None:
        _recursion.raise_limit()
        try:
            self._compiled.begin(self._observer)
            wrap.begin(self._observer)
            hidden = self._compiled.hidden()
            wrap.watch(self._observer, [module for module in self._sites.registered() if id(module) not in hidden])
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        wrap.end(self._observer)
        self._compiled.end()
        _recursion.put_back()


def run_once(
    target: Callable[..., Any],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Options,
    settings: Mapping[str, Any],
) -> tuple[Trace, BaseException | None]:
    """Call ``target(*args, **kwargs)`` once, recorded; return the trace and what it raised, if anything."""
    output: Any = NO_OUTPUT
    raised: BaseException | None = None
    with OneRun(model, options) as run:
        try:
            output = target(*args, **kwargs)
        except BaseException as error:
            raised = error
    if raised is not None:
        raised.__traceback__ = _without_our_frames(raised.__traceback__)
    return run.trace(settings, output, raised), raised


class _Recursion:
    """Room for the frames we add: a model that just fits Python's recursion limit must still fit.

    A module call costs three frames of its own, and ours come on top. The limit is the process's:
    recordings that overlap raise it once, and the last one to end puts it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit = 0

    def raise_limit(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = sys.getrecursionlimit()
                sys.setrecursionlimit(self._limit + FRAMES_PER_CALL * (self._limit // 3) + 200)

    def put_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                with contextlib.suppress(RecursionError):  # too deep to lower it from here
                    sys.setrecursionlimit(self._limit)


_recursion = _Recursion()


def _without_our_frames(link: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback as it would have been: our own frames taken out of the chain."""
    from pathlib import Path

    here = str(Path(__file__).parent)
    kept = []
    while link is not None:
        if not link.tb_frame.f_code.co_filename.startswith(here):
            kept.append(link)
        link = link.tb_next
    chain: types.TracebackType | None = None
    for link in reversed(kept):
        chain = types.TracebackType(chain, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return chain


def versions() -> dict[str, str]:
    """What ran: Python, torch and, where they are in use, transformers and numpy."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("transformers", "numpy"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "__version__"):
            found[name] = str(module.__version__)
    return found
