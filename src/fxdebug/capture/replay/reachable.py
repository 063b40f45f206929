"""What the Python of a model can get at: the things its modules, their classes and their functions hold.

Running a body a second time may change any of it (``state`` puts it back), and a tensor that is kept there
is accounted for. The walk goes from the modules through attributes, containers and objects, and through
the variables that the program's own functions close over or name. It stops at what belongs to Python and
to installed libraries.
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
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from fxdebug.capture.replay.introspect import (
    MISSING,
    MOST_ITEMS,
    attributes_of,
    is_library,
    is_of_python,
    is_ours,
    items_of,
    slot_of,
    slots_of,
)

MOST = 50_000  # things looked at

_ATOMS = frozenset((str, bytes, int, float, complex, bool, type(None), range, torch.dtype, torch.device, torch.Size))
_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_CONTAINERS = (dict, list, deque, set)
_USUAL = frozenset((*_CONTAINERS, OrderedDict, defaultdict))


# Objects of Python's own classes are not entered: locks, loggers, sockets, frames. But these hold what is put in them:
_ENTERED = frozenset(
    ("builtins", "collections", "types", "weakref", "random", "functools", "array", "_thread", "_weakrefset")
)


class ReachableObjects:
    """Everything found from a model: the places that hold things, and the objects with a state of their own kind.

    ``counted``: ids of objects whose contents were counted before. ``given``: what the program hands to its bodies.
    """

    def __init__(self, model: nn.Module, counted: Iterable[int] = (), given: Iterable[Any] = ()) -> None:
        self.mappings: list[dict[Any, Any]] = []
        self.empty: list[Any] = []  # containers with nothing in them: most of what modules have
        self.sequences: list[Any] = []  # lists, deques and sets
        self.cells: list[types.CellType] = []
        self.slotted: list[Any] = []
        self.classes: list[type] = []
        self.globals: list[tuple[dict[str, Any], str]] = []  # a module's names, and one of them that code names
        self.members: list[tuple[type, str]] = []  # a library's class, and an attribute of it that code names
        self.others: list[Any] = []
        self.fixed: set[int] = set()  # ids of what is held where nothing else can be put in its place
        self.tensors: dict[int, int] = {}  # id → how many references the places above have to it
        self._seen: set[int] = set(counted)
        self._named: set[tuple[int, str]] = set()
        tables = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)
        hooks = [hook for table in tables for hook in table.values()]
        roots = [model, *hooks, *contextvars.copy_context().values(), *given]
        self._pending: deque[Any] = deque(roots)
        self._remembered: list[tuple[Any, Any]] = []  # what functions remember: the arguments and the result
        while self._pending and len(self._seen) < MOST:
            with contextlib.suppress(Exception):  # an object that cannot be looked at is passed over
                self._walk()
        self.is_complete = not self._pending

    def _walk(self) -> None:
        pending, seen = self._pending, self._seen
        while pending and len(seen) < MOST:
            self._look(pending.popleft())
            if not pending:
                self._results()

    def _results(self) -> None:
        """What calls can come to again. Those that another model was given are of no concern, nor is that model."""
        remembered, self._remembered = self._remembered, []
        for key, result in remembered:
            parts = key if type(key) is tuple else (key,)
            if all(id(part) in self._seen for part in parts if issubclass(type(part), nn.Module)):
                self._pending.append(result)
                self._pending.extend([part for part in parts if issubclass(type(part), Tensor)])
            else:
                self._remembered.append((key, result))

    def _look(self, thing: Any) -> None:
        kind = type(thing)  # not isinstance: it asks the object, which may say anything
        if issubclass(kind, Tensor):
            self.tensors[id(thing)] = self.tensors.get(id(thing), 0) + 1
            own = attributes_of(thing)
            if own and id(own) not in self._seen:
                self._seen.add(id(own))
                self.mappings.append(own)
                self._pending.extend(own.values())
        elif kind not in _ATOMS and id(thing) not in self._seen:
            self._seen.add(id(thing))
            self._enter(thing)

    def _enter(self, thing: Any) -> None:
        kind = type(thing)
        if issubclass(kind, nn.Module):
            self._module(thing.__dict__)
            self._pending.append(kind)
        elif issubclass(kind, type):
            self._class(thing)
        elif issubclass(kind, types.FunctionType):
            self._function(thing)
        elif issubclass(kind, types.MethodType):
            self._pending.extend((thing.__self__, thing.__func__))
            self.others.append(thing)
        elif issubclass(kind, _BOUND_IN_C):  # ``rows.append``
            if not isinstance(thing.__self__, (types.ModuleType, type)):
                self._pending.append(thing.__self__)
                self.others.append(thing)
        elif issubclass(kind, weakref.ref):
            self._pending.append(thing())
        elif kind is memoryview:
            self._pending.append(thing.obj)
        elif issubclass(kind, functools.partial):
            self._pending.extend((thing.args, thing.keywords))
            self._unmoved([thing.func])
        elif issubclass(kind, (tuple, frozenset)):
            self._unmoved(items_of(thing))
        elif kind in _USUAL and not thing:
            self.empty.append(thing)
        elif issubclass(kind, _CONTAINERS):
            (self.mappings if issubclass(kind, dict) else self.sequences).append(thing)
            if issubclass(kind, (dict, list)):
                self._pending.extend(items_of(thing))
            else:
                self._unmoved(items_of(thing))
            if kind not in _CONTAINERS:
                self._object(thing)
        elif not issubclass(kind, types.ModuleType):
            self.others.append(thing)
            if issubclass(kind, functools._lru_cache_wrapper):
                self._remembered.extend(remembered_by(thing))
            home = kind.__module__
            if home == "numpy" and issubclass(kind, sys.modules[home].ndarray) and thing.dtype.hasobject:
                self._unmoved(list(islice(thing.flat, MOST_ITEMS)))
            if home in _ENTERED or not is_of_python(home):
                self._object(thing)
                if not is_library(home):
                    self._pending.append(kind)

    def _module(self, attributes: dict[str, Any]) -> None:
        """Those of a module: most are flags, and containers for hooks and the like with nothing in them."""
        self.mappings.append(attributes)
        for held in attributes.values():
            kind = type(held)
            if kind in _USUAL and not held:
                if id(held) not in self._seen:
                    self._seen.add(id(held))
                    self.empty.append(held)
            elif kind not in _ATOMS:
                self._pending.append(held)

    def _unmoved(self, things: list[Any]) -> None:
        self.fixed.update([id(thing) for thing in things if type(thing) not in _ATOMS])
        self._pending.extend(things)

    def _object(self, thing: Any) -> None:
        own = attributes_of(thing)
        if own is not None:
            self._seen.add(id(own))
            self.mappings.append(own)
            self._pending.extend(own.values())
        kind: Any = type(thing)
        names = slots_of(kind)
        if names:
            self.slotted.append(thing)
            self._pending.extend([held for name in names if (held := slot_of(thing, name)) is not MISSING])

    def _class(self, kind: type) -> None:
        """The program's own classes: their attributes may be written to, and their methods name globals."""
        for base in kind.__mro__[:-1]:
            if base is not kind and id(base) in self._seen:
                continue
            self._seen.add(id(base))
            if not is_library(base.__module__):
                self.classes.append(base)
                for thing in base.__dict__.values():
                    self._pending.extend(_functions_of(thing) or (thing,))
            elif base.__module__.startswith("torch."):
                self._replaced(base)
            else:
                if "forward" in base.__dict__:
                    self._pending.extend(_functions_of(base.__dict__["forward"]))
                self._caches(base)
                if not base.__module__.startswith("transformers.") and not is_of_python(base.__module__):
                    # a model that was installed: its globals are its program's
                    self.classes.append(base)
                    for function in [each for thing in base.__dict__.values() for each in _functions_of(thing)]:
                        self._patched(function.__globals__, set(_names(function.__code__)))

    def _replaced(self, kind: type) -> None:
        """Functions that the program has put in the place of those that torch's forwards call."""
        for forward in _functions_of(kind.__dict__.get("forward")):
            self._pending.extend(replaced_in(forward))

    def _caches(self, kind: type) -> None:
        """Methods of a library's module that remember their results, by themselves or under a decorator."""
        for thing in kind.__dict__.values():
            if isinstance(thing, functools._lru_cache_wrapper):
                self.classes.append(kind)
                self._pending.append(thing)
            for function in _functions_of(thing):
                for cell in getattr(function, "__closure__", None) or ():
                    if any(isinstance(held, functools._lru_cache_wrapper) for held in contents_of(cell)):
                        self._pending.append(function)

    def _function(self, function: types.FunctionType) -> None:
        if hasattr(function, "__fxdebug__"):  # it stands in front of a forward and bears its name
            self._pending.append(function.__wrapped__)  # type: ignore[attr-defined]
            return
        for cell in function.__closure__ or ():
            if id(cell) not in self._seen:
                self._seen.add(id(cell))
                self.cells.append(cell)
                self._pending.extend(contents_of(cell))
        self._unmoved([*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()])
        if not is_library(home_of(function)):
            if function.__dict__:
                self._pending.append(function.__dict__)
            self._names(function.__globals__, set(_names(function.__code__)))

    def _names(self, place: dict[str, Any], names: Iterable[str], known: tuple[int, ...] = ()) -> None:
        for name in names:
            if name not in place:
                self._variable(place, name)  # it may be made
                imported = sys.modules.get(name)
                if imported is not None and not is_library(name) and id(imported) not in known:
                    self._names(vars(imported), names, (*known, id(imported)))
                continue
            thing = place[name]
            if isinstance(thing, types.ModuleType):
                if id(thing) not in known and not is_ours(thing.__name__):
                    among = self._names if not is_library(thing.__name__) else self._patched
                    among(vars(thing), names, (*known, id(thing)))
                continue
            if not self._variable(place, name):
                continue
            home = getattr(thing, "__module__", None)
            if not isinstance(thing, (type, types.FunctionType)) or not is_library(home):
                self._pending.append(thing)
            elif isinstance(thing, type):
                self._patched_class(thing, names)

    def _variable(self, place: dict[str, Any], name: str) -> bool:
        if (id(place), name) in self._named:
            return False
        self._named.add((id(place), name))
        self.globals.append((place, name))
        return True

    def _patched(self, place: dict[str, Any], names: Iterable[str], known: tuple[int, ...] = ()) -> None:
        """What code of the program names in a library: it may put something else there, for the length of a call."""
        for name in names:
            thing = place.get(name)
            if isinstance(thing, types.ModuleType):
                if id(thing) not in known:
                    self._patched(vars(thing), names, (*known, id(thing)))
            elif name in place and self._variable(place, name):
                if isinstance(thing, type):
                    self._patched_class(thing, names)
                elif type(thing) in _USUAL and thing is not sys.modules and id(thing) not in self._seen:
                    self._seen.add(id(thing))  # what is in it is the library's
                    place_of: list[Any] = self.mappings if isinstance(thing, dict) else self.sequences
                    place_of.append(thing)

    def _patched_class(self, kind: type, names: Iterable[str]) -> None:
        if kind.__flags__ & _HEAP_TYPE:  # others are C's, and cannot be changed
            self.members.extend([(kind, name) for name in names if hasattr(kind, name) and not name.startswith("__")])


def replaced_in(forward: types.FunctionType) -> list[Any]:
    """The functions that the program has put in the place of those that a forward of torch's calls."""
    named = [vars(functional).get(name) for name in forward.__code__.co_names]
    return [called for called in named if type(called) is types.FunctionType and not is_library(home_of(called))]


def home_of(function: types.FunctionType) -> str | None:
    """The module in which a function looks up names: ``functools.wraps`` gives it the name of another one."""
    return function.__globals__.get("__name__")


def mappings_of(module: nn.Module) -> Iterator[dict[Any, Any]]:
    """The dicts that are one module's alone: its attributes, parameters, buffers and submodules."""
    yield module.__dict__
    for name in ("_parameters", "_buffers", "_modules"):
        held = module.__dict__.get(name)
        if isinstance(held, dict):
            yield held


def _functions_of(thing: Any) -> tuple[Any, ...]:
    """The functions behind something in a class."""
    if isinstance(thing, (staticmethod, classmethod)):
        return (thing.__func__,)
    if isinstance(thing, property):
        return tuple(function for function in (thing.fget, thing.fset) if function is not None)
    return (thing,) if isinstance(thing, types.FunctionType) else ()


def _names(code: types.CodeType) -> Iterator[str]:
    """What code names, also in strings: ``patch.object(F, "gelu")``, ``patch("torch.nn.functional.gelu")``."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
        elif type(constant) is str and len(constant) < _LONGEST_NAME:
            parts = constant.split(".")
            if all(map(str.isidentifier, parts)):
                yield from parts


_LONGEST_NAME = 100
_HEAP_TYPE = 1 << 9  # of a class that Python code made


def remembered_by(cache: Any) -> Iterator[tuple[Any, Any]]:
    """The arguments (one object, or a tuple) and the result of each call that a ``functools.lru_cache`` keeps."""
    held = gc.get_referents(cache)
    own = attributes_of(cache)
    for table in [thing for thing in held if type(thing) is dict and thing is not own]:
        if not any(type(result).__name__ == "_lru_list_elem" for result in table.values()):
            yield from table.items()
            continue
        keys, things = set(map(id, table)), iter(held)  # of a cache with a size: each result follows its arguments
        for thing in things:
            if id(thing) in keys:
                yield thing, next(things)


def contents_of(cell: types.CellType) -> tuple[Any, ...]:
    """What a variable that functions close over holds; nothing if it was not assigned yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()
