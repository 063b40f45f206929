"""Does a difference get anywhere? One that everything after it absorbs (how a mask is written) is no fault."""

from __future__ import annotations

from fxdebug.comparison.accusation import Blame
from fxdebug.comparison.closeness import EPS, like_a_mask
from fxdebug.comparison.judge import Judge
from fxdebug.comparison.steps import Run, Step

FADED = 0.05  # of an error: what is left of it below tolerance is still that error


def is_absorbed(judge: Judge, blame: Blame) -> bool:
    """Is all that follows equal again?

    A weight that differs, or an operation with weights of one name on both sides, counts in any case: a bias that
    softmax takes no notice of is still another bias.
    """
    if not blame.absorbable or blame.kind in ("weights", "input", "raised"):
        return False
    if blame.b is not None and blame.b.weights and blame.sure == 1.0:
        return False
    run = judge.pairs.b
    at = run.steps[blame.position] if blame.position < len(run.steps) else None
    starts = [step for step in (at, blame.b) if step is not None]
    return not _reaches(judge, run, starts, blame.measures.error)


def _reaches(judge: Judge, run: Run, starts: list[Step], error: float) -> bool:
    """Along values that differ or have no partner, to something that the model returned?"""
    returned = {run.root(value).number for value in run.trace.root.outputs or ()}
    pending, seen = list(starts), {step.index for step in starts}
    while pending:
        step = pending.pop()
        for value in (*step.outputs, *step.passed):
            root = run.root(value).number
            if root in returned:
                return True
            for user in _in_turn(judge, run, step, root):
                if user.index in seen:
                    continue
                seen.add(user.index)
                judged = judge.judged.get(user.index)
                if judged is None or judged.bad or user.transparent or judged.error > FADED * error:
                    pending.append(user)
    return False


def _in_turn(judge: Judge, run: Run, step: Step, root: int) -> list[Step]:
    """Who uses a value. A mask whose first use makes no difference makes none later: something else does."""
    users = run.users.get(root, [])
    value = run.values[root]
    if value.dtype in EPS and not like_a_mask(value.stats):
        return users
    for user in users:
        judged = judge.judged.get(user.index)
        if judged is not None and not user.transparent and judged.b.dtype in EPS:
            return [] if not judged.bad else users
    return users
