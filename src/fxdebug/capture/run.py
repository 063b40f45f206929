"""Running a model under a recorder: one trace for one call, or one for every forward in a block."""

from __future__ import annotations

import contextlib
import datetime
import platform
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn

from fxdebug.capture import resumable, threads, wrap
from fxdebug.capture.bodies import CompiledRegions
from fxdebug.capture.compiled import compiled_in
from fxdebug.capture.frame import Site, failure, to_call
from fxdebug.capture.live import Live
from fxdebug.capture.parameters import Parameters
from fxdebug.capture.recorder import Listener, Recorder, Steps
from fxdebug.capture.sites import Sites
from fxdebug.capture.source import without_our_frames
from fxdebug.capture.state import Passed, references_to
from fxdebug.capture.values import Keeper, first_line
from fxdebug.trace import NO_OUTPUT, Call, Failure, Note, Parameter, Trace
from fxdebug.values import Inputs, Outputs, Value

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
    graph: bool = False


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
            graph=options.graph,
        )
        if failed is not None:
            self.recorder.say(f"parameters were not recorded: {type(failed).__name__}: {first_line(failed)}")
        if options.watching is not None:
            self.recorder.listen(options.watching(sites.root().type, self.recorder.values.all))
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self.began = time.perf_counter()
        self.given, self.returned = Inputs(), cast("Outputs | None", None)  # of a method other than forward

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
            calls[0] = replace(calls[0], inputs=self.given, outputs=self.returned)
        live: Live | None = None
        if recorder.bodies is not None:
            shift = len(calls) - len(recorder.frames)
            live = Live(self.sites.model, self.sites.registered(), recorder.bodies, recorder.values, shift)
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
            explain=live,
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
        self._others = threading.local()  # ``calling`` while a thread calls the model for itself

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._sites.of(module)
        if site is None or getattr(self._others, "calling", False):
            return run(*args, **kwargs)
        if not self._is_unrelated(site):
            return self._recorder.run(site, module, run, args, kwargs)
        self._others.calling = True
        try:
            return run(*args, **kwargs)
        finally:
            self._others.calling = False

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site = self._sites.of(module)
        if site is None or getattr(self._others, "calling", False) or self._is_unrelated(site):
            return run(*args, **kwargs)
        return self._recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        return not getattr(self._others, "calling", False) and self._attached.takes(module, self._recorder)

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what a method other than forward is given: no module call tells."""
        self._recording.given = self._recorder.given(args, dict(kwargs))

    def returned(self, output: Any) -> None:
        """Note what it returned."""
        self._recording.returned = self._recorder.returned(output)

    def close(self, output: Any, references: int, passed: Passed) -> None:
        """The run is over; ``references``: how many there are to ``output``, if it is a tensor."""
        bodies = self._recorder.bodies
        if bodies is not None:
            try:
                bodies.close(output, references, self._sites.model, passed)
            except Exception as error:
                self._recorder.say(f"what the program keeps was not found out: {type(error).__name__}: {error}")

    def _is_unrelated(self, site: Site) -> bool:
        """Another thread that calls the model for itself, or traces a model of which this is a part too?

        It has nothing open here and was not started in a call of ours. The model's own workers call parts of it.
        """
        thread = threading.get_ident()
        if thread == self._owner or not self._recorder.idle() or threads.origin(self._recorder) is not None:
            return False
        return site is self._root or thread in _tracing or threads.is_calling(self._sites.model)

    def __enter__(self) -> OneRun:
        self._attached = _Attached(self, self._sites)
        self._attached.__enter__()
        threads.begin(self._recorder)
        _tracing.append(self._owner)
        bodies = self._recorder.bodies
        self._regions = None if bodies is None else CompiledRegions(bodies.tape)
        if self._regions is not None:
            self._regions.begin()
        return self

    def __exit__(self, *error: object) -> None:
        if self._regions is not None:
            self._regions.end()
        _tracing.remove(self._owner)
        threads.end(self._recorder)
        self._attached.__exit__()

    def trace(self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None) -> Trace:
        """What the run left behind."""
        return self._recording.trace(settings, output, error)


_tracing: list[int] = []  # the threads that are tracing one run, as often as they are


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
        self._owner = threading.get_ident()
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
        output: Any = None
        goes_on = False
        try:
            output = started.recording.recorder.run(site, module, run, args, kwargs)
            # A generator that somebody keeps stays itself: of the forward's own there is this one reference.
            goes_on = started.root and type(output) in resumable.KINDS and sys.getrefcount(output) <= 2
        finally:
            self._local.recording = None
            if not goes_on:
                self._left(started)
        if goes_on:
            return resumable.relayed(output, _Inside(self._local, started, module, self._left))
        return output

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        site, current = self._sites.of(module), getattr(self._local, "recording", None)
        if site is None or current is None:
            return run(*args, **kwargs)
        return current.recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        current: _Recording | None = getattr(self._local, "recording", None)
        return current is not None and self._attached.takes(module, current.recorder)

    def _entered(self, site: Site) -> _Started | None:
        """The recording for a call with nothing open below it in this thread.

        It is the one in which the thread was started. Otherwise the root begins a forward, and a part
        of it belongs to a forward that is running in another thread, or else to no forward.
        """
        if threading.get_ident() != self._owner and site is not self._root and threads.is_calling(self._sites.model):
            return None  # a forward that began before us
        with self._lock:
            running = [started for started in self._open if not started.recording.recorder.idle(everywhere=True)]
            found = next((started for started in running if threads.origin(started.recording.recorder)), None)
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
            started = _Started(_Recording(self._sites, options), options, root)
        except Exception as error:
            self.errors.append(error)
            return None
        threads.begin(started.recording.recorder)
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
        threads.end(started.recording.recorder)
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
        for started in list(self._open):  # a generator that was not run to its end, a thread that is not done
            self._finish(started)


@dataclass(eq=False)
class _Started:
    """A recording that is on, and what it was begun with."""

    recording: _Recording
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


class _Attached:
    """An observer on all modules of a model, for the length of a block."""

    def __init__(self, observer: wrap.Observer, sites: Sites) -> None:
        self._observer = observer
        self._sites = sites
        self._compiled = compiled_in(sites.model)

    def is_closed(self, module: nn.Module | None) -> bool:
        """Is this a compiled module, whose inside (the compiler's own modules too) is not looked at?"""
        return any(module is closed for closed in self._compiled.closed)

    def takes(self, module: nn.Module, recorder: Recorder) -> bool:
        """Does a recording want a call of a module that was not registered when it began? Then it gets a name."""
        below = recorder.innermost()
        if below is None or self.is_closed(below.module):
            return False
        try:
            self._sites.discover(module, recorder.stack() or [below])
        except Exception as error:
            recorder.say(f"a call of a {type(module).__name__} is missing: {type(error).__name__}: {first_line(error)}")
            return False
        return True

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
    passed = Passed((args, kwargs))
    with OneRun(model, options) as run:
        if target is not model:
            run.given(args, kwargs)
        try:
            output = target(*args, **kwargs)
        except BaseException as error:
            raised = error
        if target is not model and raised is None:
            run.returned(output)
        # on a line of its own: the arguments of a call that is being prepared are references, too
        references = references_to(output) if issubclass(type(output), torch.Tensor) else 0
        run.close(output, references, passed)
    if raised is not None:
        raised.__traceback__ = without_our_frames(raised.__traceback__)
    return run.trace(settings, output, raised), raised


class _Recursion:
    """Room for the frames we add: a model that just fits Python's recursion limit must still fit.

    A module call costs three frames of its own, and ours come on top. The limit is the process's:
    recordings that overlap raise it once, and the last one to end puts it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limit = self._raised = 0

    def raise_limit(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = sys.getrecursionlimit()
                self._raised = self._limit + FRAMES_PER_CALL * (self._limit // 3) + 200
                sys.setrecursionlimit(self._raised)

    def put_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and sys.getrecursionlimit() == self._raised:  # the program may have set its own
                with contextlib.suppress(RecursionError):  # too deep to lower it from here
                    sys.setrecursionlimit(self._limit)


_recursion = _Recursion()


def versions() -> dict[str, str]:
    """What ran: Python, torch and, where they are in use, transformers and numpy."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("transformers", "numpy"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "__version__"):
            found[name] = str(module.__version__)
    return found
