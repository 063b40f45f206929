"""Small numbers that code adds so that nothing is divided by 0, and that are 0 in the dtype of the result."""

from __future__ import annotations

from fxdebug.analyses.numbers.lineage import NodeResults, literals_of
from fxdebug.operators.dtypes import DTYPES
from fxdebug.operators.names import canonical
from fxdebug.query.network import Node

ADDS = frozenset(["add", "clamp", "clamp_min", "maximum"])
FAR = 4  # operations between it and where 0 is divided by


def lost_epsilon(results: NodeResults, node: Node) -> str:
    """Return the number that was added before an operation to keep it from 0, and was rounded to 0; else nothing."""
    pending, seen = [node.id], {node.id}
    for _ in range(FAR):
        sources = [source for id in pending for _, source in results.inputs(results.net.nodes[id])]
        pending = []
        for id in sources:
            if id in seen:
                continue
            seen.add(id)
            one = results.net.nodes[id]
            least = DTYPES[one.dtype].least if one.dtype in DTYPES else 0.0
            if canonical(one.op) in ADDS and least:
                for literal in literals_of(one):
                    if 0 < abs(literal) <= least / 2:
                        return f" ({literal:g}, which {one.op} adds, is 0 in {one.dtype})"
            pending.append(id)
    return ""
