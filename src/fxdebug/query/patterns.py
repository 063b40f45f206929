"""``trace.pattern``: find operations that follow one another along the flow of data."""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Sequence

from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.query.find import find_ops
from fxdebug.query.network import Network, Node, network_of


def find_patterns(trace: TraceData, names: Sequence[str], *, within: int = 4) -> list[tuple[Node, ...]]:
    """Return the chains of operations with these names along the flow of data.

    Up to ``within`` other steps may lie between two of them (a scaling, a mask, a dropout). Each match
    has one node per name. At most one match begins at a node: the nearest one.

    For attention: ``find_patterns(trace, ["matmul", "softmax", "matmul"])``.
    """
    if not names:
        raise UsageError("a pattern needs at least one operation, such as ['matmul', 'softmax', 'matmul']")
    net = network_of(trace)
    matches = []
    starts, *_ = [find_ops(trace, name) for name in names]  # looks up all names, so that each unknown one raises
    for start in starts:
        match = [start]
        for name in names[1:]:
            following = _nearest(net, match[-1], name, within)
            if following is None:
                break
            match.append(following)
        if len(match) == len(names):
            matches.append(tuple(match))
    return matches


def _nearest(net: Network, start: Node, name: str, within: int) -> Node | None:
    """Return the nearest operation of a name downstream, with at most ``within`` other operations between.

    Only functions and methods count: no placeholders, outputs or parameters that are read.
    """
    pending = deque([(start.id, 0)])
    visited = {start.id}
    while pending:
        id, distance = pending.popleft()
        for edge in net.out_of.get(id, ()):
            following = net.nodes[edge.target]
            if following.id in visited:
                continue
            visited.add(following.id)
            operation = following.kind in ("call_function", "call_method")
            if operation and fnmatch.fnmatchcase(following.op, name):
                return following
            if distance + operation <= within:
                pending.append((following.id, distance + operation))
    return None
