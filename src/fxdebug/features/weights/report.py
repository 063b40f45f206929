"""The report about the weights of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fxdebug.data.calls import Note
from fxdebug.data.findings import ERROR, WARNING, Finding
from fxdebug.data.measures import PARAMETER, Unit, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.shared.units.findings import ActivationLimits, too_few
from fxdebug.features.shared.units.measured import Activation
from fxdebug.features.weights.initialisation import (
    OWN,
    Drawn,
    Initialisation,
    WeightLimits,
    initialisation_of,
    is_drawn,
)
from fxdebug.features.weights.on_inputs import read_by, signal_report, silent_count, silent_findings
from fxdebug.features.weights.record import UnreadWeight, WeightFacts

SPECTRAL = register("weight.spectral_norm", "", "largest singular value of the weight as a matrix", [PARAMETER])
RANK = register("weight.stable_rank", "", "squared Frobenius norm over the squared spectral norm", [PARAMETER])
INIT = register("weight.init_ratio", "", "standard deviation over that of the scheme it was drawn by", [PARAMETER])

NAMED = 12  # dead units that a finding names


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One parameter or buffer. ``scheme`` is the initialisation that it looks like, ``None`` for a trained one.

    ``ratio`` is its standard deviation over the scheme's. ``dead`` counts output units whose weights are all 0,
    ``silent`` those that the activation function behind them let through on no token of the inputs; ``None`` where
    the model did not run, or no such function follows.
    """

    name: str
    type: str
    shape: str
    dtype: str
    elements: int
    mean: float | None
    std: float | None
    largest: float | None
    zeros: float
    spectral_norm: float | None
    stable_rank: float | None
    dead: int
    silent: int | None
    scheme: str | None
    ratio: float | None


COLUMNS = (
    Column("name", "weight"),
    Column("type", "type", shown=False),
    Column("shape", "shape", shown=False),
    Column("dtype", "dtype", shown=False),
    Column("elements", "elements", adds=True, shown=False),
    Column("mean", "mean", shown=False),
    Column("std", "std", about="standard deviation of the elements"),
    Column("largest", "largest", about="largest element by magnitude", shown=False),
    Column("zeros", "zeros", "%", "elements that are 0"),
    Column("spectral_norm", "spectral", about="largest singular value"),
    Column("stable_rank", "rank", about="stable rank: squared Frobenius norm over squared spectral norm"),
    Column("dead", "dead", about="output units whose weights are all 0", adds=True),
    Column("silent", "silent", about="output units that were never active on the inputs", adds=True),
    Column("scheme", "drawn by"),
    Column("ratio", "std/drawn", about="standard deviation over the scheme's", shown=False),
)


def weights_report(
    facts: Sequence[WeightFacts],
    model: str,
    *,
    drawn: Drawn | None = None,
    fresh: bool | None = None,
    limits: WeightLimits | None = None,
    unread: Sequence[UnreadWeight] = (),
    on_inputs: Sequence[Activation] | None = None,
    notes: Sequence[Note] = (),
) -> ReportData[WeightRow]:
    """Return the weights of a model with findings; ``drawn``, ``fresh`` and ``limits`` as in ``initialisation_of``.

    ``on_inputs`` is what the model's modules and activation functions returned, where it ran.
    """
    limits = WeightLimits() if limits is None else limits
    start = initialisation_of(facts, drawn or Drawn(), fresh, limits)
    unit_limits = ActivationLimits()
    readers = read_by(on_inputs or ())
    rows = tuple([_row(weight, start, readers) for weight in facts])
    parameters = [weight for weight in unread if weight.kind == "parameter"]
    elements = sum(weight.stats.count for weight in facts if weight.kind == "parameter")
    elements += sum(weight.elements or 0 for weight in parameters)
    trained = sum(w.stats.count for w in facts if w.kind == "parameter" and w.requires_grad)
    trained += sum(weight.elements or 0 for weight in parameters if weight.requires_grad)
    unknown = [weight for weight in parameters if weight.elements is None]
    totals: dict[str, tuple[Cell, Unit]] = {
        "elements of parameters": (elements if elements or not unknown else None, ""),
        "  that ask for gradients": (trained, ""),
        "state": (_state_of(start) if any(map(is_drawn, facts)) else None, ""),
    }
    told = list(notes)
    if on_inputs is not None:
        seen = [one.units for one in readers.values() if one.units is not None]
        tokens = max([units.tokens for units in seen], default=0)
        totals["tokens seen"] = (tokens if seen else None, "")
        if not seen:
            told.append(Note("tokens seen: n/a, there is no activation function behind a layer"))
        few = max([units.samples for units in seen], default=0)
        if few < unit_limits.samples and any(map(silent_count, readers.values())):
            told.append(too_few(few, unit_limits))
    if unread:
        some = ", ".join(weight.name for weight in unread[:3]) + (", …" if len(unread) > 3 else "")
        told.append(Note(f"missing here, without data or arithmetic, or packed by quantisation: {some}"))
    signal = signal_report(on_inputs or (), model)
    return ReportData(
        analysis="weights",
        subject=model,
        columns=COLUMNS,
        rows=rows,
        totals=totals,
        findings=(
            *_not_finite(facts),
            *_off(facts, start, limits),
            *_dead(facts),
            *silent_findings(readers, {weight.path: weight.type for weight in facts}, unit_limits),
        ),
        notes=tuple(told),
        measures={
            SPECTRAL.name: {row.name: row.spectral_norm for row in rows if row.spectral_norm is not None},
            RANK.name: {row.name: row.stable_rank for row in rows if row.stable_rank is not None},
            INIT.name: {row.name: row.ratio for row in rows if row.ratio is not None},
        },
        parts=() if signal is None else (signal,),
        histograms={weight.name: weight.histogram for weight in facts if weight.histogram.counts},
        ranked=False,
        at_least=(
            *(["elements of parameters"] if unknown and elements else []),
            *(["  that ask for gradients"] if any(weight.requires_grad for weight in unknown) else []),
        ),
    )


def _state_of(start: Initialisation) -> str:
    return "as initialised" if start.fresh else "trained, or drawn by a scheme of its own"


def _row(weight: WeightFacts, start: Initialisation, readers: Mapping[str, Activation]) -> WeightRow:
    reader = readers.get(weight.path) if weight.name.rpartition(".")[2] == "weight" else None
    stats, fit = weight.stats, start.fits.get(weight.name, start.off.get(weight.name))
    off = weight.name in start.off
    return WeightRow(
        name=weight.name,
        type=weight.type,
        shape="×".join(map(str, weight.shape)) or "1",
        dtype=weight.dtype,
        elements=stats.count,
        mean=stats.mean if isinstance(stats.mean, (int, float)) else None,
        std=stats.std,
        largest=None if stats.absmax is None else float(stats.absmax),
        zeros=100 * stats.zeros / stats.count if stats.count else 0.0,
        spectral_norm=None if weight.spectrum is None else weight.spectrum.norm,
        stable_rank=None if weight.spectrum is None else weight.spectrum.stable_rank,
        dead=len(weight.zero_outputs),
        silent=None if reader is None else silent_count(reader),
        scheme=None if fit is None or not start.fresh else f"not {fit.scheme.name}" if off else fit.scheme.name,
        ratio=None if fit is None or not start.fresh else fit.ratio,
    )


def _not_finite(facts: Sequence[WeightFacts]) -> Iterator[Finding]:
    for weight in facts:
        bad = weight.stats.count - weight.stats.finite
        if bad and weight.kind == "parameter":
            yield Finding(
                rule="weight not finite",
                severity=ERROR,
                path=weight.path,
                call=f"{weight.path}#0",
                op=weight.type,
                what=f"{bad} of {weight.stats.count} elements of {weight.name} are NaN or infinite",
                measured=float(bad),
                threshold=0.0,
                advice="Load the weights again, and look for the training step that wrote them.",
            )


def _off(facts: Sequence[WeightFacts], start: Initialisation, limits: WeightLimits) -> Iterator[Finding]:
    for weight in facts:
        fit = start.off.get(weight.name)
        if fit is not None:
            others = "" if fit.scheme.name == OWN else ", by which the model's other weights were drawn"
            yield Finding(
                rule="initialisation",
                severity=WARNING,
                path=weight.path,
                call=f"{weight.path}#0",
                op=weight.type,
                what=f"{weight.name} has standard deviation {weight.stats.std:.3g}, {fit.ratio:.2f} times that of "
                f"{fit.scheme.name} ({fit.scheme.std:.3g}){others}",
                measured=fit.ratio,
                threshold=1 + limits.ratio,
                advice="Draw it by this scheme, if the difference is not meant.",
            )


def _is_table(weight: WeightFacts, facts: Sequence[WeightFacts]) -> bool:
    """Is it a parameter of a module around others, as a table of places is, and not known to be a matrix of a layer?"""
    inside = f"{weight.path}." if weight.path else ""
    around = any(other.path != weight.path and other.path.startswith(inside) for other in facts)
    return around and "weight" not in weight.name.rpartition(".")[2]


def _dead(facts: Sequence[WeightFacts]) -> Iterator[Finding]:
    """Units of which all weights are 0, in a layer where others are not."""
    for weight in facts:
        for units, whole, text, advice in (
            (weight.zero_outputs, weight.shape[0] if weight.shape else 0, "with only zero weights", "Their"
             " outputs are constant: look for a mask, pruning, or a copy that was not complete."),
            (weight.zero_inputs, 0, "read by no unit", "Their values are lost here: look for a mask, "
             "pruning, or a copy that was not complete."),
        ):  # fmt: skip
            if not units or weight.kind != "parameter" or _is_table(weight, facts):
                continue
            kind = "output unit" if whole else "input"
            count = f"{len(units)} {kind}" + ("" if len(units) == 1 else "s")
            named = ", ".join(map(str, units[:NAMED])) + (", …" if len(units) > NAMED else "")
            yield Finding(
                rule="dead unit" if whole else "unread input",
                severity=WARNING,
                path=weight.path,
                call=f"{weight.path}#0",
                op=weight.type,
                what=f"{weight.name} has {count} {text}: {named}",
                measured=float(len(units)),
                threshold=0.0,
                advice=advice,
            )
