"""Compare two attentions however they are written, fused or step by step: masks, dropout and scale."""

from __future__ import annotations

import math

from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.attention.attention_arguments import ATTENTION, before_scores, is_of_scores
from fxdebug.comparison.diagnosis.attention.tables import Tables
from fxdebug.comparison.diagnosis.cause import Cause
from fxdebug.comparison.diagnosis.evaluate_steps import draws_random
from fxdebug.comparison.diagnosis.region import Divergence, Region, multiplied_pairs
from fxdebug.comparison.steps import Step
from fxdebug.comparison.tolerance import is_additive_mask, visible_share
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import SUMS, normalized_constants

SAME_SCALE = 1e-3  # relative: a scale may be rounded to a narrow dtype
SCALES = frozenset(["mul", "div"])


def other_attention_in(divergence: Divergence, tables: tuple[Tables, Tables]) -> Cause | None:
    """Return the step that draws random numbers, or scales the scores of an attention, in b only or in another way."""
    return _drawn_only_in_b(divergence) or _other_scale(divergence, tables) or _scaled_bias(divergence, tables)


def _drawn_only_in_b(divergence: Divergence) -> Cause | None:
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


# The scale ---------------------------------------------------------------------------------------


def _other_scale(divergence: Divergence, tables: tuple[Tables, Tables]) -> Cause | None:
    """Return the step that scales the scores in b, where the scores of a are scaled by another number."""
    in_a, in_b = _scaled(divergence.in_a, tables[0]), _scaled(divergence.in_b, tables[1])
    if in_a is None or in_b is None:
        return None
    (scale_a, steps_a), (scale_b, steps_b) = in_a, in_b
    if math.isclose(scale_a, scale_b, rel_tol=SAME_SCALE):
        return None
    computing = divergence.in_b.computing
    is_attention = any(step.name in (ATTENTION, "softmax") or multiplied_pairs(step) for step in computing)
    scaled = "the scores are scaled" if is_attention else "scaled"
    because = f"{scaled} by {scale_a:.4g} in a, by {scale_b:.4g} in b"
    named = [step for step in computing if step.name in (ATTENTION, "softmax") or multiplied_pairs(step)]
    attention = next(iter(named), divergence.in_b.last)
    if steps_b:
        return divergence.cause("constant", steps_b[-1], because, partner=steps_a[-1] if steps_a else None)
    if attention is None or not steps_a:
        return None
    fused = steps_a[-1].name == ATTENTION
    op = "mul" if fused else steps_a[-1].op
    return divergence.cause_in("missing", attention.call, op, because, step=attention, partner=steps_a[-1])


def _scaled_bias(divergence: Divergence, tables: tuple[Tables, Tables]) -> Cause | None:
    """Return the step that scales, in one run alone, what is added to the scores of an attention."""
    in_a, in_b = _after_bias(divergence.in_a, tables[0]), _after_bias(divergence.in_b, tables[1])
    if in_a is None or in_b is None or math.isclose(in_a[0], in_b[0], rel_tol=SAME_SCALE):
        return None
    where, factor = ("b", in_b[0]) if in_b[0] != 1.0 else ("a", in_a[0])
    order = "after the scores are scaled in a, before" if where == "b" else "before the scores are scaled in a, after"
    because = f"the bias is added {order} that in b: {where} scales it by {factor:.4g}"
    return divergence.cause("constant", in_b[1], because, partner=in_a[1])


def _after_bias(region: Region, tables: Tables) -> tuple[float, Step] | None:
    """Return the number that multiplies what was added to the scores, and the step that adds it; ``None`` without."""
    ends = [step for step in region.steps if step.name in (ATTENTION, "softmax")]
    if len(ends) != 1:
        return None
    if ends[0].name == ATTENTION:
        return (1.0, ends[0]) if len(ends[0].inputs) > 3 else None
    adding: Step | None = None
    factor = 1.0
    for step in before_scores(region.steps, ends[0]):
        floats = [given.value for given in step.inputs if given.value.dtype in EPS and given.value.numel > 1]
        if step.name == "add" and len(floats) == 2 and not any(map(is_additive_mask, (v.stats for v in floats))):
            adding, factor = step, 1.0
        elif step.name in SCALES and not tables.makes(step) and adding is not None:
            factor *= _factor(step) or 1.0
    return None if adding is None else (factor, adding)


def _scaled(region: Region, tables: Tables) -> tuple[float, list[Step]] | None:
    """Return the number by which a region multiplies the scores of its one attention, and the steps that do so.

    ``None`` where there is not one attention, or where it cannot be told: a scale may be a weight.
    """
    ends = [step for step in region.steps if step.name == ATTENTION or is_of_scores(step, region)]
    if not ends and _makes_scores(region, tables):
        ends = [region.computing[-1]]
    if len(ends) != 1:
        return None
    scale, steps = 1.0, []
    for step in before_scores(region.steps, ends[0]) + ([] if ends[0].name == ATTENTION else ends):
        if step.name not in SCALES or tables.makes(step):
            continue
        if any(given.value.numel > 1 for given in step.weights):
            return None
        factor = _factor(step)
        if factor is not None and factor != 1.0:
            scale *= factor
            steps.append(step)
    if ends[0].name == ATTENTION:
        scale *= _fused_scale(ends[0])
        steps.append(ends[0])
    return scale, steps


def _makes_scores(region: Region, tables: Tables) -> bool:
    """Does a region end with scores before their softmax: with a product, its scale and its mask?"""
    computing = [step for step in region.computing if not tables.makes(step)]
    added = SCALES | SUMS | frozenset(["masked_fill"])
    return bool(computing) and all(step.name in added or multiplied_pairs(step) for step in computing)


def _factor(step: Step) -> float | None:
    """Return the number that a step multiplies a value with; ``None`` where it multiplies two values."""
    given = [each.value for each in step.inputs]
    single = [value for value in given if value.numel == 1]
    if len(given) == 2 and len(single) == 1 and single[0].stats is not None and not step.constants:
        mean = single[0].stats.mean
        number = float(mean) if isinstance(mean, (int, float)) and given[0].numel > 1 else None
    elif len(given) == 1:
        numbers = [number for text in normalized_constants(step.constants) if (number := number_in(text)) is not None]
        number = numbers[0] if len(numbers) == 1 else None
    else:
        return None
    if not number or not math.isfinite(number):
        return None
    return 1.0 / number if step.name == "div" else number


def _fused_scale(step: Step) -> float:
    named = (text for name, _, text in (constant.partition("=") for constant in step.constants) if name == "scale")
    given = next((number for text in named if (number := number_in(text)) is not None), None)
    return given if given is not None else step.data[0].value.shape[-1] ** -0.5 if step.data else 1.0
