"""Compare what two attentions are given beside query, key and value, fused or written out: masks, dropout, heads."""

from __future__ import annotations

from collections.abc import Iterable

from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.cause import Cause, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult, draws_random
from fxdebug.comparison.diagnosis.region import Divergence, Region, is_lookup
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import COPIED, VIEWS
from fxdebug.comparison.tolerance import error_between, visible_share
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS

ATTENTION = "scaled_dot_product_attention"


def other_masking(judge: Judge, result: StepResult) -> Cause | None:
    """Return the cause where one of two attentions is masked and the other is not."""
    if result.step.name != ATTENTION or result.partner.name != ATTENTION:
        return None
    told = _other_masking(result.partner, result.step)
    return None if told is None else make_cause(judge, told[0], result.step.call, result.step.op, told[1], result)


def other_masking_in(divergence: Divergence) -> Cause | None:
    """Return the attention of a region that is masked on one side only, where each region has one attention."""
    sides = [_attentions(side.computing) for side in (divergence.in_a, divergence.in_b)]
    if len(sides[0]) != 1 or len(sides[1]) != 1:
        return None
    partner, step = sides[0][0], sides[1][0]
    told = _other_masking(partner, step)
    return None if told is None else divergence.cause(told[0], step, told[1], partner=partner)


def other_bias_table_in(divergence: Divergence) -> Cause | None:
    """Return the lookup in a table of weights that is not the one that a looks up there."""
    pairs = divergence.judge.pairs
    sides = [
        [(given.value, step) for step in side.steps if is_lookup(step) for given in step.weights if given.value.name]
        for side in (divergence.in_a, divergence.in_b)
    ]
    if len(sides[0]) != 1 or len(sides[1]) != 1:
        return None
    (wanted, one), (given, other) = sides[0][0], sides[1][0]
    partner = pairs.value_in_a(given)
    if partner is None or pairs.are_paired(wanted, given) or not _hold_others(partner, wanted):
        return None
    because = f"it looks up rows of {given.name}, in a of {wanted.name}"
    return divergence.cause("wiring", other, because, partner=one)


def _hold_others(a: Value, b: Value) -> bool:
    """Hold two weights of one run other numbers?"""
    return (error_between(a.stats, b.stats) or 0.0) > COPIED


def _attentions(steps: Iterable[Step]) -> list[Step]:
    return [step for step in steps if step.name == ATTENTION]


def _other_masking(a: Step, b: Step) -> tuple[Kind, str] | None:
    masks = _mask_of(a), _mask_of(b)
    if bool(masks[0]) == bool(masks[1]):
        return None
    if masks[0]:
        return "missing", f"it is masked in a ({masks[0]}), not in b"
    return "extra", f"it is masked in b ({masks[1]}), not in a"


def _mask_of(step: Step) -> str:
    """Return the argument that masks an attention; empty where none does."""
    if "is_causal=True" in step.constants:
        return "is_causal=True"
    for given in step.inputs[3:]:
        share, stats = visible_share(given.value), given.value.stats
        if given.value.dtype != "bool" and stats is not None and stats.zeros == stats.count:
            continue  # adding zeros hides nothing
        if share is None or share < 1.0:
            return given.argument
    return ""


def other_heads(judge: Judge, result: StepResult) -> Cause | None:
    """Return the view of b that cuts a projection into heads of another size than in a."""
    run = judge.pairs.b
    if result.step.name != ATTENTION or result.partner.name != ATTENTION:
        return None
    for one, other in result.inputs[:2]:
        sizes = one.value.shape[-1:], other.value.shape[-1:]
        if sizes[0] == sizes[1] or one.value.numel != other.value.numel:
            continue
        cut = next((step for step in _views_before(run, other.value) if step.outputs[0].shape[-1:] == sizes[1]), None)
        if cut is not None:
            because = f"heads of {sizes[0][0]} in a, of {sizes[1][0]} in b"
            return make_cause(judge, "values", cut.call, cut.op, because, result, step=cut)
    return None


def _views_before(run: StepList, value: Value) -> list[Step]:
    """Return the steps with one input that lead to a value, in execution order."""
    steps: list[Step] = []
    maker = run.makers.get(value.number)
    while maker is not None and len(maker.data) == 1 and not maker.weights and len(steps) < VIEWS:
        steps += [maker] if maker.outputs else []
        maker = run.makers.get(maker.data[0].value.number)
    return steps[::-1]


def drawn_only_in_b(divergence: Divergence) -> Cause | None:
    """Return the step that draws random numbers, where the region of a draws none: a dropout that was left on."""
    if any(map(_draws, divergence.in_a.steps)):
        return None
    step = next(filter(_draws, divergence.in_b.steps), None)
    return None if step is None else divergence.cause("random", step, "random numbers were drawn in b, none in a")


def _draws(step: Step) -> bool:
    return draws_random(step) or dropout_of(step) > 0.0


def dropout_of(step: Step) -> float:
    """Return the share of the weights that a fused attention drops."""
    if step.name != ATTENTION:
        return 0.0
    named = [text for name, _, text in (constant.partition("=") for constant in step.constants) if name == "dropout_p"]
    free = [text for text in step.constants if "=" not in text and text not in ("None", "True", "False")]
    return next((number for text in (*named, *free) if (number := number_in(text)) is not None), 0.0)


def visible_shares(region: Region) -> list[tuple[Value | None, float, bool]]:
    """Return the masks of a region, the share that each lets through, and whether that is sure.

    Of booleans it is not known whether ``True`` lets through. An attention may be causal without a mask.
    """
    shares: list[tuple[Value | None, float, bool]] = []
    for value in region.masks:
        share = visible_share(value)
        if share is None:
            continue
        users = {step.name for step in region.steps if any(given.value.number == value.number for given in step.inputs)}
        hides = value.dtype not in EPS and "masked_fill" in users
        shares.append((value, 1.0 - share if hides else share, value.dtype in EPS or hides or ATTENTION in users))
    for step in region.steps:
        if step.name == ATTENTION and "is_causal=True" in step.constants and len(step.data) >= 2:
            rows, columns = (given.value.shape[-2] for given in step.data[:2])
            visible = sum(min(row + 1, columns) for row in range(rows))
            shares.append((None, visible / max(rows * columns, 1), True))
    return shares
