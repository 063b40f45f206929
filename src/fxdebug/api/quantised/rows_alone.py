"""Layers of a quantised model that compute one row in another way than several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, untracked

BETTER = 3.0  # times the error of a row that is computed the other way


def row_by_row(model: nn.Module, originals: Mapping[str, nn.Module], run: Callable[[], object]) -> dict[str, str]:
    """Run a quantised model and say, by path, which layers are wrong for one row only, or for several only.

    ``originals`` are layers of the original by their paths in ``model``. Each linear one of them is given the row that
    it was given twice, or its first row alone: a product of a row with a weight knows no other rows.
    """
    given: dict[str, tuple[nn.Module, Tensor, Tensor]] = {}
    handles = [
        module.register_forward_hook(_keeping(given, path))
        for path, module in members.named_modules_of(model)
        if isinstance(originals.get(path), nn.Linear)
    ]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    told = {}
    with untracked(), torch.no_grad():
        for path, (module, x, returned) in given.items():
            try:
                text = _other_way(module, originals[path], x, returned)
            except Exception:  # of a layer that takes no such rows
                text = ""
            if text:
                told[path] = text
    return told


def _keeping(given: dict[str, tuple[nn.Module, Tensor, Tensor]], path: str) -> Callable[..., None]:
    def keep(module: nn.Module, args: tuple[Any, ...], returned: Any) -> None:
        if path not in given and len(args) == 1 and type(args[0]) is Tensor and type(returned) is Tensor:
            with untracked(), torch.no_grad():
                given[path] = module, args[0].detach().clone(), returned.detach().clone()

    return keep


def _other_way(module: nn.Module, original: nn.Module, x: Tensor, returned: Tensor) -> str:
    rows = x.reshape(-1, x.shape[-1])
    first = rows[:1].view(*[1] * (x.ndim - 1), x.shape[-1])
    if x.ndim < 2 or returned.shape[:-1] != x.shape[:-1] or not len(rows):
        return ""
    expected = original(first.to(members.parameters_of(original)[0])).flatten().double()
    again = module(torch.cat([first, first]) if len(rows) == 1 else first)
    shown, other = (_error(y.reshape(-1, y.shape[-1])[0], expected) for y in (returned, again))
    if not BETTER * other <= shown:
        return ""
    way, wrong = ("this row twice", "one row") if len(rows) == 1 else ("its first row alone", "several rows")
    return f"given {way}, it is {other:.2g} off and not {shown:.2g}: its code for {wrong} is wrong"


def _error(row: Tensor, expected: Tensor) -> float:
    return float((row.double() - expected).norm() / expected.norm().clamp_min(1e-30))
