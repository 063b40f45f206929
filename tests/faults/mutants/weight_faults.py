"""Faults in weights, as a table: what is done to a state dict, and the words for the cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch

Weights: TypeAlias = dict[str, torch.Tensor]


class WeightChange(NamedTuple):
    """The weights that are changed, their new numbers, and what the right answer says of them."""

    new: Weights
    right: str


WeightKind: TypeAlias = Callable[[str, Weights], Iterator[WeightChange]]


def rows(name: str, weights: Weights) -> Iterator[WeightChange]:
    """Two rows exchanged."""
    weight = weights[name].clone()
    if weight.dim() and weight.shape[0] > 3:
        weight[[1, 3]] = weight[[3, 1]]
        yield WeightChange({name: weight}, r"(rows|elements|numbers) 1 and 3")


def factor(name: str, weights: Weights) -> Iterator[WeightChange]:
    """A factor."""
    yield WeightChange({name: weights[name] * 1.5}, r"1\.5")


def negative(name: str, weights: Weights) -> Iterator[WeightChange]:
    """The other sign."""
    yield WeightChange({name: -weights[name]}, r"-1|negat|sign")


def zero(name: str, weights: Weights) -> Iterator[WeightChange]:
    """Zero."""
    if weights[name].dim() == 1:
        yield WeightChange({name: torch.zeros_like(weights[name])}, r"zero")


def ones(name: str, weights: Weights) -> Iterator[WeightChange]:
    """One more, as in norms that multiply with 1 + weight."""
    if weights[name].dim() == 1 and "norm" in name:
        yield WeightChange({name: weights[name] - 1.0}, r"\+ ?-?1|- ?1|1 (less|more)|plus|minus")


def transposed(name: str, weights: Weights) -> Iterator[WeightChange]:
    """Transposed, where it is square."""
    weight = weights[name]
    if weight.dim() == 2 and weight.shape[0] == weight.shape[1]:
        yield WeightChange({name: weight.T.contiguous()}, r"transposed")
    if weight.dim() == 4 and weight.shape[2] == weight.shape[3] > 1:
        yield WeightChange({name: weight.transpose(2, 3).contiguous()}, r"transposed|dimensions 2 and 3 exchanged")


def others(name: str, weights: Weights) -> Iterator[WeightChange]:
    """Those of another layer."""
    alike = [
        each
        for each, other in weights.items()
        if each != name and other.shape == weights[name].shape and each.rpartition(".")[2] == name.rpartition(".")[2]
    ]
    for other in alike[:1]:
        yield WeightChange({name: weights[other].clone()}, rf"(is|those of|holds) {re.escape(other)} of a|exchanged")


def exchanged(name: str, weights: Weights) -> Iterator[WeightChange]:
    """Two weights exchanged."""
    for new, right in others(name, weights):
        other = next(each for each in weights if torch.equal(weights[each], new[name]))
        yield WeightChange({**new, other: weights[name].clone()}, f"{right}|(is|holds) {re.escape(name)} of a")


def last_row(name: str, weights: Weights) -> Iterator[WeightChange]:
    """The last row missing."""
    weight = weights[name].clone()
    if weight.dim() > 1 and weight.shape[0] > 3:
        weight[-1] = 0.0
        yield WeightChange({name: weight}, rf"row {len(weight) - 1}\b.*zero|last row|rows {len(weight) - 1}:")


def halves(name: str, weights: Weights) -> Iterator[WeightChange]:
    """The halves of the rows beside one another, as other rotary embeddings want them."""
    weight = weights[name]
    if weight.dim() == 2 and weight.shape[0] % 2 == 0 and weight.shape[0] > 4:
        turned = weight.view(2, -1, weight.shape[1]).transpose(0, 1).reshape(weight.shape)
        yield WeightChange({name: turned.contiguous()}, r"rows.*order|interleaved|halves|neighbours")


def untied(name: str, weights: Weights) -> Iterator[WeightChange]:
    """A head that has the numbers of the embedding no more."""
    tied = [each for each, other in weights.items() if each != name and other is weights[name]]
    for other in tied if "head" in name else ():
        numbers = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(8))
        yield WeightChange({name: numbers}, rf"tied|{re.escape(other)}")


WEIGHTS: dict[str, WeightKind] = {
    "rows exchanged": rows, "weights times 1.5": factor, "the other sign": negative, "a zero vector": zero,
    "one less": ones, "a square weight transposed": transposed, "weights of another layer": others,
    "two weights exchanged": exchanged, "the last row missing": last_row, "halves of rows interleaved": halves,
    "an untied head": untied,
}  # fmt: skip
