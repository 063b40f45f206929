"""What a twin run in a wider dtype tells, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fxdebug.analyses.findings import Finding
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value

_SHOWN = 5
_T = TypeVar("_T", bound=TraceData)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, or a call whose operations are not known: the relative error of its result, and of what it got.

    ``growth`` is the error over the larger of ``inherited`` and one rounding of the dtype. ``ratio`` is
    |out| / (|a| + |b|) of a sum or difference: how much of the operands is left.
    """

    node: str
    path: str
    call: str
    op: str
    source: str | None
    error: float
    inherited: float
    growth: float
    value: Value | None = None
    inputs: tuple[Value, ...] = ()
    ratio: float | None = None


@dataclass(frozen=True)
class Shadow(Generic[_T]):
    """What a twin run in ``dtype`` tells: ``rows`` in execution order, ``findings`` where digits were lost.

    ``error`` is the relative error of what the model returned, ``None`` where that could not be compared.
    ``calls`` has that of every call, by its id, in execution order; ``layers`` those that show its growth.
    ``trace`` is the native run.
    """

    trace: _T
    dtype: str
    error: float | None = None
    rows: tuple[Row, ...] = ()
    calls: Mapping[str, float] = field(default_factory=dict)
    layers: tuple[tuple[str, float], ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> Row | None:
        """The operation at which the error grows most; ``None`` when nothing could be compared."""
        return max(self.rows, key=lambda row: row.growth, default=None)

    def __str__(self) -> str:
        return _text(self)


def _text(shadow: Shadow[_T]) -> str:
    """The findings, where the error grows most, and the error after each layer of the model."""
    error = "not compared" if shadow.error is None else f"{shadow.error:.1e}"
    lines = [f"{shadow.trace.model} against its {shadow.dtype} twin: the relative error of the result is {error}"]
    lines += [str(finding) for finding in shadow.findings] or ["no operation loses digits"]
    lines.append("the error grows most at")
    for row in sorted(shadow.rows, key=lambda row: -row.growth)[:_SHOWN]:
        where = "" if row.source is None else f"  {row.source.rpartition('/')[2]}"
        lines.append(f"  {row.inherited:.1e} → {row.error:.1e}  {row.node}{where}")
    lines.append("by depth")
    lines += [f"  {error:.1e}  {id}" for id, error in shadow.layers]
    return "\n".join([*lines, *shadow.notes])
