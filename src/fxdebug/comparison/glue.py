"""The code of a call whose operations were not recorded: what it does between the calls that it makes.

A run with ``graph=False``, a trace read from the reference's files and what is opaque have calls only. A value that
a call is given and that nobody returned was made by the code around it, of what that had at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.graph import Node

MOST = 64  # values at hand that are looked at


class Glue(NamedTuple):
    """Something that the code of a call made: where in the order of nodes, of what, and what."""

    position: float
    node: Node
    given: tuple[tuple[str, Value], ...]
    made: tuple[Value, ...]


def glue(net: Any, call: Call) -> Iterator[Glue]:
    """Each thing that a call without a graph makes before one of its calls, and what it returns in the end."""
    node = net.nodes[net.call_id(call)]
    hand: list[tuple[str, Value]] = list(call.inputs.named())
    known = {value.number for _, value in hand}
    for child in call.children:
        made = [value for value in child.inputs if value.number not in known and value.name is None]
        made = list({value.number: value for value in made}.values())
        name = child.path[len(call.path) :].lstrip(".")
        if made:
            yield Glue(net.began[child.index] - 0.5, node, tuple(hand[-MOST:]), tuple(made))
            hand += [(f"{name}({i})", value) for i, value in enumerate(made)]
        hand += [(f"{name}{slot}", value) for slot, value in (child.outputs.named() if child.outputs else ())]
        known.update(value.number for _, value in hand)
    own = tuple([value for value in node.values if value.number not in known])
    yield Glue(node.position, node, tuple(hand[-MOST:]), tuple({value.number: value for value in own}.values()))
