"""The text of an object, as ``repr`` or ``str`` gives it, without the effects that its methods may have.

The program did not ask for that text: showing an object must not draw random numbers, count or print.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.replay.introspect import attributes_of
from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.replay.sandbox import sandboxed
from fxdebug.capture.tensors.type_names import type_name
from fxdebug.capture.torch_state.module_members import modules_of
from fxdebug.capture.torch_state.whose_code import is_library, is_of_python, is_part_of

_HARMLESS, _OF_LIBRARIES, _OF_PROGRAM = range(3)  # the ``__repr__`` methods of an object and of those in it
_KNOWN = ("torch", "numpy", "transformers")  # packages whose ``__repr__`` has no effects
_DEEPEST = 3  # levels of objects in an object whose ``__repr__`` are looked at
_MOST = 100  # such objects on each level


def text_of(thing: Any, shown: Callable[[Any], str]) -> str:
    """Return ``shown(thing)``, which is ``repr(thing)`` or like it, or ``str(thing)``; nothing else happens.

    The ``__repr__`` of an installed library may draw random numbers; their state is restored. That of the program may
    do anything: it is called in the sandbox in which bodies are run again. If it does what cannot be undone, the text
    says only what kind of object it is.
    """
    kind = _kind_of_repr(thing, 0)
    if kind == _HARMLESS:
        return shown(thing)
    if kind == _OF_LIBRARIES:
        states = RngSnapshot()
        try:
            return shown(thing)
        finally:
            states.restore()
    held = thing.args if isinstance(thing, BaseException) else ()  # Python keeps them where no attribute is
    with sandboxed(nn.Module(), [thing, *held]) as sandbox:
        if sandbox.snapshot().cannot_restore is None:
            try:
                return sandbox.run(shown, thing)
            except CannotTrace:  # it writes to a file, takes from an iterator, …
                pass
    return f"<{type_name(type(thing))} object>"


def _kind_of_repr(thing: Any, depth: int) -> int:
    """Return whose ``__repr__`` run when an object is shown, and the objects in it."""
    function: Any = type(thing).__repr__
    others = type(thing).__str__, getattr(type(thing), "__iter__", None)  # that of a set walks over it
    kind = max(map(_kind_of, (function, *others)))  # ``str`` of an exception asks that of what it was raised with
    if kind == _OF_PROGRAM or depth == _DEEPEST or issubclass(type(thing), _SHOWN_ALONE) or function is object.__repr__:
        return kind
    if issubclass(type(thing), nn.Module):
        kinds = {type(module) for module in modules_of(thing)}
        return max([_kind_of(method) for each in kinds for method in (each.__repr__, each.extra_repr, each._get_name)])
    return max([kind, *[_kind_of_repr(each, depth + 1) for each in _inside(thing)]])


# The text of these shows no other object.
_SHOWN_ALONE = (
    torch.Tensor, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, str, bytes,
    int, float, complex, type(None), torch.dtype, torch.device, torch.Generator,
)  # fmt: skip


def _inside(thing: Any) -> list[Any]:
    """Return objects that an object holds: its attributes and items, and what it holds in C, as a ``partial`` does."""
    attributes = attributes_of(thing) or {}
    held = [each for each in gc.get_referents(thing) if each is not attributes]
    return [*attributes.values(), *held][:_MOST]


def _kind_of(function: Any) -> int:
    if not isinstance(function, types.FunctionType):  # written in C
        return _HARMLESS
    made = getattr(function, "__wrapped__", None)
    if made is not None and made.__code__.co_filename == "<string>":  # made by ``dataclass``: it shows the fields
        return _HARMLESS
    home = str(function.__globals__.get("__name__"))
    if is_of_python(home) or is_part_of(home, *_KNOWN):
        return _HARMLESS
    return _OF_LIBRARIES if is_library(home) else _OF_PROGRAM
