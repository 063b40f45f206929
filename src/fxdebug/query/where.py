"""Conditions: dtype, shape, and ``where=`` lines such as ``absmax > 100 or input.nan > 0``.

The grammar of a line: comparisons, arithmetic, ``and``, ``or`` and ``not`` over numbers and names. A name in ``FACTS``
is about a tensor of the result; after ``input.``, ``output.`` or ``parameter.`` it is about a tensor there.
``duration`` is the time of a call in seconds. A line is parsed, never executed as Python.
"""

from __future__ import annotations

import ast
import fnmatch
import itertools
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from fxdebug.data.calls import Call, Parameter
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.operators.dtypes import DTYPES
from fxdebug.query.network import Node

Shape: TypeAlias = "str | Sequence[int | None] | None"
Measured: TypeAlias = Value | Parameter
Scope: TypeAlias = Mapping[str, Any]  # "input", "output", "parameter" → one tensor each; "duration" → seconds

STATISTICS = ("count", "mean", "std", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros", "finite")
TENSORS = ("input", "output", "parameter")


def _statistic(name: str) -> Callable[[Measured], Any]:
    return lambda value: None if value.stats is None else getattr(value.stats, name)


FACTS: dict[str, Callable[[Measured], Any]] = {
    **{name: _statistic(name) for name in STATISTICS},
    "inf": lambda value: None if value.stats is None else value.stats.posinf + value.stats.neginf,
    "numel": lambda value: math.prod(value.shape),
    "ndim": lambda value: len(value.shape),
    "requires_grad": lambda value: value.requires_grad,
}
NAMES = (*FACTS, "duration", *(f"{tensors}.{name}" for tensors in TENSORS for name in FACTS))


@dataclass(frozen=True)
class Subject:
    """The tensors of one call or operation that a condition may be about, and the duration of a call."""

    outputs: Sequence[Value] = ()
    inputs: Sequence[Value] = ()
    parameters: Sequence[Measured] = ()
    duration: float | None = None


@dataclass(frozen=True)
class Condition:
    """A ``where=`` line; ``names`` are those that it mentions, in their order, each with its fact."""

    line: str
    names: Mapping[str, Callable[[Scope], Any]]
    evaluate: Callable[[Scope], Any]

    def mentions(self, tensors: str) -> bool:
        """Does the line mention tensors of this kind? A name alone is about the output."""
        return any((name.partition(".")[0] if "." in name else "output") == tensors for name in self.names)

    def match(self, subject: Subject) -> dict[str, Any] | None:
        """Return the facts by name for the first tensors of which the line is true, or ``None``.

        A comparison with a fact that a tensor lacks is false, also where there is no such tensor at all.
        """
        given = dict(zip(TENSORS, (subject.inputs, subject.outputs, subject.parameters)))
        chosen = [tensors for tensors in TENSORS if self.mentions(tensors)]
        for tensors in itertools.product(*(given[name] or (None,) for name in chosen)):
            scope = {**dict(zip(chosen, tensors)), "duration": subject.duration}
            if self.evaluate(scope):
                return {name: fact(scope) for name, fact in self.names.items()}
        return None


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


def compile_condition(line: str) -> Condition:
    """Return the condition of a ``where=`` line.

    Raises :class:`~fxdebug.errors.UsageError` for anything but comparisons of known names and numbers.

    >>> from fxdebug.data.values import Stats
    >>> value = Value(0, (2,), "float32", "cpu", stats=Stats(2, 0.0, 1.0, -3.0, 250.0, 250.0))
    >>> compile_condition("absmax > 100 or input.nan > 0").match(Subject(outputs=[value]))
    {'absmax': 250.0, 'input.nan': None}
    """
    if len(line) > LONGEST:
        raise UsageError(_TOO_LARGE)
    names: dict[str, Callable[[Scope], Any]] = {}
    try:
        tree = ast.parse(line.strip(), mode="eval").body
        if _depth(tree) > DEEPEST:
            raise UsageError(_TOO_LARGE)
        evaluate = _evaluator(tree, line, names)
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise UsageError(f"where={line!r} is not an expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise UsageError(_TOO_LARGE) from None
    return Condition(line, names, evaluate)


def _depth(tree: ast.expr) -> int:
    """Return the number of expressions in one another."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [inner for outer in level for inner in ast.iter_child_nodes(outer) if isinstance(inner, ast.expr)]
    return levels


def _evaluator(tree: ast.expr, line: str, names: dict[str, Callable[[Scope], Any]]) -> Callable[[Scope], Any]:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
        number = tree.value
        return lambda scope: number
    name = _dotted(tree)
    if name is not None:
        return names.setdefault(name, _fact(name, line))
    if isinstance(tree, ast.BoolOp):
        parts = [_evaluator(part, line, names) for part in tree.values]
        combine = all if isinstance(tree.op, ast.And) else any
        return lambda scope: combine(part(scope) for part in parts)
    if isinstance(tree, ast.UnaryOp):
        inner = _evaluator(tree.operand, line, names)
        if isinstance(tree.op, ast.Not):
            return lambda scope: not inner(scope)
        if isinstance(tree.op, ast.USub):
            return lambda scope: _unless_missing(operator.neg, inner(scope))
    if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
        function = _BINARY[type(tree.op)]
        left, right = _evaluator(tree.left, line, names), _evaluator(tree.right, line, names)
        return lambda scope: _unless_missing(function, left(scope), right(scope))
    if isinstance(tree, ast.Compare) and all(type(op) in _COMPARE for op in tree.ops):
        return _comparison(tree, line, names)
    raise UsageError(f"where={line!r}: use comparisons of {_KNOWN} with numbers, and/or/not")


def _dotted(tree: ast.expr) -> str | None:
    """Return a name, or two with a dot between them."""
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return f"{tree.value.id}.{tree.attr}"
    return tree.id if isinstance(tree, ast.Name) else None


def _comparison(tree: ast.Compare, line: str, names: dict[str, Callable[[Scope], Any]]) -> Callable[[Scope], bool]:
    operands = [_evaluator(part, line, names) for part in (tree.left, *tree.comparators)]
    signs = [_COMPARE[type(op)] for op in tree.ops]

    def holds(scope: Scope) -> bool:
        facts = [operand(scope) for operand in operands]
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


_KNOWN = f"{', '.join(FACTS)} (of the output, or after {', '.join(f'{name}.' for name in TENSORS)}) or duration"


def _fact(name: str, line: str) -> Callable[[Scope], Any]:
    if name == "duration":
        return lambda scope: scope["duration"]
    tensors, _, own = name.rpartition(".")
    fact = FACTS.get(own)
    if tensors not in ("", *TENSORS):
        near = nearest(name, NAMES)
        raise UsageError(f"where={line!r}: use comparisons of {_KNOWN} with numbers, and/or/not.{near}")
    if fact is None:
        raise UsageError(f"where={line!r}: there is no {name!r}; use {_KNOWN}.{nearest(name, NAMES)}")
    which = tensors or "output"
    return lambda scope: None if scope.get(which) is None else fact(scope[which])


# Dtype, shape and line together ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """The dtype and the shape of a result, and a line, which must hold for one and the same tensor."""

    fits: Callable[[Value], bool] | None
    line: Condition | None

    def match(self, subject: Subject) -> dict[str, Any] | None:
        """Return the facts that the line mentions, for the first tensors that meet everything, or ``None``."""
        outputs = subject.outputs
        if self.fits is not None:
            outputs = tuple(filter(self.fits, outputs))
            if not outputs:
                return None
        return {} if self.line is None else self.line.match(replace(subject, outputs=outputs))


def conditions(dtype: str | None, shape: Shape, line: str | None, dtypes: Collection[str]) -> Conditions:
    """Return the dtype, the shape and the line as one; ``dtypes`` are those of the trace."""
    short = None if dtype is None else dtype.removeprefix("torch.")
    if short is not None and not set(short) & set("*?[") and short not in {*dtypes, *DTYPES}:
        raise NotFound(
            f"no dtype {dtype!r}; this trace has {', '.join(sorted(dtypes))}.{nearest(short, {*dtypes, *DTYPES})}"
        )
    wanted = None if shape is None else shape_pattern(shape)

    def fits(value: Value) -> bool:
        if short is not None and not fnmatch.fnmatchcase(value.dtype, short):
            return False
        return wanted is None or _matches_shape(value.shape, wanted)

    any_fits = short is None and wanted is None
    return Conditions(None if any_fits else fits, None if line is None else compile_condition(line))


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
