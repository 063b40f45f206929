"""Random numbers in a model that is in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from fxdebug import api
from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.operators.categories import DRAWS
from fxdebug.operators.dropped_values import dropped_by
from fxdebug.operators.names import RANDOM
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

if TYPE_CHECKING:
    from fxdebug.api.rerun.second_runs import Source

# Draws of the model; those that initialise a weight belong to the modules that a forward makes.
DRAWING = frozenset(
    name for name in DRAWS | RANDOM if "dropout" not in name and not name.startswith(("kaiming", "xavier", "trunc"))
)


def find_draws(net: Network) -> Iterator[Finding]:
    """Yield the first operation that drops values in a module in evaluation, and the first that draws numbers there.

    Modules that are in training mode themselves are told by the state of the model.
    """
    if net.trace.root.training:
        return
    dropping: list[tuple[Node, str]] = []
    drawing: list[Node] = []
    for node in net.nodes.values():
        if node.step is None or node.call.training or node.kind not in ("call_function", "call_method"):
            continue
        dropped = dropped_by(node.op, node.step.args, node.step.kwargs)
        if dropped:
            dropping.append((node, dropped))
        elif node.op in DRAWING and _is_returned(net, node):
            drawing.append(node)
    if dropping:
        node, dropped = dropping[0]
        finding = found(
            node,
            f"drops values at random ({dropped}) in evaluation, so that two runs give two results",
            rule="dropout in evaluation",
            severity=WARNING,
            advice="Drop only in training: p=self.p if self.training else 0.0, or F.dropout(x, p, self.training).",
        )
        yield replace(finding, others=tuple([other.id for other, _ in dropping[1:]]))
    if drawing:
        finding = found(
            drawing[0],
            f"draws random numbers ({drawing[0].op}) in evaluation, and what the model returns depends on them",
            rule="random",
            severity=ADVICE,
            advice="Set a seed (torch.manual_seed) where two runs are to be alike.",
        )
        yield replace(finding, others=tuple([other.id for other in drawing[1:]]))
    elif not dropping:
        yield from _own_difference(net)


_DECIDES: dict[Source, tuple[str, str]] = {
    "torch": (
        "torch's random numbers decide it",
        "Set a seed (torch.manual_seed) where two runs are to be alike.",
    ),
    "numpy": (
        "numpy's or Python's random numbers decide it",
        "Set a seed (numpy.random.seed, random.seed) where two runs are to be alike.",
    ),
    "own": (
        "a random generator of its own decides it, or state that is in no buffer and no attribute",
        "Give its generator a seed, or keep its state in a buffer, where two runs are to be alike.",
    ),
}


def _own_difference(net: Network) -> Iterator[Finding]:
    """Yield where a second run of the model gives other numbers, as it draws some that no operation of torch draws."""
    if not hasattr(net.trace.graph_source, "model"):  # a saved run
        return
    found = api.own_difference(net.trace)
    if found is None:
        return
    row, source = found
    decides, advice = _DECIDES[source]
    side = row.b or row.a
    call = net.trace.root if side is None else net.trace.calls[side.call.index]
    yield Finding(
        rule="random",
        severity=ADVICE,
        path=row.path,
        call=call.id,
        op=row.op or call.type,
        source=row.source,
        what=f"a second run with the same inputs, in evaluation, gives other numbers: {decides}",
        advice=advice,
    )


def _is_returned(net: Network, node: Node) -> bool:
    """Does what the model returned depend on a node?"""
    root, seen, pending = net.call_id(net.trace.root), {node.id}, [node.id]
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            if edge.target == root:
                return True
            if edge.target not in seen:
                seen.add(edge.target)
                pending.append(edge.target)
    return False
