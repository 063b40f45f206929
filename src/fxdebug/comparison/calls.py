"""Pairing calls of modules that have other names: those that return paired values belong together."""

from __future__ import annotations

from collections import defaultdict
from difflib import SequenceMatcher

from fxdebug.comparison.order import in_order
from fxdebug.comparison.pairs import Pairs
from fxdebug.comparison.steps import Run
from fxdebug.trace import Call


def pair_calls(pairs: Pairs) -> None:
    """Pair calls by what they return; nested ones that return the same value from the outside in."""
    one, other = _by_result(pairs.a, pairs.calls_of_a), _by_result(pairs.b, pairs.calls)
    for number, calls in other.items():
        found = pairs.values.get(number)
        if found is None or found.a not in one:
            continue
        for left, right in in_order(one[found.a], calls, lambda a, b: _score(pairs, a, b), lambda call: object()):
            pairs.call(left, right, found.how, round(found.sure * 0.95, 3))


def _by_result(run: Run, paired: dict[int, object] | object) -> dict[int, list[Call]]:
    """Calls without a partner, by the first tensor they return."""
    assert isinstance(paired, dict)
    found: dict[int, list[Call]] = defaultdict(list)
    for call in run.trace.calls:
        value = next(iter(call.outputs or ()), None)
        if call.index not in paired and value is not None:
            found[run.root(value).number].append(call)
    return found


def _score(pairs: Pairs, a: Call, b: Call) -> float:
    """Any two may pair; better those of one class, with like names, given the same."""
    given = [pairs.of_value(value) for value in b.inputs]
    own = {pairs.a.root(value).number for value in a.inputs}
    same_inputs = any(value is not None and value.number in own for value in given)
    names = SequenceMatcher(None, a.path.rpartition(".")[2].lower(), b.path.rpartition(".")[2].lower()).ratio()
    leaf = bool(a.children) == bool(b.children)
    return 0.5 + 2.0 * (a.type == b.type) + names + 1.5 * same_inputs + 0.5 * leaf
