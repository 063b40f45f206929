"""Conditions on a value: its dtype, its shape, and ``where=`` lines such as ``absmax > 100 or nan > 0``.

The grammar of a line: comparisons, arithmetic, ``and``, ``or`` and ``not`` over numbers and the names in ``FACTS``.
A line is parsed, never executed as Python.
"""

from __future__ import annotations

import ast
import fnmatch
import math
import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.operators.dtypes import DTYPES
from fxdebug.query.network import Node

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

LONGEST, DEEPEST = 2_000, 100  # characters of a line, expressions in one another
_TOO_LARGE = f"where=… is longer than {LONGEST} characters, or nested too deeply"

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: lambda a, b: _power(a, b),
}  # fmt: skip
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip


def compile_condition(line: str) -> Callable[[Value], bool]:
    """Return the predicate of a ``where=`` line; a comparison with a fact that a value lacks is false.

    Raises :class:`~fxdebug.errors.UsageError` for anything but comparisons of known names and numbers.

    >>> from fxdebug.data.values import Stats
    >>> holds = compile_condition("absmax > 100 or nan > 0")
    >>> holds(Value(0, (2,), "float32", "cpu", stats=Stats(2, 0.0, 1.0, -3.0, 250.0, 250.0)))
    True
    """
    if len(line) > LONGEST:
        raise UsageError(_TOO_LARGE)
    try:
        tree = ast.parse(line.strip(), mode="eval").body
        if _depth(tree) > DEEPEST:
            raise UsageError(_TOO_LARGE)
        evaluate = _evaluator(tree, line)
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise UsageError(f"where={line!r} is not an expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise UsageError(_TOO_LARGE) from None
    return lambda value: bool(evaluate(value))


def _depth(tree: ast.expr) -> int:
    """Return the number of expressions in one another."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [inner for outer in level for inner in ast.iter_child_nodes(outer) if isinstance(inner, ast.expr)]
    return levels


def _evaluator(tree: ast.expr, line: str) -> Callable[[Value], Any]:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
        number = tree.value
        return lambda value: number
    if isinstance(tree, ast.Name):
        return _fact(tree.id, line)
    if isinstance(tree, ast.BoolOp):
        parts = [_evaluator(part, line) for part in tree.values]
        combine = all if isinstance(tree.op, ast.And) else any
        return lambda value: combine(part(value) for part in parts)
    if isinstance(tree, ast.UnaryOp):
        inner = _evaluator(tree.operand, line)
        if isinstance(tree.op, ast.Not):
            return lambda value: not inner(value)
        if isinstance(tree.op, ast.USub):
            return lambda value: _unless_missing(operator.neg, inner(value))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
        function, left, right = _BINARY[type(tree.op)], _evaluator(tree.left, line), _evaluator(tree.right, line)
        return lambda value: _unless_missing(function, left(value), right(value))
    if isinstance(tree, ast.Compare) and all(type(op) in _COMPARE for op in tree.ops):
        return _comparison(tree, line)
    raise UsageError(f"where={line!r}: use comparisons of {', '.join(FACTS)} with numbers, and/or/not")


def _comparison(tree: ast.Compare, line: str) -> Callable[[Value], bool]:
    operands = [_evaluator(part, line) for part in (tree.left, *tree.comparators)]
    signs = [_COMPARE[type(op)] for op in tree.ops]

    def holds(value: Value) -> bool:
        facts = [operand(value) for operand in operands]
        pairs = zip(signs, facts, facts[1:])
        return all(a is not None and b is not None and _compare(sign, a, b) for sign, a, b in pairs)

    return holds


def _compare(sign: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    """Compare two numbers, complex means by their magnitude."""
    a, b = (abs(x) if isinstance(x, complex) else x for x in (a, b))
    return bool(sign(a, b))


def _unless_missing(function: Callable[..., Any], *operands: Any) -> Any:
    if any(operand is None for operand in operands):
        return None
    try:
        return function(*operands)
    except ZeroDivisionError:
        return None
    except OverflowError:  # an integer beyond the floats
        return function(*map(_as_float, operands))


def _power(base: Any, exponent: Any) -> Any:
    """Return a power as floats do: that of large integers might never finish. Beyond their range it is infinite."""
    base, exponent = _as_float(base), _as_float(exponent)
    if isinstance(base, complex) or isinstance(exponent, complex):
        base, exponent = abs(base), abs(exponent)
    try:
        return base**exponent
    except OverflowError:
        return math.copysign(math.inf, base) if exponent % 2 else math.inf


def _as_float(number: Any) -> Any:
    try:
        return number if isinstance(number, complex) else float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _fact(name: str, line: str) -> Callable[[Value], Any]:
    fact = FACTS.get(name)
    if fact is None:
        raise UsageError(f"where={line!r}: there is no {name!r}; use {', '.join(FACTS)}.{nearest(name, FACTS)}")
    return fact


# Dtype, shape and line together ---------------------------------------------------------------------------


def value_condition(
    dtype: str | None, shape: Shape, line: str | None, dtypes: Collection[str]
) -> Callable[[Value], bool]:
    """Return a predicate for the dtype, the shape and the line together; ``dtypes`` are those of the trace."""
    short = None if dtype is None else dtype.removeprefix("torch.")
    if short is not None and not set(short) & set("*?[") and short not in {*dtypes, *DTYPES}:
        raise NotFound(
            f"no dtype {dtype!r}; this trace has {', '.join(sorted(dtypes))}.{nearest(short, {*dtypes, *DTYPES})}"
        )
    wanted = None if shape is None else shape_pattern(shape)
    holds = None if line is None else compile_condition(line)

    def test(value: Value) -> bool:
        if short is not None and not fnmatch.fnmatchcase(value.dtype, short):
            return False
        if wanted is not None and not _matches_shape(value.shape, wanted):
            return False
        return holds is None or holds(value)

    return test


def shape_pattern(shape: str | Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the sizes to compare with, ``None`` for any size.

    >>> shape_pattern("2,*,384"), shape_pattern("(2×8)"), shape_pattern((2, None))
    ((2, None, 384), (2, 8), (2, None))
    """
    if not isinstance(shape, str):
        return tuple(shape)
    inner = shape.strip().strip("()[]").strip()
    if inner and not _SIZES.fullmatch(inner):
        raise UsageError(f"shape {shape!r}: write sizes with commas and * for any, such as '2,*,384'")
    return tuple([None if size in "*?" else int(size) for size in _SIZE.findall(inner)])


_SIZE = re.compile(r"\d{1,18}|[*?]")
_SIZES = re.compile(rf"(?:{_SIZE.pattern})(?:\s*[,x×]\s*(?:{_SIZE.pattern}))*\s*,?")


def _matches_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted))


CallOrNode = TypeVar("CallOrNode", Call, Node)
Where: TypeAlias = (
    Callable[[CallOrNode], object] | str | None
)  # a function of a call or node, or a line about its tensors
