"""Running a model once under a recorder: everything that happens goes into one trace."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any

import torch
from torch import nn

from fxdebug.capture.hooks import patched_functions, thread_origin
from fxdebug.capture.recorder.frame import Site
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.replay.references import ArgumentReferences, references_to
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.build_trace import Options, Recording
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tape.tracebacks import without_our_frames
from fxdebug.capture.torch_state.mode_stack import remove_mode
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.capture.torch_state.untracked import closes_untracked
from fxdebug.data.trace import NO_OUTPUT, TraceData
from fxdebug.errors import first_line


class _Others(threading.local):
    """Threads that are not of this run."""

    calling = False  # is this thread calling the model for itself?


class SingleRun:
    """Everything that happens while one call of the model runs goes into one trace."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        self._sites = Sites(model)
        self._root = self._sites.root()
        self._recording = Recording(self._sites, options)
        self._recorder = self._recording.recorder
        self._owner = get_ident()
        self._others = _Others()
        self._to_do: list[Callable[[], Any]] = []

    def call(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module's forward: recorded, unless another thread uses the model for itself."""
        site = self._sites.of(module)
        if site is None:
            return run(*args, **kwargs)
        if get_ident() == self._owner:
            return self._recorder.run(site, module, run, args, kwargs)
        return self._in_another_thread(site, module, run, args, kwargs)

    def _in_another_thread(
        self, site: Site, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._others.calling:
            return run(*args, **kwargs)
        if not self._is_unrelated(site):
            return self._recorder.run(site, module, run, args, kwargs)
        self._others.calling = True
        try:
            return run(*args, **kwargs)
        finally:
            self._others.calling = False

    def outer(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A whole ``module(...)`` with its hooks."""
        site = self._sites.of(module)
        if site is None or self._others.calling or self._is_unrelated(site):
            return run(*args, **kwargs)
        return self._recorder.around(site, run, args, kwargs)

    def meets(self, module: nn.Module) -> bool:
        """Is this call of a module that nobody registered to be recorded?"""
        return not self._others.calling and self._attached.takes(module, self._recorder)

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what a method other than forward is given: no module call tells."""
        self._recording.given = self._recorder.given(args, dict(kwargs))

    def returned(self, output: Any) -> None:
        """Note what it returned."""
        self._recording.returned = self._recorder.returned(output)

    def say(self, what: str) -> None:
        """Make a note on the run."""
        self._recorder.say(what)

    def close(self, output: Any, references: int, passed: ArgumentReferences) -> None:
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
        thread = get_ident()
        if thread == self._owner or not self._recorder.idle() or thread_origin.origin(self._recorder) is not None:
            return False
        is_tracing = any(run._owner == thread for run in _tracing)
        return site is self._root or is_tracing or thread_origin.is_calling(self._sites.model)

    def __enter__(self) -> SingleRun:
        tape = None if self._recorder.bodies is None else self._recorder.bodies.tape
        attached, regions = Attached(self, self._sites), CompiledRegions(tape)
        self._attached = attached
        self._to_do = [
            attached.__exit__, lambda: patched_functions.end(self._recorder), lambda: _forget(self), regions.end,
            lambda: None if tape is None else _lift(tape)
        ]  # fmt: skip
        attached.__enter__()
        patched_functions.begin(self._recorder)
        _tracing.append(self)
        regions.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Put everything back. Called again, it does what an interrupt (Ctrl-C) left undone the first time."""
        while self._to_do:
            try:
                self._to_do[-1]()
            except Exception as error:
                self.say(f"something was not put back: {type(error).__name__}: {first_line(error)}")
            self._to_do.pop()

    def trace(
        self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None
    ) -> TraceData:
        """What the run left behind."""
        return self._recording.trace(settings, output, error)


_tracing: list[SingleRun] = []  # those that are on, in any thread


def _forget(run: SingleRun) -> None:
    _tracing[:] = [other for other in _tracing if other is not run]


def _lift(tape: Tape) -> None:
    while remove_mode(tape) is not None:  # only where an interrupt came between
        pass


@closes_untracked
def run_once(
    target: Callable[..., Any],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Options,
    settings: Mapping[str, Any],
) -> tuple[TraceData, BaseException | None]:
    """Call ``target(*args, **kwargs)`` once, recorded; return the trace and what it raised, if anything."""
    output: Any = NO_OUTPUT
    raised: BaseException | None = None
    passed = ArgumentReferences((args, kwargs))
    run = SingleRun(model, options)
    try:
        with run:
            if is_traced_by_torch():
                run.say("torch itself traces this run: its calls are not recorded")
            if target is not model:
                run.given(args, kwargs)
            try:
                output = target(*args, **kwargs)
            except BaseException as error:
                raised = error
            if raised is None and options.watcher is not None:
                raised = options.watcher.error  # the model caught it
            if target is not model and raised is None:
                run.returned(output)
            # on a line of its own: the arguments of a call that is being prepared are references, too
            references = references_to(output) if issubclass(type(output), torch.Tensor) else 0
            passed.count_again()
            run.close(output, references, passed)
    finally:
        run.end()
    if raised is not None:
        raised.__traceback__ = without_our_frames(raised.__traceback__)
    return run.trace(settings, output, raised), raised
