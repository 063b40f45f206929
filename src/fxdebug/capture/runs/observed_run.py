"""Run a model with a function that gets every result when it is made, and find the node of each in the graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import nn

from fxdebug.capture.graphs.to_fx import fx_build_of
from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.runnable_graphs.graphs_of_run import LazyGraphs
from fxdebug.capture.runs.build_trace import Options
from fxdebug.capture.runs.run_once import run_once
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.data.calls import Call
from fxdebug.data.values import Value

Place: TypeAlias = "tuple[int, int]"
"""The number of a call in its run, and the position of an operation in it; -1 for what the call returned."""


class _Look:
    """A probe that hands every result on, but for views: they have the numbers of their base."""

    def __init__(self, look: Callable[[Place, str, Any], None]) -> None:
        self.error: BaseException | None = None
        self.frames: list[Frame] = []
        self._look = look

    def begin(self, frames: list[Frame]) -> None:
        self.frames = frames

    def after_op(self, call_tape: CallTape, entry: TapeEntry, operands: list[Value], result: Any) -> None:
        storages = {value.storage for value in operands}
        if entry.writes or all(value.storage not in storages for value in entry.values):
            name = str(getattr(entry.what, "__name__", type(entry.what).__name__))
            self._look((call_tape.index, len(call_tape.entries) - 1), name, result)

    def after_call(self, frame: Frame, output: Any) -> None:
        self._look((frame.index, -1), frame.site.path, output)


class ObservedRun:
    """One recorded run of a model in which ``look`` is given the place, the name and the result of each operation.

    The name of what a call returns is the path of its module. Results are the model's own: ``look`` must not write to
    them. ``trace`` is the run and ``raised`` what the model raised. ``weights=False`` leaves out their statistics.

    >>> import torch
    >>> seen = []
    >>> run = ObservedRun(nn.ReLU(), (torch.ones(2),), {}, {}, lambda place, name, result: seen.append((place, name)))
    >>> seen, run.nodes(run.trace.calls[0])
    ([((0, 0), 'relu'), ((0, -1), '')], {'relu': (0, 0)})
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        settings: Mapping[str, Any],
        look: Callable[[Place, str, Any], None],
        *,
        weights: bool | None = None,
    ) -> None:
        probe = _Look(look)
        options = Options(graph=True, probe=probe, weights=weights)
        self.trace, self.raised, _ = run_once(model, model, args, kwargs, options, settings)
        self._shift = len(self.trace.calls) - len(probe.frames)

    def place(self, call: Call) -> Place:
        """Return the place of what a call returned."""
        return call.index - self._shift, -1

    def call(self, place: Place) -> Call:
        """Return the call of a place."""
        return self.trace.calls[place[0] + self._shift]

    def nodes(self, call: Call) -> dict[str, Place]:
        """Return the places of the nodes of a call's graph by their names; none where it is not verified."""
        graphs = self.trace.graph_source
        verified = graphs.verified_call(call.index) if isinstance(graphs, LazyGraphs) else None
        if verified is None or verified.template is None:
            return {}
        entries = fx_build_of(verified.template).entry_of
        return {node.name: (call.index - self._shift, position) for node, position in entries.items()}
