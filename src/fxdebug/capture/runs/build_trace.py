"""Build a trace: start a recording (recorder, parameters, clock), and make the trace of it when the run is over.

Reading order: after ``tensors/value_table``, where the values of a run collect; then ``api/trace``, which gives the
trace its methods.
"""

from __future__ import annotations

import datetime
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from fxdebug.capture.recorder.frame import NO_INPUTS, Site, failure, to_call
from fxdebug.capture.recorder.listeners import Listener, Probe, Stepper
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.runnable_graphs.graphs_of_run import LazyGraphs
from fxdebug.capture.source.source_text import SourceText
from fxdebug.capture.tensors.kept_data import Keeper
from fxdebug.capture.tensors.parameters import Parameters
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import OUTSIDE_FORWARD, Call, Failure, Note, Parameter
from fxdebug.data.trace import NO_OUTPUT, TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.errors import first_line


@dataclass(frozen=True)
class Options:
    """Options of a recording; see :class:`~fxdebug.capture.recorder.recorder.Recorder` and ``Parameters``.

    ``value_listeners`` makes listeners from the model's type and the list of values; a journal needs both.
    """

    keeper: Keeper | None = None
    keep_all: bool = True
    shown: Callable[[Any], str] = repr
    listeners: tuple[Listener, ...] = ()
    no_grad: bool = False
    weights: bool | None = None
    value_listeners: Callable[[str, list[Value]], tuple[Listener, ...]] | None = None
    graph: bool = False
    probe: Probe | None = None
    stepper: Stepper | None = None


@dataclass(slots=True)
class Recording:
    """A recorder, and the other facts that the trace needs."""

    sites: Sites
    recorder: Recorder
    parameters: Parameters | None  # as they were before the run
    started: str
    started_at: float
    inputs: Inputs | None = None  # of a method other than forward, or of a call that is more than the forward
    outputs: Outputs | None = None  # of such a method or call


def start_recording(sites: Sites, options: Options) -> Recording:
    """Start to record runs of the model that ``sites`` belong to."""
    parameters: Parameters | None = None
    failed: Exception | None = None
    try:
        with untracked():
            parameters = Parameters(sites.layout, sites.registered(), options.weights)
    except Exception as error:  # the debugger never breaks the debugged
        failed = error
    recorder = Recorder(
        parameters.names() if parameters is not None else {},
        keeper=options.keeper,
        keep_all=options.keep_all,
        shown=options.shown,
        listeners=options.listeners,
        no_grad=options.no_grad,
        graph=options.graph and internals.missing_for("graphs") is None,
        probe=options.probe,
        stepper=options.stepper,
        before_run=parameters,
        storages=None if parameters is None else parameters.storages(),
    )
    if failed is not None:
        recorder.note(f"parameters were not recorded: {type(failed).__name__}: {first_line(failed)}")
    for note in internals.notes(graph=options.graph):
        recorder.note(note)
    if options.value_listeners is not None:
        listeners = options.value_listeners(sites.root().type, recorder.values.all)
        if listeners:
            recorder.add_listeners(listeners)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return Recording(sites, recorder, parameters, started, time.perf_counter())


def trace_of(
    recording: Recording, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None
) -> TraceData:
    """Return the trace of a run that is over.

    It gets a root above all calls unless the run was one forward of the model itself.
    """
    duration = time.perf_counter() - recording.started_at
    sites, recorder = recording.sites, recording.recorder
    with untracked():
        recorder.values.look_at_awaited()
        recorder.values.finish_stats()
        parameters = _changed_parameters(recording)
    method = str(settings.get("method", "forward"))
    calls = [to_call(frame) for frame in recorder.frames]
    notes = list(recorder.notes)
    outermost = [call for call in calls if call.parent_index is None]
    if method != "forward" or len(outermost) != 1 or outermost[0].path:
        calls, notes = _under_one_root(sites.root(), calls, notes, method, duration, error)
        calls[0] = replace(calls[0], inputs=recording.inputs or NO_INPUTS, outputs=recording.outputs)
    elif recording.inputs is not None:
        calls[0] = _with_call_around(calls[0], recording.inputs, recording.outputs)
    recorder.release()
    shift = len(calls) - len(recorder.frames)
    graphs: LazyGraphs | None = None
    if recorder.tape is not None:
        if recording.parameters is not None:
            recorder.values.refer_by_registration(recording.parameters.registered(sites.registered()))
        graphs = LazyGraphs(sites.model, sites.registered(), recorder.tape, recorder.values, shift)
    return TraceData(
        model=sites.root().type,
        calls=tuple(calls),
        values=tuple(recorder.values.all),
        parameters=parameters,
        modules=dict(sites.modules),
        classes=sites.classes(),
        notes=tuple(notes),
        started=recording.started,
        duration=duration,
        versions=versions(),
        settings=settings,
        graph_source=graphs,
        _output=output,
        _class_of_call={0: sites.root().kind} | {frame.index + shift: frame.site.kind for frame in recorder.frames},
        source_lines=SourceText({call.source for call in calls}),
    )


def _with_call_around(root: Call, inputs: Inputs, outputs: Outputs | None) -> Call:
    """Return the forward of the model with what its caller passed and got, where its call changed these."""
    known = root.inputs if root.given is None else root.given
    returned = root.outputs if root.returned is None else root.returned
    given = root.given if inputs == known else inputs
    return replace(root, given=given, returned=root.returned if outputs == returned else outputs)


def _changed_parameters(recording: Recording) -> tuple[Parameter, ...]:
    before, recorder = recording.parameters, recording.recorder
    try:
        return () if before is None else before.records_after(recording.sites.model, recorder.values)
    except Exception as error:
        recorder.note(f"what became of the parameters was not recorded: {type(error).__name__}: {error}")
        return ()


def _under_one_root(
    site: Site, calls: list[Call], notes: list[Note], method: str, duration: float, error: BaseException | None
) -> tuple[list[Call], list[Note]]:
    """Put a root above calls that have no common one: the method that made them, or the run itself."""
    failed: Failure | None = None
    if error is not None:
        failed = failure(error, here=all(call.error is None for call in calls))
    label = method if method != "forward" else OUTSIDE_FORWARD
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


def versions() -> dict[str, str]:
    """Return the versions in use: of Python, torch and, where they are imported, transformers and numpy."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("transformers", "numpy"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "__version__"):
            found[name] = str(module.__version__)
    return found
