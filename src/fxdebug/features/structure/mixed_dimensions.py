"""Views that mix dimensions where a transpose was meant (heads with tokens), and norms over what was put together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from itertools import accumulate, pairwise
from operator import mul

from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.values import Group
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

VIEWS = frozenset("view reshape".split())
LINEAR = frozenset("linear addmm".split())
PRODUCTS = frozenset("matmul bmm einsum scaled_dot_product_attention".split())
EMBEDDINGS = frozenset(["embedding", "Embedding"])
CUTS = frozenset("getitem narrow index_select split chunk".split())
BY_CHANNELS = frozenset("conv1d conv2d conv3d batch_norm instance_norm group_norm".split())
PADDED = frozenset("pad cat".split())  # as the relative positions of Transformer-XL, which are shifted by a view


def find_mixed_dimensions(net: Network) -> Iterator[Finding]:
    """Yield views of a tensor whose elements stay in their order where a size goes to another place.

    Told are features of a linear layer that become heads *before* the tokens, heads that become features while they
    stand before the tokens, channels that go behind the pixels, and two sizes that change places, the one of them
    split or joined with what stood before: frames of videos, ``B·T × C``, that become ``B × C × T``. So is a layer norm
    over the vectors of several embeddings.
    """
    yield from _norms_over_several(net)
    told_at: set[str | None] = set()  # a line makes queries, keys and values
    given = {size for value in net.trace.root.inputs for size in value.shape}
    for node in net.nodes.values():
        if node.op not in VIEWS or node.shape is None or (node.source and node.source in told_at):
            continue
        edges = [edge for edge in net.into.get(node.id, ()) if edge.kind == "data" and edge.value is not None]
        value = edges[0].value if len(edges) == 1 else None
        maker = None if value is None else _maker(net, edges[0].source)
        if value is None or maker is None or math.prod(value.shape) != math.prod(node.shape):
            continue
        told = _told(maker, value.shape, node.shape) or _moved(value.shape, node.shape, given, _by_channels(net, node))
        if told is not None and not _is_shifted(net, node):
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


def _norms_over_several(net: Network) -> Iterator[Finding]:
    """Yield layer norms whose mean is over the vectors of several embeddings, which ``stack`` put side by side."""
    for node in net.nodes.values():
        if node.op != "layer_norm" or node.step is None:
            continue
        values = [edge.value for edge in net.into.get(node.id, ()) if edge.kind == "data" and edge.value is not None]
        sizes = next((one.items for one in (*node.step.args, *node.step.kwargs.values()) if isinstance(one, Group)), ())
        made = net.nodes.get(net.producer_of.get(values[0].number, "")) if values and len(sizes) > 1 else None
        if made is None or made.op != "stack" or made.shape is None or made.step is None:
            continue
        dim = made.step.kwargs.get("dim", made.step.args[1] if len(made.step.args) > 1 else 0)
        sources = [net.producer_of.get(edge.value.number, "") for edge in net.into[made.id] if edge.value is not None]
        tables = {net.nodes[id].path for id in sources if id in net.nodes and net.nodes[id].op in EMBEDDINGS}
        if type(dim) is not int or len(tables) < 2 or len(sources) != made.shape[dim]:
            continue
        if dim % len(made.shape) >= len(made.shape) - len(sizes):
            shape = "×".join(map(str, made.shape[-len(sizes) :]))
            yield found(
                node,
                f"its mean is over {shape}, the vectors of {len(tables)} embeddings that stack put side by side: each "
                "depends on the others",
                rule="dimensions mixed",
                severity=ADVICE,
                advice=f"LayerNorm({made.shape[-1]}) makes each vector by itself.",
            )


def _maker(net: Network, source: str) -> Node | None:
    node = net.nodes.get(source)
    return None if node is None or node.op in PADDED or node.kind == "get_attr" else node


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


def _moved(before: Sequence[int], after: Sequence[int], given: Set[int], by_channels: bool) -> tuple[str, str] | None:
    """Say which two sizes change places: ``p·q × c`` that becomes ``p × c × q``, the reverse, or ``q × c`` by itself.

    Where neighbours could be split and joined, as heads that are put into other groups, one of both has a size that was
    ``given``, as places and samples have; at the end it is the first, and what follows takes channels there
    (``by_channels``).
    """
    lead, one, other = _core(before, after)
    found, may_be = _swapped(one, other), _may_be_groups(before, after)
    if found is None:
        no_swap = "no dimension is split or joined alone, so that numbers of several stand in one"
        return None if may_be else (no_swap, "transpose() before it")
    outer, inner, whole = found
    is_last = lead + len(one) == len(before)
    are_whole = other == (*whole[:-2], inner, outer) or (whole == one and len(one) == 3)
    known = are_whole and (outer in given or (not is_last and inner in given))
    if may_be and (not known or (is_last and not by_channels)):
        return None
    place = lead + len(whole) - 2
    turn = f"transpose({place}, {place + 1})"
    if whole != one:
        turn = f"view({', '.join(map(str, (*before[:lead], *whole, *before[lead + len(one) :])))}).{turn}"
    turned = (*before[:lead], *whole[:-2], inner, outer, *before[lead + len(one) :])
    if turned != tuple(after):
        turn += f".reshape({', '.join(map(str, after))})"
    return f"{outer}×{inner} is read as {inner}×{outer}, so that numbers of several stand in one", turn


def _core(before: Sequence[int], after: Sequence[int]) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return how many first dimensions are the same, and those behind them, up to where both products are equal.

    >>> _core((2, 6, 4, 8, 8), (8, 6, 64)), _core((3, 4, 6, 5), (3, 4, 5, 2, 3))
    ((0, (2, 6, 4), (8, 6)), (2, (6, 5), (5, 2, 3)))
    """
    lead = next((at for at, (x, y) in enumerate(zip(before, after)) if x != y), 0)
    ends = [list(accumulate(shape[lead:], mul)) for shape in (before, after)]
    end = next(product for product in ends[0] if product in ends[1])
    one, other = (tuple(shape[lead : lead + own.index(end) + 1]) for shape, own in zip((before, after), ends))
    return lead, one, other


def _swapped(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]] | None:
    """Return the two sizes that change places, and the whole as it stands in the memory: ``q × c`` or ``p × q × c``."""
    forms: list[tuple[int, int, tuple[int, ...]]] = []
    if len(one) == 2 and len(other) == 3:  # p·q × c becomes p × c × q
        forms.append((other[2], other[1], (other[0], other[2], other[1])))
    if len(one) == 3 and len(other) == 2:  # p × c × q becomes p·q × c
        forms.append((one[1], one[2], one))
    if len(one) == 2 and len(other) >= 2:  # q × c becomes c × q, split or not
        forms.append((one[0], other[0], one))
    if len(other) == 2 and len(one) > 2:  # q × c, q of several dimensions
        forms.append((other[1], one[-1], (other[1], one[-1])))
    for outer, inner, whole in forms:
        rest = whole[:-2]
        before = (math.prod(whole[:-1]), inner) if len(one) == 2 else one
        fits = one == before and math.prod(whole) == math.prod(one) and outer != inner and min(outer, inner) > 1
        turned = (*rest, inner, outer)
        joined = len(rest) == 1 and other == (rest[0] * inner, outer)
        if fits and (other == turned or joined or (not rest and other[0] == inner and math.prod(other[1:]) == outer)):
            return outer, inner, whole
    return None


def _may_be_groups(before: Sequence[int], after: Sequence[int]) -> bool:
    """May a view split dimensions and join the parts with their neighbours, as heads are put into groups?

    >>> _may_be_groups((4, 8), (8, 4)), _may_be_groups((64, 8), (2, 8, 32)), _may_be_groups((5, 6), (6, 5))
    (True, True, False)
    """
    ends = sorted({*accumulate(before, mul), *accumulate(after, mul)})
    return all(end % start == 0 for start, end in pairwise(ends))


def _by_channels(net: Network, node: Node) -> bool:
    """Is the result given to an operation that takes channels from its second dimension?"""
    pending = [node.id]
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            after = net.nodes[edge.target]
            if after.op in BY_CHANNELS:
                return True
            if after.kind == "placeholder":
                pending.append(after.id)
    return False


def _is_shifted(net: Network, node: Node) -> bool:
    """Is a part of the result cut off behind it, as where relative positions are shifted by a view (XLNet, Funnel)?"""
    after = [net.nodes[edge.target] for edge in net.out_of.get(node.id, ())]
    return any(
        one.op in CUTS and one.shape is not None and math.prod(one.shape) < math.prod(node.shape or ()) for one in after
    )


def _is_linear(maker: Node) -> bool:
    return maker.op in LINEAR or (maker.kind == "call_module" and maker.op == "Linear")
