"""Tables that are zero where the text of their class makes them of numbers that are not."""

from __future__ import annotations

import ast

from torch import Tensor, nn

from fxdebug.features.state.class_text import called_name, methods_of

# No table that is computed by one of these is zero everywhere, but for a factor that is.
NOT_ZERO = frozenset(
    "exp exp2 arange cos linspace logspace ones eye rsqrt reciprocal hann_window hamming_window kaiser_window".split()
)
MAYBE_ZERO = frozenset("zeros zeros_like new_zeros empty empty_like new_empty full full_like".split())


def zero_table(module: nn.Module, name: str, buffer: Tensor) -> str:
    """Return by what a class makes a buffer that is zero; empty for others, and where its text does not tell.

    >>> import torch
    >>> zero_table(torch.nn.BatchNorm1d(2), "running_mean", torch.zeros(2))
    ''
    """
    if buffer.numel() < 2 or bool(buffer.detach().any()):
        return ""
    made = [text for method in methods_of(type(module)).values() for text in _made(method, name)]
    if not made or not all(_is_not_zero(text) for text in made):
        return ""
    return f"is zero; its class makes it by {ast.unparse(made[0])}"


def _made(method: ast.FunctionDef, name: str) -> list[ast.expr]:
    """Return what a method registers as a buffer of a name, and what it assigns to it."""
    found = []
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and called_name(node.func) == "register_buffer" and len(node.args) >= 2:
            if isinstance(node.args[0], ast.Constant) and node.args[0].value == name:
                found += _values(method, node.args[1])
        elif isinstance(node, ast.Assign) and any(_is_own(target, name) for target in node.targets):
            found.append(node.value)
    return found


def _values(method: ast.FunctionDef, value: ast.expr) -> list[ast.expr]:
    """Return a value, or all that is assigned to it where it is a variable."""
    if not isinstance(value, ast.Name):
        return [value]
    assigned = [
        node.value
        for node in ast.walk(method)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == value.id
    ]
    return assigned or [value]


def _is_own(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == name and isinstance(target.value, ast.Name)


def _is_not_zero(value: ast.expr) -> bool:
    calls = {called_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    powers = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) for node in ast.walk(value))
    return (powers or bool(calls & NOT_ZERO)) and not calls & MAYBE_ZERO
