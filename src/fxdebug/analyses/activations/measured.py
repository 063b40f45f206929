"""The numbers of one call's activations, over all batches, as the rules and the report read them."""

from __future__ import annotations

from dataclasses import dataclass

from fxdebug.data.measured.distributions import Distribution
from fxdebug.data.measured.units import Units

RECTIFIERS = frozenset(["relu", "relu6"])
BOUNDS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0), "hardtanh": (-1.0, 1.0)}


@dataclass(frozen=True, eq=False)
class Activation:
    """The results of one module, or of one activation function in its forward.

    ``id`` is the path of the module, and the operation's name after a slash. ``function`` is the activation function
    that it is: ``relu``, ``gelu``; empty for other modules. ``outliers`` are the elements beyond the robust limit and
    the largest one in robust deviations. ``maker`` is the path of the module whose weights make the units, empty
    where no such module returned what the function was given.
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

    @property
    def call(self) -> str:
        """The id of the first of its calls, with the operation's name after a slash: ``mlp#0/gelu``."""
        end = len(self.path) or len(self.id.partition("/")[0])
        return f"{self.id[:end]}#0{self.id[end:]}"


def function_of(type: str) -> str:
    """Return the activation function of a module's class, or of an operation; empty for others.

    >>> function_of("ReLU"), function_of("GELUActivation"), function_of("NewGELUActivation"), function_of("Linear")
    ('relu', 'gelu', 'gelu', '')
    """
    plain = type.lower().removesuffix("activation").replace("_", "")
    known = ("relu6", "relu", "gelu", "silu", "hardswish", "hardsigmoid", "sigmoid", "hardtanh", "tanh", "mish", "elu")
    return next((name for name in known if plain in (name, f"new{name}", f"quick{name}", f"fast{name}")), "")
