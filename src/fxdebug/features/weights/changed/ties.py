"""Weights that are one tensor on one side of a comparison, and two on the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import special_tensors
from fxdebug.data.findings import WARNING, Finding
from fxdebug.features.weights.changed.names import names_of
from fxdebug.store.tensors.checkpoints import Weights

Side: TypeAlias = tuple[nn.Module | None, Weights]  # the model, where it is one, and the weights by their names


def find_ties(a: Side, b: Side, prefix: str = "") -> Iterator[Finding]:
    """Yield the weights that one side ties, and that are two on the other: a tie broken, or one that took numbers."""
    for tied, loose, words in ((a, b, ("first", "second")), (b, a, ("second", "first"))):
        if tied[0] is None:
            continue
        model, weights = loose
        places = {} if model is None else _places(model, prefix)
        known = weights if model is None else _by_every_name(model, prefix)
        for names, _ in names_of(tied[0]):
            first, *more = [name.removeprefix(prefix) for name in names]
            for name in more:
                if model is not None and places.get(first) == places.get(name):
                    continue
                if model is not None and tied is a:
                    what = f"are one tensor in the {words[0]}, and two in the {words[1]}: a tie that was broken"
                    yield _finding(first, name, what, _BROKEN)
                elif _differ(known, first, name):
                    what = f"are two in the {words[1]}, with other numbers, and one tensor in the {words[0]}"
                    yield _finding(first, name, f"{what}: the numbers of one of both are lost", _LOST)


_BROKEN = (
    "A step of training moves them apart, and the model has more parameters: tie them again after loading or casting "
    "(head.weight = embedding.weight, model.tie_weights())."
)
_LOST = "Something ties what is to stay apart, as tie_weights() after loading: set tie_word_embeddings=False."


def _places(model: nn.Module, prefix: str) -> dict[str, int]:
    """Return the place in memory of each weight of a model that has one, by its names."""
    return {
        name.removeprefix(prefix): tensor.data_ptr()
        for names, tensor in names_of(model)
        if special_tensors.is_ordinary(tensor) and tensor.data_ptr()
        for name in names
    }


def _by_every_name(model: nn.Module, prefix: str) -> Weights:
    return {
        name.removeprefix(prefix): partial(Tensor.detach, tensor)
        for names, tensor in names_of(model)
        if special_tensors.is_ordinary(tensor)
        for name in names
    }


def _differ(file: Weights, one: str, other: str) -> bool:
    if one not in file or other not in file:
        return False
    first, second = file[one](), file[other]()
    return first.shape == second.shape and not torch.equal(first, second.to(first))


def _finding(first: str, name: str, what: str, advice: str) -> Finding:
    path = name.rpartition(".")[0]
    return Finding(
        rule="broken tie",
        severity=WARNING,
        path=path,
        call=f"{path}#0",
        op=name,
        what=f"{first} and {name} {what}",
        advice=advice,
        others=(first,),
    )
