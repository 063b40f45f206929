"""Masks that were given to a model, and that nothing it returned depends on."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import WARNING, Finding
from fxdebug.operators.categories import TO_PYTHON_NUMBERS
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

ASKED = TO_PYTHON_NUMBERS | {"bool", "all", "any"}  # the code reads it, and goes another way


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
