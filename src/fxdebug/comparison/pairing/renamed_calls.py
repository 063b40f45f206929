"""Pair calls of modules that have other names: by the paired operations in them, and by what they return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import MatchedBy
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FEW_TIMES, HALF
from fxdebug.data.calls import Call


def pair_renamed_calls(pairs: Pairs) -> None:
    """Pair calls by the paired operations in them, by what they return, and by name; the best fit first."""
    shared, counts_a, counts_b = _shared_steps(pairs), _steps_per_call(pairs.a), _steps_per_call(pairs.b)
    candidates: list[tuple[float, int, int]] = []
    for one, other in {*shared, *_same_results(pairs)}:
        if one in pairs.calls_of_a or other in pairs.calls:
            continue
        a, b = pairs.a.trace.calls[one], pairs.b.trace.calls[other]
        both = shared[(one, other)]
        least, most = sorted((counts_a[one], counts_b[other]))
        overlap = 2 * both / max(least + most, 1)
        if least * FEW_TIMES >= most:  # a far smaller call within a large one is no pair
            overlap = max(overlap, 0.8 * both / max(least, 1))
        same = _returns_the_same(pairs, a, b)
        if overlap >= HALF or same:
            candidates.append((overlap + 0.5 * same + _name_similarity(a, b), one, other))
    for score, one, other in sorted(candidates, key=lambda candidate: (-candidate[0], candidate[2])):
        a, b = pairs.a.trace.calls[one], pairs.b.trace.calls[other]
        if _fits_nesting(pairs, a, b):
            pairs.add_call(a, b, _matched_by(pairs, b), round(min(0.95, score / 2), 2))


def _steps_with_ancestors(run: StepList) -> Iterator[tuple[Step, Call]]:
    """Yield each step with each of the calls that it is in."""
    for step in run.steps:
        if step.outputs and not step.transparent:
            for call in step.call.with_ancestors():
                yield step, call


def _steps_per_call(run: StepList) -> Counter[int]:
    return Counter(call.index for _, call in _steps_with_ancestors(run))


def _shared_steps(pairs: Pairs) -> Counter[tuple[int, int]]:
    """Count for each call of a and each call of b the pairs of steps with one side in each."""
    above: dict[int, list[int]] = {}
    for step, call in _steps_with_ancestors(pairs.a):
        above.setdefault(step.index, []).append(call.index)
    shared: Counter[tuple[int, int]] = Counter()
    for step, call in _steps_with_ancestors(pairs.b):
        partner = None if call.index in pairs.calls else _counterpart(pairs, step)
        for other in () if partner is None else above.get(partner.index, ()):
            shared[(other, call.index)] += 1
    return shared


def _counterpart(pairs: Pairs, step: Step) -> Step | None:
    """Return the step of a that is paired with a step of b, or whose result is."""
    partner = pairs.step_in_a(step)
    if partner is None:
        value = next((value for value in map(pairs.value_in_a, step.outputs) if value is not None), None)
        partner = None if value is None else pairs.a.makers.get(value.number)
    return partner


def _same_results(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """Yield the indices of calls, of a and of b, that return paired values."""
    one: dict[int, list[int]] = {}
    for call in pairs.a.trace.calls:
        value = next(iter(call.outputs or ()), None)
        if value is not None and call.index not in pairs.calls_of_a:
            one.setdefault(pairs.a.root(value).number, []).append(call.index)
    for call in pairs.b.trace.calls:
        value = next(iter(call.outputs or ()), None)
        partner = None if value is None or call.index in pairs.calls else pairs.value_in_a(value)
        for index in () if partner is None else one.get(partner.number, ()):
            yield index, call.index


def _returns_the_same(pairs: Pairs, a: Call, b: Call) -> bool:
    one, other = next(iter(a.outputs or ()), None), next(iter(b.outputs or ()), None)
    return one is not None and other is not None and pairs.are_paired(one, other)


def _name_similarity(a: Call, b: Call) -> float:
    """Return how similar two calls are by name, by class and by being a leaf or a container: from 0 to 0.5."""
    names = SequenceMatcher(None, a.path.rpartition(".")[2].lower(), b.path.rpartition(".")[2].lower()).ratio()
    return 0.2 * (a.type == b.type) + 0.2 * names + 0.1 * (bool(a.children) == bool(b.children))


def _fits_nesting(pairs: Pairs, a: Call, b: Call) -> bool:
    """Do the pairs of the calls around them agree: is ``a`` inside the partner of the nearest paired call around b?"""
    if a.index in pairs.calls_of_a or b.index in pairs.calls:
        return False
    above = b.parent
    while above is not None:
        partner = pairs.call_in_a(above)
        if partner is not None:
            call = a.parent
            while call is not None and call is not partner:
                call = call.parent
            return call is partner
        above = above.parent
    return True


def _matched_by(pairs: Pairs, b: Call) -> MatchedBy:
    value = next(iter(b.outputs or ()), None)
    pair = None if value is None else pairs.values.get(pairs.b.root(value).number)
    return "dataflow" if pair is None else pair.matched_by
