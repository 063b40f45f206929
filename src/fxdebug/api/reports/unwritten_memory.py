"""Memory of ``torch.empty`` that a model reads before it is written, by a run in which that memory is NaN."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from fxdebug.analyses.numbers.dtype_limits import NumberLimits
from fxdebug.analyses.numbers.numerics import check_numerics
from fxdebug.api.run_model import run_and_store
from fxdebug.capture.runs.same_start import deep_copy, state_restored
from fxdebug.data.findings import ERROR, WARNING, Finding
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import UNINITIALISED
from fxdebug.plugins.given import GivenModel
from fxdebug.query.network import network_of
from fxdebug.repair.rerun.replaced_operations import Place, Ran, ReplacedOperations

RULE = "uninitialised"
FINITE = 0.7310  # a number that is not left in memory by chance


def with_unwritten_memory(
    report: ReportData[Finding], trace: TraceData, given: GivenModel, limits: NumberLimits | None
) -> ReportData[Finding]:
    """Return the report on the numbers of a run, with uninitialised memory that what is returned depends on.

    What lies in such memory is mostly finite, and other in every process. Only a model that asks for some runs again.

    >>> import fxdebug, torch
    >>> class Cache(torch.nn.Module):
    ...     def forward(self, x):
    ...         kept = torch.empty(4, 2)
    ...         kept[:3] = x
    ...         return kept.mean(0)
    >>> found = fxdebug.check(Cache(), torch.ones(3, 2)).findings[0]
    >>> found.rule, found.what.partition(" (")[0]
    ('uninitialised', 'its memory is read before all of it is written')
    """
    places = unfilled_places(trace)
    if not places or any(finding.rule == RULE for finding in report.findings):
        return report
    again = _run_with(given, places, math.nan)
    found = [one for one in check_numerics(again, limits=limits).findings if one.rule == RULE and one.output]
    if not found:
        return report
    depends = _returned(_run_with(given, places, FINITE)) != _returned(trace)
    told = tuple([_told(one, depends) for one in found])
    return replace(report, rows=told + report.rows, findings=told + report.findings)


def unfilled_places(trace: TraceData) -> set[Place]:
    """Return the operations of a run that ask for memory of floats without content."""
    return {
        (node.call.index, node.id.rpartition("/")[2])
        for node in network_of(trace).nodes.values()
        if node.op in UNINITIALISED and node.dtype in EPS
    }


def _run_with(given: GivenModel, places: set[Place], number: float) -> TraceData:
    """Run a model with a number in its uninitialised memory."""

    def filled(ran: Ran) -> object:
        return torch.full_like(ran.result, number)  # a tensor of its own, which is measured

    inputs, stepper = deep_copy(given.inputs), ReplacedOperations(dict.fromkeys(places, filled))
    with state_restored(given.module):
        return run_and_store(given.model, inputs, given.kwargs, weights=False, stepper=stepper)


def _returned(trace: TraceData) -> list[Stats | None]:
    return [value.stats for value in trace.root.outputs or ()]


def _told(finding: Finding, depends: bool) -> Finding:
    """Return what was found without the number that was put there."""
    used = finding.what.partition(": it holds ")[2].partition(", and ")[2]
    then = "what is returned depends on what was left there" if depends else "a NaN that was left there is returned"
    what = f"its memory is read before all of it is written ({used}): {then}"
    return replace(finding, what=what, severity=ERROR if depends else WARNING, value=None, inputs=())
