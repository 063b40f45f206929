"""The report on a quantised model: its calls ranked by what they do to the result, and which to leave unquantised."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fxdebug.analyses.quantisation.errors_of_calls import Apart, CallError, errors_of_calls, result_error
from fxdebug.comparison.measures import STATISTICS
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.calls import Note
from fxdebug.data.measures import Unit, counted, enumerated
from fxdebug.data.report import Cell, Column, ReportData

if TYPE_CHECKING:
    from fxdebug.analyses.quantisation.coarse import Finer

LEAST_SHARE = 0.2  # of the error of the result, from which one call is worth leaving alone
BEYOND_EQUAL = 2.0  # times the share that it would have if all calls added as much
BEYOND_CHANCE = 2.0  # times the share by which the result gets worse without another call
ONE_BIT = 0.65  # of what a call returns: 1 bit leaves 0.603 of a normal weight (Max 1960)
LESS = 0.5  # of the error of the result, that finer steps leave where the steps are to blame
MOST_NAMED = 4  # calls that the answer names
EXPLAINED = 5  # rows whose reason stands in a note
LEAST_EXPLAINED = 5.0  # % of the error of the result that they make
COLUMNS: Final = (
    Column("call", "call"),
    Column("type", "type", shown=False),
    Column("shape", "weight", about="the shape of its weight in a"),
    Column("error", "error it adds", about="relative: of what the call returns"),
    Column("share", "of all error", "%", "of the error of the result: what goes with the original put back, measured"),
    Column("without", "left without it", about="the error of the result with the original put back, measured"),
    Column("calls", "calls", about="of the module", shown=False),
    Column("reason", "reason", about="what its weight shows", shown=False),
)


@dataclass(frozen=True, slots=True)
class QuantisedRow:
    """A module of a quantised model: the relative error that its calls add, and what that does to the result.

    ``share`` is the part of the error of the result in percent that goes where the original module is put back, and
    ``without`` the error that is left then. Both are measured, and ``None`` where that was not tried.
    """

    call: str
    type: str
    shape: str
    error: float | None
    share: float | None
    without: float | None
    calls: int
    reason: str


@dataclass(frozen=True)
class Measured:
    """Errors of the result: of the quantised model, and with single modules replaced by their originals.

    ``advised`` are the modules to leave unquantised, ``left`` is the error of the result without all of these.
    ``reasons``, ``untried`` and ``inside``, of a module inside that stands out, are texts by path. ``apart`` are calls
    that add far more error than the others, ``left_apart`` is the error of the result without all of these. ``wrong``
    has the distance of weights that are no roundings of a's, of their size, and an explanation, by path. ``by_rows``
    are layers that compute one row in another way than several. ``coarse`` are those of all ``weights`` that were read
    whose steps are too coarse, with finer ones, and ``left_finer`` is the error of the result with these.
    """

    whole: float | None = None
    without: Mapping[str, float] = field(default_factory=dict)
    advised: tuple[str, ...] = ()
    left: float | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    untried: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, str] = field(default_factory=dict)
    apart: Apart | None = None
    left_apart: float | None = None
    wrong: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    by_rows: Mapping[str, str] = field(default_factory=dict)
    coarse: Mapping[str, Finer] = field(default_factory=dict)
    weights: int = 0
    left_finer: float | None = None


def outstanding(whole: float | None, without: Mapping[str, float], among: int | None = None) -> str | None:
    """Return the module that is worth leaving unquantised, as it makes far more of the error than its part.

    ``among`` is the number of modules that add error, where not all of them are given.

    >>> outstanding(0.12, {"up": 0.119, "down": 0.04, "head": 0.119})
    'down'
    >>> outstanding(0.12, {"up": 0.1, "down": 0.1, "head": 0.1})
    """
    if not whole or not without:
        return None
    equal = 1.0 - math.sqrt(1.0 - 1.0 / (among or len(without)))
    least = min(max(LEAST_SHARE, BEYOND_EQUAL * equal), 0.5)
    shares = {path: 1.0 - left / whole for path, left in without.items()}
    # errors that cancel one another make a result worse without some: as much may be chance
    least = max(least, -BEYOND_CHANCE * min(shares.values(), default=0.0))
    first = max(shares, key=lambda path: shares[path])
    return first if shares[first] >= least else None


def quantised_report(
    comparison: ComparisonData, measured: Measured | None = None, notes: Sequence[Note] = ()
) -> ReportData[QuantisedRow]:
    """Return the calls of a quantised model b by what they do to the result, those to leave unquantised first.

    Without runs that measure it, they are ranked by the error that they add, and the sentence says that it is likely.
    """
    known = measured or Measured()
    whole = known.whole if measured is not None else result_error(comparison)
    errors = errors_of_calls(comparison, isolated=bool(comparison.settings.get("isolated")))
    rows = [(one, _row(one, whole, known)) for one in errors]
    rows = [(one, row) for one, row in rows if row.error != 0.0]
    rows.sort(key=lambda pair: _rank(pair[1], pair[0]))
    ordered = [row for _, row in rows]
    totals: dict[str, tuple[Cell, Unit]] = {"error of the result": (whole, "")}
    if known.advised:
        totals["with these left alone"] = (known.left, "")
    return ReportData(
        analysis="quantised",
        subject=comparison.b.model,
        columns=COLUMNS,
        rows=tuple(ordered),
        totals={**totals, "calls that add error": (len(ordered), "")},
        notes=(*_reasons(ordered, known.advised, known.inside), *_unknown(rows, known, measured is not None), *notes),
        ranked=False,
        folds=False,
        answer=_answer(comparison, ordered, whole, known, measured is not None),
    )


def _row(one: CallError, whole: float | None, known: Measured) -> QuantisedRow:
    without = known.without.get(one.path)
    share = None if without is None or not whole else 100.0 * (1.0 - without / whole)
    shape = "×".join(map(str, one.shape))
    reason = known.reasons.get(one.path, "")
    return QuantisedRow(one.path, one.type, shape, one.error, share, without, one.calls, reason)


def _rank(row: QuantisedRow, one: CallError) -> tuple[bool, float, float, int]:
    error = math.inf if row.error is None else row.error
    return row.share is None, 0.0 if row.share is None else -row.share, -error, one.position


def _answer(
    comparison: ComparisonData,
    rows: Sequence[QuantisedRow],
    whole: float | None,
    known: Measured,
    tried: bool,
) -> str:
    if not rows:
        return "no call adds an error: b returns what a returns" if whole == 0.0 else _NOTHING_PAIRED
    if tried and whole == 0.0:
        return f"the result is that of a to the last bit, though {counted(len(rows), 'call')} round"
    if not tried or whole is None or not known.without:
        return _BY_STATISTICS if comparison.basis == STATISTICS else _likely(rows)
    if known.wrong or known.by_rows or (known.apart is not None and len(known.apart.paths) > len(known.advised)):
        return _answer_of_wrong(known, whole)
    if known.left_finer is not None and known.left_finer < LESS * whole:
        return _answer_of_coarse(known, whole, known.left_finer)
    errors = [row.error for row in rows if row.error is not None]
    if errors and min(errors) > ONE_BIT:
        return f"not rounding: all calls add an error of {span(errors)} of what they return, and 1 bit leaves 0.6"
    if not known.advised:
        first = rows[0]
        assert first.without is not None and first.share is not None
        return (
            f"no call stands out: the most, {first.share:.0f} % of the error of the result, is that of `{first.call}`; "
            f"without it {whole:.2g} → {first.without:.2g}"
        )
    assert known.left is not None
    more = len(known.advised) > 1
    names, them = _listed(known.advised), "them" if more else "it"
    part = f"{100 * (1 - known.left / whole):.0f} % of the error of the result"
    inside = "" if more or not (text := known.inside.get(known.advised[0])) else f"; {text}"
    return f"leave {names} alone: {part}; without {them} {whole:.2g} → {known.left:.2g}{inside}"


def _answer_of_wrong(known: Measured, whole: float) -> str:
    """Say which weights are no roundings, or which calls add far more error than the others."""
    paths = tuple(known.wrong or known.by_rows) or (known.apart.paths if known.apart is not None else ())
    names = _listed(paths)
    gap = known.apart
    parts = []
    if known.wrong:
        sizes = [size for size, _ in known.wrong.values()]
        texts = list(dict.fromkeys(text for _, text in known.wrong.values()))
        first = next((path for path in paths if known.wrong[path][1]), "")
        of_one = f" (so in `{first}`)" if len(texts) > 1 else ""
        why = f": {known.wrong[first][1]}{of_one}" if first else ""
        parts.append(f"not rounding: the weight of {names} is {span(sizes)} of its size away from a's{why}")
    elif known.by_rows:
        first = paths[0]
        more = f" (so is that of {len(paths) - 1} more)" if len(paths) > 1 else ""
        parts.append(f"not rounding: `{first}`: {known.by_rows[first]}{more}")
    else:
        assert gap is not None
        parts.append(f"{names} add an error of {span([gap.least, gap.largest])} of what they return")
    if gap is not None:
        parts.append(f"the other {counted(gap.others, 'call')} add at most {gap.of_others:.2g}")
    if known.left_apart is not None:
        parts.append(
            f"with the originals of {'these' if len(paths) > 1 else 'it'} {whole:.2g} → {known.left_apart:.2g}"
        )
    return "; ".join(parts)


def _answer_of_coarse(known: Measured, whole: float, left: float) -> str:
    """Say which steps are too coarse in most weights, and what finer ones leave."""
    found = list(known.coarse.values())
    same = [one for one in found if one.steps == found[0].steps]
    parts = Counter(one.parts for one in same).most_common(1)[0][0]
    return (
        f"too coarse: {found[0].steps} in {len(same)} of {known.weights} weights, where a {found[0].channel} loses "
        f"{span([one.before for one in same])} of its size on average; with one for each {parts} "
        f"{whole:.2g} → {left:.2g}"
    )


def _listed(paths: Sequence[str]) -> str:
    shown = [f"`{path}`" for path in paths[:MOST_NAMED]]
    return enumerated([*shown, f"{len(paths) - MOST_NAMED} more"] if len(paths) > MOST_NAMED else shown)


def span(sizes: Sequence[float]) -> str:
    """Return the least and the largest of some sizes in words.

    >>> span([0.5, 0.71]), span([0.7, 0.701])
    ('0.5 to 0.71', '0.7')
    """
    ends = [f"{end(sizes):.2g}" for end in (min, max)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


_NOTHING_PAIRED: Final = "cannot tell which call to leave alone: no call of b that differs has a counterpart in a"

_BY_STATISTICS: Final = (
    "cannot tell which call to leave alone: statistics give lower bounds of errors alone; keep the tensors of both runs"
)


def _likely(rows: Sequence[QuantisedRow]) -> str:
    """Say which call adds the most, where no run has shown what that does to the result."""
    first = next((row for row in rows if row.error is not None), None)
    if first is None:
        return _NOTHING_PAIRED
    return (
        f"likely the one to leave alone is `{first.call}`, which adds the largest error ({first.error:.2g} of what it "
        "returns); its effect on the result was not measured"
    )


def _reasons(rows: Sequence[QuantisedRow], advised: Sequence[str], inside: Mapping[str, str]) -> list[Note]:
    told = {path for path in advised if len(advised) == 1 and path in inside}  # by the answer
    large = [row for row in rows if row.call in advised or row.share is None or row.share >= LEAST_EXPLAINED]
    first = [row for row in large if row.reason and row.call not in told][: max(EXPLAINED, len(advised))]
    return [Note(row.reason, row.call) for row in first]


def _unknown(rows: Sequence[tuple[CallError, QuantisedRow]], known: Measured, tried: bool) -> list[Note]:
    notes = []
    if not tried:
        notes.append(Note("what a call does to the result is measured by compare_models(…, quantised=True)"))
        notes.append(Note("operations of modules that call others are not in the table: their own error is not known"))
    if any(one.by_statistics for one, _ in rows):
        notes.append(Note('errors are lower bounds; with values="tensors" they are measured by elements'))
    if tried:
        inner = [one.path for one, row in rows if one.has_inner and row.share is None]
        least = min((row.share for _, row in rows if row.share is not None), default=0.0)
        if least < -100 * LEAST_SHARE / BEYOND_CHANCE:
            worse = f"without some calls the error grows, by up to {-least:.0f} %: errors cancel by chance"
            notes.append(Note(f"{worse}, and less so with more inputs"))
        if inner:
            notes.append(Note(f"{counted(len(inner), 'module')} that call others: their effect cannot be tried alone"))
    for why in dict.fromkeys(known.untried.values()):
        paths = [path for path, text in known.untried.items() if text == why]
        some = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        notes.append(Note(f"effect not measured of {some}: {why}"))
    return notes
