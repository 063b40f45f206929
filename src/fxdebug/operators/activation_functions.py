"""Facts about activation functions, by the name of a class or of an operation."""

from __future__ import annotations

RECTIFIERS = frozenset(["relu", "relu6"])
BOUNDS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0), "hardtanh": (-1.0, 1.0)}

_KNOWN = ("relu6", "relu", "gelu", "silu", "hardswish", "hardsigmoid", "sigmoid", "hardtanh", "tanh", "mish", "elu")


def function_of(type: str) -> str:
    """Return the activation function of a module's class, or of an operation; empty for others.

    >>> function_of("ReLU"), function_of("GELUActivation"), function_of("NewGELUActivation"), function_of("Linear")
    ('relu', 'gelu', 'gelu', '')
    """
    plain = type.lower().removesuffix("activation").replace("_", "")
    return next((name for name in _KNOWN if plain in (name, f"new{name}", f"quick{name}", f"fast{name}")), "")
