"""What is known to be different although a narrower dtype hides what it makes: constants, and weights."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from fxdebug.comparison.diagnosis.cause import differing_settings, listed
from fxdebug.comparison.diagnosis.judge import Judge, StepResult
from fxdebug.comparison.diagnosis.region import written_fractions
from fxdebug.comparison.steps import Step
from fxdebug.operators.names import FACTORIES

HUGE = 1e4  # how masks are written: every dtype has a number of its own for that
FILLING = frozenset(["masked_fill", "where"])  # they write masks
MOST_NOTES = 12  # reported one by one
VARIANT_ARGUMENT = re.compile(r"\w+='(?!none')[^']*'")  # of a function: how a GELU is approximated


def hidden_by_rounding(judge: Judge, reported: Collection[int]) -> Iterator[str]:
    """Notes on steps of runs in two dtypes that are no finding, yet surely not the same; ``reported``: those that are."""
    if judge.narrow is None:
        return
    found = [(result, text) for result in judge.results.values() if (text := _difference(judge, result))]
    hidden = [f"{_where(result.step)}: {text}" for result, text in found if result.step.index not in reported]
    why = f"nothing of it is seen beyond what {judge.narrow} rounds"
    yield from [f"{text}; {why}" for text in hidden[:MOST_NOTES]]
    if len(hidden) > MOST_NOTES:
        yield f"and {len(hidden) - MOST_NOTES} more constants and weights that differ; {why}"


def _difference(judge: Judge, result: StepResult) -> str:
    """What a step surely does otherwise than its counterpart."""
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
