"""Facts about a node, as short texts and numbers by name: other programs show them beside the node.

Only what was measured is in it: a name that is missing was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from fxdebug.data.calls import Call
from fxdebug.data.graphs import Ref, text_of
from fxdebug.data.measures import Taken
from fxdebug.data.values import Stats, Thing, Value
from fxdebug.printable import printable, printable_lines
from fxdebug.query.attach_measures import all_numbers
from fxdebug.query.network import Node

Fact = str | int | float


def facts_of_node(node: Node, taken: Mapping[str, Taken]) -> dict[str, Fact]:
    """Return the facts about a node, in the order in which they are shown: id, place, trust, statistics, measures."""
    facts: dict[str, Fact | None] = {"id": _shown(node.id)}
    if node.source is not None:
        facts["source"] = _shown(node.source)
    if node.kind == "call_module":
        facts |= _facts_of_call(node.call)
    elif node.step is not None and node.step.target != node.step.op:
        facts["target"] = _shown(node.step.target)
    value = node.value
    if value is not None:
        facts["device"], facts["dtype"] = value.device, value.dtype
        if value.sharding is not None or value.detail is not None:
            facts |= {"part": str(value.sharding or ""), "detail": value.detail}
        if value.stats is not None:
            facts |= statistics(value.stats)
    found = {name: fact for name, fact in facts.items() if fact is not None and fact != ""}
    if taken:
        found.update(all_numbers(taken, node.id))
    return found


def _shown(text: str) -> str:
    return text if text.isprintable() else printable(text)


def _facts_of_call(call: Call) -> dict[str, Fact | None]:
    return {
        "path": _shown(call.path),
        "module": _shown(call.type),
        "status": call.status,
        "reason": printable_lines(call.reason),
        "training": int(call.training) or None,
        "error": None if call.error is None else printable_lines(str(call.error)),
    }


def statistics(stats: Stats) -> dict[str, Fact | None]:
    """Return the statistics of a tensor by name; numbers of NaN, infinite and zero elements only where there are some.

    >>> statistics(Stats(2, 0.5, 0.7, 0.0, 1.0, 1.0, zeros=1))
    {'mean': 0.5, 'std': 0.7, 'min': 0.0, 'max': 1.0, 'absmax': 1.0, 'zeros': 1}
    """
    mean = str(stats.mean) if isinstance(stats.mean, complex) else stats.mean
    found: dict[str, Fact | None] = {
        "mean": mean, "std": stats.std, "min": stats.min, "max": stats.max, "absmax": stats.absmax
    }  # fmt: skip
    if stats.nan or stats.posinf or stats.neginf or stats.zeros:
        for name in ("nan", "posinf", "neginf", "zeros"):
            if getattr(stats, name):
                found[name] = getattr(stats, name)
    return found


def constants_of(node: Node, longest: int = 1_000) -> dict[str, str | int]:
    """Return the arguments of a node that are no results of other nodes, by keyword or position (``arg1``)."""
    if node.step is None or node.kind in ("placeholder", "output"):
        return {}
    found: dict[str, str | int] = {}
    operands = [(f"arg{position}", operand) for position, operand in enumerate(node.step.args)]
    for name, operand in [*operands, *node.step.kwargs.items()]:
        if operand is None or isinstance(operand, (Ref, Value)):
            continue
        if isinstance(operand, int) and not isinstance(operand, bool) and operand.bit_length() < 64:
            found[printable(name)] = operand
            continue
        text = printable_lines(operand.text if isinstance(operand, Thing) else text_of(operand))
        found[printable(name)] = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return found


def shortened(text: str, longest: int = 200) -> str:
    """Return a printable text of at most ``longest`` characters, cut in its middle.

    >>> shortened("encoder.layer.0", 9)
    'enco…er.0'
    """
    plain = _shown(text)
    half = longest // 2
    return plain if len(plain) <= longest else f"{plain[:half]}…{plain[len(plain) - (longest - half - 1) :]}"


class UniqueNames:
    """Names for another program: printable, at most ``longest`` characters, and no two the same."""

    def __init__(self, longest: int = 200) -> None:
        self._longest = longest
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def name(self, text: str) -> str:
        r"""Return the name of a text; equal texts have equal names.

        >>> names = UniqueNames(8)
        >>> names.name("a\t"), names.name(r"a\t"), names.name("encoder.layer"), names.name("a\t")
        ('a\\t', 'a\\t~2', 'enco…yer', 'a\\t')
        """
        known = self._names.get(text)
        if known is None:
            plain = known = shortened(text, self._longest)
            number = 1
            while known in self._taken:
                number += 1
                known = f"{plain}~{number}"
            self._names[text] = known
            self._taken.add(known)
        return known
