"""Compare two traces: pair their calls, steps and values, judge each pair, name the steps that add error."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fxdebug.comparison.build_steps import steps_of
from fxdebug.comparison.coverage import coverage_of, missing_in
from fxdebug.comparison.diagnosis.absorbed import is_absorbed
from fxdebug.comparison.diagnosis.attention.seen_keys import with_seen_keys
from fxdebug.comparison.diagnosis.cause import SAME_INPUTS, SAME_OPERATIONS, Cause, values_differ
from fxdebug.comparison.diagnosis.element_order import picks_other_rows
from fxdebug.comparison.diagnosis.evaluate_steps import Judge
from fxdebug.comparison.diagnosis.inputs.lost_state import with_lost_state
from fxdebug.comparison.diagnosis.isolated.handover import handover_findings
from fxdebug.comparison.diagnosis.outputs import OutputDiagnosis
from fxdebug.comparison.diagnosis.root_cause import Diagnoser
from fxdebug.comparison.diagnosis.written_differently import (
    causes_of,
    constant_causes,
    notes_on,
    stale_weights,
    written_differently,
)
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.measures import Measures
from fxdebug.comparison.pairing.by_dataflow import pair_by_dataflow, pair_forwards
from fxdebug.comparison.pairing.by_path import name_unknown_classes, pair_bodies, pair_by_path
from fxdebug.comparison.pairing.by_value import (
    pair_fused_projections,
    pair_rounded_values,
    pair_values,
    pair_weights,
)
from fxdebug.comparison.pairing.called_in_parts import CalledInParts, loops_of_other_lengths
from fxdebug.comparison.pairing.contradicted_calls import drop_contradicted_calls
from fxdebug.comparison.pairing.made_between import at_operation
from fxdebug.comparison.pairing.name_mapping import (
    NameMapping,
    is_ignored,
    paths_in_wrapper,
    read_mapping,
    renamed_paths,
)
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.pairing.patched_values import rejoin_patched
from fxdebug.comparison.pairing.renamed_calls import pair_renamed_calls
from fxdebug.comparison.pairing.weights_in_place import pair_in_place
from fxdebug.comparison.result import ComparisonData, Row, in_order
from fxdebug.comparison.rows import Rows
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.operators.names import COPYING, SLICES


def compare(
    a: TraceData,
    b: TraceData,
    *,
    mapping: NameMapping | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
    strict: bool = False,
) -> ComparisonData:
    """Compare a run ``b`` with a reference ``a`` and name the first call and operation that add error.

    Calls and operations are paired by path, then by equal weights and values, by dataflow and by order. ``mapping``
    (globs of a → of b, or a YAML file) pairs modules that are not found in this way; ``ignore`` (globs) leaves modules
    out. ``tolerance`` is the relative error that is allowed anywhere; by default that of the coarser dtype of
    each pair (about 1e-5 for float32, 0.03 for bfloat16). ``strict``: constants, weights and operations that are
    written differently are findings even if the results are equal on these inputs; otherwise they are notes. Raises
    ``UsageError`` for a mapping that fits nothing, and for a tolerance that is no number from 0 on.

    >>> import torch, fxdebug
    >>> one, other = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8, eps=0.1)
    >>> x = torch.arange(16.0).view(2, 8)
    >>> found = compare(fxdebug.fx_debug(one, x), fxdebug.fx_debug(other, x))
    >>> found.equal, found.first.kind, found.first.op
    (False, 'constant', 'layer_norm')
    """
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0 <= tolerance < math.inf):
        raise UsageError(f"tolerance={tolerance!r} is no relative error: give a number from 0 on, such as 1e-4")
    globs = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    if isinstance(mapping, (str, os.PathLike)):
        mapping, more = read_mapping(mapping)
        globs += more
    _check_traces(a, b)
    judge = _judge(a, b, mapping, tolerance)
    diagnoser = Diagnoser(judge)
    causes = [cause for result in judge.evaluate_all() if (cause := diagnoser.diagnose(result)) is not None]
    outputs = OutputDiagnosis(judge, diagnoser.regions)
    kept, absorbed = _with_effect(judge, [*causes, *outputs.causes()], globs)
    rows = Rows(judge, globs)
    findings = _findings(judge, diagnoser, rows, kept)
    if not findings and outputs.differ_in_narrow_dtype():  # what seemed absorbed was not: see there
        findings = [rows.finding(cause) for cause in _hidden(judge, absorbed, globs)]
    if not findings:
        unexplained = [cause for cause in map(diagnoser.behind, outputs.unexplained_causes()) if cause is not None]
        last = (*unexplained, *outputs.number_causes())
        findings = [rows.finding(cause) for cause in last if not is_ignored(cause.call.path, globs)]

    def explain(right: Value, wrong: Value, measures: Measures) -> Row | None:
        cause = outputs.cause_of(right, wrong, measures)
        cause = None if cause is None else diagnoser.behind(cause)
        return None if cause is None else rows.finding(cause)

    findings += handover_findings(judge, findings, globs, explain)
    returned = rows.outputs()
    findings = _that_say_something(judge, rows, findings, returned)
    if not findings and not globs:  # what is ignored may make the outputs differ
        findings = list(rows.unexplained_outputs(returned))
    written = [
        each
        for each in written_differently(judge, {row.position for row in findings}, absorbed)
        if not is_ignored(each.step.call.path, globs)
    ]
    stale = list(stale_weights(judge, written))
    findings += [rows.finding(cause) for _, cause in stale]
    written = [each for each in written if all(each is not other for other, _ in stale)]
    if strict:
        findings += [rows.finding(cause) for cause in causes_of(judge, written)]
    findings = with_lost_state(findings, judge.pairs)
    findings = in_order(with_seen_keys([at_operation(row, judge.meter) for row in findings], judge.meter))
    notes = () if strict else tuple(notes_on(judge, written, {row.because for row in findings}))
    settings = _settings(judge, tolerance, globs, strict)
    return _comparison(judge, rows, findings, absorbed, returned, notes, globs, settings)


def _judge(
    a: TraceData, b: TraceData, mapping: NameMapping | str | os.PathLike[str] | None, tolerance: float | None
) -> Judge:
    meter = Meter(a, b, tolerance)
    return Judge(pair_traces(a, b, mapping, meter), meter, tolerance)


def _with_effect(judge: Judge, causes: Sequence[Cause], globs: Sequence[str]) -> tuple[list[Cause], dict[int, Cause]]:
    """Return the causes that reach what the models return, and those whose error fades, by their positions."""
    kept: list[Cause] = []
    absorbed: dict[int, Cause] = {}
    for cause in causes:
        if is_ignored(cause.call.path, globs):
            continue
        if is_absorbed(judge, cause):
            absorbed[cause.position] = cause
        else:
            kept.append(cause)
    return kept, absorbed


def _findings(judge: Judge, diagnoser: Diagnoser, rows: Rows, kept: list[Cause]) -> list[Row]:
    """Return the findings on inputs and exceptions, and those of the most certain causes."""
    findings: list[Row] = [*rows.inputs(), *rows.raised()]
    certain = _told_once(_most_certain(judge, kept))
    certain = [cause for cause in certain if not (_is_unlike(judge, cause) and _comes_after(cause, certain))]
    behind = [diagnoser.behind(cause) for cause in certain]
    causes_found = [rows.finding(cause) for cause in behind if cause is not None]
    # of other inputs, other shapes and other sources are computed: these are no findings of their own
    findings += [row for row in causes_found if not findings or row.kind not in ("shape", "wiring")]
    facing = judge.meter.facing
    if facing is not None and facing.by == "cache":  # which one of both alone puts together
        unsure = [row for row in findings if row.op in COPYING or row.basis == "statistics"]
        findings = [row for row in findings if row.kind not in ("extra", "missing") or row not in unsure]
    if facing is not None and facing.by == "list":  # what is called for each of them is called more often
        findings = [row for row in findings if row.kind not in ("extra", "missing") or not _is_in_both(judge, row)]
    return findings


def _is_in_both(judge: Judge, row: Row) -> bool:
    """Do both runs call the module of a finding?"""
    return all(any(run.path(call) == row.path for call in run.trace.calls) for run in (judge.pairs.a, judge.pairs.b))


def _hidden(judge: Judge, absorbed: Mapping[int, Cause], globs: Sequence[str]) -> list[Cause]:
    """Return the cause that explains a difference best where all seemed to be absorbed: one of these, or a constant."""
    hidden = [absorbed[position] for position in sorted(absorbed) if not absorbed[position].regrouped]
    constants = (cause for cause in constant_causes(judge) if not is_ignored(cause.call.path, globs))
    return _most_certain(judge, hidden or list(constants))[:1]


def _that_say_something(judge: Judge, rows: Rows, findings: list[Row], returned: Sequence[Row]) -> list[Row]:
    """Return the findings without those that follow from other sizes, or that come to what both runs return."""
    in_parts = CalledInParts(judge.pairs, judge.meter)
    if in_parts.paths and any(row.has_two_shapes for row in findings):
        findings = [*rows.in_parts(in_parts), *(row for row in findings if not row.has_two_shapes)]
    findings = [row for row in findings if not _says_nothing(row)] or findings
    loops = loops_of_other_lengths(judge.pairs.a.trace, judge.pairs.b.trace)
    findings = [row for row in findings if not (row.kind in ("wiring", "shape", "extra") and row.path in loops)]
    if returned and all(row.measured and row.error <= row.tolerance for row in returned):
        findings = [row for row in findings if not _comes_to_the_same(row, judge.meter)]
    return findings


def _comparison(
    judge: Judge,
    rows: Rows,
    findings: Sequence[Row],
    absorbed: dict[int, Cause],
    returned: Sequence[Row],
    written_notes: tuple[str, ...],
    globs: Sequence[str],
    settings: dict[str, object],
) -> ComparisonData:
    """Return all that was found, with every row, what was compared of both runs, and the notes."""
    pairs = judge.pairs
    every_row = tuple(rows.all(findings, absorbed))
    coverage = coverage_of(judge, every_row, returned, globs)
    compared = sum(row.measured and row.certain for row in every_row)
    return ComparisonData(
        pairs.a.trace,
        pairs.b.trace,
        every_row,
        tuple(findings),
        tuple([call for call in pairs.a.trace.calls if call.index not in pairs.calls_of_a]),
        tuple([call for call in pairs.b.trace.calls if call.index not in pairs.calls]),
        (*rows.notes(), *written_notes, *_meter_notes(judge.meter)),
        tuple(returned),
        settings,
        coverage,
        tuple(missing_in(judge, coverage, returned, compared)),
    )


def _comes_to_the_same(row: Row, meter: Meter) -> bool:
    """Is a finding another way to what both runs return: a weight with its rows in another order?"""
    sides = [side.value for side in (row.a, row.b) if side is not None and side.value is not None]
    return row.kind == "weights" and len(sides) == 2 and meter.is_reordered(*sides)


def _told_once(causes: Sequence[Cause]) -> list[Cause]:
    """Leave out what one step does to further results: its dtype is one cause."""
    told = {(cause.call.index, cause.op, cause.because): cause for cause in reversed(causes) if cause.kind == "dtype"}
    return [cause for cause in causes if told.get((cause.call.index, cause.op, cause.because), cause) is cause]


def _settings(judge: Judge, tolerance: float | None, globs: tuple[str, ...], strict: bool) -> dict[str, object]:
    return {
        "tolerance": tolerance,
        "ignore": globs,
        "clean": judge.clean,
        "isolated": bool(judge.pairs.b.trace.settings.get("isolated")),
        "narrow": judge.narrow if tolerance is None else None,
        "strict": strict,
    }


def _check_traces(a: object, b: object) -> None:
    for trace in (a, b):
        if not isinstance(trace, TraceData):
            raise UsageError(f"compare needs two traces or folders of saved runs, not {type(trace).__name__}")


def _meter_notes(meter: Meter) -> Iterator[str]:
    """Yield what was not measured in the usual way."""
    if meter.facing is not None:
        yield f'{meter.facing.text()}, call by call; this takes the tensors of both (values="tensors")'
    for why, count in meter.unreadable.items():
        many = "a value was" if count == 1 else f"{count} values were"
        yield f"{many} compared by statistics, as the data could not be read: {why}"


def _is_unlike(judge: Judge, cause: Cause) -> bool:
    """Does all that two steps are given differ? Then they are no pair, and nothing can be said of their sources."""
    if cause.kind != "wiring" or cause.a is None or cause.b is None:
        return False
    sides = list(zip(cause.a.data, cause.b.data))
    return len(sides) > 1 and all(values_differ(judge, x.value, y.value) for x, y in sides)


def _comes_after(cause: Cause, causes: Sequence[Cause]) -> bool:
    """Is there another cause before one, in the same call?"""
    return any(other.call is cause.call and other.position < cause.position for other in causes)


def _most_certain(judge: Judge, kept: list[Cause]) -> list[Cause]:
    """Drop the causes whose steps were paired by order alone, where there are others.

    So are those of products with their elements in another order, which a port may keep throughout, and of rows that
    one implementation picks and another one does not, or in another order, as for experts. The first missing
    step with weights stays if it comes before all of these: their errors may come from it.
    """
    kept = [cause for cause in kept if not cause.reordered and not picks_other_rows(judge, cause)] or kept
    certain = [cause for cause in kept if cause.matched_by != "order"]
    first = min((cause.position for cause in certain), default=0)
    missing = [cause for cause in kept if cause.kind == "missing" and cause.a is not None and cause.a.weights]
    before = [cause for cause in missing if cause.matched_by == "order" and cause.position < first]
    return [*before[:1], *certain] if certain else kept


def _says_nothing(row: Row) -> bool:
    """Is it about values of two sizes, which were not compared, and without an operation that makes them differ?"""
    sizes = {side.value.numel for side in (row.a, row.b) if side is not None and side.value is not None}
    is_picked = row.op in SLICES or row.because in (SAME_OPERATIONS, SAME_INPUTS)
    return row.kind == "values" and row.measures.what == "shape" and len(sizes) == 2 and is_picked


def pair_traces(
    a: TraceData, b: TraceData, mapping: NameMapping | str | os.PathLike[str] | None = None, meter: Meter | None = None
) -> Pairs:
    """Pair the calls, steps and values that belong together in two traces."""
    _check_traces(a, b)
    meter = meter or Meter(a, b)
    # else calls are compared with calls: one position of a sequence needs other operations than all of them
    graphs = a.call_graphs is not None and b.call_graphs is not None and meter.facing is None
    one, other = steps_of(a, graphs=graphs), steps_of(b, graphs=graphs)
    for run in (one, other):
        rejoin_patched(run)
    one.renamed_paths = dict(renamed_paths(mapping, (call.path for call in a.calls), (call.path for call in b.calls)))
    one.renamed_paths = one.renamed_paths or paths_in_wrapper(a, b)
    pairs = Pairs(one, other)
    pair_by_path(pairs, meter.facing)
    pair_weights(pairs)
    pair_in_place(pairs)
    pair_values(pairs, meter)
    pair_forwards(pairs)
    pair_fused_projections(pairs)
    pair_bodies(pairs)
    pair_by_dataflow(pairs)
    pair_rounded_values(pairs, meter)
    pair_renamed_calls(pairs)
    drop_contradicted_calls(pairs)
    name_unknown_classes(pairs)
    return pairs
