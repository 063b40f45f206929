"""Two linear layers in a row without a nonlinearity between them: one linear map in two parts."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import ADVICE, Finding
from fxdebug.operators.names import ACTIVATIONS
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

BETWEEN = frozenset(
    "dropout view reshape flatten contiguous identity to type float half bfloat16 squeeze unsqueeze".split()
)
LINEAR = "linear"


def find_linear_pairs(net: Network) -> Iterator[Finding]:
    """Yield linear layers whose result nothing but another linear layer takes, and is no narrower than both ends.

    Fewer numbers between two layers than at both ends are a map of low rank, as in LoRA, and meant. A model without any
    activation is linear on purpose.
    """
    if not any(node.op in ACTIVATIONS for node in net.nodes.values()):
        return
    for node in net.nodes.values():
        if node.op != LINEAR or node.step is None or not node.shape:
            continue
        last = _only_user(net, node)
        if last is None or last.op != LINEAR or not last.shape or node.path == last.path:
            continue
        ends = [given.value.shape[-1] for given in net.into.get(node.id, ())[:1] if given.value and given.value.shape]
        width, least = node.shape[-1], min([*ends, last.shape[-1]])
        if not ends or width < least or last.shape[:-1] != node.shape[:-1]:
            continue
        yield found(
            node,
            f"{node.path} and {last.path} follow each other, and nothing between them is nonlinear: together they are "
            f"one linear layer of {ends[0]} to {last.shape[-1]} features, whatever the {width} between",
            rule="no activation",
            severity=ADVICE,
            advice="Put an activation between them, or use one layer.",
        )


def _only_user(net: Network, node: Node) -> Node | None:
    """Return the one operation that takes a result, behind views, dropout and the borders of modules."""
    while True:
        users = {edge.target for edge in net.out_of.get(node.id, ()) if edge.kind == "data"}
        if len(users) != 1:
            return None
        before, node = node, net.nodes[users.pop()]
        if node.op == LINEAR and node.step is not None:
            return node
        if not is_border(before, node) and node.op not in BETWEEN:
            return None


def is_border(before: Node, node: Node) -> bool:
    """Does a result go on from one node to the next as it is, into a module or out of it?"""
    return node.kind in ("output", "placeholder") or (node.kind == "call_module" and before.kind == "output")
