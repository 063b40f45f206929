"""Models in which a leaf returns whatever it is told to, and stacks of layers."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fxdebug
from support.trees import Does, assert_text_equal, linear, ones, saved


def emitting(value: Any) -> Callable[[], tuple[nn.Module, dict[str, Any]]]:
    """Makes a model in which the leaf ``emit`` returns a thing, or what a function makes of the input."""

    def emit(self: Any, x: torch.Tensor) -> Any:
        return value(x) if isinstance(value, types.FunctionType) else value

    return lambda: (Does(lambda self, x: self.emit(x), emit=Does(emit)), {"x": ones(2)})


def emitted(value: Any, folder: Path, **options: Any) -> tuple[fxdebug.Trace, Any]:
    """The loaded trace of such a model, and what ``emit`` returned according to it; the text is the reference's."""
    make = emitting(value)
    assert_text_equal(make)
    model, inputs = make()
    trace = saved(model, inputs, folder, **options)
    return trace, trace.find("emit")[0].outputs.item


def layers(count: int, *, odd: int | None = None) -> nn.Module:
    """A stack of blocks; ``odd`` is one that is not like the others."""
    blocks = [nn.Sequential(linear(), nn.ReLU()) for _ in range(count)]
    if odd is not None:
        blocks[odd] = nn.Sequential(linear(), nn.Tanh())
    return nn.Sequential(*blocks)
