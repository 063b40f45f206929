"""``profile``: time a model, per call and operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.api.reports.failed_report import remember
from fxdebug.api.reports.no_memory import note_if_no_memory
from fxdebug.api.reports.report import Report
from fxdebug.api.run_model import arguments, fx_debug, last_failed
from fxdebug.api.trace import Trace
from fxdebug.capture.probe import members
from fxdebug.data.measured.timings import Timings
from fxdebug.errors import UsageError
from fxdebug.features.profile.findings import Limits, findings_of
from fxdebug.features.profile.machine_peak import machine_peak
from fxdebug.features.profile.report import Items, ProfileRow, forward_share, items_of, profile_report, profiles
from fxdebug.features.profile.surroundings import surroundings
from fxdebug.features.profile.tried import tried as try_findings
from fxdebug.features.shared.times import timed_runs
from fxdebug.features.shared.tried_settings.trial import Trials, trials_part
from fxdebug.plugins.given import GivenModel

ON_META = "the model is on the meta device, where nothing is computed"


def profile(
    model: nn.Module,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    repeats: int = 20,
    warmup: int = 3,
    items: tuple[int, str] | None = None,
    peak: bool = True,
    limits: Limits | None = None,
    tried: bool = False,
) -> Report[ProfileRow]:
    """Time a model: every call and operation, forward, and backward where ``loss`` is given.

    The model runs once traced, to know what it computes, and then ``warmup + 3 · repeats`` times without a trace, from
    the same random numbers, buffers and inputs: plainly, with calls timed, with operations timed. Times are in
    seconds, medians of the repeats; that of a call with all calls in it is the sum of theirs. ``loss`` makes of the
    output the scalar to differentiate. ``items`` is the number of items of one run and their unit, such as
    ``(64, "tokens")``, where they are not those inferred from the inputs. ``peak=False`` does not measure the machine's
    peak (0.2 s, once), and so does not say what bounds a call. ``limits`` are the thresholds of the findings
    (:class:`fxdebug.features.profile.findings.Limits`).
    With ``tried``, what findings advise is tried on a copy, where a setting does it: a finding is kept with the gain
    that was measured, or withdrawn; ``report.parts`` has the trials. Other findings are questions to the code.
    Afterwards parameters, gradients, buffers and random generators are as before. A model on the meta device has
    operations and bytes, and no times.
    Raises ``UsageError`` for a loss that is no scalar. An exception of the model or of the loss is passed on;
    :func:`last_failed_report` then has what was measured until then.

    >>> import torch, fxdebug
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    >>> report = fxdebug.profile(model, torch.ones(8, 64), repeats=3, peak=False)
    >>> sorted(row.call for row in report.rows), report.parts[0].rows[0].count
    (['0#0', '1#0', 'Sequential#0'], 1)
    """
    if repeats < 1 or warmup < 0:
        raise UsageError(f"repeats={repeats}, warmup={warmup}: at least one repeat, and no negative number")
    args, keywords = arguments(inputs, kwargs)
    runs = timed_runs.TimedRuns(model, model, args, keywords, loss)
    on_meta = runs.device.type == "meta"
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None):
        trace, raised = _traced(model, runs)
        timings = Timings(missing=ON_META)
        if not on_meta:
            timings, stopped = runs.run(repeats, warmup) if raised is None else runs.run(1, 0)
            raised = raised or stopped
    around = surroundings(model, args, keywords, runs.device, loss if raised is None else None)
    dtype = next((p.dtype for p in members.parameters_of(model) if p.dtype.is_floating_point), torch.float32)

    def report() -> Report[ProfileRow]:
        calls = profiles(trace, timings)
        found = findings_of(
            trace,
            calls,
            Limits() if limits is None else limits,
            min(timings.plain, default=math.inf) / 1e9,
            around,
            forward_share(timings),
        )
        data = profile_report(
            trace,
            timings,
            calls,
            peak=machine_peak(runs.device, dtype) if peak and not on_meta else None,
            settings={
                "repeats": repeats,
                "device": str(runs.device),
                "dtype": str(dtype)[6:],
                "threads": torch.get_num_threads(),
            },
            items=items_of(trace) if items is None else Items(*items),
            findings=tuple([finding for _, finding in found]),
        )
        if tried and raised is None and not on_meta:
            trials = Trials.of(model, args, keywords, loss)
            kept, rows, notes = try_findings(found, trials)
            part = [trials_part(trace.model, rows)] if rows else []
            data = replace(data, findings=tuple(kept), notes=(*data.notes, *notes), parts=(*data.parts, *part))
        return Report.of(data)

    if raised is not None:
        remember(report)
        note_if_no_memory(raised, lambda: trace)
        raise raised
    with torch.set_grad_enabled(torch.is_grad_enabled() or loss is not None):
        return report()


def _traced(model: nn.Module, runs: timed_runs.TimedRuns) -> tuple[Trace, Exception | None]:
    """Run a model once traced; return the trace, of the run until then where the model raised, and its exception."""
    before = last_failed()
    try:
        with runs.unchanged():
            return fx_debug(model, *runs.inputs()), None
    except Exception as error:
        trace = last_failed()
        if trace is None or trace is before:
            raise
        return trace, error


REPEATS = 5  # timed runs, where ``check`` was asked for a profile


def on_model(given: GivenModel, limits: Limits) -> Report[ProfileRow]:
    """Answer ``check`` about a model."""
    found = profile(given.module, given.inputs, given.kwargs, loss=given.loss, repeats=REPEATS, limits=limits)
    return Report.of(replace(found, answer=""))  # what takes the time is not the first thing to say of a model
