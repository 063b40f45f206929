"""Give several runs of a model the same start: random numbers, buffers, attributes, inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.torch_state.module_members import modules_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked


class StartState:
    """The state with which a run begins: random generators, and buffers and attributes of the models' modules.

    Objects in attributes are not copied: a list that has grown stays as it is.
    """

    def __init__(self, *models: nn.Module) -> None:
        modules = {id(module): module for model in models for module in modules_of(model)}.values()
        self._generators = RngSnapshot()
        self._attributes = [(module, type(module), _attributes(module)) for module in modules]
        self._buffers = [
            (module._buffers, name, buffer, buffer.detach().clone())
            for module in modules
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def restore(self) -> None:
        """Put everything back; may be called several times."""
        self._generators.restore()
        for module, kind, before in self._attributes:
            if type(module) is kind:  # a lazy module changes its class for good
                now = vars(module)
                for name in _attributes(module).keys() - before.keys():
                    del now[name]
                now.update(before)
        with untracked(), torch.no_grad():
            for registry, name, buffer, content in self._buffers:
                registry[name] = buffer
                if not _holds_same(buffer, content):
                    try:
                        buffer.copy_(content)
                    except Exception:  # such as an expanded one, which nothing can be written into
                        registry[name] = content.clone()


@contextmanager
def state_restored(*models: nn.Module) -> Iterator[Callable[[], None]]:
    """Yield a function that restores random generators, and buffers and attributes of the models' modules.

    They are restored at the end, too.
    """
    state = StartState(*models)
    try:
        yield state.restore
    finally:
        state.restore()


def _holds_same(buffer: Tensor, content: Tensor) -> bool:
    """Has a buffer the content that it had? ``False`` where torch cannot tell: sparse and nested ones, and others.

    What was not written to must not be written: autograd would refuse a tensor that it has saved.
    """
    try:
        return torch.equal(buffer, content) or bool(((buffer == content) | (buffer.isnan() & content.isnan())).all())
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


@contextmanager
def gradients_restored(model: nn.Module) -> Iterator[None]:
    """Let backward passes write gradients of their own, and put the model's own back."""
    parameters = list(parameters_of(model))
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, before):
            parameter.grad = gradient
