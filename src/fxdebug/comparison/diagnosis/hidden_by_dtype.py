"""Note constants and weights that differ although the rounding of a narrow dtype hides their effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import written_fractions
from fxdebug.comparison.pairing.name_mapping import is_ignored
from fxdebug.comparison.steps import Step
from fxdebug.operators.names import FACTORIES

HUGE = 1e4  # constants from here on are mask values, which differ between dtypes
FILLING = frozenset(["masked_fill", "where"])  # operations that write masks
MOST_NOTES = 12  # beyond which the rest is only counted
VARIANT_ARGUMENT = re.compile(r"\w+='(?!none')[^']*'")  # such as a GELU's `approximate='tanh'`


def hidden_by_rounding(judge: Judge, reported: Collection[int]) -> Iterator[str]:
    """Yield notes on steps whose difference is hidden by rounding, for runs in two dtypes.

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
    """Return as text in which weights or constants a step certainly differs from its counterpart; else empty."""
    pair = judge.pairs.steps.get(result.step.index)
    if pair is None or pair.matched_by == "order":
        return ""
    if result.differing_weights is not None:
        one, other = result.differing_weights
        return f"{other.value.name or other.argument} holds other numbers than {one.value.name or one.argument}"
    step, partner = result.step, result.partner
    if step.name != partner.name or step.name in FACTORIES | FILLING:
        return ""
    only_a, only_b = differing_settings(partner, step)
    numbers = [[x for x in written_fractions(side) if abs(x) < HUGE] for side in (partner, step)]
    words = [text for text in (*only_a, *only_b) if VARIANT_ARGUMENT.fullmatch(text)]
    if not words and (not (only_a or only_b) or sorted(numbers[0]) == sorted(numbers[1])):
        return ""
    return f"{listed(only_a) or 'nothing'} in a, {listed(only_b) or 'nothing'} in b"


def constant_causes(judge: Judge, globs: Sequence[str]) -> Iterator[Cause]:
    """Yield the steps beyond tolerance that certainly differ in a constant, however much error they were given."""
    for result in judge.results.values():
        beyond = result.error > result.tolerance and result.differing_weights is None
        if beyond and not is_ignored(result.step.call.path, globs) and (text := _difference(judge, result)):
            yield make_cause(judge, "constant", result.step.call, result.step.op, text, result)


def _where(step: Step) -> str:
    return f"{step.call.path or step.call.type}, {step.op}"
