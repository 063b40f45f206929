"""Does an operation of a have no counterpart in b? Without it, a must be nearer to b, or it only compensates.

Where both are written otherwise, some operation of a is always left over, whatever is wrong.
"""

from __future__ import annotations

import time
from dataclasses import replace

from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.comparison.rows import step_side
from fxdebug.comparison.steps import Step
from fxdebug.repair.candidates.variations.made_from_results import left_out
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import Place, ReplacedOperations
from fxdebug.repair.trials.edit_parts import line_of, place_in

FROM_HERE = "from here on b has none of a's values: what differs was not found"


def without_refuted(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData | None:
    """Return a comparison that names no operation of a as missing without which a is no nearer to b.

    What is left of such a finding is where b begins to have none of a's values. ``None`` where none is refuted.
    """
    rows: list[Row] = []
    for row in found.findings:
        new = row
        if row.kind == "missing" and not row.proven and time.monotonic() < until and is_refuted(row, runs):
            new = _where_values_end(row, runs)
        if new is row or all((new.where, new.because) != (other.where, other.because) for other in rows):
            rows.append(new)
    if all(new is row for new, row in zip(rows, found.findings)):
        return None
    known = dict(zip((row.position for row in rows), rows))
    return replace(found, findings=tuple(rows), rows=tuple([known.get(row.position, row) for row in found.rows]))


def is_refuted(row: Row, runs: EditedRuns) -> bool:
    """Is a no nearer to b without the operation of a that a finding calls missing, here and in all layers?"""
    pairs, _ = runs.pairs()
    step = None if row.a is None or row.a.node is None else pairs.a.by_node.get(row.a.node)
    ran = runs.ran("a")
    own = None if step is None else ran.get(place_in(step))
    if step is None or own is None or not row.because.startswith((f"{step.op} of a (", f"{step.name} of a (")):
        return False
    before = [each.error for each in runs.plain.outputs if each.measured]
    ways = list(left_out(step.name, own))
    if not ways or not before:
        return False
    for way in ways:
        for steps in dict.fromkeys([(step,), line_of(pairs.a, step)]):
            returned = runs.run("a", ReplacedOperations({place_in(each): way.change for each in steps}))
            if returned is None or not returned or max(each.error for each in returned) < max(before):
                return False
    return True


def _where_values_end(row: Row, runs: EditedRuns) -> Row:
    """Return the finding at the first operation of b whose result leads to none of a's values."""
    pairs, _ = runs.pairs()
    known: dict[Place, Step] = {place_in(step): step for step in pairs.b.steps if not step.unrecorded}
    step = next((known[place] for place in runs.first_lost("b") if place in known), None)
    if step is None:
        return replace(row, kind="values", because=FROM_HERE)
    side = step_side(step, next(iter(step.outputs), None))
    told = replace(row, path=step.call.path, op=step.op, kind="values", source=step.node.source, b=side)
    return replace(told, because=FROM_HERE, position=step.index, repair="")
