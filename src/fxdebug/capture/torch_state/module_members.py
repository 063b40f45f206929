"""Modules, parameters and buffers in a model: told apart by identity, and asked of ``nn.Module``, not of the program.

``model.named_modules()`` keeps modules in a set. There, two that compare equal (``__eq__`` by type, say) are one, and
one without a hash raises. A model may also have an attribute called ``modules`` or ``parameters``. So a module's own
tables are walked. Only a class of torch that gives its tensors other names, such as FSDP, is asked.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.torch_state.whose_code import class_attribute, is_part_of


def children_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the children of a module with their names: one that is registered twice is there twice.

    >>> [name for name, _ in children_of(nn.Sequential(nn.ReLU(), nn.Tanh()))]
    ['0', '1']
    """
    return [(name, child) for name, child in _table(module, "_modules") if child is not None]


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return a model and all modules in it, each once.

    >>> [type(module).__name__ for module in modules_of(nn.Sequential(nn.ReLU(), nn.Tanh()))]
    ['Sequential', 'ReLU', 'Tanh']
    """
    modules: list[nn.Module] = []
    seen: set[int] = set()
    pending = [model]
    while pending:  # without names: it runs at the beginning of every run
        module = pending.pop()
        if id(module) not in seen:
            seen.add(id(module))
            modules.append(module)
            children = module._modules
            if children:
                pending += [child for child in reversed([*children.values()]) if child is not None]
    return modules


def modules_in_memory() -> list[nn.Module]:
    """Return the modules of the process, of every model, without those that are not made to the end.

    A copy that failed, or a class that never calls ``super().__init__()``, leaves a module without tables.

    >>> kept = nn.ReLU()
    >>> any(one is kept for one in modules_in_memory())
    True
    """
    # asked of its class: proxies answer for others
    found = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    return [one for one in found if "_modules" in vars(one)]


def named_modules_of(model: nn.Module, *, every_name: bool = False) -> Iterator[tuple[str, nn.Module]]:
    """Yield a model and all modules in it with their paths, in the order of ``named_modules``.

    Each is yielded once, or with ``every_name`` under each of its names; a module inside itself has no name there.

    >>> shared = nn.ReLU()
    >>> [path for path, _ in named_modules_of(nn.Sequential(shared, shared), every_name=True)]
    ['', '0', '1']
    """
    seen: set[int] = set()
    pending: list[tuple[str, nn.Module, tuple[int, ...]]] = [("", model, ())]
    while pending:
        path, module, above = pending.pop()
        if id(module) in (above if every_name else seen):
            continue
        seen.add(id(module))
        yield path, module
        inside = [(join(path, name), child, (*above, id(module))) for name, child in children_of(module)]
        pending += reversed(inside)


def named_parameters_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of a model with their names, each once.

    >>> [name for name, _ in named_parameters_of(nn.Sequential(nn.Linear(2, 3)))]
    ['0.weight', '0.bias']
    """
    return list(_tensors(model, "named_parameters", "_parameters"))


def named_buffers_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the buffers of a model with their names, each once.

    >>> [name for name, _ in named_buffers_of(nn.BatchNorm1d(2))]
    ['running_mean', 'running_var', 'num_batches_tracked']
    """
    return list(_tensors(model, "named_buffers", "_buffers"))


def parameters_of(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a model, each once.

    >>> [tuple(parameter.shape) for parameter in parameters_of(nn.Linear(2, 3))]
    [(3, 2), (3,)]
    """
    if _names_its_own(model, "named_parameters"):
        return [parameter for _, parameter in named_parameters_of(model)]
    found: dict[int, nn.Parameter] = {}
    for module in modules_of(model):  # without names: it runs in every step of a training
        for parameter in module._parameters.values():
            if parameter is not None:
                found.setdefault(id(parameter), parameter)
    return list(found.values())


def buffers_of(model: nn.Module) -> list[Tensor]:
    """Return the buffers of a model, each once.

    >>> len(buffers_of(nn.BatchNorm1d(2)))
    3
    """
    return [buffer for _, buffer in named_buffers_of(model)]


def device_of(model: nn.Module, inputs: Any) -> torch.device:
    """Return the device that does the work: that of the first parameter, buffer or tensor among the inputs.

    >>> device_of(nn.ReLU(), {"x": [torch.ones(1)]})
    device(type='cpu')
    """
    for tensor in (*parameters_of(model), *buffers_of(model)):
        return tensor.device
    pending = [inputs]
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor):
            return item.device
        if isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, (tuple, list)):
            pending += item
    return torch.device("cpu")


def join(path: str, name: str) -> str:
    """Return the path of ``name`` in the module at ``path``.

    >>> join("h.0", "attn"), join("", "attn")
    ('h.0.attn', 'attn')
    """
    return f"{path}.{name}" if path else name


def unregistered_in(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules in a module's plain attributes, and in lists, tuples and dicts there, each with its place.

    >>> layer = nn.Linear(2, 3)
    >>> layer.heads = {"a": [nn.ReLU()]}
    >>> [place for place, _ in unregistered_in(layer)]
    ["heads['a'][0]"]
    """
    for name, content in list(vars(module).items()):
        if name not in _OF_TORCH:
            yield from _within(name, content, DEEPEST)


DEEPEST = 3  # containers in one another
_OF_TORCH = frozenset(vars(nn.Module()))


def _within(place: str, content: Any, depth: int) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(content, nn.Module):
        yield place, content
    elif depth and isinstance(content, (list, tuple)):  # of a subclass, too: its own methods do not run
        items = list.__iter__(content) if isinstance(content, list) else tuple.__iter__(content)
        for number, item in enumerate(items):
            yield from _within(f"{place}[{number}]", item, depth - 1)
    elif depth and isinstance(content, dict):
        for number, (key, item) in enumerate(list(dict.items(content))):
            shown = repr(key) if type(key) in (str, int) else f"<{number}>"
            yield from _within(f"{place}[{shown}]", item, depth - 1)


def _names_its_own(model: nn.Module, method: str) -> bool:
    """Is the model of a class of torch that gives its tensors other names?"""
    given = class_attribute(type(model), method)
    return given is not getattr(nn.Module, method) and is_part_of(getattr(given, "__module__", None), "torch")


def _tensors(model: nn.Module, method: str, table: str) -> Iterator[tuple[str, Any]]:
    named: Iterable[tuple[str, Any]]
    if _names_its_own(model, method):
        named = class_attribute(type(model), method)(model)
    else:
        walked = named_modules_of(model)
        named = ((join(path, name), item) for path, module in walked for name, item in _table(module, table))
    seen: set[int] = set()
    for name, tensor in named:
        if tensor is not None and id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _table(module: nn.Module, name: str) -> list[tuple[str, Any]]:
    """Return one of a module's tables; those of a scripted module are no dicts."""
    return [*getattr(module, name).items()]
