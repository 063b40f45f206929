"""Positions that a cast to a narrow dtype rounds: two tokens then stand at one place."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import WARNING, Finding
from fxdebug.operators.categories import CASTS
from fxdebug.operators.dtypes import LARGEST_INTEGER
from fxdebug.operators.names import COUNTS
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

MULTIPLIES = frozenset("matmul bmm mm einsum outer ger mul".split())
VIEWS = frozenset("getitem view reshape unsqueeze expand transpose repeat contiguous clone".split())
FAR = 8  # operations between the positions and their cast


def find_rounded_positions(net: Network) -> Iterator[Finding]:
    """Yield operations that round positions: casts, counts in a narrow dtype, and products under autocast."""
    for node in net.nodes.values():
        if node.step is None or node.kind not in ("call_function", "call_method"):
            continue
        narrow, largest = _rounded(net, node)
        if narrow and _are_positions(net, node):
            most = LARGEST_INTEGER[narrow]
            yield found(
                node,
                f"positions up to {largest:g} are rounded to {narrow}, which has every integer only up to {most}: "
                "neighbours get one number",
                rule="positions rounded",
                severity=WARNING,
                measured=float(largest),
                threshold=float(most),
                advice="Compute positions and their angles in float32, with autocast off, then cast.",
            )
            return  # what follows has the same cause


def _rounded(net: Network, node: Node) -> tuple[str, float]:
    """Return the narrow dtype that an operation rounds integers to, and the largest of them."""
    assert node.step is not None
    inputs = [edge.value for edge in net.into.get(node.id, ()) if edge.value is not None]
    if node.op in CASTS and node.dtype in LARGEST_INTEGER and inputs:
        given = inputs[0]
        if given.dtype not in LARGEST_INTEGER and given.stats is not None and _beyond(given.stats.absmax, node.dtype):
            return node.dtype, float(given.stats.absmax or 0)  # type: ignore[arg-type]
    elif node.op in COUNTS and node.dtype in LARGEST_INTEGER and node.stats is not None:
        if _beyond(node.stats.absmax, node.dtype):
            return node.dtype, float(node.stats.absmax or 0)
    elif node.op in MULTIPLIES and node.dtype in LARGEST_INTEGER and node.step.autocast:
        for given in inputs:
            if (
                given.dtype not in LARGEST_INTEGER
                and given.stats is not None
                and _beyond(given.stats.absmax, node.dtype)
            ):
                return node.dtype, float(given.stats.absmax or 0)  # type: ignore[arg-type]
    return "", 0.0


def _names_positions(name: str) -> bool:
    return "position" in name or "pos" in name.lower().split("_")


def _beyond(number: object, dtype: str) -> bool:
    return isinstance(number, (int, float)) and number > LARGEST_INTEGER[dtype]


def _are_positions(net: Network, node: Node) -> bool:
    """Do the numbers come from a count, or from an input of positions, with no weight in between?"""
    if node.op in COUNTS:
        return True
    seen, pending = {node.id}, [node.id]
    for _ in range(FAR):
        sources = [edge for id in pending for edge in net.into.get(id, ()) if edge.value is not None]
        pending = []
        for edge in sources:
            source = net.nodes[edge.source]
            if source.op in COUNTS or (source.kind == "placeholder" and _names_positions(source.target)):
                return True
            integers = edge.value is not None and "int" in edge.value.dtype
            handed = source.op in CASTS | VIEWS or source.kind in ("placeholder", "output", "call_module")
            if edge.source not in seen and (integers or handed):
                seen.add(edge.source)
                pending.append(edge.source)
    return False
