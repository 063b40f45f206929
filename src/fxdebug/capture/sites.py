"""Which modules of a model a recording covers, and what it calls each of them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from torch import nn

from fxdebug.capture.describe import type_name
from fxdebug.capture.recorder import Frame, Site


class Sites:
    """The sites of one model: registered modules from the start, others as they turn up."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._met: dict[int, tuple[weakref.ref[nn.Module], Site]] = {}  # by id: a module may not be hashable
        self._by_id: dict[int, Site] = {}
        aliases: dict[int, list[str]] = {}
        modules: dict[int, nn.Module] = {}
        for path, module in _named_modules(model):
            aliases.setdefault(id(module), []).append(path)
            modules[id(module)] = module
        for key, module in modules.items():
            names = tuple(aliases[key])
            if names[0] == "" and module is not model:  # registered under an empty name: the reference cannot see it
                self._add(module, Site("''", type_name(type(module)), names, "unnamed"))
                continue
            self._add(module, Site(names[0], type_name(type(module)), names))
        self.modules = {names[0]: type_name(type(modules[key])) for key, names in aliases.items()}
        self._registered = list(modules.values())

    def registered(self) -> list[nn.Module]:
        """The modules that were in the model when the recording began."""
        return self._registered

    def of(self, module: nn.Module) -> Site | None:
        """The site of a module that is known already."""
        site = self._by_id.get(id(module))
        if site is None:
            reference, site = self._met.get(id(module), (None, None))
            if reference is not None and reference() is not module:
                return None  # another one had this id
        return site

    def root(self) -> Site:
        """The model itself."""
        site = self.of(self.model)
        assert site is not None
        return site

    def discover(self, module: nn.Module, stack: list[Frame]) -> Site:
        """Name a module that was not in the model when the recording began."""
        site = self.of(module)
        if site is None:
            path, origin = self._name(module, stack)
            site = Site(path, type_name(type(module)), (path,), origin)
            self._met[id(module)] = (weakref.ref(module), site)
        return site

    def _add(self, module: nn.Module, site: Site) -> None:
        self._by_id[id(module)] = site  # registered modules are alive as long as the model is: ids are safe

    def _name(self, module: nn.Module, stack: list[Frame]) -> tuple[str, str]:
        for frame in reversed(stack):
            if frame.module is None:
                continue
            for name, child in frame.module._modules.items():
                if child is module:
                    late = frame.site.origin != "unregistered"
                    return _join(frame.site.path, name), "late" if late else "unregistered"
        for path, other in self.model.named_modules():
            if other is module:
                return path, "late"
        below = stack[-1] if stack else None
        kept = next((n for n, m in _kept_by(below.module) if m is module), None) if below and below.module else None
        return _join(below.site.path if below else "", kept or f"<{type_name(type(module))}>"), "unregistered"


def _named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """``named_modules`` with every alias; the first name of each module comes first.

    A module that registers one of its own parents has infinitely many names: only the first is given.
    """
    first: dict[int, str] = {}
    for path, module in model.named_modules():
        first[id(module)] = path
        yield path, module
    parents = [(path, module) for path, module in model.named_modules()]
    for path, parent in parents:
        for name, child in parent._modules.items():
            alias = _join(path, name)
            if child is not None and first.get(id(child), alias) != alias and not _is_above(child, path, first):
                yield from _aliased(child, alias, first, 0)


def _aliased(module: nn.Module, path: str, first: dict[int, str], depth: int) -> Iterator[tuple[str, nn.Module]]:
    """An alias of a module and of everything below it."""
    yield path, module
    if depth < 32:
        for name, child in module._modules.items():
            if child is not None and not _is_above(child, path, first):
                yield from _aliased(child, _join(path, name), first, depth + 1)


def _is_above(module: nn.Module, path: str, first: dict[int, str]) -> bool:
    own = first.get(id(module))
    return own is not None and (own == "" or path == own or path.startswith(own + "."))


def _kept_by(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in a module's plain attributes and in the lists, tuples and dicts among them."""
    for name, held in vars(module).items():
        if name == "_modules":
            continue
        if isinstance(held, nn.Module):
            yield name, held
        elif isinstance(held, (list, tuple)):
            yield from ((f"{name}[{i}]", m) for i, m in enumerate(held) if isinstance(m, nn.Module))
        elif isinstance(held, dict):
            yield from ((f"{name}[{k!r}]", m) for k, m in held.items() if isinstance(m, nn.Module))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
