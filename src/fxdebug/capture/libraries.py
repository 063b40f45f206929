"""Whose code a Python module is: Python's, an installed library's, ours, or the program's."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path

_PYTHONS = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = ("site-packages", "dist-packages")  # in an environment of their own, a user's, the system's


@functools.cache
def is_ours(module: str) -> bool:
    """Is this a module of fxdebug? What it holds (recordings, of other threads too) is no part of the program."""
    return module.partition(".")[0] == "fxdebug"


@functools.cache
def is_of_python(module: str) -> bool:
    """Is this a module of Python's own library?"""
    return module.partition(".")[0] in sys.stdlib_module_names


@functools.cache
def is_library(module: str | None) -> bool:
    """Is this a module of Python, or of something installed, and not of the program?"""
    if not module or is_of_python(module):
        return True
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module) or sys.modules.get(top), "__file__", None)
    if top == "fxdebug" or file is None:
        return top == "fxdebug"
    return file.startswith(_PYTHONS) or not set(_INSTALLED).isdisjoint(Path(file).parts)
