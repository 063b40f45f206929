"""Operations of the same arguments that are easily taken for each other: add and sub, ``<`` and ``<=``, activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from fxdebug.repair.candidates.variations.variation import NEEDED, Variation
from fxdebug.repair.rerun.replaced_operations import Ran

_PAIRS = [
    ("add", "sub"), ("mul", "div"), ("maximum", "minimum"), ("tril", "triu"), ("cos", "sin"), ("gt", "ge"),
    ("lt", "le"), ("sum", "mean"), ("amax", "mean"), ("floor", "round"), ("ceil", "floor"), ("exp", "expm1"),
    ("log", "log1p"), ("sqrt", "rsqrt"), ("softmax", "log_softmax"), ("zeros_like", "ones_like"),
]  # fmt: skip
_ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "softplus", "mish", "hardswish", "hardsigmoid")


def twins(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield the operations that one may have been taken for, computed of the same arguments."""
    known = [y if x == name else x for x, y in _PAIRS if name in (x, y)]
    if name in _ACTIVATIONS and len(ran.args) == 1:
        known += [each for each in _ACTIVATIONS if each != name]
    for twin in known:
        because = f"{{op}}{NEEDED}{twin}"
        yield Variation(because, f"{twin} in the place of {{op}}", partial(_computed_by, twin), "values")


def _computed_by(name: str, ran: Ran) -> Any:
    function = getattr(torch, name, None) or getattr(functional, name)
    return function(*ran.args, **ran.kwargs)
