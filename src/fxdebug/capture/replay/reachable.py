"""Objects that a model's Python code can reach through its modules, their classes and their functions.

A second run of a body may change any of them, and ``snapshot`` restores them. A reference to a tensor from one of
them is a known reference (``references``).

The walk starts at the model. It follows attributes, containers and objects, and the variables that functions of the
program close over or name. It stops at objects of Python itself and of installed libraries.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from fxdebug.capture.replay.functions import (
    cached_calls,
    contents_of,
    functions_in,
    globals_in,
    home_of,
    names_in,
    patches_in,
)
from fxdebug.capture.replay.introspect import (
    MAX_ITEMS,
    MISSING,
    attributes_of,
    items_of,
    slot_of,
    slots_of,
)
from fxdebug.capture.torch_state.whose_code import is_library, is_of_python, is_ours, is_part_of

MAX_OBJECTS = 50_000  # visited at most

_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None), range, torch.dtype, torch.device, torch.Size))
_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_CONTAINERS = (dict, list, deque, set)
_USUAL_CONTAINERS = frozenset((*_CONTAINERS, OrderedDict, defaultdict))
_HEAP_TYPE = 1 << 9  # ``Py_TPFLAGS_HEAPTYPE``: the flag of a class made by Python code


# Objects of Python's own classes (locks, loggers, sockets, frames) are not entered, except those of these modules:
# they hold objects that the program put there.
_ENTERED = frozenset(
    ("builtins", "collections", "types", "weakref", "random", "functools", "array", "_thread", "_weakrefset")
)


class ReachableObjects:
    """Result of the walk from a model: places that hold objects, and objects with an internal state.

    ``visited`` has the ids of objects that the walk must not enter.
    ``extra_roots`` are objects that the program passes to the bodies.
    ``is_complete`` is ``False`` where the walk stopped at ``MAX_OBJECTS``.
    """

    def __init__(self, model: nn.Module, visited: Iterable[int] = (), extra_roots: Iterable[Any] = ()) -> None:
        self.dicts: list[dict[Any, Any]] = []
        self.empty_containers: list[Any] = []  # most containers of modules are empty
        self.sequences: list[Any] = []  # lists, deques and sets
        self.cells: list[types.CellType] = []
        self.slotted: list[Any] = []  # objects with slots
        self.classes: list[type] = []
        self.globals: list[tuple[dict[str, Any], str]] = []  # a module's namespace, and a name in it that code uses
        self.class_attributes: list[tuple[type, str]] = []  # a library's class, and an attribute that code names
        self.switches: list[tuple[type, str]] = []  # a library's class, and an attribute that its class methods may set
        self.naming_len: dict[int, dict[str, Any]] = {}  # by ``id``: namespaces whose code names the builtin
        self.stateful: list[Any] = []
        self.fixed: set[int] = set()  # ids of objects held in a place where no blocker can replace them
        self.tensors: dict[int, int] = {}  # id → number of references to it from the places above
        self._visited: set[int] = set(visited)
        self._named: set[tuple[int, str]] = set()
        tables = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
        hooks = [hook for table in tables for hook in table.values()]
        roots = [model, *hooks, *contextvars.copy_context().values(), *extra_roots]
        self._pending: deque[Any] = deque(roots)
        self._cached: list[tuple[Any, Any]] = []  # (arguments, result) of each call in a function's cache
        while self._pending and len(self._visited) < MAX_OBJECTS:
            with contextlib.suppress(Exception):  # an object that raises when it is read is skipped
                self._walk()
        self.is_complete = not self._pending

    def _walk(self) -> None:
        pending, visited = self._pending, self._visited
        while pending and len(visited) < MAX_OBJECTS:
            self._visit(pending.popleft())
            if not pending:
                self._visit_cached()

    def _visit_cached(self) -> None:
        """Continue with cached results that a call can return again, not with those for modules of another model."""
        cached, self._cached = self._cached, []
        for key, result in cached:
            parts = key if type(key) is tuple else (key,)
            if all(id(part) in self._visited for part in parts if issubclass(type(part), nn.Module)):
                self._pending.append(result)
                self._pending.extend([part for part in parts if issubclass(type(part), Tensor)])
            else:
                self._cached.append((key, result))

    def _visit(self, thing: Any) -> None:
        kind = type(thing)  # not isinstance: it believes the object's ``__class__``, which may be anything
        if issubclass(kind, Tensor):
            self.tensors[id(thing)] = self.tensors.get(id(thing), 0) + 1
            attributes = attributes_of(thing)
            if attributes and id(attributes) not in self._visited:
                self._visited.add(id(attributes))
                self.dicts.append(attributes)
                self._pending.extend(attributes.values())
        elif kind not in _ATOMS and id(thing) not in self._visited:
            self._visited.add(id(thing))
            self._enter(thing)

    # Objects by their kind -----------------------------------------------------------------------

    def _enter(self, thing: Any) -> None:
        kind = type(thing)
        if issubclass(kind, nn.Module):
            self._enter_module(thing.__dict__)
            self._pending.append(kind)
        elif is_ours(kind.__module__):
            return  # a trace, a call, a report: nobody's state, and the tapes behind it change while bodies are traced
        elif issubclass(kind, type):
            self._enter_class(thing)
        elif issubclass(kind, types.FunctionType):
            self._enter_function(thing)
        elif issubclass(kind, types.MethodType):
            self._pending.extend((thing.__self__, thing.__func__))
            self.stateful.append(thing)
        elif issubclass(kind, _BOUND_IN_C):  # ``rows.append``
            if not isinstance(thing.__self__, (types.ModuleType, type)):
                self._pending.append(thing.__self__)
                self.stateful.append(thing)
        elif issubclass(kind, weakref.ref):
            self._pending.append(thing())
        elif kind is memoryview:
            self._pending.append(thing.obj)
        elif kind is types.MappingProxyType:
            self._pending.extend(gc.get_referents(thing))
        elif issubclass(kind, functools.partial):
            self._pending.extend((thing.args, thing.keywords))
            self._add_fixed([thing.func])
        elif issubclass(kind, (tuple, frozenset)):
            self._add_fixed(items_of(thing))
            if kind not in (tuple, frozenset):
                self._enter_own(thing)
        elif kind in _USUAL_CONTAINERS and not thing:
            self.empty_containers.append(thing)
        elif issubclass(kind, _CONTAINERS):
            self._enter_container(thing)
        elif not issubclass(kind, types.ModuleType):
            self._enter_stateful(thing)

    def _enter_container(self, container: Any) -> None:
        kind = type(container)
        (self.dicts if issubclass(kind, dict) else self.sequences).append(container)
        if issubclass(kind, (dict, list)):
            self._pending.extend(items_of(container))
            if issubclass(kind, dict) and not _ATOMS.issuperset(map(type, dict.keys(container))):
                self._add_fixed(list(islice(dict.keys(container), MAX_ITEMS)))  # their class may count in ``__hash__``
        else:
            self._add_fixed(items_of(container))
        if kind not in _CONTAINERS:
            self._enter_own(container)

    def _enter_stateful(self, thing: Any) -> None:
        kind = type(thing)
        self.stateful.append(thing)
        if issubclass(kind, functools._lru_cache_wrapper):
            self._cached.extend(cached_calls(thing))
        home = kind.__module__
        if home == "numpy" and issubclass(kind, sys.modules[home].ndarray) and thing.dtype.hasobject:
            self._add_fixed(list(islice(thing.flat, MAX_ITEMS)))
        if home in _ENTERED or not is_of_python(home):
            self._enter_own(thing)

    def _enter_own(self, thing: Any) -> None:
        """Enter the attributes of an object, and its class if that is the program's: its methods may count in it."""
        self._enter_attributes(thing)
        if not is_library(type(thing).__module__):
            self._pending.append(type(thing))

    def _add_fixed(self, things: list[Any]) -> None:
        """Continue with objects held in a place where no blocker can replace them."""
        self.fixed.update([id(thing) for thing in things if type(thing) not in _ATOMS])
        self._pending.extend(things)

    def _enter_attributes(self, thing: Any) -> None:
        """Enter the attributes of an object, and its slots."""
        attributes = attributes_of(thing)
        if attributes is not None:
            self._visited.add(id(attributes))
            self.dicts.append(attributes)
            self._pending.extend(attributes.values())
        kind: Any = type(thing)
        names = slots_of(kind)
        if names:
            self.slotted.append(thing)
            self._pending.extend([content for name in names if (content := slot_of(thing, name)) is not MISSING])

    def _enter_module(self, attributes: dict[str, Any]) -> None:
        """Enter the attributes of a module; its many flags and empty containers (for hooks, say) are not queued."""
        self.dicts.append(attributes)
        for content in attributes.values():
            kind = type(content)
            if kind in _USUAL_CONTAINERS and not content:
                if id(content) not in self._visited:
                    self._visited.add(id(content))
                    self.empty_containers.append(content)
            elif kind not in _ATOMS:
                self._pending.append(content)

    # Classes -------------------------------------------------------------------------------------

    def _enter_class(self, kind: type) -> None:
        """Enter a class and its bases: a body may write to their attributes, and their methods name globals."""
        for base in kind.__mro__[:-1]:
            if base is not kind and id(base) in self._visited:
                continue
            self._visited.add(id(base))
            if not is_library(base.__module__):
                self.classes.append(base)
                for attribute in base.__dict__.values():
                    self._pending.extend(functions_in(attribute) or (attribute,))
            elif is_part_of(base.__module__, "torch"):
                for forward in functions_in(base.__dict__.get("forward")):
                    self._pending.extend(patches_in(forward))
            else:
                self._enter_installed_class(base)

    def _enter_installed_class(self, kind: type) -> None:
        """Enter a class of an installed package: its forward, its caches, and for a model the globals it names."""
        if "forward" in kind.__dict__:
            self._pending.extend(functions_in(kind.__dict__["forward"]))
        self._enter_caches(kind)
        if not is_part_of(kind.__module__, "transformers") and not is_of_python(kind.__module__):
            # an installed model: its program may patch the globals that its methods name
            self.classes.append(kind)
            for function in [each for attribute in kind.__dict__.values() for each in functions_in(attribute)]:
                looked_up = globals_in(function.__code__)
                if "len" in looked_up and "len" not in function.__globals__:
                    self.naming_len[id(function.__globals__)] = function.__globals__
                self._add_patchable(function.__globals__, looked_up, set(names_in(function.__code__)))

    def _enter_caches(self, kind: type) -> None:
        """Enter the methods of a library's class that cache their results, directly or inside a decorator."""
        for attribute in kind.__dict__.values():
            if isinstance(attribute, functools._lru_cache_wrapper):
                self.classes.append(kind)
                self._pending.append(attribute)
            for function in functions_in(attribute):
                for cell in getattr(function, "__closure__", None) or ():
                    if any(isinstance(content, functools._lru_cache_wrapper) for content in contents_of(cell)):
                        self._pending.append(function)

    # Functions and the names in their code ---------------------------------------------------------

    def _enter_function(self, function: types.FunctionType) -> None:
        if hasattr(function, "__fxdebug__"):  # a forward wrapper of ours: the program's is the one inside
            self._pending.append(function.__wrapped__)  # type: ignore[attr-defined]
            return
        for cell in function.__closure__ or ():
            if id(cell) not in self._visited:
                self._visited.add(id(cell))
                self.cells.append(cell)
                self._pending.extend(contents_of(cell))
        self._add_fixed([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])
        if not is_library(home_of(function)):
            if function.__dict__:
                self._pending.append(function.__dict__)
            code = function.__code__
            self._enter_names(function.__globals__, globals_in(code), set(names_in(code)))

    def _enter_names(
        self, namespace: dict[str, Any], looked_up: Iterable[str], names: set[str], known: tuple[int, ...] = ()
    ) -> None:
        """Enter the program's globals that its code looks up in a namespace.

        ``names`` are all names in the code: those it may look up in a Python module that it reaches. ``known`` has the
        ids of the modules on the way here.
        """
        if not known:
            self._enter_imported(names)
        for name in looked_up:
            if name == "len" and name not in namespace:
                self.naming_len[id(namespace)] = namespace
                continue  # a trace puts one of its own there
            if name not in namespace:
                self._add_global(namespace, name)  # the body may create it
                continue
            thing = namespace[name]
            kind = type(thing)
            if issubclass(kind, types.ModuleType):
                if id(thing) not in known and not is_ours(thing.__name__):
                    enter = self._enter_names if not is_library(thing.__name__) else self._add_patchable
                    enter(vars(thing), names, names, (*known, id(thing)))
                continue
            if not self._add_global(namespace, name):
                continue
            if not issubclass(kind, (type, types.FunctionType)) or not is_library(getattr(thing, "__module__", None)):
                self._pending.append(thing)
            elif issubclass(kind, type):
                self._add_patchable_class(thing, names)

    def _enter_imported(self, names: set[str]) -> None:
        """Enter the program's modules that code may import itself, or patch by their names."""
        for name in names:
            imported = sys.modules.get(name)
            if imported is not None and not is_library(name):
                self._enter_names(vars(imported), names, names, (id(imported),))

    def _add_global(self, namespace: dict[str, Any], name: str) -> bool:
        """Add a global variable, and return whether it is new."""
        if (id(namespace), name) in self._named:
            return False
        self._named.add((id(namespace), name))
        self.globals.append((namespace, name))
        return True

    def _add_patchable(
        self, namespace: dict[str, Any], looked_up: Iterable[str], names: set[str], known: tuple[int, ...] = ()
    ) -> None:
        """Add the globals of a library that code names: the program may patch them for the length of a call."""
        for name in looked_up:
            thing = namespace.get(name)
            if issubclass(type(thing), types.ModuleType):
                if id(thing) not in known:
                    self._add_patchable(vars(thing), names, names, (*known, id(thing)))
            elif name in namespace and self._add_global(namespace, name):
                if issubclass(type(thing), type):
                    self._add_patchable_class(thing, names)  # type: ignore[arg-type]
                elif type(thing) in _USUAL_CONTAINERS and thing is not sys.modules and id(thing) not in self._visited:
                    self._visited.add(id(thing))  # its items belong to the library
                    places: list[Any] = self.dicts if isinstance(thing, dict) else self.sequences
                    places.append(thing)

    def _add_patchable_class(self, kind: type, names: Iterable[str]) -> None:
        if kind.__flags__ & _HEAP_TYPE:  # classes in C cannot be changed
            attributes = [name for name in names if hasattr(kind, name) and not name.startswith("__")]
            self.class_attributes.extend([(kind, name) for name in attributes])
            self.switches.extend([(kind, name) for name in _settings_of(kind) if name not in attributes])


@functools.cache
def _settings_of(kind: type) -> tuple[str, ...]:
    """Return the names of a class's plain attributes, if it has class methods, which may set them: a switch, say."""
    if issubclass(kind, nn.Module):
        return ()
    bases = [base for base in kind.__mro__[:-1] if not is_of_python(base.__module__)]
    contents = {name: thing for base in reversed(bases) for name, thing in base.__dict__.items()}
    if not any(type(thing) is classmethod for thing in contents.values()):
        return ()
    return tuple([name for name, thing in contents.items() if type(thing) in _SWITCHES and not name.startswith("__")])


_SWITCHES = frozenset((bool, int, float, str, type(None)))
