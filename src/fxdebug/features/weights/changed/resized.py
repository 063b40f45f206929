"""Weights with more or fewer rows in the second checkpoint, as of a vocabulary that grew: were their rows kept?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxdebug.data.findings import WARNING, Finding
from fxdebug.features.weights.changed.kinds import is_statistic
from fxdebug.features.weights.record import WeightChange
from fxdebug.store.tensors.checkpoints import Weights


def find_resized(a: Weights, b: Weights, changes: Sequence[WeightChange]) -> Iterator[Finding]:
    """Yield weights that no row of before is in, where most other weights are equal: they were drawn anew."""
    same = [change for change in changes if change.differing is not None and not is_statistic(change.name)]
    if not same or 2 * sum(change.differing == 0 for change in same) <= len(same):
        return
    for change in changes:
        rows = _rows(change)
        if rows is None:
            continue
        before, now = rows
        kept = min(rows)
        first, second = a[change.name]()[:kept], b[change.name]()[:kept]
        if bool((first == second.to(first)).flatten(1).all(1).any()):
            continue
        path = change.name.rpartition(".")[0]
        yield Finding(
            rule="unlike file",
            severity=WARNING,
            path=path,
            call=f"{path}#0",
            op=change.name,
            what=f"{change.name} has {now} rows and had {before}, and none of these {kept} has its numbers of before",
            measured=float(kept),
            threshold=0.0,
            advice="It was drawn anew as it was resized, or after the rows were copied: copy them last, or mark it as "
            "initialised.",
        )


def _rows(change: WeightChange) -> tuple[int, int] | None:
    """Return the rows of a matrix in both checkpoints, where they alone differ."""
    a, b = change.shape_a, change.shape_b
    if a is None or b is None or len(a) < 2 or len(a) != len(b) or a[1:] != b[1:] or a[0] == b[0]:
        return None
    return a[0], b[0]
