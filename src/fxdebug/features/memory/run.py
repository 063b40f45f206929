"""``memory``: follow the memory of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from fxdebug.api.reports.failed_report import remember
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments
from fxdebug.capture.probe import members
from fxdebug.data.calls import Note
from fxdebug.data.measures import Unit, quantity
from fxdebug.data.report import Cell
from fxdebug.errors import UsageError
from fxdebug.features.memory.estimate import estimated_peak, measured_peak
from fxdebug.features.memory.following.followed_run import run_with_memory
from fxdebug.features.memory.other_sizes import OtherSizes
from fxdebug.features.memory.record import Fit
from fxdebug.features.memory.report import MemoryRow, memory_report
from fxdebug.features.memory.tried import tried as try_settings
from fxdebug.features.memory.what_fits import what_fits
from fxdebug.features.shared.times import timed_runs
from fxdebug.features.shared.tried_settings.trial import TrialRow, Trials, trials_part
from fxdebug.operators.dtypes import bytes_of


class Other(TypedDict, total=False):
    """Another batch size, or another dtype, to estimate the memory for."""

    batch: int
    dtype: torch.dtype


def memory(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    steps: int = 1,
    estimate: Other | None = None,
    limit: int | None = None,
    tried: bool = False,
) -> Report[MemoryRow]:
    """Follow the memory of a run: bytes of every call by their use, the peak and what was alive then, leaks.

    Sizes are bytes of storages as torch asks for them, parameters and inputs included; memory inside of a kernel is
    not seen. With ``loss``, which makes of the output the scalar to differentiate, the backward is followed too. With
    ``steps`` of 3 or more, memory that stays after each step is a finding, with what refers to it. ``estimate``, such
    as ``{"batch": 32, "dtype": torch.bfloat16}``, also estimates the peak of such a run, from a second run with another
    batch, and states the error that the same estimate has for a third run; the batch is the first size of the first
    tensor. Afterwards parameters, gradients, buffers and random generators are as before; what the model keeps of its
    own accord stays.
    With more than ``limit`` bytes the run ends in ``torch.OutOfMemoryError``, as on a device that has no more. Then, as
    where a device runs out, the report of :func:`last_failed_report` says which operation asked for how much, what was
    alive, and whether a smaller batch, bfloat16 or a run without gradients would fit: estimated from runs of a few
    items, the batch also tried.
    Raises ``UsageError`` for a loss that is no scalar. An exception of the model or of the loss is passed on;
    :func:`last_failed_report` then has what was measured until then.

    >>> import torch, fxdebug
    >>> report = fxdebug.memory(torch.nn.Linear(4, 3), torch.ones(2, 4), estimate={"batch": 100})
    >>> report.totals["peak"], report.rows[0].outputs  # 15 parameters, 8 inputs, 6 outputs, 4 bytes each
    ((116, 'B'), 24)
    >>> report.totals["estimate for batch 100"], report.totals["error of the estimate"]
    ((2860, 'B'), (0.0, '%'))
    """
    if steps < 1:
        raise UsageError(f"steps={steps}: at least one")
    if limit is not None and limit < 1:
        raise UsageError(f"limit={limit}: give bytes, at least 1")
    if estimate is not None and (estimate.keys() - {"batch", "dtype"} or estimate.get("batch", 1) < 1):
        raise UsageError(f"estimate={estimate!r}: give a batch of at least 1, a dtype, or both")
    args, keywords = arguments(inputs, kwargs)
    runs = timed_runs.TimedRuns(model, model, args, keywords, loss)
    estimated: dict[str, tuple[Cell, Unit]] = {}
    notes: list[Note] = []
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None), runs.unchanged() as restore:
        record, raised = run_with_memory(model, args, keywords, loss, steps, limit)
        if estimate is not None and raised is None:
            others = OtherSizes(model, args, keywords, loss)
            try:
                estimated, told = _estimated(others, estimate)
            except UsageError as error:
                told = f"n/a, {error}"
            notes.append(Note(f"estimate: {told}"))
        fits: tuple[Fit, ...] = ()
        if raised is not None and record.refused is not None:
            room = record.refused.alive if record.refused.limit is None else record.refused.limit
            kept = loss is None and torch.is_grad_enabled()
            restore()  # the gradients that there were, and not those of half a backward
            fits = tuple(what_fits(OtherSizes(model, args, keywords, loss), room, kept))
        rows: list[TrialRow] = []
        if tried and raised is None:
            rows, told_of = try_settings(Trials.of(model, args, keywords, loss))
            notes += told_of
    types = {path: type(module).__name__ for path, module in members.named_modules_of(model)}
    settings: dict[str, Cell] = {
        "steps": steps,
        "device": str(runs.device),
        "backward": loss is not None,
    }

    def report() -> Report[MemoryRow]:
        data = memory_report(record, type(model).__name__, types, settings, estimated, notes, fits)
        return Report.of(replace(data, parts=(*data.parts, trials_part(data.subject, rows))) if rows else data)

    if raised is not None:
        remember(report)
        raise raised
    return report()


def _estimated(others: OtherSizes, wanted: Other) -> tuple[dict[str, tuple[Cell, Unit]], str]:
    """Return the estimated peak for another batch or dtype, its error in a run of a third size, and a note on that."""
    dtype, batch, own = wanted.get("dtype"), wanted.get("batch"), others.batch
    if batch is not None and own is None:
        raise UsageError("no input has a batch: there is no tensor with a first size")
    sizes, checked = [own or 0], own or 0
    if batch is not None and own is not None:
        sizes = [2, 4] if own == 1 else [own, own // 2 if own > 3 else 2 * own]  # 1 is special: sizes of 1 go away
        checked = sum(sizes)
    known = [(size, others.run(size or None)) for size in sizes]
    sizes_of_dtypes = {name: bytes_of(name, ()) for name in others.dtypes()}
    scale = {} if dtype is None else {name: dtype.itemsize / size for name, size in sizes_of_dtypes.items() if size}
    peak = estimated_peak(known, batch or sizes[0], scale)
    guess, truth = estimated_peak(known, checked, scale), measured_peak(others.run(checked or None, dtype))
    words = [f"batch {batch}"] * (batch is not None) + [str(dtype)[6:]] * (dtype is not None)
    totals: dict[str, tuple[Cell, Unit]] = {
        f"estimate for {', '.join(words)}": (peak, "B"),
        "error of the estimate": (100 * (guess / truth - 1) if truth else None, "%"),
    }
    where = f"batch {checked}" + (f" in {str(dtype)[6:]}" if dtype is not None else "")
    return totals, f"checked in a run with {where}: {quantity(guess, 'B')} estimated, {quantity(truth, 'B')} measured"
