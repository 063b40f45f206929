"""Give several runs of a model the same start: random numbers, buffers, attributes, inputs."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from fxdebug.capture.torch_state.untracked import untracked


@contextmanager
def state_restored(*models: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield a function that restores random generators, and buffers and attributes of the models' modules.

    They are restored at the end, too. The content of an attribute (a list that grows) is not restored.
    """
    modules = {id(module): module for model in models for module in model.modules()}.values()
    states = _random_states()
    attributes = [(module, type(module), _attributes(module)) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]

    def restore() -> None:
        for set_state, state in states:
            set_state(state)
        for module, kind, before in attributes:
            if type(module) is kind:  # a lazy module becomes another one once and for all
                now = vars(module)
                for name in _attributes(module).keys() - before.keys():
                    del now[name]
                now.update(before)
        with untracked(), torch.no_grad():
            for registry, name, buffer, content in buffers:
                registry[name] = buffer
                if not torch.equal(buffer, content):
                    buffer.copy_(content)

    try:
        yield restore
    finally:
        restore()


_OF_TORCH = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module's own code, without parameters, buffers, modules and hooks."""
    return {name: content for name, content in vars(module).items() if name not in _OF_TORCH}


def _random_states() -> list[tuple[Callable[[Any], Any], Any]]:
    states: list[tuple[Callable[[Any], Any], Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    return states


def copied_inputs(inputs: Any) -> Any:
    """Return a copy of inputs, since models may write into them (caches above all); themselves where that fails."""
    try:
        return copy.deepcopy(inputs)
    except Exception:
        return inputs
