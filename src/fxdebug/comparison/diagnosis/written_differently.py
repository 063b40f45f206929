"""Name what is written differently although the results are equal: other constants, other weights, other operations.

Such a difference has no effect on these inputs, or rounding of a narrow dtype hides it. Another notation of the same
computation is none: a default that is written out, a mask that is added or filled in, a scale before or after.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from fxdebug.comparison.diagnosis.cause import Cause, differing_settings, listed, make_cause, on_both_sides
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import region_of, written_fractions
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import EPSILON, MASK
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import ACTIVATIONS, CONVOLUTIONS, FACTORIES, NORMS, RANDOM, canonical

FILLING = frozenset(["masked_fill", "where"])  # operations that write masks
MOST_NOTES = 12  # beyond which the rest is only counted
VARIANT_ARGUMENT = re.compile(r"\w+='(?!none')[^']*'")  # such as a GELU's `approximate='tanh'`
SWITCH = re.compile(r"\w+=(True|False)")
NUMBER_BY_NAME = re.compile(r"\w+=-?[\d.e+-]+")
SQUASHING = frozenset(["tanh", "erf", "sigmoid"])  # what the forms of a GELU are made of
LIMITS = ACTIVATIONS | frozenset(["clamp", "clamp_min", "clamp_max", "hardtanh", "threshold"])

# Fractions that functions use where none is given.
_DEFAULT_FRACTION = {
    "layer_norm": 1e-5, "group_norm": 1e-5, "batch_norm": 1e-5, "instance_norm": 1e-5, "leaky_relu": 0.01,
    "normalize": 1e-12, "cosine_similarity": 1e-8,
}  # fmt: skip
_DEFAULTS_OF_ACTIVATIONS = frozenset(["beta=1.0", "threshold=20.0", "alpha=1.0", "negative_slope=0.01"])
_NUMBER = re.compile(r"\d+")


class Written(NamedTuple):
    """A difference in what is written: the kind that it has as a finding, its text, and the steps."""

    kind: Kind
    text: str
    step: Step  # of b, or of a where b has none
    result: StepResult | None
    is_absorbed: bool = False  # its result differs, and nothing that follows does

    @property
    def where(self) -> tuple[str, str]:
        """The path of the call, or its class for the model itself, and the operation."""
        return self.step.call.path or self.step.call.type, self.step.op


def written_differently(judge: Judge, reported: Collection[int], absorbed: Collection[int] = ()) -> list[Written]:
    """Return the differences in execution order; those of steps that are findings (``reported``) are left out.

    ``absorbed`` are the positions of the steps whose differences do not reach what is returned.
    """
    found: list[Written] = []
    for result in judge.results.values():
        pair = judge.pairs.steps.get(result.step.index)
        unsure = pair is not None and pair.matched_by == "order"
        if result.step.index in reported or unsure or result.step.unrecorded or result.partner.unrecorded:
            continue
        difference = _difference(judge, result)
        if difference is not None:
            found.append(Written(*difference, result.step, result, result.step.index in absorbed))
    return found + list(_limits_of_one_side(judge))


def notes_on(judge: Judge, written: Collection[Written], told: Collection[str] = ()) -> Iterator[str]:
    """Yield a note for each difference; those of repeated layers are one. ``told`` are the causes of findings."""
    groups: dict[tuple[str, str, str, str], list[Written]] = {}
    for each in written:
        path, op = each.where
        why = "as where it was found" if each.text in told else _why(judge, each)
        groups.setdefault((_NUMBER.sub("#", path), op, each.text, why), []).append(each)
    for (_, op, text, why), group in list(groups.items())[:MOST_NOTES]:
        paths = list(dict.fromkeys(each.where[0] for each in group))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        times = f" ×{len(group)}" if len(group) > len(paths) else ""
        yield f"{paths[0]}{more}, {op}{times}: {text}; {why}"
    rest = sum(len(group) for group in list(groups.values())[MOST_NOTES:])
    if rest:
        yield f"and {rest} more constants, weights and operations that differ"


def causes_of(judge: Judge, written: Collection[Written]) -> Iterator[Cause]:
    """Yield the differences as causes, for a strict comparison."""
    for each in written:
        result = each.result or _nearest_result(judge, each.step)
        if result is None:
            continue
        cause = make_cause(judge, each.kind, each.step.call, each.step.op, each.text, result, absorbable=False)
        yield cause if each.result is not None else replace(cause, a=None, b=None)


def constant_causes(judge: Judge) -> Iterator[Cause]:
    """Yield the steps beyond tolerance that certainly differ in a constant, however much error they were given."""
    for result in judge.results.values():
        if result.error > result.tolerance and result.differing_weights is None:
            difference = _difference(judge, result)
            if difference is not None and difference[0] == "constant":
                yield make_cause(judge, "constant", result.step.call, result.step.op, difference[1], result)


def _nearest_result(judge: Judge, step: Step) -> StepResult | None:
    """Return the result beside which to show a step that only one run has."""
    results = list(judge.results.values())
    beside = [result for result in results if step in (result.step, result.partner)]
    return next(iter([*beside, *results[-1:]]), None)


def _why(judge: Judge, written: Written) -> str:
    if judge.narrow is not None:
        return f"nothing of it is seen beyond what {judge.narrow} rounds"
    if written.is_absorbed:
        return "what is returned does not show it, within tolerance"
    if written.result is not None and written.result.error > written.result.tolerance:
        return "what it was given differs already"
    return "its result does not show it, within tolerance"


def stale_weights(judge: Judge, written: Collection[Written]) -> Iterator[tuple[Written, Cause]]:
    """Yield the steps under autocast whose weights differ, and whose results are the same: others were used."""
    for each in written:
        step, result = each.step.node.step, each.result
        if each.kind != "weights" or result is None or result.error or step is None or not step.autocast:
            continue
        given = next((value.value.stats for value in each.step.data), None)
        if given is None or not given.absmax or not each.step.data:  # of zeros all weights make the same
            continue
        because = (
            f"{each.text}, and the result is the same to the last bit: it is computed with earlier weights, whose "
            "casts autocast keeps in its cache until its block ends"
        )
        yield each, make_cause(judge, "weights", each.step.call, each.step.op, because, result, absorbable=False)


def _difference(judge: Judge, result: StepResult) -> tuple[Kind, str] | None:
    """Return the kind and the text of a difference between a step and its counterpart; ``None`` if there is none."""
    if result.differing_weights is not None:
        pair = judge.pairs.steps.get(result.step.index)
        by_name = pair is not None and pair.matched_by in ("path", "mapping")
        if pair is None or (judge.narrow is None and (not by_name or result.error > result.tolerance)):
            return None  # two implementations in one dtype may keep their weights in another order
        one, other = result.differing_weights
        name = other.value.name or other.argument
        theirs = one.value.name or one.argument
        return "weights", f"{name} holds other numbers than {'that of a' if theirs == name else theirs}"
    step, partner = result.step, result.partner
    if step.name in FACTORIES | FILLING | RANDOM:  # dropout that drew nothing
        return None
    if step.name == partner.name:
        text = _differing_constants(partner, step)
        return None if text is None else ("constant", text)
    if {step.name, partner.name} <= ACTIVATIONS:
        return "operation", f"{partner.op} in a, {step.op} in b"
    return _in_regions(judge, result)


def _differing_constants(a: Step, b: Step) -> str | None:
    """Return the constants of two steps of one kind, as text, where they may have an effect."""
    only_a, only_b = differing_settings(a, b)
    if not only_a and not only_b:
        return None
    numbers = [[x for x in written_fractions(side) if abs(x) < MASK] for side in (a, b)]
    default = _DEFAULT_FRACTION.get(canonical(b.op))
    numbers = [side or ([] if default is None else [default]) for side in numbers]
    others = bool(numbers[0] and numbers[1]) and not _same_numbers(numbers[0], numbers[1])
    words = [text for text in (*only_a, *only_b) if VARIANT_ARGUMENT.fullmatch(text)]
    one, other = ({t.partition("=")[0]: t for t in side if SWITCH.fullmatch(t)} for side in (only_a, only_b))
    switched = any(other.get(name, text) != text for name, text in one.items())
    named = [t for t in (*only_a, *only_b) if a.name in ACTIVATIONS and NUMBER_BY_NAME.fullmatch(t)]
    others = others or any(text not in _DEFAULTS_OF_ACTIVATIONS for text in named)
    if not others and not switched and (not words or a.name in CONVOLUTIONS):
        return None
    return on_both_sides(listed(only_a), listed(only_b))


def _same_numbers(a: list[float], b: list[float]) -> bool:
    return len(a) == len(b) and all(abs(x - y) <= 1e-6 * abs(x) for x, y in zip(sorted(a), sorted(b)))


def _in_regions(judge: Judge, result: StepResult) -> tuple[Kind, str] | None:
    """Return the difference between a fused operation and the steps that the other run has in its place."""
    names = {result.step.name, result.partner.name}
    if not names & (NORMS | {"gelu"}):
        return None
    sides = [
        _steps_of_value(run, value, firm)
        for run, value, firm in (
            (judge.pairs.a, result.a, judge.pairs.is_firm_in_a),
            (judge.pairs.b, result.b, judge.pairs.is_firm),
        )
    ]
    if names & NORMS:
        tiny = [sorted({x for step in side for x in _epsilons(step)}) for side in sides]
        if len(tiny[0]) == len(tiny[1]) == 1 and not _same_numbers(tiny[0], tiny[1]):
            return "constant", f"eps={tiny[0][0]:g} in a, eps={tiny[1][0]:g} in b"
        return None
    forms = [{form for step in side for form in _form_of_gelu(step)} for side in sides]
    if len(forms[0]) == len(forms[1]) == 1 and forms[0] != forms[1]:
        return "constant", f"a GELU by {forms[0].pop()} in a, by {forms[1].pop()} in b"
    return None


def _steps_of_value(run: StepList, value: Value, firm: Callable[[Value], bool]) -> tuple[Step, ...]:
    """Return the steps that a value comes from, back to values that are certainly paired."""
    return region_of(run, value, firm, through=True).steps


def _epsilons(step: Step) -> list[float]:
    """Return the epsilons that a step of a norm adds; the default of a norm that is given none."""
    if step.name not in NORMS and step.name not in ("add", "clamp", "clamp_min", "maximum"):
        return []
    tiny = [x for x in written_fractions(step) if 0 < x < EPSILON]
    default = _DEFAULT_FRACTION.get(step.name)
    return tiny or ([] if default is None or step.name not in NORMS else [default])


def _form_of_gelu(step: Step) -> list[str]:
    if step.name == "gelu":
        return ["tanh" if any("tanh" in text for text in step.constants) else "erf"]
    return [step.name] if step.name in SQUASHING else []


# Limits that cut nothing ---------------------------------------------------------------------------


def _limits_of_one_side(judge: Judge) -> Iterator[Written]:
    """Yield activations and limits that change nothing on these inputs, where the other run has fewer of them."""
    pairs = judge.pairs
    only_a = _spare_limits(pairs.a, pairs.b, lambda call: _call_in_b(pairs, call))
    only_b = _spare_limits(pairs.b, pairs.a, pairs.call_in_a)
    partners = {index: pair.a for index, pair in pairs.calls.items()}
    for around, steps in only_b.items():
        others = only_a.get(partners[around], [])
        for step in steps:
            instead = others.pop(0) if others else None
            if instead is None:
                yield Written("extra", "only b has it", step, None)
            else:
                yield Written("operation", f"{instead.op} in a, {step.op} in b", step, None)
    for steps in only_a.values():
        yield from (Written("missing", "only a has it", step, None) for step in steps)


def _spare_limits(run: StepList, other: StepList, partner_of: Callable[[Call], Call | None]) -> dict[int, list[Step]]:
    """Return the limits that change nothing, without as many as the other run has, by the paired call around them."""
    spare: dict[int, list[Step]] = {}
    known: dict[tuple[int, str], int] = {}
    for step in run.steps:
        limits_floats = step.name in LIMITS and any(value.dtype in EPS for value in step.outputs)
        if not limits_floats or not step.transparent or step.unrecorded:
            continue
        around = next((call for call in step.call.with_ancestors() if partner_of(call) is not None), None)
        partner = None if around is None else partner_of(around)
        if around is None or partner is None:
            continue
        key = around.index, step.name
        if key not in known:
            known[key] = _count(run, around, step.name) - _count(other, partner, step.name)
        if known[key] > 0:
            known[key] -= 1
            spare.setdefault(around.index, []).append(step)
    return spare


def _call_in_b(pairs: Pairs, call: Call) -> Call | None:
    index = pairs.calls_of_a.get(call.index)
    return None if index is None else pairs.b.trace.calls[index]


def _count(run: StepList, call: Call, name: str) -> int:
    """Return how many steps of a name there are in a call and the calls inside it."""
    return sum(step.name == name for inner in call.walk() for step in run.by_call.get(inner.index, ()))
