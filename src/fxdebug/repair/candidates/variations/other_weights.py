"""Operations with another weight than the one given: one more or less, or with blocks of its rows in another order.

A norm may keep its weight or its distance from 1, and a fused weight the parts in one order or another: no shape shows
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from fxdebug.operators.names import NORMS, PICKING, SLICES, family
from fxdebug.repair.candidates.variations.variation import Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import tensors_of

_REWORKED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "is 1 more than a's values need": ("its weight - 1", lambda weight: weight - 1),
    "is 1 less than a's values need": ("its weight + 1", lambda weight: weight + 1),
    "has the other sign than a's values need": ("its weight negated", torch.neg),
    "is the logarithm of what a's values need": ("the exponential of its weight", torch.exp),
    "is the exponential of what a's values need": ("the logarithm of its weight", torch.log),
    "is the reciprocal of what a's values need": ("the reciprocal of its weight", torch.reciprocal),
}
_CONTRACTING = frozenset(["matmul", "addmm"])  # the rows of what is given last
BLOCKS = (2, 3, 4)  # gate and up, queries, keys and values, the gates of an LSTM


def reworked_weights(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation on single elements with its weight reworked."""
    for at, weight in _weights(name, ran) if family(name) != "product" else ():
        for told, (words, make) in _REWORKED.items() if weight.ndim == 1 else ():
            change = partial(with_operand, at, make)
            yield Variation(f"the weight of {{op}} {told}", f"{{op}} with {words}", change, "weights")


def exchanged_rows(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with two of the blocks of its weight's rows exchanged."""
    for at, weight in _weights(name, ran) if name not in SLICES | PICKING else ():  # which take another row then
        for count in BLOCKS:
            for i, j in itertools.combinations(range(count), 2) if weight.shape[0] % count == 0 else ():
                told = f"blocks {i + 1} and {j + 1} of the {count} in the rows of its weight stand the other way round"
                make = partial(_exchanged, count, i, j)
                change, size = partial(with_operand, at, make), weight.shape[0] // count
                is_contracted = name in _CONTRACTING and weight.ndim == 2 and at == len(tensors_of(ran)) - 1
                rows = (at, i * size, (j + 1) * size, size) if is_contracted else None
                yield Variation(told, "{op} with these rows exchanged", change, "weights", contracted=rows)


def _weights(name: str, ran: Ran) -> Iterator[tuple[int, Tensor]]:
    """Yield the weights of floats that an operation is given, each with its number among its tensors."""
    for at, tensor in enumerate(tensors_of(ran)):
        if tensor.is_floating_point() and tensor.ndim and _is_weight(name, tensor):
            yield at, tensor


def _is_weight(name: str, tensor: Tensor) -> bool:
    """Is it a parameter, or what stands in its place: a norm may be given a buffer, or what is made of one."""
    return isinstance(tensor, nn.Parameter) or (name in NORMS and tensor.ndim == 1)


def _exchanged(count: int, i: int, j: int, weight: Tensor) -> Tensor:
    blocks = list(weight.chunk(count))
    blocks[i], blocks[j] = blocks[j], blocks[i]
    return torch.cat(blocks)
