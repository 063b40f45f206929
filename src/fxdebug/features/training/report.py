"""The report of a watched training: its steps, its incidents, and findings over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fxdebug.data.calls import Note
from fxdebug.data.findings import (
    ADVICE,
    ERROR,
    NOT_LOOKED_AT,
    SEVERITIES,
    WARNING,
    Finding,
    Severity,
    at_root_of,
    not_looked_at,
)
from fxdebug.data.measures import Unit
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.shared.gradients.clipping import clipping_advice
from fxdebug.features.shared.gradients.rules import Limits, findings_of
from fxdebug.features.shared.gradients.updates import INDEPENDENT, Progress
from fxdebug.features.shared.records.gradients import GradientRecord, ResultGradient
from fxdebug.features.shared.records.training import NUMBERS, Incident, TrainingRecord, Trouble, WatchedStep
from fxdebug.features.training.charts import charts_of
from fxdebug.features.training.spikes import is_spike
from fxdebug.features.training.trend import trend
from fxdebug.features.training.verdict.judge import Verdict, judge
from fxdebug.features.training.verdict.limits import Limits as VerdictLimits

UPHILL = ("update too large", "gradient spike", "loss spike")  # what follows from maximising a loss
RATES = {"learning rate too high", "learning rate too low", "rate spent early"}
MOST_FINDINGS = 5  # spikes of norms that the report names

RULES: Mapping[Trouble, tuple[str, Severity, str]] = {  # the rule, its severity, and what to do where no run was saved
    "loss": ("loss not finite", ERROR, ""),
    "gradient": ("gradient not finite", ERROR, ""),
    "spike": ("loss spike", WARNING, ""),
    "exception": ("exception", ERROR, ""),
    "skipped": ("steps skipped", ERROR, "Look for what makes NaN in the backward; a lower scale does not mend it."),
    "no step": ("no step", WARNING, "Call step() of an optimizer that has this model's parameters, after backward()."),
    "no gradient": ("no gradient", ERROR, f"Call backward() on a loss that depends on the model. {INDEPENDENT}"),
    "not optimised": (
        "not optimised", WARNING,
        "Give them to an optimizer; where they are not to learn, requires_grad_(False) saves their gradients.",
    ),
    "other optimizer": (
        "other optimizer", ERROR, "Make the optimizer after the model is complete, from this model's parameters()."
    ),
    "not registered": (
        "not registered", ERROR,
        "Hold modules as attributes, in nn.ModuleList or in nn.ModuleDict, tensors as nn.Parameter, and make layers in "
        "__init__; then make the optimizer.",
    ),
    "loss input": ("loss input", WARNING, ""),
    "maximizes": ("maximizes", WARNING, "Leave out maximize=True; to maximise a reward, it is right."),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One step. ``update`` is the median update of the matrices, ``zeros`` that of zeros in results: watched steps."""

    step: str
    loss: float | None
    norm: float | None
    seconds: float
    update: float | None
    largest: float | None
    incident: str


COLUMNS = (
    Column("step", "step"),
    Column("loss", "loss"),
    Column("norm", "grad norm", about="2-norm of all gradients before the optimizer's step"),
    Column("seconds", "time", "s"),
    Column("update", "update/weight", about="largest norm of an update over that of the weight, of matrices"),
    Column("largest", "largest", about="largest element that a call returned, by magnitude"),
    Column("incident", "incident"),
)


def training_report(
    record: TrainingRecord,
    limits: Limits | None = None,
    others: Sequence[TrainingRecord] = (),
    verdict_limits: VerdictLimits | None = None,
    beside: Sequence[Finding] = (),
) -> ReportData[TrainingRow]:
    """Return the watched steps of a training and those with incidents, findings over time, and advice on clipping.

    ``others`` are the same training on other ranks: their incidents and gaps are among the findings. ``beside`` are
    findings about this training beside others.
    """
    watched = {step.number: step for step in record.watched}
    trouble = {incident.step: incident for incident in record.incidents}
    rows = [
        _row(step, watched.get(step.number), trouble.get(step.number))
        for step in record.steps
        if step.number in watched or step.number in trouble
    ]
    losses = [step.loss for step in record.steps if step.loss is not None]
    totals: dict[str, tuple[Cell, Unit]] = {"steps": (len(record.steps), ""), "watched": (len(record.watched), "")}
    if losses:
        totals["first loss"], totals["last loss"] = (losses[0], ""), (losses[-1], "")
    totals["clipping"] = (clipping_advice([step.norm for step in record.steps if step.norm is not None]).advice, "")
    incidents = [incident for one in (record, *others) for incident in one.incidents]
    incidents.sort(key=lambda incident: (incident.step, not incident.op))  # the rank that names an operation first
    verdict = judge(record, list(_incidents(incidents, record.model)), verdict_limits)
    further = [*_growing(record), *_of_watched(record, limits or Limits())]
    findings = [*verdict.findings, *_gaps((record, *others)), *_also(further, verdict), *beside]
    if any(incident.trouble == "maximizes" for incident in incidents):  # a lower rate would only make it slower
        findings = [finding for finding in findings if finding.rule not in UPHILL]
    return ReportData(
        analysis="watch",
        subject=record.model,
        columns=COLUMNS,
        rows=tuple(rows),
        totals=totals,
        findings=at_root_of(record.model, sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))),
        notes=tuple([Note(text) for text in record.notes]),
        settings={"every": record.every} | ({} if record.rank is None else {"rank": record.rank}),
        series={
            "loss": tuple([math.nan if step.loss is None else step.loss for step in record.steps]),
            "grad norm": tuple([math.nan if step.norm is None else step.norm for step in record.steps]),
        },
        marks=tuple([(incident.step, incident.trouble) for incident in record.incidents]),
        charts=charts_of(record),
        answer=verdict.sentence,
        ranked=False,
        folds=False,
    )


def verdict_of(record: TrainingRecord, others: Sequence[TrainingRecord] = ()) -> Verdict:
    """Return the verdict on a training; ``others`` are the same training on other ranks."""
    incidents = [incident for one in (record, *others) for incident in one.incidents]
    return judge(record, list(_incidents(incidents, record.model)))


WHOLE = {"updates rounded away": " rounds a change ", "rate spent early": " since step "}  # rules about all steps


def _also(findings: Sequence[Finding], verdict: Verdict) -> Iterator[Finding]:
    """Yield what single steps show besides the verdict: unusual is not wrong in a run that learns.

    The size of updates says nothing about the learning rate where something else is at fault.
    """
    told = {finding.rule for finding in verdict.findings}
    for finding in findings:
        if "aise the learning rate" in finding.advice:  # it is the verdict that says so, or the rate is not the cause
            continue
        if finding.rule == "no update" and "learning rate too low" in told:  # updates that rounding loses
            continue
        if finding.rule == "no update" and any(one in told and why in finding.what for one, why in WHOLE.items()):
            continue
        if finding.rule == "zero gradient" and "zero gradients" in told:
            continue
        if finding.rule in told or (
            finding.rule == "update too large" and verdict.state == "fault" and not told & RATES
        ):
            continue
        is_warning = finding.severity == WARNING and finding.rule != NOT_LOOKED_AT
        yield replace(finding, severity=ADVICE) if is_warning and verdict.state == "learns" else finding


def _row(step: object, watched: WatchedStep | None, incident: Incident | None) -> TrainingRow:
    number, loss, norm, seconds = (getattr(step, name) for name in ("number", "loss", "norm", "seconds"))
    updates, largest = [], []
    if watched is not None:
        updates = [
            p.update_norm / p.weight_norm
            for p in watched.parameters
            if p.update_norm is not None and p.weight_norm and len(p.shape) > 1
        ]
        largest = [float(r.stats.absmax) for r in watched.results if r.stats is not None and r.stats.absmax is not None]
    return TrainingRow(
        step=f"step {number}",
        loss=loss,
        norm=norm,
        seconds=seconds,
        update=max(updates, default=None),
        largest=max(largest, default=None),
        incident="" if incident is None else incident.trouble,
    )


def _incidents(incidents: Sequence[Incident], model: str) -> Iterator[Finding]:
    for incident in incidents:
        rule, severity, advice = RULES[incident.trouble]
        if incident.trouble == "maximizes" and not incident.op:  # it may be a reward
            severity = ADVICE
        step = f"step {incident.step}: " if incident.trouble in (*NUMBERS, "exception") else ""
        batch = f"; its inputs: {', '.join(incident.inputs)}" if incident.inputs else ""
        rank = "" if incident.rank is None else f"rank {incident.rank}: "
        yield Finding(
            rule=rule,
            severity=severity,
            path=incident.path,
            call=incident.node.partition("/")[0] or f"{incident.path or model}#0",
            op=incident.op,
            node=incident.node,
            what=f"{rank}{step}{incident.what}{batch}",
            source=incident.source,
            measured=incident.norm if incident.trouble in ("gradient", "skipped") else incident.loss,
            advice=f"Look at the step: fxdebug check {incident.run}{_rank_option(incident)}"
            if incident.run
            else advice,
        )


def _gaps(records: Sequence[TrainingRecord]) -> Iterator[Finding]:
    """Yield what could not be looked at."""
    for record in records:
        rank = "" if record.rank is None else f"rank {record.rank}: "
        for gap in record.gaps:
            yield not_looked_at("training", record.model, f"{rank}step {gap.step}: a part of it", gap.what)


def _rank_option(incident: Incident) -> str:
    return "" if incident.rank is None else f" --rank {incident.rank}"


def _growing(record: TrainingRecord) -> Iterator[Finding]:
    """Steps whose gradients are far larger than those before: over 10 times the running median."""
    norms: list[float] = []
    found: list[tuple[int, float]] = []
    known = {incident.step for incident in record.incidents}
    for step in record.steps:
        if step.norm is None:
            continue
        if step.number not in known and is_spike(norms, step.norm / 2):
            found.append((step.number, step.norm))
        norms.append(step.norm)
    for number, norm in found[:MOST_FINDINGS]:
        yield Finding(
            rule="gradient spike",
            severity=WARNING,
            path="",
            call="#0",
            op="backward",
            what=f"step {number}: the norm of all gradients is {norm:.3g}, far above those of the steps before",
            measured=norm,
            advice="Clip gradients: the report says at which norm.",
        )


def _of_watched(record: TrainingRecord, limits: Limits) -> Iterator[Finding]:
    """Findings about the last watched step that was healthy in itself."""
    bad = {incident.step for incident in record.incidents if incident.trouble in NUMBERS}
    bad |= {step.number for step in record.steps if not (_is_finite(step.loss) and _is_finite(step.norm))}
    healthy = [step for step in record.watched if step.number not in bad]
    if not healthy:
        return
    last = healthy[-1]
    steps = [step for step in record.steps if step.number <= last.number]
    loss = next((step.loss for step in steps if step.number == last.number), None)
    rated = [step for step in steps if step.rates]
    progress = Progress(
        steps=len(steps),
        trend=trend([step.loss for step in record.steps]),
        numbers=tuple([step.number for step in rated]),
        rates=tuple([max(step.rates) for step in rated]),
    )
    yield from findings_of(gradients_of(last, loss), limits, progress)


def _is_finite(number: float | None) -> bool:
    return number is None or math.isfinite(number)


def gradients_of(step: WatchedStep, loss: float | None = None) -> GradientRecord:
    """Return the gradients of a watched step as the record of one step."""
    results = [
        ResultGradient(
            r.position, r.path, r.number, r.type, r.parent, r.place, r.shape, r.gradient,
            r.stats is not None and 0 < r.stats.count == r.stats.zeros,
        )
        for r in step.results
    ]  # fmt: skip
    finite = loss is not None and math.isfinite(loss)
    return GradientRecord(loss if finite else None, tuple(results), step.parameters, optimizer="the optimizer")
