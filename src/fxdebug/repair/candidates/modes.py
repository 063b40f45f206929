"""Try whether b returns what a returns with its modules in the modes of a: train or eval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from fxdebug.capture.torch_state.module_members import named_modules_of
from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.data.calls import Call
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.rerun.replaced_operations import ReplacedOperations
from fxdebug.repair.trials.tried_repairs import are_the_same, with_findings


def told_of_modes(found: ComparisonData, runs: EditedRuns) -> ComparisonData | None:
    """Return a comparison that names the modules in another mode than those of a, where that is the only difference.

    ``None`` where all modes are the same, or b returns something else with the modes of a, too: then these are no
    cause, or not the only one.
    """
    sides = list(_in_other_modes(runs))
    model = runs.b.model
    if not found.findings or not sides or model is None:
        return None
    wanted = {other.path: one.training for one, other in sides}

    def run(stepper: ReplacedOperations) -> Sequence[Tensor]:
        for path, module in named_modules_of(model, every_name=True):
            module.training = wanted.get(path, module.training)
        return plain(stepper)

    plain = runs.b.run
    returned = replace(runs, b=replace(runs.b, run=run)).run("b", ReplacedOperations({}))
    if returned is None or not are_the_same(returned):
        return None
    outermost = [(one, other) for one, other in sides if other.parent is None or other.parent.path not in wanted]
    rows = [_row(found, one, other, len(outermost) > 1) for one, other in outermost]
    first = {row.path: row for row in reversed(rows)}
    return with_findings(found, tuple(first.values()))


def _in_other_modes(runs: EditedRuns) -> Iterator[tuple[Call, Call]]:
    """Yield the paired calls of which one is in train mode, in execution order of b."""
    pairs, _ = runs.pairs()
    for call in runs.b.trace.calls:
        partner = runs.a.trace.root if call.parent is None else pairs.call_in_a(call)
        if partner is not None and partner.training != call.training:
            yield partner, call


def _row(found: ComparisonData, one: Call, other: Call, several: bool) -> Row:
    """Return the finding about two calls in different modes."""
    known = next((row for row in found.rows if row.b is not None and row.b.node and row.b.call is other), None)
    row = Row(other.path, source=other.source) if known is None or known.op is not None else known
    modes = [f"{'train' if call.training else 'eval'} mode in {side}" for call, side in ((one, "a"), (other, "b"))]
    name = other.path or "b"
    edit = f"{name}.{'train' if one.training else 'eval'}()"
    told = replace(
        row,
        a=Side(one.path, one, one.type, None, one.source),
        b=Side(other.path, other, other.type, None, other.source),
        kind="constant",
        verdict="adds",
        because=", ".join(modes),
    )
    return told.proven_by(f"with {edit}{' and those beside it' if several else ''} b returns what a returns")
