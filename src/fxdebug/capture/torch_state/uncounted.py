"""Frames of ours that do not count where Python counts frames: for ``stacklevel`` in ``warnings`` and ``logging``.

A forward may say ``warnings.warn(..., stacklevel=2)``, and a filter may turn the warnings of torch's module, or of the
module that calls the model, into errors. Our frames lie between the forward and these. Python leaves out the frames of
its own import system, and knows them by the name of their file: it has ``importlib`` and ``_bootstrap`` in it. So our
code names its file by a way through a folder of that name. It is the same file: coverage, ``trace`` and pdb read it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME = "importlib_bootstrap"
_FOLDER = Path(__file__).with_name(_NAME)
_MARK = f" [not counted, as {_NAME}]"  # where there is no such way: the package is in an archive, or on another drive


def uncounted(function: _Function) -> _Function:
    """Leave the frames of a function, and of the functions defined in it, out where Python counts frames."""
    function.__code__ = uncounted_code(function.__code__)  # type: ignore[attr-defined]
    return function


def uncounted_code(code: CodeType) -> CodeType:
    """Return the code under a name of its file with which its frames do not count."""
    if is_uncounted(code.co_filename):
        return code
    inner = [uncounted_code(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_filename=_way_to(code.co_filename), co_consts=tuple(inner))


def is_uncounted(file: str) -> bool:
    """Is this the name of a file whose frames do not count, as they are ours?"""
    return _NAME in file


@functools.cache
def _way_to(file: str) -> str:
    """Return a path of a file that begins with its folder and leads through ours."""
    folder = Path(file).parent
    try:
        way = folder / os.path.relpath(_FOLDER, folder) / os.path.relpath(file, _FOLDER)  # a Path keeps the dots
        return str(way) if way.samefile(file) else file + _MARK
    except (OSError, ValueError):
        return file + _MARK
