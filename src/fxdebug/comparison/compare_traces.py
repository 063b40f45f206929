"""Comparing two traces: pair what belongs together, judge each pair, name who adds error."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

from fxdebug.comparison.diagnosis.absorbed import is_absorbed
from fxdebug.comparison.diagnosis.cause import Diagnoser
from fxdebug.comparison.diagnosis.finding import Cause
from fxdebug.comparison.diagnosis.hidden_by_dtype import hidden_by_rounding
from fxdebug.comparison.diagnosis.isolated_handover import handover_findings
from fxdebug.comparison.diagnosis.judge import Judge
from fxdebug.comparison.diagnosis.outputs import Returned
from fxdebug.comparison.measures import Meter
from fxdebug.comparison.pairing.by_dataflow import pair_by_flow, pair_forwards
from fxdebug.comparison.pairing.by_path import pair_bodies, pair_by_path
from fxdebug.comparison.pairing.by_value import pair_fused, pair_values, pair_weights
from fxdebug.comparison.pairing.name_mapping import Mapped, ignored, read, renaming
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.pairing.patched_values import rejoin
from fxdebug.comparison.pairing.renamed_calls import pair_calls
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.rows import Rows
from fxdebug.comparison.steps import steps_of
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError


def compare(
    a: TraceData,
    b: TraceData,
    *,
    mapping: Mapped | str | os.PathLike[str] | None = None,
    ignore: str | Iterable[str] = (),
    tolerance: float | None = None,
) -> ComparisonData:
    """Hold a run ``b`` against a reference ``a`` and name the first call and operation that add error.

    What belongs together is found by path, then by equal weights and values, by dataflow and by order; ``mapping``
    (globs of a → of b, or a YAML file) says what cannot be found, ``ignore`` (globs) which modules do not count.
    ``tolerance`` is the relative error that is allowed anywhere; by default that of the coarser dtype of each pair
    (about 1e-5 for float32, 0.03 for bfloat16). Raises ``UsageError`` for a mapping that fits nothing,
    and for a tolerance that is no number from 0 on.

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
        mapping, more = read(mapping)
        globs += more
    _two_traces(a, b)
    meter = Meter(a, b, tolerance)
    pairs = paired(a, b, mapping, meter)
    judge = Judge(pairs, meter, tolerance)
    blamer = Diagnoser(judge)
    blames = [found for judged in judge.all() if (found := blamer.of(judged)) is not None]
    outputs = Returned(judge, blamer.between)
    blames += outputs.blames()
    rows = Rows(judge, globs)
    counted: list[Row] = [*rows.inputs(), *rows.raised()]
    absorbed: dict[int, Cause] = {}
    kept: list[Cause] = []
    for blame in blames:
        if ignored(blame.call.path, globs):
            continue
        if is_absorbed(judge, blame):
            absorbed[blame.position] = blame
        else:
            kept.append(blame)
    counted += [rows.finding(blame) for blame in _surer(kept)]
    if not counted:
        last = (*outputs.unexplained(), *outputs.numbers())
        counted = [rows.finding(blame) for blame in last if not ignored(blame.call.path, globs)]
    counted += handover_findings(judge, counted, globs)
    counted.sort(key=lambda row: row.position)
    every = rows.all(counted, absorbed)
    return ComparisonData(
        a,
        b,
        tuple(every),
        tuple(counted),
        tuple([call for call in a.calls if call.index not in pairs.calls_of_a]),
        tuple([call for call in b.calls if call.index not in pairs.calls]),
        (*rows.notes(), *hidden_by_rounding(judge, {row.position for row in counted}), *_unread(meter)),
        tuple(rows.outputs()),
        _settings(judge, tolerance, globs),
    )


def _settings(judge: Judge, tolerance: float | None, globs: tuple[str, ...]) -> dict[str, object]:
    return {
        "tolerance": tolerance,
        "ignore": globs,
        "clean": judge.clean,
        "isolated": bool(judge.pairs.b.trace.settings.get("isolated")),
        "narrow": judge.narrow if tolerance is None else None,
    }


def _two_traces(a: object, b: object) -> None:
    for trace in (a, b):
        if not isinstance(trace, TraceData):
            raise UsageError(f"compare needs two traces or folders of saved runs, not {type(trace).__name__}")


def _unread(meter: Meter) -> Iterator[str]:
    for why, count in meter.unread.items():
        many = "a value was" if count == 1 else f"{count} values were"
        yield f"{many} compared by statistics, as the data could not be read: {why}"


def _surer(kept: list[Cause]) -> list[Cause]:
    """Where steps were merely met in the same place, what follows from surer pairs counts alone.

    But for something with weights that is missing before all of those: they have their error from it.
    """
    surer = [blame for blame in kept if blame.how != "order"]
    first = min((blame.position for blame in surer), default=0)
    lost = [blame for blame in kept if blame.kind == "missing" and blame.a is not None and blame.a.weights]
    before = [blame for blame in lost if blame.how == "order" and blame.position < first]
    return [*before[:1], *surer] if surer else kept


def paired(
    a: TraceData, b: TraceData, mapping: Mapped | str | os.PathLike[str] | None = None, meter: Meter | None = None
) -> Pairs:
    """What belongs together in two traces."""
    _two_traces(a, b)
    graphs = a.call_graphs is not None and b.call_graphs is not None  # calls are held against calls
    one, other = steps_of(a, graphs=graphs), steps_of(b, graphs=graphs)
    for run in (one, other):
        rejoin(run)
    one.renamed = dict(renaming(mapping, (call.path for call in a.calls), (call.path for call in b.calls)))
    pairs = Pairs(one, other)
    pair_by_path(pairs)
    pair_weights(pairs)
    pair_values(pairs, meter or Meter(a, b))
    pair_forwards(pairs)
    pair_fused(pairs)
    pair_bodies(pairs)
    pair_by_flow(pairs)
    pair_calls(pairs)
    return pairs
