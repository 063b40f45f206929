"""Causes from steps without a counterpart in the other run: the step, and the call of b that lacks it or has it."""

from __future__ import annotations

from collections.abc import Container, Sequence

from fxdebug.comparison.constants import as_written, differing_constants
from fxdebug.comparison.diagnosis.cause import Cause, listed, values_differ
from fxdebug.comparison.diagnosis.counterparts import facing_step
from fxdebug.comparison.diagnosis.evaluate_steps import Judge
from fxdebug.comparison.diagnosis.region import Divergence, common_call, computes_floats, handing_call, most_informative
from fxdebug.comparison.diagnosis.sibling_calls import sibling_cause
from fxdebug.comparison.diagnosis.weights.folded_norm import IN_TRAINING, takes_its_batch
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.data.calls import Call
from fxdebug.operators.names import CONVOLUTIONS, STEPS_OF
from fxdebug.query import network

SEVERAL = " have no counterpart in "  # in the sentence about several operations that one run lacks
ONE = " has no counterpart in "
NamedSteps = list[tuple[str, Step]]  # elementary operations, each with the step that it is or is a part of


def missing_cause(divergence: Divergence, gone: NamedSteps) -> Cause:
    """Return the cause where a has steps on the way that b does not have."""
    pairs = divergence.judge.pairs
    name, step = next((named for named in gone if computes_floats(named[1])), gone[0])
    handed_in, handed_to = handing_call(pairs, divergence.result.step, divergence.a, divergence.b)
    inside = common_call([s.call for s in divergence.in_b.computing if computes_floats(s)]) or handed_in
    home, lost_call = _home_in_b(pairs, step, inside)
    known = pairs.calls.get(home.index)
    by_path = known is not None and known.matched_by in ("path", "mapping")
    if lost_call is None and (known is None or not by_path or known.a != step.call.index):
        deeper = any(above is home for above in inside.with_ancestors())
        home = _call_with_inputs(divergence.judge, step, home) or (inside if deeper else home)
    elif lost_call is not None and any(above is home for above in inside.with_ancestors()):
        deep = divergence.in_b.last is None and handed_to is not None  # this code hands the value on
        home = home if not deep and _computes_itself(pairs.b, home) else inside
    if lost_call is not None and divergence.in_b.last is None and _is_later(pairs.b, home, divergence.result.step):
        home = handed_in
    what = lost_call.path if lost_call is not None else listed(name for name, _ in gone)
    because = f"{what} of a ({_short_source(step)}){ONE if lost_call is not None or len(gone) == 1 else SEVERAL}b"
    fused = step.name in STEPS_OF and not _is_a_part(divergence, gone, step)
    others = [s.name for s in divergence.in_b.computing if computes_floats(s)]
    if fused and lost_call is None and len(others) > 1 and all(s is step for _, s in gone):
        # which of its parts b lacks is not sure: it may have them in another form, as a division for a product
        because = f"{step.op} in a ({_short_source(step)}), {listed(others)} in b"
    if step.name == "pad" and len(gone) == 1:
        because = _other_padding(divergence, step, of_b=False) or because
    if takes_its_batch(step):
        folding = [s for s in divergence.in_b.computing if s.name in CONVOLUTIONS or s.weights]
        because = f"{IN_TRAINING if folding else ''}{because}"
    op = lost_call.type if lost_call is not None else step.op if fused else name
    return divergence.cause_in("missing", home, op, because, step=divergence.in_b.last, partner=step)


def _is_later(run: StepList, call: Call, step: Step) -> bool:
    """Does all of a call run after a step? What is missing before the step is not missing there."""
    indices = [own.index for inner in call.walk() for own in run.by_call.get(inner.index, ())]
    return min(indices, default=0) > step.index


def _is_a_part(divergence: Divergence, gone: NamedSteps, step: Step) -> bool:
    """Does b do all else that a fused operation of a does, in single operations: does it lack this one part?"""
    parts = [name for name, other in gone if other is step]
    return step.op not in parts and len(gone) == 1 and all(s.name != step.name for s in divergence.in_b.computing)


def extra_cause(divergence: Divergence, new: NamedSteps) -> Cause:
    """Return the cause where b has steps on the way that a does not have."""
    pairs, last_of_a = divergence.judge.pairs, divergence.in_a.last
    # a part that is left of a fused operation, such as the bias of a norm, says less than an operation of its own
    new = [(name, step) for name, step in new if name in (step.name, step.op)] or new
    writers = network.network_of(pairs.b.trace).writers
    step = next((step for _, step in new if step.node.id in writers), None)
    if step is None and len(new) > 1:
        sibling = sibling_cause(divergence, last_of_a)
        if sibling is not None:
            return sibling
    step = step or most_informative([step for _, step in new])
    home, extra_call = home_in_a(pairs, step)
    what = extra_call.path if extra_call is not None else listed(name for name, _ in new)
    because = f"{what}{ONE if extra_call is not None or len(new) == 1 else SEVERAL}a"
    if step.name == "pad" and len(new) == 1:
        because = _other_padding(divergence, step, of_b=True) or because
    op = extra_call.type if extra_call else step.op
    return divergence.cause_in("extra", home, op, because, step=step, partner=last_of_a)


def _other_padding(divergence: Divergence, pad: Step, *, of_b: bool) -> str:
    """Return how one run pads before a convolution that pads itself in the other one; nothing where none does."""
    pairs = divergence.judge.pairs
    run = pairs.b if of_b else pairs.a
    for user in [user for value in pad.outputs for user in run.users.get(run.root(value).number, [])]:
        other = facing_step(pairs, user, of_b=of_b)
        if user.name not in CONVOLUTIONS or other is None or other.name != user.name:
            continue
        one, own = differing_constants(user.op, other.constants, user.constants)  # without defaults
        if len(one) == 1 and one[0].startswith("padding=") and all(text.startswith("padding=") for text in own):
            told = [text for text in as_written(*pad.constants) if text not in ("mode='constant'", "value=None")]
            padded = f"pad({', '.join(told)}) before {user.op}"
            itself = f"{user.op} with {one[0]}"
            return f"{itself} in a, {padded} in b" if of_b else f"{padded} in a, {itself} in b"
    return ""


def _home_in_b(pairs: Pairs, step: Step, otherwise: Call) -> tuple[Call, Call | None]:
    """Return the call of b that should have a step of a, and the outermost call of a that b lacks as a whole."""
    call, lost_call = step.call, None
    while call.parent is not None and call.index not in pairs.calls_of_a:
        if not any(_has_paired_steps(pairs.a, inner, pairs.steps_of_a, pairs.values_of_a) for inner in call.walk()):
            lost_call = call
        call = call.parent
    partner = pairs.calls_of_a.get(call.index)
    return (otherwise if partner is None else pairs.b.trace.calls[partner]), lost_call


def home_in_a(pairs: Pairs, step: Step) -> tuple[Call, Call | None]:
    """Return the innermost call around a step of b that a has at least in part, and the call inside that a lacks."""
    call, extra_call = step.call, None
    while call.parent is not None and pairs.call_in_a(call) is None:
        if any(_has_paired_steps(pairs.b, inner, pairs.steps, pairs.values) for inner in call.walk()):
            return (step.call, None) if extra_call is None else (call, extra_call)
        call, extra_call = call.parent, call
    return call, extra_call


def _call_with_inputs(judge: Judge, step: Step, home: Call) -> Call | None:
    """Return the deepest call of b within ``home`` whose code has every input of a step of a at hand."""
    pairs = judge.pairs
    wanted = {pairs.values_of_a.get(pairs.a.root(given.value).number) for given in step.data}
    if not wanted or None in wanted:
        return None
    deepest: Call | None = None
    best_rank = (0, -1)
    around_step = {call.index for call in step.call.with_ancestors()}
    for call in home.walk():
        partner = pairs.call_in_a(call)
        same = partner is not None and call.children and _return_the_same(judge, partner, call)
        whole = not call.children or (same and not _do_others(pairs.b, call, step))
        if partner is not None and partner.index not in around_step and whole:
            continue  # a layer that both runs have
        given, made = _values_at_hand(pairs.b, call)
        rank = (len(wanted & made), call.depth)
        if wanted <= given | made and rank[0] and rank > best_rank:
            deepest, best_rank = call, rank
    return deepest


def _do_others(run: StepList, call: Call, step: Step) -> bool:
    """Has another call of the same class an operation that is missing?"""
    others = [other.index for other in run.trace.calls if other.type == call.type and other is not call]
    return any(own.name == step.name for index in others for own in run.by_call.get(index, ()))


def _return_the_same(judge: Judge, a: Call, b: Call) -> bool:
    """Do two calls return values that are paired with each other and equal?"""
    sides = list(zip(tuple(a.outputs or ()), tuple(b.outputs or ())))
    return bool(sides) and all(judge.pairs.are_paired(x, y) and not values_differ(judge, x, y) for x, y in sides)


def _values_at_hand(run: StepList, call: Call) -> tuple[set[int], set[int]]:
    """Return the values that a call was given, and those that were computed in it or returned to it, by number."""
    made = [value for step in run.by_call.get(call.index, ()) for value in step.results]
    made += [value for child in call.children for value in child.outputs or ()]
    return {run.root(value).number for value in call.inputs}, {run.root(value).number for value in made}


def _computes_itself(run: StepList, call: Call) -> bool:
    """Does the code of a call compute anything itself? A container does not."""
    return any(not step.transparent for step in run.by_call.get(call.index, ()))


def _has_paired_steps(run: StepList, call: Call, steps: Container[int], values: Container[int]) -> bool:
    """Has any step of a call's own body a partner?"""
    return any(
        step.index in steps or any(run.root(value).number in values for value in step.outputs)
        for step in run.by_call.get(call.index, ())
        if not step.transparent and step.outputs
    )


def lacks(names: Sequence[str], step: Step) -> str:
    """Say that b has no counterpart of operations of a, with the line of the first one where that is known."""
    line = (step.node.source or "").rpartition("/")[2]
    return f"{listed(names)} of a{f' ({line})' if line else ''}{ONE if len(names) == 1 else SEVERAL}b"


def _short_source(step: Step) -> str:
    """Return the user's line without its folders, else the module."""
    return (step.node.source or "").rpartition("/")[2] or step.call.path or step.call.type
