"""``tune``: try settings on copies of a model, and tell which of them bring something, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.api.compare_runs import compare
from fxdebug.api.reports.no_memory import note_if_no_memory
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, fx_debug
from fxdebug.api.trace import Trace
from fxdebug.errors import UsageError
from fxdebug.features.shared.tried_settings.trial import (
    PAIRS,
    Clock,
    Subject,
    TrialRow,
    Trials,
    as_before,
    combined,
    tries_of,
)
from fxdebug.features.shared.tried_settings.verdict import CHANGES, ROUNDING
from fxdebug.features.tune.report import tune_report


def tune(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    knobs: Sequence[str] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Any = None,
    tolerance: float | None = None,
    pairs: int = PAIRS,
    clock: Clock | None = None,
) -> Report[TrialRow]:
    """Try what may make a model faster or smaller, and tell what each change brings, measured, and what it costs.

    Every knob is applied to a copy, and its steps are timed in turn with steps of the model as it is, in ``pairs`` of
    readings (at least 7). The model against itself is the control that sets the noise. A step is the forward; with
    ``loss``, which makes of the output the scalar to differentiate, the backward too; with ``optimizer``, an optimizer
    or a function that makes one of parameters, also its step. ``knobs`` names those to try, instead of all that need
    not be asked for. ``tolerance`` is the change of a result that may be taken, as a share of the largest number of its
    tensor; without one, it is that of rounding. Rows are in three lists, by their ``verdict``.
    ``clock="processor"`` measures the time that processors work for this process, which other work on the machine
    disturbs less, and which tells nothing of threads and of waiting. Without ``clock`` it is that on the wall, and that
    of processors where the first is disturbed too much.
    Afterwards weights, buffers, gradients, threads, modes and random generators are as before.
    Raises ``UsageError`` for a knob that there is not, fewer than 7 pairs, or a loss that is no scalar. An exception of
    the model as it is is passed on; that of a knob refuses the knob.

    >>> import torch, fxdebug
    >>> report = fxdebug.tune(torch.nn.Linear(4, 3), torch.ones(2, 4), knobs=["channels last"])
    >>> report.rows, report.totals["take"][0]
    ((), 'nothing')
    """
    if pairs < 7:
        raise UsageError(f"pairs={pairs}: at least 7, of fewer no interval can be told")
    args, keywords = arguments(inputs, kwargs)
    trials = Trials.of(model, args, keywords, loss, optimizer, pairs=pairs, tolerance=tolerance, clock=clock)
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None), as_before(trials.start):
        tries = tries_of(trials.start, knobs)
        try:
            trials.begin()
        except Exception as error:
            note_if_no_memory(error, lambda: _without_graph(model, args, keywords))
            raise
        rows = []
        for one in tries:
            row, subject = trials.attempt(one)
            if subject is not None and row.verdict == CHANGES and subject.call is None:
                row = replace(row, begins=_begins(trials.base, subject, tolerance) or row.begins)
            rows.append(row)
        kept, gain = combined(trials, rows, tries)
    settings = {
        "threads": torch.get_num_threads(),
        "pairs": trials.pairs,
        "clock": trials.by,
        "step": "forward" + (", backward" if loss else "") + (", optimizer" if optimizer else ""),
    }
    return tune_report(type(model).__name__, rows, trials, kept, gain, settings)


def _without_graph(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Trace:
    with torch.no_grad():
        return fx_debug(model, args, kwargs)


def _begins(base: Subject, other: Subject, tolerance: float | None) -> str:
    """Return the first call whose result differs, by a comparison of two runs; empty where none is told."""
    try:
        traces = []
        for subject in (base, other):
            args, kwargs = subject.inputs()
            with subject.unchanged(), subject.settings():
                traces.append(fx_debug(subject.model, args, kwargs, values="tensors"))
        first = compare(*traces, tolerance=ROUNDING if tolerance is None else tolerance).first
    except Exception:  # a run that cannot be recorded, such as with another form of weights
        return ""
    return "" if first is None else str(first.path or type(base.model).__name__)
