"""Compare what two attentions are given beside query, key and value: masks, heads, dimensions, tables of biases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fxdebug.comparison.diagnosis.cause import Cause, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import Divergence, Region, is_lookup, multiplied_pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.rounding import COPY_TOLERANCE
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.tolerance import error_between, visible_share
from fxdebug.data.values import Value
from fxdebug.operators.names import SOFTMAXES

ATTENTION = "scaled_dot_product_attention"
MOST_VIEWS = 16  # between an attention and the projection before it


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


def is_of_scores(step: Step, region: Region) -> bool:
    """Is it a softmax behind a product of two values, and no router's or head's?"""
    return step.name == "softmax" and any(map(multiplied_pairs, before_scores(region.steps, step)))


def before_scores(steps: Sequence[Step], end: Step) -> list[Step]:
    """Return the steps that an attention depends on and that depend on data themselves, in execution order."""
    made_by = {value.number: step for step in steps for value in step.outputs}
    found: dict[int, Step] = {}
    pending = list(end.data[:2] if end.name == ATTENTION else end.data)
    while pending:
        step = made_by.get(pending.pop().value.number)
        if step is not None and step.index not in found:
            found[step.index] = step
            pending += () if step.weights else step.data  # scores are made of what is projected
    return [found[index] for index in sorted(found)]


def other_axis_in(divergence: Divergence) -> Cause | None:
    """Return the softmax over a dimension of another size than in a: the layout may differ, but not that size."""
    doing = SOFTMAXES | {ATTENTION}
    sides = [[step for step in side.computing if step.name in doing] for side in (divergence.in_a, divergence.in_b)]
    if len(sides[0]) != len(sides[1]):
        return None
    regions = divergence.in_a, divergence.in_b
    for one, other in zip(*sides):
        if one.name != other.name and not all(
            step.name == ATTENTION or is_of_scores(step, region) for step, region in zip((one, other), regions)
        ):
            continue  # a softmax of a router is none of an attention
        sizes = _size_along(one), _size_along(other)
        if None in sizes or sizes[0] == sizes[1] or sizes[0] not in other.outputs[0].shape:
            continue
        because = f"over a dimension of {sizes[0]} elements in a, of {sizes[1]} in b"
        return divergence.cause("constant", other, because, partner=one)
    return None


def _size_along(step: Step) -> int | None:
    """Return how many elements a softmax, also that of a fused attention, makes add up to one, if that is known."""
    if step.name not in SOFTMAXES:
        return step.data[1].value.shape[-2] if len(step.data) > 2 and len(step.data[1].value.shape) > 1 else None
    for text in step.constants[:1]:
        dimension = text.rpartition("=")[2].removesuffix(".0")
        if re.fullmatch(r"-?\d+", dimension) and step.outputs and step.outputs[0].shape:
            shape = step.outputs[0].shape
            return shape[int(dimension)] if -len(shape) <= int(dimension) < len(shape) else None
    return None


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
    return (error_between(a.stats, b.stats) or 0.0) > COPY_TOLERANCE


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
    while maker is not None and len(maker.data) == 1 and not maker.weights and len(steps) < MOST_VIEWS:
        steps += [maker] if maker.outputs else []
        maker = run.makers.get(maker.data[0].value.number)
    return steps[::-1]
