"""Two masks of the lowest number of their dtype that are added: their sum is -Inf where both hide."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import ADVICE, Finding
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import FLOATS
from fxdebug.operators.names import canonical
from fxdebug.plugins import found
from fxdebug.query.network import Network

NEAR = 0.6  # of the largest number: two of more than half of it are beyond it


def find_added_masks(net: Network) -> Iterator[Finding]:
    """Yield sums of two finite masks that are infinite in some places."""
    for node in net.nodes.values():
        if node.kind not in ("call_function", "call_method") or canonical(node.op) != "add" or node.stats is None:
            continue
        given = [edge.value for edge in net.into.get(node.id, ()) if edge.value is not None]
        if not node.stats.neginf or len(given) != 2 or not all(map(_is_lowest, given)):
            continue
        dtype = next(value.dtype for value in given)
        yield found(
            node,
            f"two masks of the lowest {dtype} ({-FLOATS[dtype].max:.3g}) are added: {node.stats.neginf} of "
            f"{node.stats.count} places, which both hide, are -Inf",
            rule="masks added",
            severity=ADVICE,
            measured=float(node.stats.neginf),
            advice="A row that sees nothing is then NaN after softmax, where it was even before. Join masks as "
            "booleans (a & b), or take the smaller one (torch.minimum), and fill once.",
        )


def _is_lowest(value: Value) -> bool:
    """Is it finite, and about the lowest number of its dtype somewhere?"""
    stats = value.stats
    if stats is None or value.dtype not in FLOATS or stats.neginf or not isinstance(stats.min, (int, float)):
        return False
    return stats.min < -NEAR * FLOATS[value.dtype].max
