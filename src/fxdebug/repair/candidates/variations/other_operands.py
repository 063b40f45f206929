"""Operations that take or return other things than they should: exchanged, transposed, inverted, or backwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fxdebug.operators.names import family
from fxdebug.repair.candidates.variations.variation import Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, computed_with, tensors_of

MOST_OPERANDS = 4  # that are exchanged in pairs

_ORDERED = frozenset(["stack", "cat", "where", "sub", "div", "pow", "atan2", "lerp", "matmul"])
_PARTING = frozenset(["chunk", "split", "unbind", "meshgrid", "tensor_split", "split_with_sizes"])
_REPEATING = frozenset(["repeat", "tile", "expand", "expand_as", "broadcast_to", "repeat_interleave"])
_JOINING = frozenset(["cat", "stack", "add", "mul", "maximum"])
_ROUND = "{op} the other way round"
_IN_TURN = "each element is repeated in turn in b, all of them in turn in a"
_ALL = "all elements are repeated in turn in b, each of them in turn in a"


def exchanged(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with two of its operands, or of its results, in each other's place."""
    if name in _ORDERED:
        count = len(tensors_of(ran))
        for i, j in reversed(list(_pairs(count))):
            told = f"{_which('operands', i, j, count)} of {{op}} stand the other way round than in a"
            yield Variation(told, _ROUND, partial(_operands_exchanged, i, j))
    if name in _PARTING and type(ran.result) in (tuple, list):
        count = len(ran.result)
        for i, j in _pairs(count):
            told = f"{_which('results', i, j, count)} of {{op}} are taken the other way round than in a"
            yield Variation(told, _ROUND, partial(_results_exchanged, i, j))
    if name in ("repeat", "tile", "repeat_interleave"):
        yield Variation(_IN_TURN if name == "repeat_interleave" else _ALL, _ROUND, _repeated_otherwise)


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return itertools.combinations(range(count), 2) if count <= MOST_OPERANDS else iter(())


def _which(things: str, i: int, j: int, count: int) -> str:
    return f"the two {things}" if count == 2 else f"{things} {i + 1} and {j + 1}"


def _operands_exchanged(i: int, j: int, ran: Ran) -> Any:
    tensors = tensors_of(ran)
    if max(i, j) >= len(tensors) or tensors[i].shape != tensors[j].shape or tensors[i].dtype != tensors[j].dtype:
        raise NoEdit
    return computed_with(ran, {i: tensors[j], j: tensors[i]})


def _results_exchanged(i: int, j: int, ran: Ran) -> Any:
    results = ran.result
    if type(results) not in (tuple, list) or max(i, j) >= len(results) or results[i].shape != results[j].shape:
        raise NoEdit
    new = list(results)
    new[i], new[j] = results[j], results[i]
    return new if type(results) is list else tuple(new)


def _repeated_otherwise(ran: Ran) -> Any:
    """Return the repetition of a vector, or along a single dimension, with each element, or all elements, in turn."""
    given, made = tensors_of(ran)[0], ran.result
    grown = [at for at, size in enumerate(made.shape) if given.ndim == made.ndim and given.shape[at] != size]
    if len(grown) != 1 or given.shape[grown[0]] < 2:
        raise NoEdit
    (along,) = grown
    size = given.shape[along]
    in_turn = ran.function.__name__ == "repeat_interleave"
    apart = made.unflatten(along, (size, -1) if in_turn else (-1, size))
    return apart.transpose(along, along + 1).flatten(along, along + 1)


def masks_inverted(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with one of its masks inverted: whether true elements are kept or left out."""
    for at, tensor in enumerate(tensors_of(ran)):
        if tensor.dtype == torch.bool and name not in ("not", "and", "or"):
            change = partial(with_operand, at, torch.logical_not)
            yield Variation("the mask of {op} is inverted against that of a", "{op} with its mask inverted", change)


def masks_left_out(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an attention without one of the masks that it is given."""
    for key in ("attn_mask", "key_padding_mask"):
        if isinstance(ran.kwargs.get(key), Tensor):
            told = f"{{op}} is given {key} in b, where a's values need none"
            yield Variation(told, f"{{op}} without {key}", partial(_without, key), "constant")


def _without(key: str, ran: Ran) -> Any:
    return ran.function(*ran.args, **{**ran.kwargs, key: None})


def over_other_dimension(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an attention that takes the first dimension of what it is given for the second one."""
    if name == "multi_head_attention_forward" and all(each.ndim == 3 for each in tensors_of(ran)[:3]):
        told = "{op} attends over the first dimension of what it is given in b, and over the second one in a"
        words = "{op} with the first two dimensions exchanged before and behind it"
        yield Variation(told, words, _over_other_dimension, resizes=True)


def _over_other_dimension(ran: Ran) -> Any:
    given = tensors_of(ran)
    if len(given) < 3 or any(each.ndim != 3 for each in given[:3]):
        raise NoEdit
    made = computed_with(ran, {at: given[at].transpose(0, 1) for at in range(3)})
    return (made[0].transpose(0, 1), *made[1:])


def turned(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield products and repetitions of which an operand or the result has two dimensions of one size transposed."""
    made = ran.result
    if not isinstance(made, Tensor) or not (family(name) == "product" or name in _REPEATING):
        return
    for i, j in itertools.combinations(range(made.ndim), 2):
        if made.shape[i] == made.shape[j] > 1:
            told = f"dimensions {i} and {j} of what {{op}} returns stand the other way round than in a"
            words = f"{{op}} with dimensions {i} and {j} of its result transposed"
            yield Variation(told, words, partial(_result_turned, i, j))
    for at, tensor in enumerate(tensors_of(ran)):
        if family(name) == "product" and tensor.ndim > 1 and tensor.shape[-1] == tensor.shape[-2]:
            told = f"operand {at + 1} of {{op}} is not transposed as in a"
            yield Variation(told, f"{{op}} with operand {at + 1} transposed", partial(with_operand, at, _transposed))


def _result_turned(i: int, j: int, ran: Ran) -> Any:
    made = ran.result  # in another layer both may have other sizes
    return made.transpose(i, j) if made.ndim > max(i, j) and made.shape[i] == made.shape[j] else made


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.mT if tensor.ndim > 1 and tensor.shape[-1] == tensor.shape[-2] else tensor


def backwards(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation that joins operands, with one of them flipped along a dimension."""
    tensors = tensors_of(ran)
    if name not in _JOINING or not 2 <= len(tensors) <= MOST_OPERANDS:
        return
    for at, tensor in enumerate(tensors):
        for dim in range(-1, -tensor.ndim - 1, -1):
            if tensor.shape[dim] > 1:
                told = f"operand {at + 1} of {{op}} runs backwards along dimension {dim}, and not in a"
                words = f"{{op}} with operand {at + 1} flipped along dimension {dim}"
                yield Variation(told, words, partial(with_operand, at, partial(_flipped, dim)))


def _flipped(dim: int, tensor: Tensor) -> Tensor:
    return tensor.flip(dim)
