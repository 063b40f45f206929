"""Run a model once: everything that happens until it returns becomes one trace.

Reading order: after ``api/run_model``, which prepares the arguments; then ``runs/attach``, which puts the wrappers on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn

from fxdebug.capture.hooks import patched_functions, thread_origin
from fxdebug.capture.hooks.calls_around import computes_around_forward
from fxdebug.capture.recorder import collectives
from fxdebug.capture.recorder.frame import Site
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.replay.references import ArgumentReferences, references_to
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.build_trace import Options, start_recording, trace_of
from fxdebug.capture.source.tracebacks import without_our_frames
from fxdebug.capture.tape.compiled_regions import CompiledRegions
from fxdebug.capture.tape.run_taped import close_tape
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.torch_state.mode_stack import remove_mode
from fxdebug.capture.torch_state.torch_tracing import is_traced_by_torch
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.torch_state.untracked import closes_untracked
from fxdebug.data.trace import NO_OUTPUT, TraceData
from fxdebug.errors import first_line
from fxdebug.native import core as native_core
from fxdebug.stats.accelerator import captures_graph


class Ran(NamedTuple):
    """A run that is over: its trace, the exception that it raised, if any, and what it returned."""

    trace: TraceData
    raised: BaseException | None
    output: Any


class _OtherThread(threading.local):
    """The state of a thread other than the run's own."""

    is_calling = False  # is it calling the model independently of this run?


class SingleRun:
    """One call of the model, with everything that happens until it returns; an observer of its modules."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        self._sites = Sites(model)
        self._root = self._sites.root()
        self._recording = start_recording(self._sites, options)
        self._recorder = self._recording.recorder
        self._recorder.begin_in_core(self._sites.by_id())
        self.in_core = self._recorder.in_core  # read by the wrapper of each forward
        self._owner = get_ident()
        self._other_thread = _OtherThread()
        self._undo: list[Callable[[], Any]] = []  # the last one is run first

    @uncounted
    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record a forward, unless another thread is using the model independently of this run."""
        site = self._sites.of(module)
        if site is None:
            return run(*args, **kwargs)
        if get_ident() == self._owner:
            return self._recorder.run_call(site, module, run, args, kwargs)
        return self._in_another_thread(site, module, run, args, kwargs)

    @uncounted
    def _in_another_thread(
        self, site: Site, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._other_thread.is_calling:
            return run(*args, **kwargs)
        if not self._is_unrelated(site):
            return self._recorder.run_call(site, module, run, args, kwargs)
        self._other_thread.is_calling = True
        try:
            return run(*args, **kwargs)
        finally:
            self._other_thread.is_calling = False

    @uncounted
    def around_call(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record the changes that hooks make around a whole ``module(...)``."""
        site = self._sites.of(module)
        if site is None or self._other_thread.is_calling or self._is_unrelated(site):
            return run(*args, **kwargs)
        return self._recorder.run_with_hooks(site, run, args, kwargs)

    def wants(self, module: nn.Module) -> bool:
        """Should this call of an unregistered module be recorded?"""
        return not self._other_thread.is_calling and self._attached.wants(module, self._recorder)

    def set_inputs(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note the inputs of a method other than forward, or of a model whose call is more than its forward."""
        self._recording.inputs = self._recorder.inputs_of(args, dict(kwargs))

    def set_outputs(self, output: Any) -> None:
        """Note what such a method or call returned."""
        self._recording.outputs = self._recorder.outputs_of(output)

    def notes_on_compiling(self) -> list[str]:
        """Return what is to be noted where the program compiles what runs."""
        return self._attached.notes()

    def note(self, text: str) -> None:
        """Make a note on the run."""
        self._recorder.note(text)

    def close(self, output: Any, references: int, passed: ArgumentReferences) -> None:
        """Close the tape when the run is over; ``references`` counts those to ``output``, if it is a tensor."""
        tape = self._recorder.tape
        if tape is not None:
            try:
                close_tape(tape, output, references, self._sites.model, passed)
            except Exception as error:
                self._recorder.note(f"what the program keeps was not found out: {type(error).__name__}: {error}")

    def _is_unrelated(self, site: Site) -> bool:
        """Does the call come from a thread that uses the model independently, or traces a model that contains it?

        Such a thread has no call open in this run and was not started in one. It calls the whole model, or a part from
        inside a call of the whole; the model's own worker threads call only parts.
        """
        thread = get_ident()
        if thread == self._owner or not self._recorder.is_idle() or thread_origin.origin(self._recorder) is not None:
            return False
        is_tracing = any(run._owner == thread for run in _open_runs)
        return site is self._root or is_tracing or thread_origin.is_calling(self._sites.model)

    def __enter__(self) -> SingleRun:
        attached, regions = Attached(self, self._sites), CompiledRegions(self._recorder.tape)
        self._attached = attached
        self._undo = [
            attached.__exit__,
            lambda: patched_functions.end(self._recorder),
            lambda: _forget(self),
            regions.end,
            lambda: collectives.end(self._recorder.tape),
            lambda: _switch_off(self._recorder.tape),
        ]
        attached.__enter__()
        patched_functions.begin(self._recorder)
        _open_runs.append(self)
        regions.begin()
        if self._recorder.tape is not None:
            collectives.begin(self._recorder.tape)
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Put everything back. A second call finishes the rest if an interrupt (Ctrl-C) stopped the first."""
        while self._undo:
            try:
                self._undo[-1]()
            except Exception as error:
                self.note(f"something was not put back: {type(error).__name__}: {first_line(error)}")
            self._undo.pop()

    def trace(
        self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None
    ) -> TraceData:
        """Return the trace of the run, when it is over."""
        return trace_of(self._recording, settings, output, error)


_open_runs: list[SingleRun] = []  # in any thread


def _forget(run: SingleRun) -> None:
    _open_runs[:] = [other for other in _open_runs if other is not run]


def _switch_off(tape: Tape | None) -> None:
    while tape is not None and remove_mode(tape) is not None:  # still on only if an interrupt came in between
        pass


@closes_untracked
@uncounted
def run_once(
    target: Callable[..., Any],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: Options,
    settings: Mapping[str, Any],
) -> Ran:
    """Call ``target(*args, **kwargs)`` once, recorded."""
    output: Any = NO_OUTPUT
    raised: BaseException | None = None
    passed = ArgumentReferences((args, kwargs))
    run = SingleRun(model, options)
    try:
        with run:
            for text in (*run.notes_on_compiling(), *native_core.notes()):
                run.note(text)
            if is_traced_by_torch():
                run.note(
                    "this run is captured as a CUDA graph: its calls are not recorded"
                    if captures_graph()
                    else "torch itself traces this run: its calls are not recorded"
                )
            is_more = target is not model or computes_around_forward(model)
            if is_more:
                run.set_inputs(args, kwargs)
            try:
                output = target(*args, **kwargs)
            except BaseException as error:
                raised = error
            if raised is None and options.probe is not None:
                raised = options.probe.error  # the model caught it
            if is_more and raised is None:
                run.set_outputs(output)
            # on a line of its own: as an argument of another call, ``output`` would be referred to once more
            references = references_to(output) if issubclass(type(output), torch.Tensor) else 0
            passed.count_again()
            run.close(output, references, passed)
    finally:
        run.end()
    if raised is not None:
        raised.__traceback__ = without_our_frames(raised.__traceback__)
    return Ran(run.trace(settings, output, raised), raised, output)
