"""Attention whose softmax is not over the keys."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import WARNING, Finding
from fxdebug.operators.categories import SOFTMAXES
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

MULTIPLIES = frozenset("matmul bmm".split())
HANDS_ON = frozenset("dropout to type type_as float half bfloat16 contiguous identity mul div add masked_fill".split())
FAR = 8  # nodes, those of the modules in between included


def find_other_axes(net: Network) -> Iterator[Finding]:
    """Yield softmaxes of scores over another dimension than that which the product with the values sums over."""
    for node in net.nodes.values():
        if node.step is None or node.op not in SOFTMAXES or node.shape is None or len(node.shape) < 3:
            continue
        axis = _axis(node)
        if axis is None or axis == len(node.shape) - 1 or node.shape[-1] == 1:
            continue
        if _are_scores(net, node) and _weighs_values(net, node):
            over = {len(node.shape) - 2: "the queries", 1 if len(node.shape) == 4 else -1: "the heads"}
            name = over.get(axis, f"dimension {axis}")
            yield found(
                node,
                f"softmax over {name} (dim {axis} of {'×'.join(map(str, node.shape))}): the product with the values "
                "sums over the keys, whose weights do not have the sum 1",
                rule="softmax axis",
                severity=WARNING,
                advice="Take it over the keys: softmax(dim=-1).",
            )


def _axis(node: Node) -> int | None:
    assert node.step is not None and node.shape is not None
    numbers = [arg for arg in node.step.args if isinstance(arg, int) and not isinstance(arg, bool)]
    given = node.step.kwargs.get("dim", numbers[0] if numbers else None)
    if not isinstance(given, int):
        return None
    return given % len(node.shape)


def _are_scores(net: Network, node: Node) -> bool:
    """Are the numbers a product of two results: queries and keys?"""
    pending = [node.id]
    for _ in range(FAR):
        sources = [net.nodes[edge.source] for id in pending for edge in net.into.get(id, ())]
        for source in sources:
            if source.op in MULTIPLIES:
                return not any(net.nodes[edge.source].kind == "get_attr" for edge in net.into.get(source.id, ()))
        pending = [source.id for source in sources if source.op in HANDS_ON or source.kind == "placeholder"]
    return False


def _weighs_values(net: Network, node: Node) -> bool:
    """Is the result the first factor of a product, as it is?"""
    pending = [node.id]
    for _ in range(FAR):
        edges = [edge for id in pending for edge in net.out_of.get(id, ())]
        pending = []
        for edge in edges:
            target = net.nodes[edge.target]
            if target.op in MULTIPLIES:
                return edge.argument in ("args[0]", "input", "self")
            if target.op in HANDS_ON - {"div", "mul", "add"} or target.kind in ("placeholder", "output", "call_module"):
                pending.append(edge.target)
    return False
