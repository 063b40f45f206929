"""Names of the modules of a model: registered ones from the start, others as they turn up."""

from __future__ import annotations

import weakref

from torch import nn

from fxdebug.capture.hooks.model_layout import Layout, layout_of
from fxdebug.capture.recorder.frame import Frame, Site
from fxdebug.capture.tensors.type_names import class_names, type_name
from fxdebug.capture.torch_state.module_members import join, named_modules_of, unregistered_in
from fxdebug.data.calls import Origin
from fxdebug.data.trace import ModuleClass


class Sites:
    """The sites of one model's modules: registered ones from the start, others as they turn up.

    >>> model = nn.Sequential(nn.ReLU())
    >>> Sites(model).of(model[0]).path
    '0'
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._discovered: dict[int, tuple[weakref.ref[nn.Module], Site]] = {}  # by id: a module may not be hashable
        self._met: dict[tuple[type, str], Site] = {}  # of those that turned up: an id may have been that of several
        layout, self._registered = layout_of(model)
        if "sites" not in layout.memo:
            sites = _sites(layout, self._registered)
            # ids are safe: registered modules are alive as long as the model is
            by_id = dict(zip(map(id, self._registered), sites))
            layout.memo["sites"] = by_id, {names[0]: site.type for names, site in zip(layout.paths, sites)}
        self._by_id: dict[int, Site]
        self.modules: dict[str, str]
        self._by_id, self.modules = layout.memo["sites"]
        self.layout = layout

    def registered(self) -> list[nn.Module]:
        """Return the modules that were in the model when the recording began."""
        return self._registered

    def by_id(self) -> dict[int, Site]:
        """Return the sites of these modules, by the modules' ids."""
        return self._by_id

    def of(self, module: nn.Module) -> Site | None:
        """Return the site of a module, if it is known already."""
        site = self._by_id.get(id(module))
        if site is None:
            reference, site = self._discovered.get(id(module), (None, None))
            if reference is not None and reference() is not module:
                return None  # another module had this id
        return site

    def root(self) -> Site:
        """Return the site of the model itself."""
        site = self.of(self.model)
        assert site is not None
        return site

    def classes(self) -> tuple[ModuleClass, ...]:
        """Return the classes of all modules that are known, each with the paths of its modules."""
        paths: dict[type, list[str]] = {}
        for site in (*self._by_id.values(), *self._met.values()):
            paths.setdefault(site.kind, []).extend(site.aliases)
        return tuple([ModuleClass(class_names(kind), tuple(dict.fromkeys(found))) for kind, found in paths.items()])

    def discover(self, module: nn.Module, stack: list[Frame]) -> Site:
        """Return a site for a module that was not in the model when the recording began.

        The module is named after the parent that registered it or holds it. ``stack``: the open calls, innermost last.
        """
        site = self.of(module)
        if site is None:
            path, origin = self._name(module, stack)
            site = Site(path, type_name(type(module)), (path,), origin, type(module))
            self._discovered[id(module)] = (weakref.ref(module), site)
            self._met.setdefault((site.kind, path), site)
        return site

    def _name(self, module: nn.Module, stack: list[Frame]) -> tuple[str, Origin]:
        for frame in reversed(stack):
            if frame.module is None:
                continue
            for name, child in frame.module._modules.items():
                if child is module:
                    late = frame.site.origin != "unregistered"
                    return join(frame.site.path, name), "late" if late else "unregistered"
        for path, other in named_modules_of(self.model):
            if other is module:
                return path, "late"
        caller = stack[-1] if stack else None
        parent = None if caller is None else caller.module
        attribute = None if parent is None else next((n for n, m in unregistered_in(parent) if m is module), None)
        return join(caller.site.path if caller else "", attribute or f"<{type_name(type(module))}>"), "unregistered"


def _sites(layout: Layout, modules: list[nn.Module]) -> list[Site]:
    sites = []
    for position, (names, module) in enumerate(zip(layout.paths, modules)):
        unnamed = names[0] == "" and position > 0  # registered under the empty name
        origin: Origin = "unnamed" if unnamed else "registered"
        sites.append(Site("''" if unnamed else names[0], type_name(type(module)), names, origin, type(module)))
    return sites
