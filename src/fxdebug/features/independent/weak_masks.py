"""Masks that hide nothing: what they put in the place of a score, or add to it, is not far enough below the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fxdebug.features.independent.turned_masks import data_of
from fxdebug.operators.names import canonical
from fxdebug.query.network import Network, Node

BACK = 3  # operations from a softmax to its mask
SEEN = 1e-4  # weight of a hidden place, from which the mask is told to hide nothing


def weak_mask(net: Network, node: Node, results: Mapping[str, list[Tensor]]) -> str:
    """Return what the mask of a softmax puts on the scores, where places that it hides have weight; else nothing.

    ``results`` are those of the run, by the id of their operation. Rows that are hidden altogether have equal weights.
    """
    if canonical(node.op) != "softmax" or len(results.get(node.id, ())) != 1:
        return ""
    weights = results[node.id][0].float().cpu()
    pending = [node.id]
    for _ in range(BACK):
        pending = [edge.source for id in pending for edge in net.into.get(id, ())]
        for one in (net.nodes[id] for id in pending):
            for number, hidden, word in _masks_of(net, one, results):
                try:
                    where = hidden.cpu().broadcast_to(weights.shape)
                except RuntimeError:  # of another shape: the mask of something else
                    continue
                where = where & ~where.all(-1, keepdim=True)
                share = float(weights[where].max()) if bool(where.any()) else 0.0
                if share > SEEN:
                    place = f"a place that it hides has {100 * share:.3g} % of its row's weight"
                    return f"its mask {word} {number:g}, which hides too little: {place}"
    return ""


def _masks_of(net: Network, node: Node, results: Mapping[str, list[Tensor]]) -> Iterator[tuple[float, Tensor, str]]:
    """Yield the number that an operation puts on what a mask hides, the places, and what it does with it."""
    given = {edge.argument: data_of(net, edge, results) for edge in net.into.get(node.id, ())}
    tensors = [tensor for tensor in given.values() if tensor is not None]
    name = canonical(node.op)
    if name == "masked_fill" and node.step is not None:
        numbers = [each for each in (*node.step.args, *node.step.kwargs.values()) if type(each) in (int, float)]
        for mask in tensors:
            if mask.dtype == torch.bool and len(numbers) == 1:
                yield float(numbers[0]), mask, "fills in"  # type: ignore[arg-type]
    elif name in ("add", "sub"):
        for mask in tensors:
            if mask.is_floating_point() and len(tensors) > 1 and len(kinds := mask.unique()) == 2 and 0 in kinds:
                number = float(kinds[kinds != 0])
                if (number < 0) == (name == "add"):
                    yield number, mask == number, "adds" if name == "add" else "takes off"
