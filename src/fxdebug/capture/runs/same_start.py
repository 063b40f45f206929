"""Give several runs of a model the same start: random numbers, buffers, attributes, inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.torch_state.untracked import untracked


@contextmanager
def state_restored(*models: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield a function that restores random generators, and buffers and attributes of the models' modules.

    They are restored at the end, too. Objects in attributes are not copied: a list that has grown stays as it is.
    """
    modules = {id(module): module for model in models for module in model.modules()}.values()
    generators = RngSnapshot()
    attributes = [(module, type(module), _attributes(module)) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]

    def restore() -> None:
        generators.restore()
        for module, kind, before in attributes:
            if type(module) is kind:  # a lazy module changes its class for good
                now = vars(module)
                for name in _attributes(module).keys() - before.keys():
                    del now[name]
                now.update(before)
        with untracked(), torch.no_grad():
            for registry, name, buffer, content in buffers:
                registry[name] = buffer
                if not _holds_same(buffer, content):
                    try:
                        buffer.copy_(content)
                    except Exception:  # such as an expanded one, which nothing can be written into
                        registry[name] = content.clone()

    try:
        yield restore
    finally:
        restore()


def _holds_same(buffer: Tensor, content: Tensor) -> bool:
    """Has a buffer the content that it had? ``False`` where torch cannot tell: sparse and nested ones, and others.

    What was not written to must not be written: autograd would refuse a tensor that it has saved.
    """
    try:
        return torch.equal(buffer, content)
    except Exception:  # no kernel for this layout, or a class of its own
        return False


_OF_TORCH = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module's own code, without parameters, buffers, modules and hooks."""
    return {name: content for name, content in vars(module).items() if name not in _OF_TORCH}


def copied_inputs(inputs: Any) -> Any:
    """Return a copy of inputs, since models may write into them (caches above all), or the originals if that fails."""
    try:
        return copy.deepcopy(inputs)
    except Exception:
        return inputs
