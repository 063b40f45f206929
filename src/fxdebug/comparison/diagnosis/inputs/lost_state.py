"""Zeros with which a later call of a module begins, where that of the other run goes on from an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Row
from fxdebug.data.calls import Call
from fxdebug.operators.names import canonical
from fxdebug.query.edges import Edge
from fxdebug.query.network import Node, network_of

MAKE_ZEROS = frozenset("zeros new_zeros zeros_like full".split())


def with_lost_state(rows: Sequence[Row], pairs: Pairs) -> list[Row]:
    """Return findings with the state told that b begins anew in a later call, once for all calls of a module."""
    told: set[str] = set()
    found: list[Row] = []
    for row in rows:
        lost = _lost(row, pairs)
        if lost is None:
            found.append(row)
        elif lost[0] not in told:
            told.add(lost[0])
            found.append(replace(row, because=lost[1]))
    return found


def _lost(row: Row, pairs: Pairs) -> tuple[str, str] | None:
    """Return the path of the module that begins with zeros again, and the sentence."""
    b = network_of(pairs.b.trace)
    node = None if row.b is None or not row.b.node or row.kind not in ("values", "wiring") else b.nodes.get(row.b.node)
    if node is None or canonical(node.op) not in MAKE_ZEROS or node.stats is None or node.stats.absmax != 0:
        return None
    for edge in b.out_of.get(node.id, ()):
        user = b.nodes[edge.target]
        partner = pairs.call_in_a(user.call)
        maker = None if partner is None or not user.call.number else _maker_before(pairs, partner, user, edge)
        if maker is not None:
            path = user.call.path
            whose = "" if maker.call.path == path else f" of {maker.call.path or 'the model'}"
            return path, (
                f"in b call {user.call.number} of {path} begins with zeros, in a it goes on from what call "
                f"{maker.call.number}{whose} left: the state is not passed on"
            )
    return None


def _maker_before(pairs: Pairs, call: Call, user: Node, edge: Edge) -> Node | None:
    """Return what made the same argument of the same operation in a call of a, where that was before the call."""
    net, is_given = network_of(pairs.a.trace), user.kind == "placeholder"
    names = [user.id.rpartition("/")[2]] if is_given else [one.name for one in net.steps(call) if one.op == user.op]
    for name in names[:1]:
        for given in net.into.get(f"{net.call_id(call)}/{name}", ()):
            if (is_given or given.argument == edge.argument) and given.value is not None:
                made = net.made_before(given.value, call)
                maker = None if made is None else net.nodes[made]
                return maker if maker is not None and canonical(maker.op) not in MAKE_ZEROS else None
    return None
