"""All that is seen beside forward, backward and step of one training."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from torch import nn
from torch.optim import Optimizer

from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.beside.clipping import Clipping
from fxdebug.features.training.beside.copies import Copies
from fxdebug.features.training.beside.settings import Settings
from fxdebug.features.training.beside.stored import Stored

SEARCHED_AT = 2  # the step after which copies of the model are looked for: they are there by then, and run


class Beside:
    """Clipping, settings and copies of one training, and where its batches are stored."""

    def __init__(self, model: nn.Module) -> None:
        self.clipping, self.settings, self.copies = Clipping(), Settings(model), Copies(model)
        self.stored = Stored()

    def before_step(self, optimizer: Optimizer) -> None:
        """Note a step of an optimizer of the model's."""
        self.settings.on_step(optimizer)

    def after_step(self, number: int, optimised: Set[int]) -> None:
        """Look for copies of the model once; forget what they returned."""
        if number == SEARCHED_AT:
            self.copies.search(optimised)
        self.copies.end_step()
        self.clipping.end_step()

    def signs(self, steps: int, learning: Set[int]) -> tuple[Sign, ...]:
        """Return all signs; ``learning`` are the ids of parameters that an optimizer has and that get gradients."""
        found: list[Any] = [*self.clipping.signs(), *self.settings.signs(steps, learning), *self.copies.signs()]
        found += self.stored.signs()
        return tuple(found)
