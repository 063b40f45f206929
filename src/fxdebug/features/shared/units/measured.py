"""The numbers of one call's activations, over all batches, as the rules and the report read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fxdebug.features.shared.records.distributions import Distribution
from fxdebug.features.shared.records.units import Units


@dataclass(frozen=True, eq=False)
class Activation:
    """The results of one module, or of one activation function in its forward.

    ``id`` is the path of the module, and the operation's name after a slash. ``function`` is the activation function
    that it is: ``relu``, ``gelu``; empty for other modules. ``outliers`` are the elements beyond the robust limit and
    the largest one in robust deviations. ``maker`` is the path of the module whose weights make the units, empty
    where no such module returned what the function was given. ``read_by_weights`` tells whether a layer with weights
    was given its result, or what was made of it alone. ``odd`` are the units whose bias in the maker lies far below the
    others, ``None`` where there is no such bias. ``untrained`` tells whether all weights of the model lie in the range
    that torch draws them from.
    """

    id: str
    path: str
    type: str
    function: str
    shape: tuple[int, ...]
    distribution: Distribution
    units: Units | None
    outliers: tuple[int, float] | None
    maker: str = ""
    read_by_weights: bool = False
    odd: npt.NDArray[np.bool_] | None = None
    untrained: bool = False

    @property
    def call(self) -> str:
        """The id of the first of its calls, with the operation's name after a slash: ``mlp#0/gelu``."""
        end = len(self.path) or len(self.id.partition("/")[0])
        return f"{self.id[:end]}#0{self.id[end:]}"
