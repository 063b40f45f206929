"""The facts about all weights of a model; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors, untracked
from fxdebug.features.weights.facts import facts_of
from fxdebug.features.weights.record import UnreadWeight, WeightFacts


def weight_facts(model: nn.Module, *, spectra: bool = True) -> tuple[tuple[WeightFacts, ...], tuple[UnreadWeight, ...]]:
    """Return the facts about each parameter and buffer, tied ones once, and those that have none.

    Of weights that are sharded, the facts are those of this rank's part.
    """
    known, without = [], list(_packed(model))
    with untracked():
        for names, weight, layer, kind in _weights(model):
            is_drawn = not special_tensors.is_uninitialised(weight)
            facts = (
                facts_of(names, special_tensors.local_part(weight), layer, kind, spectra=spectra) if is_drawn else None
            )
            if facts is None:
                count = weight.numel() if is_drawn else None
                without.append(UnreadWeight(names[0], kind, count, weight.requires_grad))
            else:
                known.append(facts)
    return tuple(known), tuple(without)


def _packed(model: nn.Module) -> Iterator[UnreadWeight]:
    """Yield the weights that a quantised layer keeps in an object of C++, in the layout that its kernel reads."""
    for path, layer in members.named_modules_of(model):
        for name, held in vars(layer).items():
            if type(held) is torch.ScriptObject and "PackedParams" in str(held._type()):
                yield UnreadWeight(members.join(path, name), "parameter", None)


def _weights(model: nn.Module) -> Iterator[tuple[list[str], Tensor, nn.Module, str]]:
    """Yield each weight once, with all its names, the first layer that has it, and its kind."""
    found: dict[int, tuple[list[str], Tensor, nn.Module, str]] = {}
    for path, layer in members.named_modules_of(model, every_name=True):
        for kind, registry in (("parameter", layer._parameters), ("buffer", layer._buffers)):
            for name, weight in registry.items():
                if weight is not None:
                    found.setdefault(id(weight), ([], weight, layer, kind))[0].append(members.join(path, name))
    yield from found.values()
