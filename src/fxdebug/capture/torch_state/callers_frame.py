"""Run a torch function as if the program's own frame called it, so that its warnings name the program's line.

A warning of torch's C++ takes file, line, module and registry from the innermost frame of Python, counted or not. While
a function mode of ours runs an operation, that frame is ours. So the operation is called from a frame in between: a
small function with the globals, the file and the line of the frame that called it.

A function of torch's that is written in Python counts frames outwards (``stacklevel=2``). Under a mode, it is called
twice, with ``torch.overrides.handle_torch_function`` in between; :func:`called_twice_and_warns` knows these functions,
and the frames around the outer call are put around the inner one.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch import overrides

from fxdebug.capture.torch_state.uncounted import is_uncounted, uncounted
from fxdebug.capture.torch_state.whose_code import is_our_file, is_part_of

_NAME = "<as called there>"
_HANDLER: CodeType = overrides.handle_torch_function.__code__
_LEVELS = 3  # frames around a function that counts them: torch's own count two
_MOST_FRAMES = 5_000


# on one line: that of the frame that it stands for
def _in_between(function: Any, /, *args: Any, **kwargs: Any) -> Any: return function(*args, **kwargs)  # fmt: skip


_CODE = _in_between.__code__.replace(co_name=_NAME, co_qualname=_NAME)
_frames: dict[tuple[int, int, int], tuple[FunctionType, CodeType]] = {}  # the code, so that its id is not reused


@uncounted
def as_called_there(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Run a torch function as if the nearest frame that is not ours called it."""
    around = _frames_around(sys._getframe(1), _LEVELS if called_twice_and_warns(function) else 1)
    return around[0](*around[1:], function, *args, **(kwargs or {})) if around else function(*args, **(kwargs or {}))


def is_in_between(code: CodeType) -> bool:
    """Is this the code of a frame in the place of one of the program's?"""
    return code.co_name == _NAME


def _frames_around(frame: FrameType | None, levels: int) -> list[FunctionType]:
    """Return functions that stand for the frames that called an operation, the outermost first."""
    found: list[FunctionType] = []
    while frame is not None and len(found) < levels:
        code = frame.f_code
        if code is _HANDLER:
            frame = frame.f_back  # the outer call of the same function
            assert frame is not None
        elif _is_counted(code.co_filename):
            found.append(_standing_for(frame))
        frame = frame.f_back
    return found[::-1]


@functools.lru_cache(1_000)
def _is_counted(file: str) -> bool:
    return not is_our_file(file) and not is_uncounted(file)


def _standing_for(frame: FrameType) -> FunctionType:
    code, names = frame.f_code, frame.f_globals
    key = id(code), frame.f_lasti, id(names)
    known = _frames.get(key)
    if known is None or known[0].__globals__ is not names:
        made = _CODE.replace(co_filename=code.co_filename, co_firstlineno=frame.f_lineno)
        if len(_frames) >= _MOST_FRAMES:
            _frames.clear()
        known = _frames[key] = FunctionType(made, names), code
    return known[0]


def called_twice_and_warns(function: Any) -> bool:
    """Is it a function of torch's, in Python, that may warn of the way it was called?"""
    return type(function) is FunctionType and _may_warn(function)


@functools.lru_cache(1_000)
def _may_warn(function: FunctionType, deep: int = 2) -> bool:
    names, space = function.__code__.co_names, function.__globals__
    if "warn" in names and ("warnings" in names or "warn" in space):
        return True
    modules = [thing for name in names if type(thing := space.get(name)) is types.ModuleType]
    spaces = (space, *map(vars, modules))
    called = [thing for each in spaces for name in names if type(thing := each.get(name)) is FunctionType]
    return deep > 0 and any(_may_warn(each, deep - 1) for each in called if _is_of_torch(each))


def _is_of_torch(function: FunctionType) -> bool:
    home = function.__module__
    return is_part_of(home, "torch") and home != overrides.__name__
