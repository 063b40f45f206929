"""The gradients of two compared runs, if both have some: report where they differ."""

from __future__ import annotations

from fxdebug.comparison.result import ComparisonData
from fxdebug.data.report import ReportData
from fxdebug.features.gradients.compared.facing import Step, paired_steps
from fxdebug.features.gradients.compared.report import ComparedRow, compared_gradients


def differing_gradients(comparison: ComparisonData, a: Step | None, b: Step | None) -> ReportData[ComparedRow] | None:
    """Return how the gradients of two runs relate, ``None`` where they are equal or not both runs hold some.

    Parameters are paired by their names and by the calls that are pairs. Where each run has parameters that the other
    lacks, as a port with fused weights has, only those that both have are compared.
    """
    if a is None or b is None or not _is_held(a) or not _is_held(b):
        return None
    one, other = paired_steps(a, _renamed(comparison, a, b))
    common = one.gradients.keys() & other.gradients.keys()
    if not common:
        return None
    if one.gradients.keys() - common and other.gradients.keys() - common:
        one, other = (
            Step(
                step.name,
                {name: each for name, each in step.gradients.items() if name in common},
                step.stops,
                step.recomputed,
            )
            for step in (one, other)
        )
    report = compared_gradients(one, other)
    return report if report.findings else None


def _is_held(step: Step) -> bool:
    return any(one.norm is not None for one in step.gradients.values())


def _renamed(comparison: ComparisonData, a: Step, b: Step) -> Step:
    """Return the step of b with the names that parameters have in a, by the calls that are pairs."""
    paths = {
        row.b.call.path: row.a.call.path
        for row in comparison.rows
        if row.op is None and row.a is not None and row.b is not None and row.certain
    }
    gradients = {}
    for name, one in b.gradients.items():
        path, dot, own = name.rpartition(".")
        there = f"{paths.get(path, path)}{dot}{own}"
        gradients[name if name in a.gradients or there not in a.gradients else there] = one
    return Step(b.name, gradients, b.stops, b.recomputed)
