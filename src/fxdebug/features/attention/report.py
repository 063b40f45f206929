"""The report on attention: one row for each head, the layers as a part, findings, and the maps themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fxdebug.data.calls import Note
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.attention.findings import AttentionLimits, Measured, find_attention
from fxdebug.features.attention.heads import HeadNumbers, pooled
from fxdebug.features.attention.maps import AttentionMap, Tokens
from fxdebug.operators.attention import FUSED, MULTI_HEAD, SOFTMAX


@dataclass(frozen=True, slots=True)
class HeadRow:
    """One head of one module, over all its calls; ``None`` where a number has no meaning or no query.

    Shares of the weight, in the mean over queries: of the ``first`` token, the ``previous`` one, the query's ``own``,
    and ``induction`` (the token after the earlier occurrence of the same one). ``entropy`` is normalised: 0 is one
    key, 1 is all visible keys alike. ``share`` is the part of the layer's output that the head adds, in %, by norm.
    """

    call: str
    head: int
    entropy: float | None
    first: float | None
    previous: float | None
    own: float | None
    induction: float | None
    share: float | None


@dataclass(frozen=True, slots=True)
class LayerRow:
    """The attention of one module: the kind of its operation (``fused``, ``multi-head`` or ``softmax``) and its sizes.

    ``error`` is the largest distance of its result from that of the maps, ``tolerance`` what rounding explains.
    """

    call: str
    kind: str
    calls: int
    heads: int
    queries: int
    keys: int
    entropy: float | None
    error: float | None
    tolerance: float | None


HEAD_COLUMNS = (
    Column("call", "call"),
    Column("head", "head"),
    Column("entropy", "entropy", "", "of the weights, over ln(visible keys): 0 is one key, 1 is all alike"),
    Column("first", "first", "", "share of the first token"),
    Column("previous", "previous", "", "share of the token before the query"),
    Column("own", "own", "", "share of the query's own token"),
    Column("induction", "induction", "", "share of the token after the same token before"),
    Column("share", "output", "%", "part of the layer's output, by norm"),
)
LAYER_COLUMNS = (
    Column("call", "call"),
    Column("kind", "kind", "", "a fused operation, multi_head_attention_forward, or a softmax and a product"),
    Column("calls", "calls"),
    Column("heads", "heads"),
    Column("queries", "queries"),
    Column("keys", "keys"),
    Column("entropy", "entropy", "", "mean of the heads"),
    Column("error", "error", "", "largest difference of the result from that of the rebuilt weights"),
    Column("tolerance", "tolerance", "", "what rounding explains", shown=False),
)

KINDS = {FUSED: "fused", MULTI_HEAD: "multi-head", SOFTMAX: "softmax"}


@dataclass(frozen=True, repr=False)
class AttentionData(ReportData[HeadRow]):
    """The report on attention, with the maps and the tokens they are between.

    ``maps`` are those whose error rounding explains, in the order of the run.
    """

    maps: tuple[AttentionMap, ...] = field(default=(), compare=False)
    tokens: Tokens = field(default_factory=Tokens)


def attention_report(
    model: str,
    measured: Sequence[Measured],
    tokens: Tokens,
    *,
    limits: AttentionLimits,
    causal: bool | None = None,
    bytes_read: int = 0,
    notes: Iterable[Note] = (),
    settings: Mapping[str, Cell] | None = None,
    kept: Sequence[AttentionMap] = (),
) -> AttentionData:
    """Return the report of all attentions of a run, in its order; ``kept`` are the maps that fit in memory."""
    by_path: dict[str, list[Measured]] = {}
    true = [one for one in measured if one.map.is_true]
    for one in true:
        by_path.setdefault(one.map.path, []).append(one)
    modules = [Measured(group[0].map, pooled_of(group)) for group in by_path.values()]
    rows = [row for one in modules for row in _head_rows(one)]
    layers = tuple(_layer_row(group) for group in by_path.values())
    wrong = [one.map for one in measured if not one.map.is_true]
    maps = tuple(one for one in kept if one.is_true)
    return AttentionData(
        analysis="attention",
        subject=model,
        columns=HEAD_COLUMNS,
        rows=tuple(rows),
        totals={
            "attentions": (len(measured), ""),
            "heads": (len(rows), ""),
            "largest error": (max([one.map.error for one in measured if one.map.error is not None], default=None), ""),
            "queries, keys, values and masks": (bytes_read, "B"),
            "maps": (sum(one.weights.nbytes for one in maps), "B"),
        },
        findings=find_attention(modules, limits, causal),
        notes=(*_wrong(wrong), *_unchecked(measured), *(_without_induction(tokens) if measured else ()), *notes),
        settings={**(settings or {}), **limits.settings()},
        parts=(ReportData("layers", model, LAYER_COLUMNS, rows=layers, settings={"by": "module"}),) if layers else (),
        folds=False,
        maps=maps,
        tokens=tokens,
    )


def pooled_of(group: Sequence[Measured]) -> HeadNumbers:
    """Return the numbers of one module over all its calls with as many heads as the first."""
    first = group[0].map.heads
    return pooled([one.numbers for one in group if one.map.heads == first])


def _head_rows(one: Measured) -> list[HeadRow]:
    numbers, norms = one.numbers, one.map.norms
    whole = sum(norms) if norms else 0.0
    return [
        HeadRow(
            call=one.map.call,
            head=head,
            entropy=_known(numbers.entropy[head]),
            first=_known(numbers.sink[head]),
            previous=_known(numbers.previous[head]),
            own=_known(numbers.own[head]),
            induction=_known(numbers.induction[head]),
            share=100 * norms[head] / whole if norms and whole else None,
        )
        for head in range(one.map.heads)
    ]


def _layer_row(group: Sequence[Measured]) -> LayerRow:
    first = group[0].map
    errors = [one.map.error for one in group if one.map.error is not None]
    tolerances = [one.map.tolerance for one in group if one.map.tolerance is not None]
    entropy = pooled_of(group).entropy
    known = [x for x in entropy.tolist() if not math.isnan(x)]
    return LayerRow(
        call=first.call,
        kind=KINDS[first.op],
        calls=len(group),
        heads=first.heads,
        queries=sum(one.map.weights.shape[2] for one in group),
        keys=max(one.map.weights.shape[3] for one in group),
        entropy=sum(known) / len(known) if known else None,
        error=max(errors, default=None),
        tolerance=max(tolerances, default=None),
    )


def _known(number: float) -> float | None:
    return None if math.isnan(number) else float(number)


def _wrong(maps: Sequence[AttentionMap]) -> list[Note]:
    return [
        Note(
            f"the result of {one.op} is {one.error:.2g} from that of the rebuilt weights, and rounding explains "
            f"{one.tolerance:.2g}: the map is left out",
            where=one.call,
        )
        for one in maps
    ]


def _unchecked(measured: Sequence[Measured]) -> list[Note]:
    dropped = sum(one.map.dropped for one in measured)
    unknown = sum(one.map.error is None and not one.map.dropped for one in measured)
    notes = []
    if dropped:
        notes.append(Note(f"{dropped} attentions drop weights at random (training): the maps are those before"))
    if unknown:
        notes.append(Note(f"{unknown} attentions returned nothing finite that their maps can be compared with"))
    return notes


def _without_induction(tokens: Tokens) -> list[Note]:
    if tokens.period() is not None:
        return []
    return [Note("induction is measured on tokens that repeat: give inputs whose second half is like the first")]
