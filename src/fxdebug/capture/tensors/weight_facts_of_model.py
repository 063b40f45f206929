"""The facts about all weights of a model; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from fxdebug.capture.tensors.special_tensors import local_part
from fxdebug.capture.torch_state.module_members import join, named_modules_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.measured.weights import WeightFacts
from fxdebug.stats.weight_facts import facts_of


def weight_facts(model: nn.Module, *, spectra: bool = True) -> tuple[tuple[WeightFacts, ...], tuple[str, ...]]:
    """Return the facts about each parameter and buffer, tied ones once, and the names of those that have no data.

    Of weights that are sharded, the facts are those of this rank's part.
    """
    known, without = [], []
    with untracked():
        for names, weight, layer, kind in _weights(model):
            facts = facts_of(names, local_part(weight), layer, kind, spectra=spectra)
            if facts is None:
                without.append(names[0])
            else:
                known.append(facts)
    return tuple(known), tuple(without)


def _weights(model: nn.Module) -> Iterator[tuple[list[str], Tensor, nn.Module, str]]:
    """Yield each weight once, with all its names, the first layer that has it, and its kind."""
    found: dict[int, tuple[list[str], Tensor, nn.Module, str]] = {}
    for path, layer in named_modules_of(model, every_name=True):
        for kind, registry in (("parameter", layer._parameters), ("buffer", layer._buffers)):
            for name, weight in registry.items():
                if weight is not None:
                    found.setdefault(id(weight), ([], weight, layer, kind))[0].append(join(path, name))
    yield from found.values()
