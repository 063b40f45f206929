"""Frames of ours that do not count where Python counts frames: for ``stacklevel`` in ``warnings`` and ``logging``.

A forward may say ``warnings.warn(..., stacklevel=2)``, and a filter may turn the warnings of torch's module, or of the
module that calls the model, into errors. Our frames lie between the forward and these. Python leaves out the frames of
its own import system, and knows them by the name of their file: it has ``importlib`` and ``_bootstrap`` in it. So our
code bears such a name behind that of its file.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_MARK = " [not counted, as importlib._bootstrap]"


def uncounted(function: _Function) -> _Function:
    """Leave the frames of a function, and of the functions defined in it, out where Python counts frames."""
    function.__code__ = uncounted_code(function.__code__)  # type: ignore[attr-defined]
    return function


def uncounted_code(code: CodeType) -> CodeType:
    """Return the code under a name of its file with which its frames do not count."""
    if is_uncounted(code.co_filename):
        return code
    inner = [uncounted_code(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.replace(co_filename=code.co_filename + _MARK, co_consts=tuple(inner))


def is_uncounted(file: str) -> bool:
    """Is this the name of a file whose frames do not count, as they are ours?"""
    return file.endswith(_MARK)
