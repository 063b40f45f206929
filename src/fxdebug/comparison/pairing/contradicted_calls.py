"""Drop pairs of calls that contradict the pairs of values: such calls are at different places in the two models."""

from __future__ import annotations

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.data.calls import Call


def drop_contradicted_calls(pairs: Pairs) -> None:
    """Drop a pair of calls if what one of them returns certainly belongs to something that the other does not return.

    Calls that were paired by name or by the user stay: there a wrong value may be the fault that is looked for.
    """
    for index, pair in list(pairs.calls.items()):
        a, b = pairs.a.trace.calls[pair.a], pairs.b.trace.calls[index]
        if pair.matched_by in ("path", "mapping") or b.parent_index is None:
            continue
        if _contradicts(pairs, a, b):
            del pairs.calls[index]
            del pairs.calls_of_a[pair.a]


def _contradicts(pairs: Pairs, a: Call, b: Call) -> bool:
    one, other = list(a.outputs or ()), list(b.outputs or ())
    if any(pairs.are_paired(x, y) for x in one for y in other):
        return False
    return any(map(pairs.is_firm_in_a, one)) or any(map(pairs.is_firm, other))
