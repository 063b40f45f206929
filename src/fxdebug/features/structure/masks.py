"""Masks that were given to a model, and that nothing it returned depends on."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.values import Value
from fxdebug.operators.categories import TO_PYTHON_NUMBERS
from fxdebug.operators.dtypes import FLOATS
from fxdebug.operators.names import canonical
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

ASKED = TO_PYTHON_NUMBERS | {"bool", "all", "any"}  # the code reads it, and goes another way
NEAR = 0.6  # of the largest number: two of more than half of it are beyond it


def find_unread_masks(net: Network) -> Iterator[Finding]:
    """Yield the masks among the inputs of a run that hide something, and that nothing returned was computed from."""
    root = net.trace.root
    if root.outputs is None or root.body is None or root.body.graph is None:
        return
    for node in list(net.nodes.values()):
        if node.kind != "placeholder" or node.call is not root or "mask" not in node.target.lower():
            continue
        if _hides(node) and not _is_read(net, node):
            yield found(
                node,
                f"{node.target} hides {_hidden(node)}, and nothing that the model returned depends on it",
                rule="mask not read",
                severity=WARNING,
                advice="Look whether the forward passes it on to its attention, and whether that reads it.",
            )


def _hides(node: Node) -> bool:
    return node.stats is not None and bool(node.stats.neginf or 0 < node.stats.zeros < node.stats.count)


def _hidden(node: Node) -> str:
    assert node.stats is not None
    count = node.stats.zeros or node.stats.neginf
    return f"{count} of {node.stats.count} places"


def _is_read(net: Network, node: Node) -> bool:
    """Does what the model returned, or the way that its code took, depend on a node?"""
    end, seen, pending = net.call_id(net.trace.root), {node.id}, [node.id]
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            target = net.nodes[edge.target]
            opaque = target.kind == "call_module" and (target.call.body is None or target.call.body.graph is None)
            if edge.target == end or target.op in ASKED or opaque:
                return True
            if edge.target not in seen:
                seen.add(edge.target)
                pending.append(edge.target)
    return False


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
