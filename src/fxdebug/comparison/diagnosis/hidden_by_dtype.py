"""Note constants and weights that differ although the rounding of a narrow dtype hides their effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from fxdebug.comparison.diagnosis.cause import differing_settings, listed
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import written_fractions
from fxdebug.comparison.steps import Step
from fxdebug.operators.names import FACTORIES

HUGE = 1e4  # numbers that masks are written with, another one for each dtype
FILLING = frozenset(["masked_fill", "where"])  # operations that write masks
MOST_NOTES = 12  # beyond which the rest is only counted
VARIANT_ARGUMENT = re.compile(r"\w+='(?!none')[^']*'")  # such as a GELU's `approximate='tanh'`


def hidden_by_rounding(judge: Judge, reported: Collection[int]) -> Iterator[str]:
    """Yield notes on steps that differ although rounding hides it, for runs in two dtypes.

    ``reported`` has the positions of steps that are findings already.
    """
    if judge.narrow is None:
        return
    differing = [(result, text) for result in judge.results.values() if (text := _difference(judge, result))]
    hidden = [f"{_where(result.step)}: {text}" for result, text in differing if result.step.index not in reported]
    why = f"nothing of it is seen beyond what {judge.narrow} rounds"
    yield from [f"{text}; {why}" for text in hidden[:MOST_NOTES]]
    if len(hidden) > MOST_NOTES:
        yield f"and {len(hidden) - MOST_NOTES} more constants and weights that differ; {why}"


def _difference(judge: Judge, result: StepResult) -> str:
    """Say in which weights or constants a step certainly differs from its counterpart; empty where it does not."""
    pair = judge.pairs.steps.get(result.step.index)
    if pair is None or pair.matched_by == "order":
        return ""
    if result.differing_weights is not None:
        one, other = result.differing_weights
        return f"{other.value.name or other.argument} holds other numbers than {one.value.name or one.argument}"
    step, partner = result.step, result.partner
    if step.name != partner.name or step.name in FACTORIES | FILLING:
        return ""
    ours, theirs = differing_settings(partner, step)
    numbers = [[x for x in written_fractions(side) if abs(x) < HUGE] for side in (partner, step)]
    words = [text for text in (*ours, *theirs) if VARIANT_ARGUMENT.fullmatch(text)]
    if not words and (not (ours or theirs) or sorted(numbers[0]) == sorted(numbers[1])):
        return ""
    return f"{listed(ours) or 'nothing'} in a, {listed(theirs) or 'nothing'} in b"


def _where(step: Step) -> str:
    return f"{step.call.path or step.call.type}, {step.op}"
