"""Give several runs of a model the same start: random numbers, buffers, attributes, inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.torch_state.distributed import give_back_gathered
from fxdebug.capture.torch_state.module_members import modules_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked


class StartState:
    """The state with which a run begins: random generators; buffers, flags and attributes of the models' modules.

    Objects in attributes are not copied: a list that has grown stays as it is.
    """

    def __init__(self, *models: nn.Module) -> None:
        modules = {id(module): module for model in models for module in modules_of(model)}.values()
        self._generators = RngSnapshot()
        self._attributes = [(module, type(module), _attributes(module)) for module in modules]
        self._flags = [(parameter, parameter.requires_grad) for model in models for parameter in parameters_of(model)]
        self._names_of_buffers = [(module, type(module), set(module._buffers.keys())) for module in modules]
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
        for module, kind, names in self._names_of_buffers:
            for name in set(module._buffers.keys()) - names if type(module) is kind else ():  # registered by the run
                del module._buffers[name]
                module._non_persistent_buffers_set.discard(name)
        for parameter, flag in self._flags:
            if parameter.requires_grad is not flag and parameter.is_leaf:
                parameter.requires_grad_(flag)
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
    """Yield a function that restores random generators, and buffers, flags and attributes of the models' modules.

    They are restored at the end, too, and with them gradients (in the block, parameters begin without one), and what
    modules have registered: parameters, modules and hooks. Whatever runs a model for a purpose of its own does so in
    such a block. Weights of FSDP2 are in their parts before and after.

    >>> model = nn.BatchNorm1d(2)
    >>> with state_restored(model):
    ...     result = model(torch.ones(3, 2))
    >>> int(model.num_batches_tracked)
    0
    """
    for model in models:
        give_back_gathered(model)
    state, registered = StartState(*models), [_registered(module) for model in models for module in modules_of(model)]
    gradients = [(parameter, parameter.grad) for model in models for parameter in parameters_of(model)]
    try:
        for parameter, _ in gradients:
            parameter.grad = None
        yield state.restore
    finally:
        for model in models:
            give_back_gathered(model)
        for module, kind, registries in registered:
            for registry, before in registries if type(module) is kind else ():
                if not _are_same(registry, before):
                    registry.clear()
                    registry.update(before)
        state.restore()
        for parameter, gradient in gradients:
            parameter.grad = gradient


_REGISTRIES = ("_parameters", "_modules", *(name for name in vars(nn.Module()) if name.endswith("_hooks")))


def _registered(module: nn.Module) -> tuple[nn.Module, type[nn.Module], list[tuple[dict[str, Any], list[Any]]]]:
    """Return a module, its class, and its registries, each with what is in it; a scripted module has none."""
    found = [vars(module).get(name) for name in _REGISTRIES]
    return module, type(module), [(one, list(one.items())) for one in found if isinstance(one, dict)]


def _are_same(registry: dict[str, Any], before: list[Any]) -> bool:
    """Has a registry the same objects under the same names, in their order?"""
    now = list(registry.items())
    return len(now) == len(before) and all(a[0] == b[0] and a[1] is b[1] for a, b in zip(now, before))


def _holds_same(buffer: Tensor, content: Tensor) -> bool:
    """Has a buffer the content that it had? ``False`` where torch cannot tell: sparse and nested ones, and others.

    What was not written to must not be written: autograd would refuse a tensor that it has saved.
    """
    try:
        return torch.equal(buffer, content) or bool(((buffer == content) | (buffer.isnan() & content.isnan())).all())
    except Exception:  # no kernel for this layout, or a class of its own
        return False


_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes of a module's own code and its flag, without parameters, buffers, modules and hooks."""
    return {name: content for name, content in vars(module).items() if name not in _OF_TORCH}


def deep_copy(thing: Any, *, strict: bool = False) -> Any:
    """Return a deep copy of inputs, which models may write into (caches above all), or of a model.

    What cannot be copied is returned as it is; with ``strict`` what a part raises is raised. Computed tensors, which
    torch does not copy, lose their history: models hold some after pruning, or where a hook keeps what a layer
    returned.

    >>> given = [torch.ones(2, requires_grad=True) * 2]
    >>> deep_copy(given), deep_copy(given)[0] is given[0]
    ([tensor([2., 2.], requires_grad=True)], False)
    """
    try:
        memo: dict[int, Any] = {
            id(tensor): tensor.detach().clone().requires_grad_() for tensor in _computed(thing, set())
        }
        return copy.deepcopy(thing, memo)
    except Exception:
        if strict:
            raise
        return thing


def _computed(thing: Any, seen: set[int]) -> Iterator[Tensor]:
    """Yield the tensors with a history in a thing, in its containers and in the attributes of its modules."""
    if isinstance(thing, Tensor):
        if not thing.is_leaf:
            yield thing
    elif isinstance(thing, (dict, list, tuple, nn.Module)) and id(thing) not in seen:
        seen.add(id(thing))
        parts = vars(thing) if isinstance(thing, nn.Module) else thing
        for part in [*parts.values()] if isinstance(parts, dict) else [*parts]:
            yield from _computed(part, seen)
