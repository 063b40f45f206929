"""Tell whether a difference reaches the outputs.

A difference that later steps absorb, such as another way to write a mask, is no fault.
"""

from __future__ import annotations

from fxdebug.comparison.diagnosis.cause import Cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, comparable
from fxdebug.comparison.diagnosis.outputs import differing_numbers
from fxdebug.comparison.diagnosis.weights.merged_adapter import is_merged
from fxdebug.comparison.pairing.by_dataflow import following_batch_norm, following_bias
from fxdebug.comparison.pairing.patched_values import replacements, replacements_of
from fxdebug.comparison.pairing.returned_values import facing_outputs, last_call, returned_by
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FADED, MANY, MASK
from fxdebug.comparison.tolerance import eps_of, is_additive_mask, rounding_step
from fxdebug.data.calls import Call
from fxdebug.operators.categories import ELEMENTWISE, SIZED_BY_NUMBERS, TO_PYTHON_NUMBERS
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import BY_RANK

SCALED = frozenset("mul div gelu softmax scaled_dot_product_attention leaky_relu elu".split())


def is_absorbed(judge: Judge, cause: Cause) -> bool:
    """Is everything that follows a cause equal again?

    A difference in weights, or in an operation with weights that is certainly paired, is never absorbed: a bias that
    softmax cancels is still another bias. Integers may be codes of a weight with another zero point.
    """
    if cause.regrouped or (cause.kind == "weights" and (_norm_is_folded_in(judge, cause) or _is_merged(judge, cause))):
        return True
    if cause.kind in ("input", "raised") or (not _is_code(cause) and (not cause.absorbable or cause.kind == "weights")):
        return False
    itself = cause.b is not None and cause.position == cause.b.index
    if cause.b is not None and cause.b.weights and cause.confidence == 1.0 and itself and not _is_code(cause):
        return False
    if cause.kind in ("extra", "missing") and _return_the_same(judge):
        return True
    if itself and _is_other_setting(cause):
        return False
    run, whose = judge.pairs.b, _deciding_call(judge, cause)
    at = run.steps[cause.position] if cause.position < len(run.steps) else None
    starts = [step for step in (at, cause.b) if step is not None]
    if changes_bits(judge, cause):
        return not _reaches(judge, run, starts, 0.0)
    if not cause.surely_paired and _outputs_agree(judge, whose) and all(_proves(judge, call) for call in whose.walk()):
        return True
    # in a narrow dtype statistics hide what elements show: where these differ, only elements tell that it is gone
    seen = judge.narrow is not None and cause.measures.basis == "tensors"
    return not _reaches(judge, run, starts, cause.measures.error, by_elements=seen)


def _is_code(cause: Cause) -> bool:
    """Is it about integers that only another step makes numbers of, as of a quantised weight?"""
    weights = () if cause.b is None else cause.b.weights
    return bool(weights) and all(given.value.dtype not in EPS for given in weights) and cause.kind == "weights"


def changes_bits(judge: Judge, cause: Cause) -> bool:
    """Is it another setting, or a cast, of an operation that was given the same to the last bit, in a narrow dtype?

    There the same operation would return the same, and tolerance is so wide that it hides another GELU. In wider
    dtypes tolerance is that of a few roundings. A cast to a wider dtype than in a loses nothing.
    """
    step = cause.b
    if not judge.same_dtypes or step is None or cause.kind not in ("constant", "dtype"):
        return False
    values = [value for value in (cause.value_a, cause.value_b) if value is not None]
    if len(values) != 2 or eps_of(*(value.dtype for value in values)) <= EPS["float32"]:
        return False
    if cause.kind == "constant":
        result = judge.results.get(step.index)
        return result is not None and result.is_exact and result.differing_weights is None
    if eps_of(values[0].dtype) >= eps_of(values[1].dtype) or not step.data:
        return False
    one = judge.pairs.value_in_a(step.data[0].value)
    return one is not None and judge.meter(one, step.data[0].value).error == 0.0


def _is_other_setting(cause: Cause) -> bool:
    """Is it another setting of an operation that was given equal inputs? The numbers of a mask may be any large ones.

    In a narrow dtype, what such a setting changes may stay below what rounding explains of later results.
    """
    if cause.kind != "constant" or not cause.surely_paired or cause.error_in or cause.b is None:
        return False
    if cause.matched_by not in ("path", "mapping") or cause.b.name not in SCALED:
        return False
    values = [value for value in (cause.value_a, cause.value_b) if value is not None]
    known = [value for value in values if value.stats is not None and (value.stats.absmax or 0.0) < MASK]
    return len(known) == 2 and len({value.dtype for value in known}) == 1 and known[0].dtype in EPS


def _norm_is_folded_in(judge: Judge, cause: Cause) -> bool:
    """Is a batch norm folded into the weights of one side: do they give the result of the other side's norm?"""
    if cause.a is None or cause.b is None:
        return False
    sides = ((judge.pairs.a, cause.a), (judge.pairs.b, cause.b))
    norms = [following_batch_norm(run, step) for run, step in sides]
    if (norms[0] is None) == (norms[1] is None):
        return False
    ends = [norm or following_bias(run, step) or step for norm, (run, step) in zip(norms, sides)]
    a, b = (end.outputs[0] for end in ends)
    return comparable(a, b) and judge.meter(a, b).error <= judge.clean_for(a, b)


def _is_merged(judge: Judge, cause: Cause) -> bool:
    return cause.a is not None and cause.b is not None and is_merged(judge.pairs.a, cause.a, judge.pairs.b, cause.b)


def _return_the_same(judge: Judge) -> bool:
    """Are these two implementations with equal outputs in each slot? A step without a counterpart is then no error."""
    one, other = judge.pairs.a.trace, judge.pairs.b.trace
    a, b = returned_by(one.root), returned_by(other.root)
    if a is None or b is None or one.model == other.model or other.settings.get("isolated"):
        return False
    sides = [(side.a, side.b) for side in facing_outputs(a, b, judge.pairs).sides]
    if not sides or len(sides) != max(len(a), len(b)) or not all(comparable(x, y) for x, y in sides):
        return False
    return all(judge.agree(x, y) for x, y in sides)


def _proves(judge: Judge, call: Call) -> bool:
    """May the outputs of the caller of a call prove something: was nothing in it replaced by something else?

    A hook that replaced inputs or outputs of the call hides what its caller did wrong before.
    """
    if call.parent is None or (call.given is None and call.returned is None):
        return True
    if not judge.pairs.b.trace.settings.get("isolated"):
        return False
    return all(judge.replacement_error(old, new) <= judge.clean for old, new in replacements_of(call))


def _deciding_call(judge: Judge, cause: Cause) -> Call:
    """Return the call whose outputs decide: the model, or in isolating mode the innermost that has a counterpart."""
    call = cause.call
    while call.parent is not None and not (
        judge.pairs.b.trace.settings.get("isolated") and judge.pairs.call_in_a(call) is not None
    ):
        call = call.parent
    return call


def _outputs_agree(judge: Judge, call: Call) -> bool:
    """Does a call return the same on both sides? Then two implementations only compute it in different ways."""
    partner = judge.pairs.call_in_a(call)
    a, b = None if partner is None else partner.outputs, call.outputs
    if a is None or b is None or not len(b):
        return False
    facing = {side.b.number: side.a for side in facing_outputs(a, b, judge.pairs).sides}
    sides = [(judge.pairs.value_in_a(value) or facing.get(value.number), value) for value in b]
    known = [(one, other) for one, other in sides if one is not None and comparable(one, other)]
    return bool(known) and all(judge.agree(x, y) for x, y in known)


def _reaches(judge: Judge, run: StepList, starts: list[Step], error: float, *, by_elements: bool = False) -> bool:
    """Does a difference reach the outputs of the model, along values that differ or have no partner?

    ``by_elements``: values that are equal by their statistics alone pass it on.
    """
    last = last_call(run)  # stands for what the model returned, in a file that does not have it
    returned = returned_by(run.trace.root) or (None if last is None else last.outputs)
    ends = {run.root(value).number for value in returned or ()}
    # a difference ends at a value that was replaced by another one: the replacement comes from elsewhere
    others = [old for old, new in replacements(run.trace) if judge.replacement_error(old, new) > FADED * error]
    ends |= {run.root(old).number for old in others}
    as_numbers = any(True for _ in differing_numbers(judge))
    pending, visited = list(starts), {step.index for step in starts}
    while pending:
        step = pending.pop()
        if (as_numbers and step.op in TO_PYTHON_NUMBERS) or _decides_what_runs(judge, step):
            return True
        for value in (*step.outputs, *step.passed_through):
            root = run.root(value).number
            if root in ends:
                return True
            for user in _affected_users(judge, run, root, error):
                if user.index in visited:
                    continue
                visited.add(user.index)
                result = judge.results.get(user.index)
                moves = not ({step.name, user.name} <= ELEMENTWISE or user.name in BY_RANK)
                unseen = by_elements and result is not None and result.measures.basis != "tensors"
                if result is None or user.transparent or unseen or not _is_clean(judge, result, error, moves=moves):
                    pending.append(user)
    return False


def _decides_what_runs(judge: Judge, step: Step) -> bool:
    """Does a step return another number of elements than in a, where its caller then makes other calls than in a?

    So a router chooses the experts that run: by a branch of the code, which no value of the graph shows.
    """
    result, partner = judge.results.get(step.index), judge.pairs.call_in_a(step.call)
    by_numbers = step.op in SIZED_BY_NUMBERS or (step.op == "where" and len(step.data) == 1)
    if not by_numbers or result is None or result.measures.what != "shape" or partner is None:
        return False
    pairs = judge.pairs
    return any(child.index not in pairs.calls_of_a for child in partner.children) or any(
        child.index not in pairs.calls for child in step.call.children
    )


def _is_clean(judge: Judge, result: StepResult, error: float, *, moves: bool = True) -> bool:
    """Is a result equal to that of a? A few elements with equal statistics may still have changed places.

    ``moves``: may the operations that lead to it have moved elements? Those on single elements do not, and what is
    chosen by rank is the same where all its numbers are.
    """
    few = moves and result.b.numel < MANY and result.measures.basis == "statistics"
    limit = FADED * min(error, 1.0)  # of another shape the error is infinite
    if judge.narrow is not None and result.measures.basis != "tensors":
        # statistics may show a large error as small: an error below the tolerance of a narrow dtype proves nothing
        limit = min(limit, 1.5 * rounding_step(judge.narrow))
    return not result.exceeds_tolerance and not few and result.error <= limit


def _affected_users(judge: Judge, run: StepList, root: int, error: float) -> list[Step]:
    """Return the users of a value; none for a mask whose first use makes no difference, as later uses make none."""
    users = run.users.get(root, [])
    value = run.values[root]
    if value.dtype in EPS and not is_additive_mask(value.stats):
        return users
    for user in users:
        result = judge.results.get(user.index)
        if result is not None and not user.transparent and result.b.dtype in EPS:
            return [] if _is_clean(judge, result, error) else users
    return users
