"""The report about two checkpoints: which weights changed, and by how much."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.measures import PARAMETER, Unit, counted, enumerated, register
from fxdebug.data.report import Cell, Column, ReportData
from fxdebug.features.weights.changed.kinds import is_statistic
from fxdebug.features.weights.record import Shape, WeightChange

CHANGE = register(
    "weight.change", "%", "2-norm of the difference of two checkpoints over that of the first", [PARAMETER]
)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One weight in two checkpoints. ``change`` is relative, in percent; ``state`` says what differs."""

    name: str
    state: str
    shape: str
    dtype: str
    change: float | None
    largest: float | None
    cosine: float | None
    differing: float | None


COLUMNS = (
    Column("name", "weight"),
    Column("state", "state"),
    Column("shape", "shape", shown=False),
    Column("dtype", "dtype", shown=False),
    Column("change", "change", "%", "2-norm of the difference over that of the first"),
    Column("largest", "largest", about="largest difference of an element"),
    Column("cosine", "cosine", about="cosine of the angle between both"),
    Column("differing", "elements", "%", "elements that differ"),
)


ALONE = ("only in a", "only in b")
MOST_PARTS = 4  # that are named in one sentence


def changes_report(
    changes: Sequence[WeightChange],
    name_a: str,
    name_b: str,
    findings: Iterable[Finding] = (),
    notes: Iterable[Note] = (),
    how: str = "",
    *,
    loaded: bool = False,
) -> ReportData[ChangeRow]:
    """Return the weights of two checkpoints: those in one alone, then those that changed most, then equal ones.

    ``how`` is what those that changed have in common, for the answer; ``loaded``: one is a model, the other its file.
    """
    rows = [_row(change) for change in changes]
    order = ("shape differs", "only in a", "only in b", "changed", "dtype differs", "equal")
    rows.sort(key=lambda row: (order.index(row.state), -(row.change if row.change is not None else math.inf)))
    states = [row.state for row in rows]
    first = math.sqrt(sum(change.norm**2 for change in changes if change.norm is not None))
    moved = math.sqrt(sum(change.change**2 for change in changes if change.change is not None))
    statistics = sum(is_statistic(row.name) for row in rows if row.state == "changed")
    totals: dict[str, tuple[Cell, Unit]] = {}
    for state in order:
        if state in states:
            totals[f"weights {state}"] = (states.count(state), "")
        if state == "changed" and statistics:
            totals["  of them running statistics"] = (statistics, "")
    totals["change of all"] = (100 * moved / first if first else None, "%")
    return ReportData(
        answer=_parts(rows, how, loaded=loaded),
        analysis="weights",
        subject=f"{name_a} → {name_b}",
        columns=COLUMNS,
        rows=tuple(rows),
        totals=totals,
        measures={CHANGE.name: {row.name: row.change for row in rows if row.change is not None}},
        findings=tuple(findings),
        notes=tuple(notes),
        ranked=False,
    )


def _parts(rows: Sequence[ChangeRow], how: str, *, loaded: bool) -> str:
    """Say which weights or parts of a model changed, where others are equal and all shapes and names are, or none."""
    if not any(row.state in ("changed", "shape differs") for row in rows):
        return _nothing_changed(rows, "the model has what the file has" if loaded else "nothing was changed")
    equal: dict[str, list[bool]] = {}
    kinds: dict[str, list[ChangeRow]] = {}
    for row in rows:
        if row.state not in ("changed", "equal"):
            return ""
        equal.setdefault(row.name.partition(".")[0], []).append(row.state == "equal")
        kinds.setdefault(re.sub(r"\d+", "*", row.name), []).append(row)
    changed = sorted([row.name for row in rows if row.state == "changed"])
    if not changed:
        return ""
    if len(changed) == len(rows):
        return _all_changed(rows, how)
    parts = sorted([part for part, of_part in equal.items() if not all(of_part)])
    if len(parts) <= MOST_PARTS and len(parts) < len(equal) and not any(any(equal[part]) for part in parts):
        rest = len(equal) - len(parts)
        return f"changed in {enumerated(parts)}{how}; the other {f'{rest} parts are' if rest > 1 else 'part is'} equal"
    whole = [kind for kind, of_kind in kinds.items() if all(row.state == "changed" for row in of_kind)]
    if len(changed) <= MOST_PARTS:
        named = enumerated(changed)
    elif len(whole) <= MOST_PARTS and sum(len(kinds[kind]) for kind in whole) == len(changed):
        named = f"{enumerated(sorted(whole))} ({counted(len(changed), 'weight')})"
    elif len(parts) <= MOST_PARTS and len(parts) < len(equal):
        named = f"{counted(len(changed), 'weight')} in {enumerated(parts)}"
    else:
        return ""
    rest = len(rows) - len(changed)
    return f"changed: {named}{how}; the other {f'{rest} weights are' if rest > 1 else 'weight is'} equal"


def _all_changed(rows: Sequence[ChangeRow], how: str) -> str:
    """Say that all weights changed, and by how much of their size."""
    sizes = sorted([row.change for row in rows if row.change is not None])
    if len(rows) < 2 or not sizes:
        return ""
    least, most = (f"{size:.2g}" for size in (sizes[0], sizes[-1]))
    return (
        f"all {len(rows)} weights changed{how}, by {least if least == most else f'{least} to {most}'} % of their size"
    )


def _nothing_changed(rows: Sequence[ChangeRow], what: str) -> str:
    """Say that all weights that both have are equal, and which there are beside them."""
    count = Counter(row.state for row in rows)
    both = count["equal"] + count["dtype differs"]
    alone = [f"{count[state]} {'is' if count[state] == 1 else 'are'} {state}" for state in ALONE if count[state]]
    which = (f"all {both} weights" if both > 1 else "the one weight") + " that both have" * bool(alone)
    dtypes = f", {count['dtype differs']} of them in another dtype" if count["dtype differs"] else ""
    verb = "are" if both > 1 else "is"
    return "; ".join([f"{what}: {which} {verb} equal{dtypes}", *alone])


def _row(change: WeightChange) -> ChangeRow:
    count = math.prod(change.shape_a or ())
    return ChangeRow(
        name=change.name,
        state=_state(change),
        shape=_both(change.shape_a, change.shape_b),
        dtype=" → ".join(dict.fromkeys(filter(None, (change.dtype_a, change.dtype_b)))),
        change=_relative(change),
        largest=change.largest,
        cosine=change.cosine,
        differing=None if change.differing is None else 100 * change.differing / max(count, 1),
    )


def _relative(change: WeightChange) -> float | None:
    """Return the change in percent; a weight that was all 0 has none, unless it still is."""
    if change.change is None or change.norm is None:
        return None
    if not change.norm:
        return None if change.change else 0.0
    return 100 * change.change / change.norm


def _state(change: WeightChange) -> str:
    if change.shape_b is None:
        return "only in a"
    if change.shape_a is None:
        return "only in b"
    if change.shape_a != change.shape_b:
        return "shape differs"
    if change.differing:
        return "changed"
    return "equal" if change.dtype_a == change.dtype_b else "dtype differs"


def _both(a: Shape | None, b: Shape | None) -> str:
    texts = ["×".join(map(str, shape)) or "1" for shape in (a, b) if shape is not None]
    return " → ".join(dict.fromkeys(texts))
