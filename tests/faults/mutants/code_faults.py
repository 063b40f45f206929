"""Faults in code, as a table: which piece of a syntax tree is replaced by what, and the words for the cause.

Each kind is given a node and yields changes of it: the new node, and a pattern that a right cause matches.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias


class Change(NamedTuple):
    """A node in the place of another, what the right answer says, and the operations that it may name beside it."""

    new: ast.AST
    right: str
    ops: str


Kind: TypeAlias = Callable[[ast.AST], Iterator[Change]]

_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "add"),
    ast.Sub: (ast.Add, "sub"),
    ast.Mult: (ast.Div, "mul"),
    ast.Div: (ast.Mult, "div"),
}
_OTHERS = {
    "gelu": "relu", "silu": "gelu", "relu": "silu", "elu": "relu", "softplus": "relu", "hardswish": "silu",
    "tanh": "sigmoid", "sigmoid": "tanh", "leaky_relu": "elu", "sin": "cos", "cos": "sin", "exp": "tanh",
    "mean": "sum", "sum": "mean", "amax": "amin", "avg_pool2d": "max_pool2d", "max_pool2d": "avg_pool2d",
    "log_softmax": "softmax", "var": "std", "triu": "tril", "square": "abs", "rsqrt": "reciprocal",
}  # fmt: skip
_FACTORIES = {"zeros": "ones", "zeros_like": "ones_like", "ones": "zeros"}
_ACTIVATIONS = frozenset("gelu silu relu elu softplus hardswish tanh sigmoid leaky_relu square".split())
_AXES = frozenset("dim dims".split())
_ORDER = r"order|given .* in a, .* in b|before|after|exchang|swap|other way round|in another place"


def _name(node: ast.AST) -> str:
    """Return the name of a called function or method; empty for any other node."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_module(node: ast.AST) -> bool:
    """Is it a call of a module or a method of the model: ``self.norm(x)``?"""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and isinstance(node.func.value, ast.Name) and node.func.value.id == "self"


def _given(node: ast.AST) -> ast.expr | None:
    """Return the tensor that a call works on: the object of a method, else the first argument."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    owner = node.func.value
    if isinstance(owner, ast.Name) and owner.id in ("torch", "F", "math", "self", "nn"):
        return node.args[0] if node.args else None
    return owner


def _renamed(node: ast.AST, name: str) -> ast.AST:
    new = copy.deepcopy(node)
    new.func.attr = name
    return new


def _with_given(node: ast.AST, given: ast.expr) -> ast.AST:
    """Return a call with another tensor to work on."""
    new = copy.deepcopy(node)
    owner = new.func.value
    if isinstance(owner, ast.Name) and owner.id in ("torch", "F", "self"):
        new.args[0] = given
    else:
        new.func.value = given
    return new


def operator(node: ast.AST) -> Iterator[Change]:
    """Another operator."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        other, name = _OPERATORS[type(node.op)]
        new = copy.copy(node)
        new.op = other()
        there = _OPERATORS[other][1]
        yield Change(new, rf"\b{name}\b.*\br?{there}|\b{there}\b.*{name}|{_numbers()}", rf"{name}|{there}")


def operation(node: ast.AST) -> Iterator[Change]:
    """Another function of the same kind."""
    if _name(node) in _OTHERS and _given(node) is not None:
        name, other = _name(node), _OTHERS[_name(node)]
        ways = [rf"{name}\b.*\b{other}|\b{other}\b.*{name}"] + ([r"lets .* through"] if name == "triu" else [])
        yield Change(_renamed(node, other), "|".join(ways), rf"{name}|{other}")


def factory(node: ast.AST) -> Iterator[Change]:
    """Ones for zeros."""
    name = _name(node)
    if name in _FACTORIES:
        yield Change(_renamed(node, _FACTORIES[name]), rf"\b{name}\b.*\b{_FACTORIES[name]}\b|{_numbers()}", name)


def constant(node: ast.AST) -> Iterator[Change]:
    """Another number: a factor, a limit, a base."""
    if isinstance(node, ast.Constant) and type(node.value) is float and node.value >= 0.01:
        new = round(node.value * 1.5 + 0.2, 3)
        yield Change(ast.Constant(new), rf"{_number(node.value)}.*{_number(new)}|{_numbers()}", "constant")


def epsilon(node: ast.AST) -> Iterator[Change]:
    """Another epsilon."""
    if isinstance(node, ast.Constant) and type(node.value) is float and 0.0 < node.value < 0.01:
        yield Change(ast.Constant(0.03), rf"{_number(node.value)}.*0\.03|eps", "constant")


def axis(node: ast.AST) -> Iterator[Change]:
    """Another dimension."""
    if isinstance(node, ast.keyword) and node.arg in _AXES and isinstance(node.value, (ast.Constant, ast.UnaryOp)):
        old = ast.literal_eval(node.value)
        new = {1: 2, -1: -2, 2: 1}.get(old, 1)
        yield Change(
            ast.keyword(node.arg, ast.Constant(new)), rf"{old}(\.0)? in a.*{new}|\bdim|axis", "mean|sum|softmax"
        )


def switch(node: ast.AST) -> Iterator[Change]:
    """A switch turned, or another mode."""
    if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant) and node.arg != "keepdim":
        other = {True: False, False: True, "nearest": "bilinear", "tanh": "none"}
        if type(node.value.value) in (bool, str) and node.value.value in other:
            new = ast.keyword(node.arg, ast.Constant(other[node.value.value]))
            words = f"{node.arg}|{node.value.value}" + (r"|lets .* through|mask" if "causal" in str(node.arg) else "")
            yield Change(new, words, "constant")


def layer_argument(node: ast.AST) -> Iterator[Change]:
    """Another argument where a layer is made: stride and padding keep the size, as dilation does."""
    if isinstance(node, ast.Call) and _name(node) in ("Conv1d", "Conv2d"):
        for keyword in node.keywords:
            if keyword.arg == "padding" and isinstance(keyword.value, ast.Constant) and keyword.value.value == 1:
                new = copy.deepcopy(node)
                new.keywords = [k for k in new.keywords if k.arg != "padding"]
                new.keywords += [
                    ast.keyword("padding", ast.Constant(1)),
                    ast.keyword("padding_mode", ast.Constant("circular")),
                ]
                yield Change(new, r"pad|circular", "pad|conv")
                new = copy.deepcopy(node)
                new.keywords = [k for k in new.keywords if k.arg != "padding"]
                new.keywords += [
                    ast.keyword("padding", ast.Constant(2)),
                    ast.keyword("dilation", ast.Constant(2)),
                ]
                yield Change(new, r"dilation", "conv")


def operands(node: ast.AST) -> Iterator[Change]:
    """The two operands of a difference, a quotient or a product of matrices exchanged."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div, ast.MatMult)):
        name = {ast.Sub: "r?sub", ast.Div: "r?div", ast.MatMult: "matmul"}[type(node.op)]
        yield Change(ast.BinOp(node.right, node.op, node.left), rf"{_ORDER}|given|r(sub|div)", name)
    if _name(node) == "matmul" and len(node.args) == 2:
        new = copy.deepcopy(node)
        new.args = new.args[::-1]
        yield Change(new, rf"{_ORDER}|given", "matmul")


def parts(node: ast.AST) -> Iterator[Change]:
    """The parts of a value in another order: of a chunk, of what is put together."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and _is_cut(node.value):
        new, names = copy.deepcopy(node), node.targets[0].elts
        new.targets[0].elts = [names[1], names[0], *names[2:]]
        yield Change(new, rf"{_ORDER}|part|slice|half|results? \d|\[\d\]|takes", "chunk|split|topk|getitem")
    if _name(node) == "cat" and isinstance(node.args[0], ast.List):
        new = copy.deepcopy(node)
        new.args[0].elts = new.args[0].elts[1:] + new.args[0].elts[:1]
        yield Change(new, _ORDER, "cat")


def _is_cut(node: ast.AST) -> bool:
    return _name(node) in ("chunk", "split", "topk", "unbind")


def residual(node: ast.AST) -> Iterator[Change]:
    """A sum without one of its terms."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for kept in (node.left, node.right):
            yield Change(kept, r"no counterpart in b|given (the result of|what) .* in a", "add|given")


def scale(node: ast.AST) -> Iterator[Change]:
    """A product or quotient without its factor."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        name = "mul" if isinstance(node.op, ast.Mult) else "div"
        yield Change(node.left, rf"\b{name}\b.*no counterpart|no counterpart in b|{_numbers()}", "mul|div")


def activation(node: ast.AST) -> Iterator[Change]:
    """An activation, a norm, or a mask that is missing."""
    given = _given(node)
    module = _is_module(node) and "norm" in node.func.attr
    if given is not None and (_name(node) in {*_ACTIVATIONS, "masked_fill", "roll", "abs", "normalize", "clamp"}):
        yield Change(given, rf"{_name(node)}\b.*(no counterpart|missing)|lets .* through|masked", _name(node))
    if module:
        yield Change(node.args[0], r"norm\w*\b.*no counterpart", "norm")


def cast(node: ast.AST) -> Iterator[Change]:
    """A value in bfloat16 for a moment."""
    if _name(node) in {*_ACTIVATIONS, "softmax", "cat", "mean"} or _is_module(node):
        new = ast.parse("(0).bfloat16().float()", mode="eval").body
        new.func.value.func.value = node
        yield Change(new, r"bfloat16|bf16", "bfloat16|float|to\b")


def extra(node: ast.AST) -> Iterator[Change]:
    """An operation too many."""
    if _name(node) in {*_ACTIVATIONS, "softmax", "zeros_like", "cat"} or _is_module(node):
        yield Change(ast.BinOp(node, ast.Add(), ast.Constant(0.1)), r"\badd\b.*no counterpart|0\.1", "add")
        again = ast.parse("torch.tanh(0)", mode="eval").body
        again.args[0] = node
        yield Change(again, r"\btanh\b.*no counterpart", "tanh")


def order(node: ast.AST) -> Iterator[Change]:
    """Two operations in the other order."""
    inner = _given(node)
    if inner is not None and isinstance(node, ast.Call) and (_name(node) in _ACTIVATIONS or _is_module(node)):
        given = _given(inner)
        if given is not None and (_name(inner) in _ACTIVATIONS or _is_module(inner)) and _name(inner) != _name(node):
            yield Change(_with_given(inner, _with_given(node, given)), _ORDER, f"{_name(node)}|{_name(inner)}")


def slice_moved(node: ast.AST) -> Iterator[Change]:
    """Another slice: the next one, or the other end."""
    if isinstance(node, ast.Slice) and isinstance(node.lower, ast.Constant) and node.step is not None:
        other = ast.Slice(ast.Constant(1 - int(node.lower.value)), node.upper, node.step)
        yield Change(other, r"slice|\b[01]?::2.* in a", "getitem")
    if isinstance(node, ast.Slice) and node.lower is None and isinstance(node.upper, ast.Subscript):
        other = ast.Slice(ast.UnaryOp(ast.USub(), node.upper), None, None)
        yield Change(other, r"slice|:\d+\) in a", "getitem")


def views(node: ast.AST) -> Iterator[Change]:
    """Dimensions exchanged otherwise, where the sizes allow it."""
    if _name(node) == "permute" and len(node.args) == 6:
        new = copy.deepcopy(node)
        new.args[3], new.args[1] = new.args[1], new.args[3]
        yield Change(new, r"permute|merged|order", "permute|view|reshape")
    if _name(node) == "repeat_interleave":
        new = ast.parse("0.repeat" if False else "x.repeat(1, n, 1, 1)", mode="eval").body
        new.func.value, new.args[1] = node.func.value, node.args[0]
        yield Change(new, r"repeat|in turn|order", "repeat")
    if _name(node) == "transpose" and len(node.args) == 2:
        yield Change(node.func.value, r"transpose", "transpose")


def other_value(node: ast.AST) -> Iterator[Change]:
    """Another value that is at hand: a module that is given what another one is given."""
    pairs = {"k": "v", "q": "k", "z": "r", "i": "f", "sin": "cos", "one": "two", "b": "c", "left": "right"}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in pairs:
        yield Change(ast.Name(pairs[node.id], ast.Load()), r"given|takes|part|slice|" + _ORDER, "given|wiring")


def other_module(node: ast.AST) -> Iterator[Change]:
    """Another module of the same class."""
    if _is_module(node) and node.func.attr[-1] in "12" and node.func.attr[:-1] not in ("cross", "stage", "down"):
        name = node.func.attr[:-1] + "21"[int(node.func.attr[-1]) - 1]
        yield Change(_renamed(node, name), rf"{name}|{node.func.attr}|given", "weights")


def statements(node: ast.AST) -> Iterator[Change]:
    """Two statements exchanged."""
    if isinstance(node, ast.FunctionDef) and node.name == "forward":
        for place in range(len(node.body) - 1):
            if all(isinstance(each, ast.Assign) for each in node.body[place : place + 2]):
                new = copy.copy(node)
                new.body = list(node.body)
                new.body[place : place + 2] = new.body[place : place + 2][::-1]
                yield Change(new, r"given|no counterpart|" + _ORDER, "given|wiring")


CODE: dict[str, Kind] = {
    "another operator": operator, "another function": operation, "ones for zeros": factory,
    "another constant": constant, "another epsilon": epsilon, "another dimension": axis, "a switch": switch,
    "an argument of a layer": layer_argument, "operands exchanged": operands, "parts exchanged": parts,
    "a term missing": residual, "a factor missing": scale, "an operation missing": activation, "a cast": cast,
    "an operation too many": extra, "two operations exchanged": order, "another slice": slice_moved,
    "another view": views, "another value": other_value, "another module": other_module,
    "two statements exchanged": statements,
}  # fmt: skip


def _number(number: float) -> str:
    return re.escape(f"{number:g}")


def _numbers() -> str:
    """Return a pattern for a number in a and another one in b: what is computed of numbers is one in the record."""
    return r"-?\d[\d.e-]* in a, -?\d[\d.e-]* in b"
