"""The report about the gradients of one step: per call, and per parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxdebug.data.calls import Note
from fxdebug.data.findings import at_root_of
from fxdebug.data.measures import CALL, PARAMETER, Unit, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.shared.gradients.clipping import clipping_advice
from fxdebug.features.shared.gradients.rules import Limits, findings_of, structurally_zero
from fxdebug.features.shared.records.gradients import GradientRecord, ParameterGradient, ResultGradient

NORM = register("grad.norm", "", "2-norm of the gradient: of what a call returned, of a parameter", [CALL, PARAMETER])
RMS = register("grad.rms", "", "root mean square of the gradient's elements", [CALL, PARAMETER])
ZEROS = register("grad.zeros", "%", "share of the gradient's elements that are 0", [CALL, PARAMETER])
TINY = register("grad.tiny", "%", "share below the smallest normal number of the dtype", [CALL, PARAMETER])
UPDATE = register("update.ratio", "", "2-norm of the optimizer's change over that of the weight", [PARAMETER])


@dataclass(frozen=True, slots=True)
class GradientRow:
    """The gradient of one tensor that a call returned; ``None`` where the backward did not reach it."""

    call: str
    type: str
    place: str
    shape: str
    norm: float | None
    rms: float | None
    largest: float | None
    zeros: float | None
    tiny: float | None


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """The gradient of one parameter. ``agc`` is the gradient's norm over the weight's (Brock et al. 2021 clip at 0.01).

    ``state``: ``trained``, ``structurally zero``, or the reason why there is no gradient.
    """

    name: str
    state: str
    shape: str
    norm: float | None
    rms: float | None
    zeros: float | None
    tiny: float | None
    weight: float
    agc: float | None
    update: float | None


COLUMNS = (
    Column("call", "call"),
    Column("type", "type"),
    Column("place", "result", shown=False),
    Column("shape", "shape", shown=False),
    Column("norm", "norm", about="2-norm of the gradient of what the call returned"),
    Column("rms", "rms", about="root mean square of the gradient's elements"),
    Column("largest", "largest", about="largest element by magnitude", shown=False),
    Column("zeros", "zeros", "%", "elements that are 0"),
    Column("tiny", "tiny", "%", "elements below the smallest normal number of the dtype"),
)
PARAMETER_COLUMNS = (
    Column("name", "parameter"),
    Column("state", "state"),
    Column("shape", "shape", shown=False),
    Column("norm", "norm", about="2-norm of the gradient"),
    Column("rms", "rms", about="root mean square of the gradient's elements", shown=False),
    Column("zeros", "zeros", "%", "elements that are 0", shown=False),
    Column("tiny", "tiny", "%", "elements below the smallest normal number of the dtype", shown=False),
    Column("weight", "weight", about="2-norm of the parameter", shown=False),
    Column("agc", "grad/weight", about="the gradient's norm over the weight's"),
    Column("update", "update/weight", about="norm of the optimizer's change over the weight's"),
)


def gradients_report(
    record: GradientRecord,
    model: str,
    settings: Mapping[str, Cell],
    *,
    limits: Limits,
    history: Sequence[float] = (),
) -> ReportData[GradientRow]:
    """Return the gradients of a step by call and by parameter, with findings; ``history``: norms of earlier steps."""
    null = structurally_zero(record.parameters, limits)
    rows = tuple([_row(result, model) for result in record.results])
    parameters = tuple([_parameter_row(parameter, parameter.name in null) for parameter in record.parameters])
    total = total_norm(record.parameters)
    totals: dict[str, tuple[Cell, Unit]] = {"loss": (record.loss, ""), "total norm": (total, "")}
    states = [row.state for row in parameters]
    totals["parameters"] = (len(states), "")
    for state in dict.fromkeys(states):
        totals[f"  {state}"] = (states.count(state), "")
    if history:
        totals["clipping"] = (clipping_advice([*history]).advice, "")
    notes = [Note(text) for text in record.notes]
    if not record.results:
        notes.append(Note("no call returned a tensor with a gradient"))
    of_calls = {row.call: row for row in reversed(rows)}  # the first result of a call
    of_parameters = {row.name: row for row in parameters}
    by_place = [("norm", NORM), ("rms", RMS), ("zeros", ZEROS), ("tiny", TINY)]
    measures = {
        measure.name: {
            key: float(number)
            for key, row in (*of_calls.items(), *of_parameters.items())
            if (number := getattr(row, field)) is not None
        }
        for field, measure in by_place
    }
    measures[UPDATE.name] = {row.name: row.update for row in parameters if row.update is not None}
    return ReportData(
        analysis="gradients",
        subject=model,
        columns=COLUMNS,
        rows=rows,
        totals=totals,
        findings=at_root_of(model, findings_of(record, limits)),
        notes=tuple(notes),
        settings=dict(settings),
        measures=measures,
        parts=(ReportData("gradients", model, PARAMETER_COLUMNS, parameters, settings={"by": "parameter"}),),
        ranked=False,
    )


def total_norm(parameters: Sequence[ParameterGradient]) -> float:
    """Return the 2-norm of all gradients together, as ``torch.nn.utils.get_total_norm``."""
    return math.hypot(*[parameter.gradient.norm for parameter in parameters if parameter.gradient is not None])


def _row(result: ResultGradient, model: str) -> GradientRow:
    gradient = result.gradient
    count = gradient.stats.count if gradient is not None else 0
    return GradientRow(
        call=f"{result.path or model}#{result.number}",
        type=result.type,
        place=result.place,
        shape="×".join(map(str, result.shape)),
        norm=None if gradient is None else gradient.norm,
        rms=None if gradient is None else gradient.rms,
        largest=None if gradient is None or gradient.stats.absmax is None else float(gradient.stats.absmax),
        zeros=None if gradient is None or not count else 100 * gradient.stats.zeros / count,
        tiny=None if gradient is None or not count else 100 * gradient.tiny / count,
    )


def _parameter_row(parameter: ParameterGradient, null: bool) -> ParameterRow:
    gradient = parameter.gradient
    count = gradient.stats.count if gradient is not None else 0
    weight = parameter.weight_norm
    return ParameterRow(
        name=parameter.name,
        state="structurally zero" if null else str(parameter.reach),
        shape="×".join(map(str, parameter.shape)),
        norm=None if gradient is None else gradient.norm,
        rms=None if gradient is None else gradient.rms,
        zeros=None if gradient is None or not count else 100 * gradient.stats.zeros / count,
        tiny=None if gradient is None or not count else 100 * gradient.tiny / count,
        weight=weight,
        agc=None if gradient is None or not weight else gradient.norm / weight,
        update=None if parameter.update_norm is None or not weight else parameter.update_norm / weight,
    )
