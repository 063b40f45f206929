"""Reports of features on what two compared models or runs hold beside their results, such as gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fxdebug.api.comparison import Comparison
from fxdebug.api.reports.report import Report
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import first_line
from fxdebug.plugins.feature import OURS, Feature
from fxdebug.plugins.features import features, part
from fxdebug.plugins.installed import FAILURES

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Kept:
    """A function that tells of a comparison how what a feature kept of both sides differs, or why it kept nothing."""

    feature: Feature
    tell: Callable[[ComparisonData], ReportData[Any] | None]
    failed: str = ""


def kept_beside(a: nn.Module | TraceData, b: nn.Module | TraceData) -> list[Kept]:
    """Return what features keep of two models or runs before they are compared."""
    looks = [(one, part(one, one.beside)) for one in features() if one.beside]
    return [_kept(one, look, a, b) for one, look in looks if look is not None]


def _kept(feature: Feature, look: Callable[..., Any], a: object, b: object) -> Kept:
    try:
        return Kept(feature, look(a, b))
    except _caught(feature) as error:
        return Kept(feature, lambda comparison: None, _failure(feature, error))


def with_reports(comparison: Comparison, kept: Sequence[Kept]) -> Comparison:
    """Return a comparison with what features tell: ``gradients`` is the report of ours, those of others are notes.

    One of another package that fails is named in a note.
    """
    for each in kept:
        failed, report = each.failed, None
        try:
            report = each.tell(comparison)
        except _caught(each.feature) as error:
            failed = _failure(each.feature, error)
        if report is not None and each.feature.package == OURS:
            comparison = replace(comparison, gradients=Report.of(report))
        elif report is not None or failed:
            told = failed if report is None else f"{report.analysis}: {report.answer}"
            comparison = replace(comparison, notes=(*comparison.notes, told))
    return comparison


def _caught(feature: Feature) -> tuple[type[BaseException], ...]:
    return () if feature.package == OURS else FAILURES


def _failure(feature: Feature, error: BaseException) -> str:
    return f"{feature.name} of {feature.package} failed: {type(error).__name__}: {first_line(error)}"
