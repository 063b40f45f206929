"""Norms that take their statistics from the batch in a model that is in evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.graphs import Ref
from fxdebug.data.measures import counted
from fxdebug.data.values import Group, Item
from fxdebug.operators.names import canonical
from fxdebug.plugins import found
from fxdebug.query.network import Network, Node

BATCH_NORMS = frozenset("batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm".split())
TRAINING = 5  # the place of the argument, in each of their signatures
CENTRES = frozenset("mean var_mean std_mean".split())
TAKES_OFF = frozenset(["sub"])
VIEWS = frozenset("view reshape unsqueeze getitem expand expand_as squeeze detach".split())
LEAST_DIMS = 3  # of fewer, the first dimension may well be that of points, frames or nodes
NAMED = 3


def find_batch_statistics(net: Network) -> Iterator[Finding]:
    """Yield the norms of a model in evaluation that normalise with what their batch has.

    Modules in training mode are told by the state of the model. A batch of one, as weights or the channels of each
    sample are normalised, has no neighbours. Written by hand, a norm takes off a mean over the rows and over places,
    for each channel.
    """
    if net.trace.root.training:
        return
    operations = [node for node in net.nodes.values() if node.step is not None and not node.call.training]
    norms = [node for node in operations if node.op in BATCH_NORMS and _takes_batch(node) and _rows(net, node) > 1]
    if norms:
        tracked = any(_argument(node, 1, "running_mean") is not None for node in norms)
        why = "training=True is given" if tracked else "without running statistics (track_running_stats=False)"
        yield _finding(norms, f"in evaluation with the mean and variance of the batch, {why}", WARNING)
    written = [
        node for node in operations if node.op in CENTRES and _is_over_rows(net, node) and _is_taken_off(net, node)
    ]
    if written and not norms:
        yield _finding(written, "in evaluation by a mean over all rows of the batch", ADVICE)


def _finding(nodes: list[Node], how: str, severity: Severity) -> Finding:
    paths = list(dict.fromkeys(node.path or "the model" for node in nodes))
    named = ", ".join(paths[:NAMED]) + (", …" if len(paths) > NAMED else "")
    finding = found(
        nodes[0],
        f"{counted(len(nodes), 'norm')} ({named}) normalise{'s' * (len(nodes) == 1)} {how}: what is returned for a "
        "sample depends on what stands beside it",
        rule="batch statistics",
        severity=severity,
        measured=float(len(nodes)),
        threshold=0.0,
        advice="Keep running statistics, or a norm over each sample (GroupNorm, LayerNorm, InstanceNorm); "
        "independent(model, inputs) shows the effect.",
    )
    return replace(finding, others=tuple([node.id for node in nodes[1:]]))


def _takes_batch(node: Node) -> bool:
    return _argument(node, TRAINING, "training") is True


def _argument(node: Node, place: int, name: str) -> Item | Ref:
    assert node.step is not None
    args, kwargs = node.step.args, node.step.kwargs
    return args[place] if len(args) > place else kwargs.get(name)


def _given(net: Network, node: Node) -> tuple[int, ...]:
    """Return the shape of the first tensor that an operation is given."""
    values = [edge.value for edge in net.into.get(node.id, ()) if edge.kind == "data" and edge.value is not None]
    return values[0].shape if values else ()


def _rows(net: Network, node: Node) -> int:
    return next(iter(_given(net, node)), 1)


def _is_over_rows(net: Network, node: Node) -> bool:
    """Is it a mean for each channel, over the rows that the model was given and over places?"""
    shape, rows = _given(net, node), next((value.shape[0] for value in net.trace.root.inputs if value.shape), 1)
    dims = _argument(node, 1, "dim")
    places = dims.items if isinstance(dims, Group) else (dims,)
    if len(shape) < LEAST_DIMS or shape[0] != rows or rows < 2 or not all(type(at) is int for at in places):
        return False
    over = {at % len(shape) for at in places if isinstance(at, int)}
    return 0 in over and len(over) == len(shape) - 1


def _is_taken_off(net: Network, node: Node) -> bool:
    """Is a mean taken off from what it is the mean of?"""
    of = {edge.value.number for edge in net.into.get(node.id, ()) if edge.value is not None}
    pending, seen = [node.id], {node.id}
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            after = net.nodes[edge.target]
            given = {each.value.number for each in net.into.get(after.id, ()) if each.value is not None}
            if canonical(after.op) in TAKES_OFF and of & given:
                return True
            if after.id not in seen and after.op in VIEWS:
                seen.add(after.id)
                pending.append(after.id)
    return False
