"""The text of a class of modules: its methods, parsed."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType

from torch import nn


def methods_of(kind: type[nn.Module]) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class and of its bases outside of torch, by name; none where a text is not at hand.

    >>> methods_of(nn.Linear)
    {}
    """
    found: dict[str, ast.FunctionDef] = {}
    for one in kind.__mro__:
        if one.__module__.partition(".")[0] in ("torch", "builtins"):
            continue
        for name, method in vars(one).items():
            if not isinstance(method, FunctionType) or name in found:
                continue
            try:
                body = ast.parse(textwrap.dedent(inspect.getsource(method))).body[0]
            except (OSError, TypeError, SyntaxError, IndexError, ValueError):  # typed in at a prompt, or made by code
                return {}
            if isinstance(body, ast.FunctionDef):
                found[name] = body
    return found


def called_name(function: ast.expr) -> str:
    """Return the last name of what is called: ``empty`` of ``torch.empty``."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
