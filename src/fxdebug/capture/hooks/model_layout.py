"""The layout of a model, walked once per run: its modules, their names, their parameters and buffers.

A model has the same layout in most runs. The walk builds a signature from the ids of all modules and classes and from
all names. Anything derived from these alone is remembered until the signature changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.torch_state.module_members import children_of, join, modules_of, named_modules_of

MOST = 64  # models whose layout is remembered

RegisteredTensor = tuple[int, str, bool, Tensor, bool]  # module's position, name, is a buffer, tensor, is persistent


class Layout:
    """The names of a model's modules, and anything derived from them. Neither it nor ``memo`` keeps a module alive."""

    def __init__(self, signature: list[Any], paths: list[tuple[str, ...]]) -> None:
        self.signature = signature
        self.paths = paths  # each module's names, the first one first; modules in the order of ``named_modules``
        self.memo: dict[str, Any] = {}  # derived from the layout
        self.forwards: dict[Any, Any] = {}  # forward of a class → its replacement


_remembered: dict[int, tuple[weakref.ref[nn.Module], Layout]] = {}


def layout_of(model: nn.Module) -> tuple[Layout, list[nn.Module]]:
    """Return the layout and the registered modules, in the order of ``named_modules``."""
    modules = modules_of(model)
    signature: list[Any] = []  # of each module: its id, its class, its children's names and their ids
    for module in modules:
        signature += id(module), id(type(module))
        named = module._modules
        if named:
            signature += named.keys()
            signature += map(id, named.values())
    reference, layout = _remembered.get(id(model), (None, None))
    if layout is None or reference is None or reference() is not model or layout.signature != signature:
        layout = Layout(signature, _names(model, modules))
        _remember(model, layout)
    return layout, modules


def registered_in(modules: list[nn.Module]) -> tuple[list[Any], list[Any]]:
    """Return all that modules hold as parameters and buffers, and the names of it, with which buffers are persistent.

    Where both are as before, :func:`tensors_of` returns the same, and takes longer.
    """
    held: list[Any] = []
    names: list[Any] = []
    for module in modules:
        attributes = module.__dict__
        parameters, buffers = attributes.get("_parameters"), attributes.get("_buffers")
        if parameters is None and buffers is None:
            parameters, buffers = _of_traced(module)
        if parameters:
            names += parameters.keys()
            held += parameters.values()
        if buffers:
            names.append(len(buffers))
            names += buffers.keys()
            held += buffers.values()
            names.append(frozenset(module._non_persistent_buffers_set))
        names.append(None)
    return held, names


def tensors_of(modules: list[nn.Module]) -> list[RegisteredTensor]:
    """Return all parameters and buffers, in the order of their modules."""
    tensors: list[RegisteredTensor] = []
    for position, module in enumerate(modules):
        attributes = module.__dict__
        parameters, buffers = attributes.get("_parameters"), attributes.get("_buffers")
        if parameters is None and buffers is None:
            parameters, buffers = _of_traced(module)
        for name, parameter in parameters.items() if parameters else ():
            if parameter is not None:
                tensors.append((position, name, False, parameter, True))
        if buffers:
            non_persistent = module._non_persistent_buffers_set
            for name, buffer in buffers.items():
                if issubclass(type(buffer), Tensor):
                    tensors.append((position, name, True, buffer, name not in non_persistent))
    return tensors


def _of_traced(module: nn.Module) -> tuple[Any, Any]:
    """Return parameters and buffers of a module that keeps them elsewhere, as one of ``torch.jit.trace`` does."""
    return getattr(module, "_parameters", None), getattr(module, "_buffers", None)


def _remember(model: nn.Module, layout: Layout) -> None:
    key = id(model)
    while len(_remembered) >= MOST:
        _remembered.pop(next(iter(_remembered)), None)

    def forget(gone: Any) -> None:
        if _remembered.get(key, (None,))[0] is gone:
            _remembered.pop(key, None)

    _remembered[key] = weakref.ref(model, forget), layout


# Names -------------------------------------------------------------------------------------------


def _names(model: nn.Module, modules: list[nn.Module]) -> list[tuple[str, ...]]:
    names: dict[int, list[str]] = {id(module): [] for module in modules}
    for path, module in _named_modules(model):
        names.setdefault(id(module), []).append(path)
    return [tuple(names[id(module)]) for module in modules]


def _named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield ``named_modules`` with every alias; the first name of each module comes first.

    A module that registers one of its own parents has infinitely many names: only the first is given.
    """
    first: dict[int, str] = {}
    parents = list(named_modules_of(model))
    for path, module in parents:
        first[id(module)] = path
        yield path, module
    for path, parent in parents:
        for name, child in children_of(parent):
            alias = join(path, name)
            if first.get(id(child), alias) != alias and not _is_above(child, path, first):
                yield from _aliased(child, alias, first, 0)


def _aliased(module: nn.Module, path: str, first: dict[int, str], depth: int) -> Iterator[tuple[str, nn.Module]]:
    """Yield an alias of a module and of everything below it."""
    yield path, module
    if depth < 32:
        for name, child in children_of(module):
            if not _is_above(child, path, first):
                yield from _aliased(child, join(path, name), first, depth + 1)


def _is_above(module: nn.Module, path: str, first: dict[int, str]) -> bool:
    own = first.get(id(module))
    return own is not None and (own == "" or path == own or path.startswith(own + "."))
