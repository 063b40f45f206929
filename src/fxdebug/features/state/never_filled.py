"""Parameters that their class makes of memory as it was (``torch.empty``) and never fills, by the text of the class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torch import Tensor, nn

from fxdebug.capture.probe import members
from fxdebug.data.measures import counted
from fxdebug.features.state.class_text import called_name, methods_of

# What makes a tensor without writing to it. Called with data (a list), the old constructors copy it.
EMPTY = frozenset("empty empty_like empty_strided new_empty Tensor FloatTensor DoubleTensor HalfTensor".split())
OLD = frozenset("Tensor FloatTensor DoubleTensor HalfTensor".split())
# What a method may call to fill all parameters of a module at once.
FILLS_ALL = frozenset("parameters named_parameters _parameters load_state_dict apply modules children".split())


def never_filled(module: nn.Module, name: str, parameter: Tensor) -> str:
    """Return where a parameter was made and not filled, if it holds zeros as memory does; empty for all others.

    A number drawn at random is hardly ever 0. A parameter that is filled from outside of its class has no zeros, or
    is constant and not zero.

    >>> import torch
    >>> never_filled(torch.nn.Linear(2, 2), "weight", torch.zeros(2, 2))
    ''
    """
    numbers = parameter.detach().flatten()
    zeros = int((numbers == 0).sum())
    if not zeros or numbers.numel() < 2 or type(module).__module__.partition(".")[0] == "torch":
        return ""
    by = _left_empty(type(module)).get(name)
    if by is None:
        return ""
    held = "is all zero" if zeros == numbers.numel() else f"has {counted(zeros, 'zero')} among {numbers.numel()}"
    return f"{held}, as memory has them: {by}() makes it in its class's __init__, and nothing there fills it"


def never_written(module: nn.Module, name: str, parameter: Tensor) -> str:
    """Return where a parameter was made, if its class never fills it and nothing wrote to it; empty for all others.

    Torch counts writes to a tensor, but not those through ``.data``, nor copies of a whole model: only where
    :func:`are_counted` holds does none mean that memory is as it was. Numbers of a usual size do not show it.

    >>> import torch
    >>> never_written(torch.nn.Linear(2, 2), "weight", torch.zeros(2, 2))
    ''
    """
    if type(module).__module__.partition(".")[0] == "torch" or parameter.is_inference() or parameter._version:
        return ""
    by = _left_empty(type(module)).get(name)
    if by is None or any(_through_data(body, name) for body in methods_of(type(module)).values()):
        return ""
    return f"is of {by}(), which fills nothing: its class does not fill it either, and no write to it was counted"


def are_counted(model: nn.Module) -> bool:
    """Were all weights of torch's own layers written to, as their initialisation does? Copies of models have none."""
    weights = [
        parameter
        for module in members.modules_of(model)
        if type(module) in (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.LSTM, nn.GRU)
        for parameter in module._parameters.values()
        if parameter is not None
    ]
    return bool(weights) and all(not each.is_inference() and each._version for each in weights)


def _through_data(body: ast.FunctionDef, name: str) -> bool:
    """Does a method use ``self.name.data``? What is written there is not counted."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "data" and _is_own(node.value, name) for node in ast.walk(body)
    )


def _left_empty(kind: type[nn.Module]) -> dict[str, str]:
    """Return the parameters that the ``__init__`` of a class makes of memory as it was, and no method it calls fills.

    Nothing is told of a class whose text is not at hand, or whose methods fill parameters without naming them.
    """
    methods = methods_of(kind)
    start = methods.get("__init__")
    if start is None:
        return {}
    reached, pending = {"__init__": start}, [start]
    while pending:
        for called in _own_calls(pending.pop()):
            if called in methods and called not in reached:
                reached[called] = methods[called]
                pending.append(methods[called])
    bodies = list(reached.values())
    if any(_mentions(body) & FILLS_ALL for body in bodies):
        return {}
    found = {}
    for name, by, made in _made(start):
        others = [node for body in bodies for node in ast.walk(body) if node not in made]
        if not any(_is_own(node, name) or (isinstance(node, ast.Constant) and node.value == name) for node in others):
            found[name] = by
    return found


def _made(start: ast.FunctionDef) -> Iterator[tuple[str, str, set[ast.AST]]]:
    """Yield the names that are given a parameter of memory as it was, the function that makes it, and its text."""
    for node in ast.walk(start):
        if isinstance(node, ast.Assign):
            targets = [one for target in node.targets for one in _parts(target)]
            values = _parts(node.value) if isinstance(node.value, ast.Tuple) else [node.value] * len(targets)
            if len(values) != len(targets):
                continue
            for target, value in zip(targets, values):
                by = _empty(value)
                if by and isinstance(target, ast.Attribute) and _is_own(target, target.attr):
                    yield target.attr, by, {target, *ast.walk(value)}
        elif isinstance(node, ast.Call) and called_name(node.func) == "register_parameter" and len(node.args) == 2:
            name, by = node.args[0], _empty(node.args[1])
            if by and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, by, set(ast.walk(node))


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _empty(value: ast.expr) -> str:
    """Return the function that makes a parameter's memory, where nothing else happens to it: ``torch.empty``."""
    if not isinstance(value, ast.Call) or called_name(value.func) != "Parameter" or not value.args:
        return ""
    inner = value.args[0]
    if not isinstance(inner, ast.Call) or called_name(inner.func) not in EMPTY:
        return ""
    if called_name(inner.func) in OLD and any(isinstance(x, (ast.List, ast.Tuple, ast.ListComp)) for x in inner.args):
        return ""
    return ast.unparse(inner.func)


def _own_calls(body: ast.FunctionDef) -> set[str]:
    """Return the methods that a method calls of its own object, or of its bases by ``super()``."""
    return {
        node.func.attr
        for node in ast.walk(body)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "__init__"
    }


def _mentions(body: ast.FunctionDef) -> set[str]:
    return {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)}


def _is_own(node: ast.AST, name: str) -> bool:
    """Is it ``self.name``?"""
    return isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)
