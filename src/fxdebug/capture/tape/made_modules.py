"""Modules that a body makes: each run makes another object, and a graph calls the one that it was made with."""

from __future__ import annotations

import functools
import types
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.tape.encoding import ATOMS, is_same

_DEEPEST = 8


def is_same_kind_of(module: nn.Module, recorded: Any) -> bool:
    """Is it a module made in the body, and like the one made when the call ran?

    It may hold modules and tensors that last, and functions with what they close over, but no tensor of its own.
    """
    return isinstance(recorded, nn.Module) and _is_same_module(module, recorded, 0)


def _is_same_module(module: nn.Module, recorded: nn.Module, depth: int) -> bool:
    if type(module) is not type(recorded) or depth > _DEEPEST:
        return False
    mine, theirs = module.__dict__, recorded.__dict__
    for table in ("_parameters", "_buffers"):
        if not _have_same(mine[table], theirs[table], lambda x, y: x is y):
            return False
    if not _have_same(mine["_modules"], theirs["_modules"], lambda x, y: _is_like(x, y, depth + 1)):
        return False
    plain = [name for name in mine if name not in _OF_ALL]
    try:
        return all(name in theirs and _is_like(mine[name], theirs[name], depth + 1) for name in plain)
    except Exception:
        return False


_OF_ALL = frozenset((*nn.Module().__dict__, "forward", "_compiled_call_impl")) - {"training"}


def _have_same(mine: dict[str, Any], theirs: dict[str, Any], same: Any) -> bool:
    return mine.keys() == theirs.keys() and all(same(each, theirs[name]) for name, each in mine.items())


def _is_like(mine: Any, theirs: Any, depth: int) -> bool:
    """Do two objects do the same, as far as one can tell? Tensors must be the same object."""
    if mine is theirs:
        return True
    kind = type(mine)
    if kind is not type(theirs) or depth > _DEEPEST or isinstance(mine, Tensor):
        return False
    if kind in ATOMS:
        return is_same(mine, theirs)
    below = depth + 1
    if kind in (tuple, list):
        return len(mine) == len(theirs) and all(_is_like(x, y, below) for x, y in zip(mine, theirs))
    if kind is dict:
        return mine.keys() == theirs.keys() and all(_is_like(each, theirs[key], below) for key, each in mine.items())
    if isinstance(mine, nn.Module):
        return _is_same_module(mine, theirs, below)
    if kind is types.FunctionType:
        return mine.__code__ is theirs.__code__ and _is_like(_held_by(mine), _held_by(theirs), below)
    if kind is types.MethodType:
        return mine.__func__ is theirs.__func__ and _is_like(mine.__self__, theirs.__self__, below)
    if kind is functools.partial:
        return _is_like((mine.func, mine.args, mine.keywords), (theirs.func, theirs.args, theirs.keywords), below)
    return bool(mine == theirs)


def _held_by(function: types.FunctionType) -> tuple[Any, ...]:
    """Return what a function holds besides its code. Raises ``ValueError`` for a variable that is not set yet."""
    cells = tuple([cell.cell_contents for cell in function.__closure__ or ()])
    return cells, function.__defaults__, function.__kwdefaults__, function.__dict__
