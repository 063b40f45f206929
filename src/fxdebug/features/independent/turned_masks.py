"""Masks of padding that are the wrong way round: they hide the tokens of a sample, and show its padding."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fxdebug.features.independent.beside import Alone
from fxdebug.query.edges import Edge
from fxdebug.query.network import Network, Node

# The arguments of a mask, and whether True hides.
MHA = "multi_head_attention_forward"
MASKS = {
    MHA: {"key_padding_mask": True},
    "scaled_dot_product_attention": {"attn_mask": False, "args[3]": False},
    "masked_fill": {"mask": True, "args[1]": True},
}
FAR_BELOW = -1e3  # what is added to a score to hide it
BACK = 3  # operations from a softmax to the mask that its scores are filled by
FAR = 6  # views between a mask and where it is made


def turned_mask(net: Network, node: Node, alone: Alone, results: Mapping[str, list[Tensor]]) -> str:
    """Return what a mask that an operation is given hides of a sample, where it is the wrong way round; else nothing.

    ``results`` are those of the run, by the id of their operation. The mask is that of the operation, or of one of the
    few before it: scores are filled before their softmax.
    """
    if alone.row is None or alone.places is None:
        return ""
    pending, nodes = [node.id], [node]
    for _ in range(BACK):
        pending = [edge.source for id in pending for edge in net.into.get(id, ())]
        nodes += [net.nodes[id] for id in pending]
    for one in nodes:
        for edge in net.into.get(one.id, ()) if one.op in MASKS else ():
            hides = MASKS[one.op].get(edge.argument.rpartition(".")[2])
            mask = None if hides is None else data_of(net, edge, results)
            hidden = None if mask is None else _hidden(mask, alone, bool(hides))
            if hidden is None:
                continue
            tokens = torch.zeros(alone.length, dtype=torch.bool)
            tokens[alone.places] = True
            if torch.equal(hidden, tokens):
                word = f" (True is what is to be {'hidden' if hides else 'seen'})"
                word = "" if mask is not None and mask.is_floating_point() and one.op != MHA else word
                return f"its mask hides the tokens of {alone.name} and shows the padding: it is turned round{word}"
    return ""


def _hidden(mask: Tensor, alone: Alone, hides: bool) -> Tensor | None:
    """Return which places of its row a mask hides from all queries; ``None`` for a mask of another shape."""
    size = alone.rows * alone.length
    if not mask.ndim or mask.shape[-1] != alone.length or mask.numel() % size or alone.row is None:
        return None
    rows = mask.reshape(alone.rows, -1, alone.length)[alone.row].cpu()
    hidden = rows < FAR_BELOW if rows.is_floating_point() else rows.bool() if hides else ~rows.bool()
    return hidden[0] if bool((hidden == hidden[0]).all()) else None


def data_of(net: Network, edge: Edge, results: Mapping[str, list[Tensor]]) -> Tensor | None:
    """Return the numbers of what an operation is given: of the operation that made it, or of one before views of it."""
    id = edge.source
    for _ in range(FAR):
        if len(results.get(id, ())) == 1:
            return results[id][0]
        before = [edge for edge in net.into.get(id, ()) if edge.value is not None and edge.value.shape]
        if len(before) != 1:  # sizes are numbers
            return None
        id = before[0].source
    return None
