"""What can be asked of a value: its dtype, its shape, and lines such as ``absmax > 100 or nan > 0``.

In a line stand only comparisons, arithmetic, ``and``, ``or`` and ``not`` over numbers and the names below;
nothing is executed.
"""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.operators.dtypes import DTYPES

Shape: TypeAlias = "str | Sequence[int | None] | None"

STATISTICS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros", "finite")


def _statistic(name: str) -> Callable[[Value], Any]:
    return lambda value: None if value.stats is None else getattr(value.stats, name)


FACTS: dict[str, Callable[[Value], Any]] = {
    **{name: _statistic(name) for name in STATISTICS},
    "inf": lambda value: None if value.stats is None else value.stats.posinf + value.stats.neginf,
    "numel": lambda value: value.numel,
    "ndim": lambda value: len(value.shape),
    "requires_grad": lambda value: value.requires_grad,
}

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: lambda a, b: float(a) ** float(b),  # of integers it might take for ever
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def compiled(line: str) -> Callable[[Value], bool]:
    """The predicate a line describes. A fact that is not known of a value makes its comparison false.

    Raises :class:`~fxdebug.errors.UsageError` for anything else than comparisons of known names and numbers.

    >>> from fxdebug.data.values import Stats
    >>> holds = compiled("absmax > 100 or nan > 0")
    >>> holds(Value(0, (2,), "float32", "cpu", stats=Stats(2, 0.0, 1.0, -3.0, 250.0, 250.0)))
    True
    """
    try:
        tree = ast.parse(line.strip(), mode="eval").body
        evaluate = _node(tree, line)
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise UsageError(f"where={line!r} is not an expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise UsageError("where=… is nested too deeply") from None
    return lambda value: bool(evaluate(value))


def _node(tree: ast.expr, line: str) -> Callable[[Value], Any]:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
        number = tree.value
        return lambda value: number
    if isinstance(tree, ast.Name):
        return _fact(tree.id, line)
    if isinstance(tree, ast.BoolOp):
        parts = [_node(part, line) for part in tree.values]
        both = isinstance(tree.op, ast.And)
        return lambda value: (all if both else any)(part(value) for part in parts)
    if isinstance(tree, ast.UnaryOp):
        inner = _node(tree.operand, line)
        if isinstance(tree.op, ast.Not):
            return lambda value: not inner(value)
        if isinstance(tree.op, ast.USub):
            return lambda value: _unless_missing(operator.neg, inner(value))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
        function, left, right = _BINARY[type(tree.op)], _node(tree.left, line), _node(tree.right, line)
        return lambda value: _unless_missing(function, left(value), right(value))
    if isinstance(tree, ast.Compare) and all(type(op) in _COMPARE for op in tree.ops):
        return _comparison(tree, line)
    raise UsageError(f"where={line!r}: use comparisons of {', '.join(FACTS)} with numbers, and/or/not")


def _comparison(tree: ast.Compare, line: str) -> Callable[[Value], bool]:
    operands = [_node(part, line) for part in (tree.left, *tree.comparators)]
    signs = [_COMPARE[type(op)] for op in tree.ops]

    def holds(value: Value) -> bool:
        found = [operand(value) for operand in operands]
        pairs = zip(signs, found, found[1:])
        return all(a is not None and b is not None and _compare(sign, a, b) for sign, a, b in pairs)

    return holds


def _compare(sign: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Complex means are compared by magnitude."""
    a, b = (abs(x) if isinstance(x, complex) else x for x in (a, b))
    return bool(sign(a, b))


def _unless_missing(function: Callable[..., Any], *operands: Any) -> Any:
    if any(operand is None for operand in operands):
        return None
    try:
        return function(*operands)
    except (ZeroDivisionError, OverflowError):
        return None


def _fact(name: str, line: str) -> Callable[[Value], Any]:
    fact = FACTS.get(name)
    if fact is None:
        raise UsageError(f"where={line!r}: no {name!r}; there is {', '.join(FACTS)}.{nearest(name, FACTS)}")
    return fact


# Of a value as a whole ---------------------------------------------------------------------------


def about_values(dtype: str | None, shape: Shape, line: str | None, seen: Collection[str]) -> Callable[[Value], bool]:
    """Whether one value is all that was asked for. ``seen`` are the dtypes that occur."""
    short = None if dtype is None else dtype.removeprefix("torch.")
    if short is not None and not set(short) & set("*?[") and short not in {*seen, *DTYPES}:
        raise NotFound(f"no dtype {dtype!r}; here are {', '.join(sorted(seen))}.{nearest(short, {*seen, *DTYPES})}")
    wanted = None if shape is None else shape_pattern(shape)
    holds = None if line is None else compiled(line)

    def test(value: Value) -> bool:
        if short is not None and not fnmatch.fnmatchcase(value.dtype, short):
            return False
        if wanted is not None and not _fits(value.shape, wanted):
            return False
        return holds is None or holds(value)

    return test


def shape_pattern(shape: str | Sequence[int | None]) -> tuple[int | None, ...]:
    """Sizes to compare with, ``None`` for any.

    >>> shape_pattern("2,*,384"), shape_pattern("(2×8)"), shape_pattern((2, None))
    ((2, None, 384), (2, 8), (2, None))
    """
    if not isinstance(shape, str):
        return tuple(shape)
    inner = shape.strip().strip("()[]").strip()
    if inner and not _SIZES.fullmatch(inner):
        raise UsageError(f"shape {shape!r}: write sizes and * with commas, such as '2,*,384'")
    return tuple([None if size in "*?" else int(size) for size in _SIZE.findall(inner)])


_SIZE = re.compile(r"\d+|[*?]")
_SIZES = re.compile(rf"(?:{_SIZE.pattern})(?:\s*[,x×]\s*(?:{_SIZE.pattern}))*\s*,?")


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted))
