"""Weights that are one tensor on one side of a comparison, and two on the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import nn

from fxdebug.capture.probe import special_tensors
from fxdebug.data.findings import WARNING, Finding
from fxdebug.features.weights.changed.names import names_of
from fxdebug.store.tensors.checkpoints import Weights

Side: TypeAlias = tuple[nn.Module | None, Weights]  # the model, where it is one, and the weights by their names


def find_ties(a: Side, b: Side, prefix: str = "") -> Iterator[Finding]:
    """Yield the weights that a model ties, and that are two in the other model, or differ in its file."""
    for ours, theirs, whose, other in ((a, b, "first", "second"), (b, a, "second", "first")):
        if ours[0] is None:
            continue
        apart = _places(theirs[0], prefix) if theirs[0] is not None else None
        for names, _ in names_of(ours[0]):
            first, *more = [name.removeprefix(prefix) for name in names]
            for name in more:
                if apart is not None and apart.get(first, 0) != apart.get(name, 0):
                    yield _finding(first, name, whose, f"two in the {other}: a tie that was broken", _TIE)
                elif apart is None and _differ(theirs[1], first, name):
                    yield _finding(first, name, whose, f"differ in the {other}: a tie that was broken", _LAST)


_TIE = (
    "A step of training moves them apart, and the model has more parameters: tie them again after loading or casting "
    "(head.weight = embedding.weight, model.tie_weights())."
)
_LAST = "Of both, the model keeps the one that is loaded last: untie them in the model, or find out which one is meant."


def _places(model: nn.Module, prefix: str) -> dict[str, int]:
    """Return the place in memory of each weight of a model that has one, by its names."""
    return {
        name.removeprefix(prefix): tensor.data_ptr()
        for names, tensor in names_of(model)
        if special_tensors.is_ordinary(tensor) and tensor.data_ptr()
        for name in names
    }


def _differ(file: Weights, one: str, other: str) -> bool:
    if one not in file or other not in file:
        return False
    first, second = file[one](), file[other]()
    return first.shape == second.shape and not torch.equal(first, second.to(first))


def _finding(first: str, name: str, whose: str, what: str, advice: str) -> Finding:
    path = name.rpartition(".")[0]
    return Finding(
        rule="broken tie",
        severity=WARNING,
        path=path,
        call=f"{path}#0",
        op=name,
        what=f"{first} and {name} are one tensor in the {whose}, and {what}",
        advice=advice,
        others=(first,),
    )
