"""What becomes a trace: a recorder, the parameters before and after, the clock."""

from __future__ import annotations

import datetime
import platform
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from fxdebug.capture.recorder.frame import Site, failure, to_call
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.recorder.open_calls import Listener, RunObserver
from fxdebug.capture.recorder.recorder import Recorder
from fxdebug.capture.rerun.graphs_of_run import LazyGraphs
from fxdebug.capture.tensors.parameters import Parameters
from fxdebug.capture.tensors.value_table import Keeper
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Call, Failure, Note, Parameter
from fxdebug.data.trace import NO_OUTPUT, TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.errors import first_line

OUTSIDE = "(outside forward)"  # the method of a root that stands for calls made outside the model's forward


@dataclass(frozen=True)
class Options:
    """How to record; see :class:`~fxdebug.capture.recorder.recorder.Recorder` and ``Parameters``."""

    keeper: Keeper | None = None
    keep_all: bool = True
    shown: Callable[[Any], str] = repr
    listeners: tuple[Listener, ...] = ()
    no_grad: bool = False
    weights: bool | None = None
    watching: Callable[[str, list[Value]], tuple[Listener, ...]] | None = None  # listeners that need the values
    graph: bool = False
    watcher: RunObserver | None = None


class Recording:
    """A recorder with what a trace also needs: the parameters before the run, the clock."""

    def __init__(self, sites: Sites, options: Options) -> None:
        self.sites = sites
        self._parameters: Parameters | None = None
        failed: Exception | None = None
        try:
            with untracked():
                self._parameters = Parameters(sites.layout, sites.registered(), options.weights)
        except Exception as error:  # the debugger never breaks the debugged
            failed = error
        self.recorder = Recorder(
            self._parameters.names() if self._parameters is not None else {},
            keeper=options.keeper,
            keep_all=options.keep_all,
            shown=options.shown,
            listeners=options.listeners,
            no_grad=options.no_grad,
            graph=options.graph and internals.missing_for("graphs") is None,
            watcher=options.watcher,
            unchanged=None if self._parameters is None else self._parameters.stats_before,
        )
        if failed is not None:
            self.recorder.say(f"parameters were not recorded: {type(failed).__name__}: {first_line(failed)}")
        for note in internals.notes():
            self.recorder.say(note)
        watching = () if options.watching is None else options.watching(sites.root().type, self.recorder.values.all)
        if watching:
            self.recorder.listen(watching)
        self.started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self.began = time.perf_counter()
        self.given, self.returned = Inputs(), cast("Outputs | None", None)  # of a method other than forward

    def trace(
        self, settings: Mapping[str, Any], output: Any = NO_OUTPUT, error: BaseException | None = None
    ) -> TraceData:
        """What was recorded. A call that stands for the whole run is put on top where several stand there."""
        duration = time.perf_counter() - self.began
        recorder = self.recorder
        with untracked():
            recorder.values.finish_stats()
            parameters = self._changed_parameters()
        method = str(settings.get("method", "forward"))
        calls = [to_call(frame) for frame in recorder.frames]
        notes = list(recorder.notes)
        tops = [call for call in calls if call.parent_index is None]
        if method != "forward" or len(tops) != 1 or tops[0].path:
            calls, notes = _under_one_root(self.sites.root(), calls, notes, method, duration, error)
            calls[0] = replace(calls[0], inputs=self.given, outputs=self.returned)
        recorder.release()
        live: LazyGraphs | None = None
        if recorder.bodies is not None:
            if self._parameters is not None:
                recorder.values.refer_by_registration(self._parameters.registered(self.sites.registered()))
            shift = len(calls) - len(recorder.frames)
            live = LazyGraphs(self.sites.model, self.sites.registered(), recorder.bodies, recorder.values, shift)
        return TraceData(
            model=self.sites.root().type,
            calls=tuple(calls),
            values=tuple(recorder.values.all),
            parameters=parameters,
            modules=dict(self.sites.modules),
            notes=tuple(notes),
            started=self.started,
            duration=duration,
            versions=versions(),
            settings=settings,
            graph_source=live,
            _output=output,
        )

    def _changed_parameters(self) -> tuple[Parameter, ...]:
        try:
            return (
                ()
                if self._parameters is None
                else self._parameters.records_after(self.sites.model, self.recorder.values)
            )
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


def versions() -> dict[str, str]:
    """What ran: Python, torch and, where they are in use, transformers and numpy."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("transformers", "numpy"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "__version__"):
            found[name] = str(module.__version__)
    return found
