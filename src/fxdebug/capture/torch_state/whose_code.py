"""Decide whose code it is, by a module's name or by a file: torch's, Python's, fxdebug's, a library's, the program's.

A name or path belongs to a package if it is that package's, or lies below it: ``torchvision`` is not torch's.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
import weakref
from pathlib import Path
from typing import Any

import torch

# Names of modules --------------------------------------------------------------------------------


def is_part_of(module: str | None, *packages: str) -> bool:
    """Is this module one of these packages, or inside one of them?

    >>> is_part_of("torch.nn.functional", "torch"), is_part_of("torchvision.ops", "torch"), is_part_of("torch", "torch")
    (True, False, True)
    """
    if not isinstance(module, str):  # a class may have a property of that name
        return False
    for package in packages:
        if module.startswith(package) and module[len(package) : len(package) + 1] in ("", "."):
            return True
    return False


@functools.cache
def is_ours(module: str) -> bool:
    """Is this a module of fxdebug? What it holds, such as recordings of other threads, is no part of the program."""
    return is_part_of(module, "fxdebug")


@functools.cache
def is_of_python(module: str) -> bool:
    """Is this a module of Python's standard library?"""
    return isinstance(module, str) and module.partition(".")[0] in sys.stdlib_module_names


@functools.cache
def is_library(module: str | None) -> bool:
    """Is this a module of Python or of an installed package, and not of the program?"""
    if not module or is_of_python(module) or is_ours(module):
        return True
    if not isinstance(module, str):
        return False
    file = getattr(sys.modules.get(module) or sys.modules.get(module.partition(".")[0]), "__file__", None)
    return file is not None and (file.startswith(_LIBRARY_FOLDERS) or is_installed(file))


# Classes -----------------------------------------------------------------------------------------

_ASKED = (
    "__eq__", "__ne__", "__hash__", "__repr__", "__str__", "__format__", "__bool__", "__len__", "__iter__",
    "__getattribute__", "__getattr__", "__class__", "__reduce_ex__", "__reduce__",
)  # fmt: skip
_OF_C = (
    types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType, types.BuiltinFunctionType,
    types.ClassMethodDescriptorType, types.MemberDescriptorType, type(None),
)  # fmt: skip


_answers: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def answers_by_program(kind: type) -> bool:
    """Does an object of this class run code of the program where it is compared, hashed, shown or looked into?

    Such an object is told from others by its identity alone: it may draw random numbers, count or print.
    """
    known = _answers.get(kind)
    if known is None:
        known = _answers[kind] = any(_is_program_s(class_attribute(kind, name)) for name in _ASKED)
    return known


def class_attribute(kind: type, name: str) -> Any:
    """Return what a class or its bases have under a name, without asking a metaclass or a descriptor; else ``None``."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), None)


def _is_program_s(method: Any) -> bool:
    if issubclass(type(method), _OF_C):
        return False
    function = method.fget if type(method) is property else getattr(method, "__wrapped__", method)
    if type(function) is not types.FunctionType:
        return True
    if function.__code__.co_filename == "<string>":  # made by ``dataclass``: of the fields
        return False
    return not is_library(function.__globals__.get("__name__"))


# Files -------------------------------------------------------------------------------------------


def _folder(path: str | Path) -> str:
    """Return a folder as the beginning of the paths in it: a folder whose name only begins alike is another one."""
    return f"{path}{os.sep}"


_OURS = _folder(Path(__file__).parents[2])
_COMMANDS = _folder(Path(__file__).parents[2] / "apps" / "cli")
_TORCHS = _folder(Path(torch.__file__).parent)
_PYTHONS = _folder(Path(os.__file__).parent)
_LIBRARY_FOLDERS = tuple(
    {_folder(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_INSTALLED = ("site-packages", "dist-packages")  # of an environment, of a user, of the system


def is_our_file(file: str) -> bool:
    """Is this a file of fxdebug?"""
    return file.startswith(_OURS)


def is_command_line(file: str) -> bool:
    """Is this a file of fxdebug's commands? Nobody's line called a model that a command runs."""
    return file.startswith(_COMMANDS)


def is_torchs_file(file: str) -> bool:
    """Is this a file of torch itself?"""
    return file.startswith(_TORCHS)


def is_pythons_file(file: str) -> bool:
    """Is this a file of Python's standard library? Packages that are installed inside its folder are not."""
    return file.startswith(_PYTHONS) and not is_installed(file)


def is_installed(file: str) -> bool:
    """Does this file lie in a folder of installed packages?"""
    return not set(_INSTALLED).isdisjoint(Path(file).parts)
