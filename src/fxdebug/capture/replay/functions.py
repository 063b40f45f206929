"""Functions of a program: the names in their code, the objects they close over, and the results they cache."""

from __future__ import annotations

import dis
import gc
import inspect
import types
from collections.abc import Iterator
from typing import Any

from torch.nn import functional

from fxdebug.capture.replay.introspect import attributes_of
from fxdebug.capture.torch_state.whose_code import is_library

_LONGEST_NAME = 100  # characters: a string constant this long or longer is not taken for a name
_EXTENDED, _LOADED = dis.opmap["EXTENDED_ARG"], dis.opmap["LOAD_GLOBAL"]
_OF_GLOBALS = frozenset(
    dis.opmap[name]
    for name in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    if name in dis.opmap
)
# with one of these, code may reach the globals by any name: ``globals()["c"]``, ``sys.modules[__name__].c``
_REACH_ALL = frozenset(
    "globals vars exec eval __name__ __module__ __globals__ f_globals __import__ import_module __main__".split()
)
_OF_EVERY_CLASS_BODY = frozenset(("__name__", "__module__"))


def functions_in(attribute: Any) -> tuple[Any, ...]:
    """Return the Python functions behind an attribute of a class: a method, a property, a static or class method."""
    if isinstance(attribute, (staticmethod, classmethod)):
        return (attribute.__func__,)
    if isinstance(attribute, property):
        return tuple(function for function in (attribute.fget, attribute.fset) if function is not None)
    return (attribute,) if isinstance(attribute, types.FunctionType) else ()


def home_of(function: types.FunctionType) -> str | None:
    """Return the name of the module in which a function looks up globals.

    Not ``__module__``: ``functools.wraps`` copies that from another function.
    """
    return function.__globals__.get("__name__")


def names_in(code: types.CodeType) -> Iterator[str]:
    """Yield the names that code uses, also in strings: ``patch.object(F, "gelu")``, ``patch("torch.nn.GELU")``."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
        elif type(constant) is str and len(constant) < _LONGEST_NAME:
            parts = constant.split(".")
            if all(map(str.isidentifier, parts)):
                yield from parts


def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the names that code looks up or sets as globals, and not the attributes that it reads (``self.c``).

    These are all names in it where it may reach the globals in another way.
    """
    return frozenset(names_in(code) if _reaches_all(code) else _globals_in(code))


def _reaches_all(code: types.CodeType) -> bool:
    names = _REACH_ALL.intersection(code.co_names)
    if names and not code.co_flags & inspect.CO_OPTIMIZED:
        names -= _OF_EVERY_CLASS_BODY
    return bool(names) or any(isinstance(each, types.CodeType) and _reaches_all(each) for each in code.co_consts)


def _globals_in(code: types.CodeType) -> Iterator[str]:
    instructions, extended = code.co_code, 0
    for operation, argument in zip(instructions[::2], instructions[1::2]):
        argument |= extended
        if operation in _OF_GLOBALS:
            yield code.co_names[argument >> 1 if operation == _LOADED else argument]  # the last bit is a flag
        extended = argument << 8 if operation == _EXTENDED else 0
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_in(constant)


def is_same_function(one: types.FunctionType, other: types.FunctionType) -> bool:
    """Are two functions one, or made twice from the same text, as torch.fx does each time it compiles a graph?"""
    if one is other:
        return True
    if one.__code__ != other.__code__:
        return False
    looked_up, also_looked_up = _looked_up(one), _looked_up(other)
    return len(looked_up) == len(also_looked_up) and all(
        mine is theirs or (type(mine) is type(theirs) and type(mine) in _CONSTANTS and mine == theirs)
        for mine, theirs in zip(looked_up, also_looked_up)
    )


_CONSTANTS = (bool, int, float, str)  # a text that is compiled twice has them twice


def _looked_up(function: types.FunctionType) -> list[Any]:
    """Return the objects that a function's code finds outside its arguments, in an order of its text."""
    named = [function.__globals__.get(name) for name in sorted(globals_in(function.__code__))]
    closed_over = [thing for cell in function.__closure__ or () for thing in contents_of(cell) or (None,)]
    return [*named, *closed_over, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def contents_of(cell: types.CellType) -> tuple[Any, ...]:
    """Return the object in a closure variable, as a tuple of one; an empty tuple if nothing was assigned yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def patches_in(forward: types.FunctionType) -> list[Any]:
    """Return the program's functions that are patched into ``torch.nn.functional`` and called by a forward of torch."""
    named = [vars(functional).get(name) for name in forward.__code__.co_names]
    return [called for called in named if type(called) is types.FunctionType and not is_library(home_of(called))]


def cached_calls(cache: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the arguments (one object, or a tuple) and the result of each call that a ``functools.lru_cache`` keeps."""
    referents = gc.get_referents(cache)
    attributes = attributes_of(cache)
    for table in [thing for thing in referents if type(thing) is dict and thing is not attributes]:
        if not any(type(result).__name__ == "_lru_list_elem" for result in table.values()):
            yield from table.items()
            continue
        keys, things = set(map(id, table)), iter(referents)  # with a ``maxsize``, each result follows its arguments
        for thing in things:
            if id(thing) in keys:
                yield thing, next(things)
