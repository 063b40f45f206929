"""Softmaxes over another dimension than meant: not over the keys of attention, or over one element."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import WARNING, Finding
from fxdebug.operators.categories import SOFTMAXES
from fxdebug.operators.names import CONVOLUTIONS
from fxdebug.plugins import found
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node

MULTIPLIES = frozenset("matmul bmm einsum".split())
HANDS_ON = frozenset("dropout to type type_as float half bfloat16 contiguous identity mul div add masked_fill".split())
VIEWS = frozenset("view reshape flatten unflatten".split())
FAR = 8  # nodes, those of the modules in between included


def find_other_axes(net: Network) -> Iterator[Finding]:
    """Yield softmaxes over one element, and those of scores over another dimension than the product with the values."""
    for node in net.nodes.values():
        if node.step is None or node.op not in SOFTMAXES or not node.shape:
            continue
        axis = _axis(node)
        if axis is None:
            continue
        shape = "×".join(map(str, node.shape))
        if node.shape[axis] == 1:
            maker = _made_one(net, node, axis)
            if maker is not None:
                where = maker.call.path or "the model"
                yield found(
                    node,
                    f"softmax over one element (dim {axis} of {shape}), as {where} ({maker.op}) makes it: every result "
                    "is 1",
                    rule="softmax axis",
                    severity=WARNING,
                    advice="Take it over the dimension whose elements are to be weighed against each other.",
                )
        elif _are_scores(net, node):
            summed = _summed(net, node)
            if summed is not None and axis != summed and node.shape[summed] > 1:
                yield found(
                    node,
                    f"softmax over {_name(axis, summed, len(node.shape))} (dim {axis} of {shape}): the product with "
                    "the values sums over the keys, whose weights do not have the sum 1",
                    rule="softmax axis",
                    severity=WARNING,
                    advice=f"Take it over the keys: softmax(dim={-1 if summed == len(node.shape) - 1 else summed}).",
                )


def _name(axis: int, summed: int, dims: int) -> str:
    if {axis, summed} == {dims - 1, dims - 2}:
        return "the queries"
    return "the heads" if (axis, dims) == (1, 4) else f"dimension {axis}"


def _axis(node: Node) -> int | None:
    assert node.step is not None and node.shape is not None
    numbers = [arg for arg in node.step.args if isinstance(arg, int) and not isinstance(arg, bool)]
    given = node.step.kwargs.get("dim", numbers[0] if numbers else None)
    if not isinstance(given, int):
        return None
    return given % len(node.shape)


def _made_one(net: Network, node: Node, axis: int) -> Node | None:
    """Return the layer with one output that made the dimension; ``None`` where it is as long as what was given."""
    pending = [node.id]
    for _ in range(FAR):
        sources = [net.nodes[edge.source] for id in pending for edge in net.into.get(id, ())]
        for source in sources:
            features = None if source.shape is None else len(source.shape) - 1 if source.op == "linear" else 1
            if source.op == "linear" or source.op in CONVOLUTIONS:
                return source if source.shape is not None and axis == features else None
        pending = [source.id for source in sources if _is_handed_on(source, HANDS_ON)]
    return None


def _are_scores(net: Network, node: Node) -> bool:
    """Are the numbers a product of two results: queries and keys?

    Scores of two dimensions are those of a batch, merged: without one, a softmax over the rows may be meant.
    """
    assert node.shape is not None
    pending, dims = [node.id], len(node.shape)
    for _ in range(FAR):
        sources = [net.nodes[edge.source] for id in pending for edge in net.into.get(id, ())]
        for source in sources:
            if source.op in MULTIPLIES:
                of_results = not any(net.nodes[edge.source].kind == "get_attr" for edge in net.into.get(source.id, ()))
                return of_results and max(dims, len(source.shape or ())) > 2
        handed = HANDS_ON | VIEWS
        pending = [source.id for source in sources if source.op in handed or source.kind == "placeholder"]
    return False


def _summed(net: Network, node: Node) -> int | None:
    """Return the dimension that the product with the values sums over.

    The result is given to it as it is, or with its first dimensions taken apart: then the last one stays the last.
    """
    assert node.shape is not None
    pending, dims = [node.id], len(node.shape)
    is_seen_otherwise = False
    for _ in range(FAR):
        edges = [edge for id in pending for edge in net.out_of.get(id, ())]
        pending = []
        for edge in edges:
            target = net.nodes[edge.target]
            if target.op in MULTIPLIES:
                given = dims if edge.value is None else len(edge.value.shape)
                summed = _contracted(target, edge, given)
                if not is_seen_otherwise:
                    return summed if dims > 2 else None
                return dims - 1 if summed == given - 1 else None
            if _is_handed_on(target, HANDS_ON - {"div", "mul", "add"}):
                pending.append(edge.target)
            elif target.op in VIEWS and target.shape and target.shape[-1] == node.shape[-1]:
                is_seen_otherwise = True
                pending.append(edge.target)
    return None


def _is_handed_on(node: Node, ops: frozenset[str]) -> bool:
    return node.op in ops or node.kind in ("placeholder", "output", "call_module")


def _contracted(product: Node, edge: Edge, dims: int) -> int | None:
    """Return the dimension of an operand that a product sums over."""
    if product.op != "einsum":
        first = edge.argument in ("args[0]", "input", "self")
        return dims - 1 if first else None
    assert product.step is not None
    equation = product.step.args[0] if product.step.args else None
    place = edge.argument.removeprefix("args[").removesuffix("]")
    if not isinstance(equation, str) or "->" not in equation or not place.isdigit():
        return None
    operands, _, result = equation.replace(" ", "").partition("->")
    letters = operands.split(",")[int(place) - 1 : int(place)]
    summed = [letter for letter in letters[0].replace("...", "") if letter not in result] if letters else []
    if len(summed) != 1:
        return None
    behind = len(letters[0]) - letters[0].index(summed[0])
    return dims - behind if letters[0].startswith("...") or "..." not in letters[0] else None
