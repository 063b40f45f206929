"""Faults planted by rule in every transformers model of the zoo: one weight, one bias, one epsilon of one module.

Nobody chose them, so that they say how well ``compare`` does on models it was never looked at with. The module that was
changed must be named.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import fxdebug

from .case import port
from .equal_pairs import renamed
from .judge import told, traced
from .originals import inputs_of, reference
from .zoo_pairs import apart, output

__all__ = ["SORTS", "Planted", "port_faults", "zoo_faults"]

SORTS = ("weight", "bias", "epsilon", "weight, renamed")
EPSILONS = ("eps", "variance_epsilon", "epsilon")
VISIBLE = 1e-4  # relative: by so much must what the model returns change


@dataclass(frozen=True)
class Planted:
    """What came out for one fault; ``skipped`` says why there is none."""

    name: str
    sort: str
    wanted: str = ""
    named: str | None = None
    right: bool = False
    said: str = ""
    skipped: str = ""


def zoo_faults(name: str, build: Callable[[], tuple[Any, Any]], mode: str = "statistics") -> Iterator[Planted]:
    """One fault of each sort in a copy of a zoo model, and one in a copy whose modules have other names."""
    model, inputs = build()
    a = _run(model, inputs, mode)
    for sort in SORTS:
        other, same_inputs = build()
        if sort == "weight, renamed":
            renamed(other)
        yield _planted(name, sort, a, other, same_inputs, mode)


def port_faults(name: str, mode: str = "statistics") -> Iterator[Planted]:
    """One fault of each sort in each module of a port that has such a thing."""
    a = _run(reference(name), inputs_of(name), mode)
    model = port(name)
    before = _run(model, inputs_of(name), mode)
    called = {call.path for call in before.calls}
    for sort in SORTS[:3]:
        for path, change in _places(model, sort, called):
            undo = change()
            b = _run(model, inputs_of(name), mode)
            undo()
            if apart(output(before), output(b)) > VISIBLE:  # softmax takes a bias of all keys away again
                yield _judged(f"port-{name}", sort, a, b, path)


def _planted(name: str, sort: str, a: fxdebug.Trace, model: nn.Module, inputs: Any, mode: str) -> Planted:
    try:
        called = {call.path for call in _run(model, inputs, mode).calls}
        places = list(_places(model, sort, called))
    except Exception as error:
        return Planted(name, sort, skipped=f"it does not run: {type(error).__name__}")
    random.Random(f"{name} {sort}").shuffle(places)
    for path, change in places[:4]:
        undo = change()
        b = _run(model, inputs, mode)
        if b.error is None and apart(output(a), output(b)) > VISIBLE:
            return _judged(name, sort, a, b, path)
        undo()
    return Planted(name, sort, skipped="nothing to change, or nothing that shows")


def _judged(name: str, sort: str, a: fxdebug.Trace, b: fxdebug.Trace, path: str) -> Planted:
    first = fxdebug.compare(a, b).first
    named = None if first is None else first.path
    return Planted(name, sort, path, named, named == path, "nothing" if first is None else told(first))


Change = Callable[[], Callable[[], None]]


def _places(model: nn.Module, sort: str, called: set[str]) -> Iterator[tuple[str, Change]]:
    """Where a fault of a sort can be planted: weights that one module alone has, in modules that are called."""
    owners: dict[int, int] = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for path, module in model.named_modules():
        if path not in called or not path:
            continue
        if sort == "epsilon":
            for attribute in EPSILONS:
                if isinstance(getattr(module, attribute, None), float):
                    yield path, _epsilon(module, attribute)
            continue
        parameter = module._parameters.get(sort.partition(",")[0])
        if parameter is None or owners[id(parameter)] > 1 or not parameter.is_floating_point() or parameter.numel() < 2:
            continue
        if isinstance(module, nn.Embedding) or parameter.is_meta:
            continue  # a row that is not looked up changes nothing
        yield path, _weight(parameter)


def _weight(parameter: torch.Tensor) -> Change:
    def change() -> Callable[[], None]:
        before = parameter.detach().clone()
        with torch.no_grad():
            row = parameter.detach()[parameter.shape[0] // 2]
            row.add_(3 * before.abs().max() + 0.1)

        def undo() -> None:
            with torch.no_grad():
                parameter.copy_(before)

        return undo

    return change


def _epsilon(module: nn.Module, attribute: str) -> Change:
    def change() -> Callable[[], None]:
        before = getattr(module, attribute)
        setattr(module, attribute, before + 0.05)
        return lambda: setattr(module, attribute, before)

    return change


def _run(model: Any, inputs: Any, mode: str) -> fxdebug.Trace:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return traced(model, inputs, mode)
