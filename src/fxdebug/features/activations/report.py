"""The report on activations: one row for each module and activation function, with its distribution and its units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fxdebug.data.calls import Note
from fxdebug.data.report import Column, ReportData
from fxdebug.features.shared.records.distributions import Distribution
from fxdebug.features.shared.units.findings import (
    ActivationLimits,
    dead_units,
    dormant_units,
    find_activations,
    inactive_units,
    outlier_channels,
    too_few,
)
from fxdebug.features.shared.units.measured import Activation


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """The results of one module, or of one activation function in its forward, over all batches.

    ``call`` is the id of the first call, and the function after a slash. ``tokens`` is the number of elements of each
    unit. ``zeros`` is the share of exact zeros in %. ``outliers`` counts elements beyond the robust limit, ``channels``
    outlier channels. ``inactive`` units did nothing on any token, ``dead`` ones are those seen often enough to say so,
    ``dormant`` ones do a fortieth of the layer's mean or less. ``saturated`` is the share at a bound in %.
    ``None`` where a number has no meaning for the call, or its elements are all alike.
    """

    call: str
    type: str
    tokens: int | None
    mean: float | None
    std: float | None
    absmax: float | None
    zeros: float
    outliers: int | None
    channels: int | None
    inactive: int | None
    dead: int | None
    dormant: int | None
    saturated: float | None


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("tokens", "tokens", "", "elements of each unit", shown=False),
    Column("mean", "mean"),
    Column("std", "std"),
    Column("absmax", "absmax"),
    Column("zeros", "zeros", "%", "share of exact zeros"),
    Column("outliers", "outliers", "", "elements beyond the robust limit"),
    Column("channels", "channels", "", "outlier channels", shown=False),
    Column("inactive", "inactive", "", "units that did nothing on any token"),
    Column("dead", "dead", "", "inactive units, seen often enough", shown=False),
    Column("dormant", "dormant", "", "units that do next to nothing", shown=False),
    Column("saturated", "at bounds", "%", "share at a bound of sigmoid or tanh"),
)


@dataclass(frozen=True, repr=False)
class ActivationData(ReportData[ActivationRow]):
    """The report on activations, with the distribution of each row, by its path or its ``call``."""

    distributions: Mapping[str, Distribution] = field(default_factory=dict, compare=False)


class _Distributions(dict[str, Distribution]):
    """Distributions by the paths of modules; the id of a first call, ``0#0``, finds the same."""

    def __missing__(self, key: str) -> Distribution:
        path, mark, rest = key.rpartition("#0")
        if mark and path + rest in self:
            return self[path + rest]
        raise KeyError(key)


def activation_report(
    model: str,
    activations: Sequence[Activation],
    *,
    limits: ActivationLimits,
    batches: int,
    notes: Iterable[Note] = (),
) -> ActivationData:
    """Return the report on the activations of a run, in its order."""
    few = max([one.units.samples for one in activations if one.units is not None], default=0)
    rows = tuple(_row(one, limits) for one in activations)
    all_notes = list(notes)
    if any(row.inactive for row in rows) and few < limits.samples:
        all_notes.append(too_few(few, limits))
    if any(one.outliers is None for one in activations):
        all_notes.append(Note("n/a where half of all elements are alike, as behind a ReLU", "outliers"))
    if any(not one.distribution.exact for one in activations):
        all_notes.append(Note("quantiles of several batches or calls are those of bins, each 1/4096 of the range"))
    return ActivationData(
        analysis="activations",
        subject=model,
        columns=COLUMNS,
        rows=rows,
        totals={
            "batches": (batches, ""),
            "elements": (sum(one.distribution.count for one in activations), ""),
            "not finite": (sum(one.distribution.count - one.distribution.finite for one in activations), ""),
        },
        findings=find_activations(activations, limits),
        notes=tuple(all_notes),
        settings=limits.settings(),
        folds=False,
        distributions=_Distributions({one.id: one.distribution for one in activations}),
    )


def _row(one: Activation, limits: ActivationLimits) -> ActivationRow:
    found, units = one.distribution, one.units
    inactive, dead, dormant = inactive_units(one), dead_units(one, limits), dormant_units(one, limits)
    channels = outlier_channels(units, limits)
    bounded = one.function in ("sigmoid", "tanh", "hardsigmoid", "hardtanh")
    return ActivationRow(
        call=one.call,
        type=one.type,
        tokens=None if units is None else units.tokens,
        mean=found.mean,
        std=found.std,
        absmax=found.absmax,
        zeros=100 * found.zeros / max(found.count, 1),
        outliers=None if one.outliers is None else one.outliers[0],
        channels=None if channels is None else int(channels.sum()),
        inactive=None if inactive is None else int(inactive.sum()),
        dead=None if dead is None else int(dead.sum()),
        dormant=None if dormant is None else int(dormant.sum()),
        saturated=100 * units.saturated if bounded and units is not None else None,
    )
