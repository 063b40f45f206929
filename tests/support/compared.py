"""Compare two models in each way that a user can: by statistics, by tensors, and layer by layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison

WAYS = ("stats", "tensors", "models")


def compared(a: nn.Module, b: nn.Module, inputs: Any, way: str) -> Comparison:
    with torch.no_grad():
        if way == "models":
            return compare_models(a, b, inputs, budget=30)  # a machine may be busy
        return compare(*(fx_debug(model, inputs, values=way) for model in (a, b)))  # type: ignore[arg-type]
