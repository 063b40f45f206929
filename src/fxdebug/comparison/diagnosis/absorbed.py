"""Does a difference get anywhere? One that everything after it absorbs (how a mask is written) is no fault."""

from __future__ import annotations

from fxdebug.comparison.diagnosis.finding import Cause
from fxdebug.comparison.diagnosis.judge import Judge, StepResult, comparable
from fxdebug.comparison.diagnosis.outputs import other_numbers, returned
from fxdebug.comparison.pairing.by_dataflow import normed
from fxdebug.comparison.pairing.patched_values import replacements
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.tolerance import eps_of, like_a_mask
from fxdebug.data.calls import Call
from fxdebug.operators.categories import TO_PYTHON_NUMBERS
from fxdebug.operators.dtypes import EPS

FEW = 64
FADED = 0.05  # of an error: what is left of it below tolerance is still that error


def is_absorbed(judge: Judge, blame: Cause) -> bool:
    """Is all that follows equal again?

    A weight that differs, or an operation with weights of one name on both sides, counts in any case: a bias that
    softmax takes no notice of is still another bias.
    """
    if blame.kind == "weights" and _folded(judge, blame):
        return True
    if not blame.absorbable or blame.kind in ("weights", "input", "raised"):
        return False
    itself = blame.b is not None and blame.position == blame.b.index
    if blame.b is not None and blame.b.weights and blame.sure == 1.0 and itself:
        return False
    if blame.kind in ("extra", "missing") and _return_the_same(judge):
        return True
    run, whose = judge.pairs.b, _judged_by(judge, blame)
    if not blame.proven and _outputs_agree(judge, whose) and not any(_is_replaced(call) for call in whose.walk()):
        return True
    at = run.steps[blame.position] if blame.position < len(run.steps) else None
    starts = [step for step in (at, blame.b) if step is not None]
    return not _reaches(judge, run, starts, blame.measures.error)


def _folded(judge: Judge, blame: Cause) -> bool:
    """Do other weights give, at once, what those of a give after the norm that follows them there?"""
    if blame.a is None or blame.b is None:
        return False
    ends = [normed(judge.pairs.a, blame.a) or blame.a, normed(judge.pairs.b, blame.b) or blame.b]
    if (ends[0] is blame.a) == (ends[1] is blame.b):
        return False
    a, b = (end.outputs[0] for end in ends)
    return comparable(a, b) and judge.meter(a, b).error <= judge.clean


def _return_the_same(judge: Judge) -> bool:
    """Do two implementations return the same in each place? Then a step of one has its counterpart, only not found."""
    one, other = judge.pairs.a.trace, judge.pairs.b.trace
    a, b = one.root.outputs, other.root.outputs
    if a is None or b is None or one.model == other.model or other.settings.get("isolated"):
        return False
    sides = returned(a, b)
    if not sides or len(sides) != max(len(a), len(b)) or not all(comparable(x, y) for x, y in sides):
        return False
    return all(judge.meter(x, y).error <= judge.clean for x, y in sides)


def _is_replaced(call: Call) -> bool:
    """Was something put in the place of what it was given or returned? Then what its caller returns tells nothing."""
    return call.parent is not None and (call.given is not None or call.returned is not None)


def _judged_by(judge: Judge, blame: Cause) -> Call:
    """The call whose outputs tell: the model, or in isolating mode the innermost that has a counterpart."""
    call = blame.call
    while call.parent is not None and not (
        judge.pairs.b.trace.settings.get("isolated") and judge.pairs.of_call(call) is not None
    ):
        call = call.parent
    return call


def _outputs_agree(judge: Judge, call: Call) -> bool:
    """Does it return the same on both sides? Then what differs between two implementations is how they got there."""
    partner = judge.pairs.of_call(call)
    a, b = None if partner is None else partner.outputs, call.outputs
    if a is None or b is None or not len(b):
        return False
    sides = [(judge.pairs.of_value(value), value) for value in b]
    known = [(one, other) for one, other in sides if one is not None and comparable(one, other)]
    return bool(known) and all(judge.meter(x, y).error <= judge.clean for x, y in known)


def _reaches(judge: Judge, run: StepList, starts: list[Step], error: float) -> bool:
    """Along values that differ or have no partner, to something that the model returned?"""
    ends = {run.root(value).number for value in run.trace.root.outputs or ()}
    ends |= {run.root(old).number for old, _ in replacements(run.trace)}  # it got as far as it could
    as_numbers = any(True for _ in other_numbers(judge))
    pending, seen = list(starts), {step.index for step in starts}
    while pending:
        step = pending.pop()
        if as_numbers and step.op in TO_PYTHON_NUMBERS:
            return True
        for value in (*step.outputs, *step.passed):
            root = run.root(value).number
            if root in ends:
                return True
            for user in _in_turn(judge, run, root, error):
                if user.index in seen:
                    continue
                seen.add(user.index)
                judged = judge.judged.get(user.index)
                if judged is None or user.transparent or not _clean(judge, judged, error):
                    pending.append(user)
    return False


def _clean(judge: Judge, judged: StepResult, error: float) -> bool:
    """Is it as in a? Of a few elements statistics do not tell: they may have changed places."""
    few = judged.b.numel < FEW and judged.measures.basis == "statistics"
    limit = FADED * error
    if judge.narrow is not None and judged.measures.basis != "tensors":
        # large errors look small in statistics, and within what a narrow dtype may be off by that proves nothing
        limit = min(limit, 1.5 * eps_of(judge.narrow))
    return not judged.bad and not few and judged.error <= limit


def _in_turn(judge: Judge, run: StepList, root: int, error: float) -> list[Step]:
    """Who uses a value. A mask whose first use makes no difference makes none later: something else does."""
    users = run.users.get(root, [])
    value = run.values[root]
    if value.dtype in EPS and not like_a_mask(value.stats):
        return users
    for user in users:
        judged = judge.judged.get(user.index)
        if judged is not None and not user.transparent and judged.b.dtype in EPS:
            return [] if _clean(judge, judged, error) else users
    return users
