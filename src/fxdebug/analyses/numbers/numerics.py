"""Collect all findings on the numbers of a run (``trace.check()``)."""

from __future__ import annotations

from dataclasses import replace

from fxdebug.analyses.numbers import dtype_limits
from fxdebug.analyses.numbers.findings import Checked, findings_report, worst_first
from fxdebug.analyses.numbers.lineage import NodeResults, is_operation
from fxdebug.analyses.numbers.nan_origins import NonFiniteOrigins
from fxdebug.data.findings import ERROR, Finding
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.query.network import network_of


def check_numerics(
    trace: TraceData, *, tensors: bool = True, limits: dtype_limits.NumberLimits | None = None
) -> ReportData[Finding]:
    """Return a report with all findings on the numbers of a run, worst first.

    Every operation that made NaN or infinities from finite numbers is named; operations that only pass them on are
    counted. Intended infinities (masks, ``masked_fill``, an infinity written as a number) are no findings. Further
    findings: overflow and underflow by the limits of each dtype, cancellation, and as advice numbers too large for
    float16. Works on statistics, also of a loaded or partial trace; without graphs it names calls instead of
    operations. ``tensors``: also count subnormal numbers in the tensors that the run kept; this reads them and needs
    torch. ``limits`` are the thresholds of the findings.

    >>> import torch, fxdebug
    >>> from torch import nn
    >>> trace = fxdebug.fx_debug(nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), torch.tensor([1.0, float("nan")]))
    >>> [(finding.kind, finding.severity, finding.node) for finding in check_numerics(trace).findings]
    [('input', 'error', 'Sequential#0/input_1')]
    """
    limits = dtype_limits.NumberLimits() if limits is None else limits
    net = network_of(trace)
    results = NodeResults(net)
    position = {id: node.position for id, node in net.nodes.items()}
    nonfinite = NonFiniteOrigins(trace, results)
    made = _of_one_line(list(nonfinite.findings()))
    findings = [*made, *dtype_limits.check_limits(trace, results, limits, tensors=tensors)]
    settings = {"tensors": tensors}
    return findings_report(trace.model, worst_first(findings, position), _coverage(trace, results), settings)


def _of_one_line(findings: list[Finding]) -> list[Finding]:
    """Return findings in which the first operation of a line is as grave as a later one of that line.

    A layer that runs several times makes NaN in the same way, and it begins with its first one, though what that
    spoils may be left out of the result.
    """
    grave = {(one.rule, one.op, one.source) for one in findings if one.output and one.source}
    first: dict[tuple[str, str | None, str | None], Finding] = {}
    for one in findings:
        first.setdefault((one.rule, one.op, one.source), one)
    return [
        replace(one, severity=ERROR) if key in grave and first[key] is one else one
        for one in findings
        for key in [(one.rule, one.op, one.source)]
    ]


def _coverage(trace: TraceData, results: NodeResults) -> Checked:
    net = results.net
    operations = [node for node in net.nodes.values() if is_operation(net, node) and node.kind != "call_module"]
    values = {value.number: value for node in net.nodes.values() for value in results.outputs(node)}
    unmeasured = sum(value.stats is None and value.layout != "" for value in values.values())
    notes = []
    if trace.graph_source is None:
        notes.append("The run has no graphs (graph=False, or it was cut short): calls are named, not operations.")
    else:
        opaque = sum(call.status == "opaque" for call in trace.calls)
        if opaque:
            notes.append(f"{opaque} calls are opaque: they are named, not the operations inside them.")
    if trace.error is not None:
        notes.append(f"The run raised {trace.error.type}: this is what happened until then.")
    return Checked(len(operations), len(trace.calls), unmeasured, tuple(notes))
