"""Views and reshapes that mix dimensions where a transpose was meant: heads with tokens, channels with pixels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fxdebug.data.findings import WARNING, Finding
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

VIEWS = frozenset("view reshape".split())
LINEAR = frozenset("linear addmm".split())
PRODUCTS = frozenset("matmul bmm einsum scaled_dot_product_attention".split())
PADDED = frozenset("pad cat".split())  # as the relative positions of Transformer-XL, which are shifted by a view


def find_mixed_dimensions(net: Network) -> Iterator[Finding]:
    """Yield views of a tensor whose elements stay in their order where a size goes to another place.

    Three forms are told: features of a linear layer that become heads *before* the tokens, heads that become features
    while they stand before the tokens, and channels that go behind the pixels.
    """
    told_at: set[str | None] = set()  # a line makes queries, keys and values
    for node in net.nodes.values():
        if node.op not in VIEWS or node.shape is None or (node.source and node.source in told_at):
            continue
        edges = [edge for edge in net.into.get(node.id, ()) if edge.kind == "data" and edge.value is not None]
        value = edges[0].value if len(edges) == 1 else None
        maker = None if value is None else _maker(net, edges[0].source)
        if value is None or maker is None or math.prod(value.shape) != math.prod(node.shape):
            continue
        told = _told(maker, value.shape, node.shape)
        if told is not None:
            mixed, instead = told
            told_at.add(node.source)
            shapes = " becomes ".join("×".join(map(str, shape)) for shape in (value.shape, node.shape))
            yield found(
                node,
                f"{shapes} by {node.op}, which leaves the elements in their order: {mixed}",
                rule="dimensions mixed",
                severity=WARNING,
                advice=f"Use {instead}.",
            )


def _maker(net: Network, source: str) -> Node | None:
    node = net.nodes.get(source)
    return None if node is None or node.op in PADDED else node


def _told(maker: Node, before: Sequence[int], after: Sequence[int]) -> tuple[str, str] | None:
    """Say what is mixed, and what to do instead; ``None`` for a view that keeps each dimension together."""
    if len(before) == 3 and len(after) == 4 and before[0] == after[0]:
        tokens, features = before[1:]
        heads, again, size = after[1:]
        split = heads * size == features and again == tokens and min(heads, tokens) > 1
        if split and heads != tokens and _is_linear(maker):
            return (
                f"each of the {heads} heads gets the features of other tokens",
                f"view({after[0]}, {tokens}, {heads}, {size}).transpose(1, 2)",
            )
    if len(before) == 4 and len(after) == 3 and before[0] == after[0]:
        heads, tokens, size = before[1:]
        joined = after[1] == tokens and after[2] == heads * size and min(heads, tokens) > 1
        if joined and heads != tokens and maker.op in PRODUCTS:
            return (
                f"each token gets parts of other tokens, not those of its {heads} heads",
                f"transpose(1, 2).reshape({after[0]}, {tokens}, {heads * size})",
            )
    if len(before) > 3 and len(after) == 3 and before[0] == after[0]:
        channels, places = before[1], math.prod(before[2:])
        if after[1:] == (places, channels) and channels not in (places, before[-1]) and min(channels, places) > 1:
            return (
                f"each of the {places} places gets numbers of one channel, not its own {channels}",
                "flatten(2).transpose(1, 2)",
            )
    return None


def _is_linear(maker: Node) -> bool:
    return maker.op in LINEAR or (maker.kind == "call_module" and maker.op == "Linear")
