"""The weights of a model on inputs: units that are never active, and the variance from block to block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxdebug.data.findings import Finding
from fxdebug.data.report import Column, ReportData
from fxdebug.features.shared.units.findings import (
    ActivationLimits,
    dead_advice,
    dead_severity,
    dead_units,
    inactive_units,
    never_active,
)
from fxdebug.features.shared.units.measured import Activation

FEW_BLOCKS = 4


def read_by(activations: Sequence[Activation]) -> dict[str, Activation]:
    """Return the activation function that first reads each layer's result, by the path of the layer."""
    found: dict[str, Activation] = {}
    for one in activations:
        if one.maker and inactive_units(one) is not None:
            found.setdefault(one.maker, one)
    return found


def silent_count(one: Activation) -> int:
    """Return the number of units that an activation function let through on no token."""
    inactive = inactive_units(one)
    return 0 if inactive is None else int(inactive.sum())


def silent_findings(
    readers: Mapping[str, Activation], types: Mapping[str, str], limits: ActivationLimits
) -> Iterator[Finding]:
    """Yield the layers with dead units; ``readers`` is that of :func:`read_by`, ``types`` are classes by path."""
    for path, one in readers.items():
        dead = dead_units(one, limits)
        if dead is not None and dead.any():
            yield Finding(
                rule="dead unit",
                severity=dead_severity(one, dead),
                path=path,
                call=f"{path}#0",
                op=types.get(path, ""),
                what=f"behind {one.function} {never_active(one, dead)}",
                measured=float(dead.sum()),
                threshold=0.0,
                advice=dead_advice(one, dead),
            )


@dataclass(frozen=True, slots=True)
class SignalRow:
    """The result of one of several blocks in a row: its variance, and that over the variance of the block before."""

    call: str
    type: str
    variance: float
    ratio: float | None


_COLUMNS = (
    Column("call", "block"),
    Column("type", "type"),
    Column("variance", "variance", about="of all elements that the block returns"),
    Column("ratio", "to the one before", about="0.5 to 2 keeps the signal in a deep net (He 2015; Mishkin 2016)"),
)


def signal_report(activations: Sequence[Activation], model: str) -> ReportData[SignalRow] | None:
    """Return how the variance changes over blocks of one class in a row; ``None`` where there are none.

    He et al. 2015 and Mishkin, Matas 2016 (LSUV) keep it between half and twice that of the block before.
    """
    groups: dict[tuple[str, str], list[Activation]] = {}
    for one in activations:
        before, _, last = one.path.rpartition(".")
        if last.isdigit() and one.id == one.path and one.distribution.std is not None:
            groups.setdefault((before, one.type), []).append(one)
    rows: list[SignalRow] = []
    for (before, _), group in groups.items():
        if len(group) < FEW_BLOCKS or any(other and before.startswith(f"{other}.") for other, _ in groups):
            continue
        previous: float | None = None
        for one in sorted(group, key=lambda one: int(one.path.rpartition(".")[2])):
            variance = (one.distribution.std or 0.0) ** 2
            rows.append(SignalRow(one.call, one.type, variance, variance / previous if previous else None))
            previous = variance
    if not rows:
        return None
    return ReportData("weights", model, _COLUMNS, tuple(rows), settings={"by": "block"}, ranked=False, folds=False)
