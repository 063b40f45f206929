"""Conditions: dtype, shape, and ``where=`` lines such as ``absmax > 100 or input.nan > 0`` or ``time.self > 1ms``.

The grammar of a line: comparisons, arithmetic, ``and``, ``or`` and ``not`` over numbers, with or without a unit, and
names of measures. A measure of tensors is about a tensor of the result; after ``input.``, ``output.`` or ``parameter.``
it is about a tensor there. Other measures are about the call or the operation. A line is parsed, never executed as
Python.
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
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fxdebug.data.calls import Call
from fxdebug.data.measures import MEASURES, UNITS, Measure, Unit
from fxdebug.data.values import Value
from fxdebug.errors import NotFound, UsageError, nearest
from fxdebug.operators.dtypes import DTYPES
from fxdebug.query.measures import EVERY_RUN, OF_TENSORS, Number, Tensor
from fxdebug.query.network import Node

Shape: TypeAlias = "str | Sequence[int | None] | None"
Scope: TypeAlias = Mapping[str, Any]  # "input", "output", "parameter" → one tensor each; "" → the numbers by name

TENSORS = ("input", "output", "parameter")
ITSELF = ""  # the call or the operation that a line is about


@dataclass(frozen=True)
class Subject:
    """The tensors of one call or operation that a condition may be about, and its other numbers by measure."""

    outputs: Sequence[Value] = ()
    inputs: Sequence[Value] = ()
    parameters: Sequence[Tensor] = ()
    number: Callable[[str], Number] = lambda name: None


@dataclass(frozen=True)
class Condition:
    """A ``where=`` line; ``names`` are those that it mentions, in their order, each with its fact."""

    line: str
    names: Mapping[str, Callable[[Scope], Any]]
    evaluate: Callable[[Scope], Any]

    def mentions(self, tensors: str) -> bool:
        """Does the line mention tensors of this kind? The name of a measure of tensors alone is about the output."""
        return tensors in self.tensors

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The kinds of tensors that the line mentions, in the order of :data:`TENSORS`."""
        mentioned = {place_of(name)[0] for name in self.names}
        return tuple(kind for kind in TENSORS if kind in mentioned)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that the line mentions, without ``input.``, ``output.`` and ``parameter.``."""
        return tuple(dict.fromkeys(place_of(name)[1] for name in self.names))

    def match(self, subject: Subject) -> dict[str, Any] | None:
        """Return the facts by name for the first tensors that satisfy the condition, or ``None``.

        A comparison with a fact that is not known, or of a tensor that there is not, is neither true nor false, and so
        is its opposite: such calls are not found.
        """
        given = dict(zip(TENSORS, (subject.inputs, subject.outputs, subject.parameters)))
        for tensors in itertools.product(*(given[name] or (None,) for name in self.tensors)):
            scope = {**dict(zip(self.tensors, tensors)), ITSELF: subject.number}
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


def compile_condition(line: str, measures: Mapping[str, Measure] = EVERY_RUN) -> Condition:
    """Return the condition of a ``where=`` line.

    ``measures`` are those that the calls or operations have, by name. Raises :class:`~fxdebug.errors.UsageError` for
    anything but comparisons of known names and numbers, and for a number with a unit of another kind.

    >>> from fxdebug.data.values import Stats
    >>> value = Value(0, (2,), "float32", "cpu", stats=Stats(2, 0.0, 1.0, -3.0, 250.0, 250.0))
    >>> compile_condition("absmax > 100 or input.nan > 0").match(Subject(outputs=[value]))
    {'absmax': 250.0, 'input.nan': None}
    >>> compile_condition("bytes >= 8B and duration < 1ms").match(Subject([value], number=lambda name: 0.0002))
    {'bytes': 8, 'duration': 0.0002}
    """
    if len(line) > LONGEST:
        raise UsageError(_TOO_LARGE)
    compiler = _Compiler(line, measures)
    try:
        tree = ast.parse(_without_units(line.strip()), mode="eval").body
        if _depth(tree) > DEEPEST:
            raise UsageError(_TOO_LARGE)
        evaluate = compiler.evaluator(tree)
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise UsageError(f"where={line!r} is not an expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise UsageError(_TOO_LARGE) from None
    return Condition(line, compiler.names, evaluate)


def _depth(tree: ast.expr) -> int:
    """Return the number of expressions in one another."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [inner for outer in level for inner in ast.iter_child_nodes(outer) if isinstance(inner, ast.expr)]
    return levels


# A number with its unit stands in the tree as a call: 1ms is quantity("1", "ms").
_QUANTITY = "quantity"
_WITH_UNIT = re.compile(
    r"(?<![\w.])(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s?("
    + "|".join(sorted(map(re.escape, UNITS), key=len, reverse=True))
    + r")(?![\w(])"
)


def _without_units(line: str) -> str:
    """Return a line with every number that has a unit as a call.

    >>> _without_units("time.self > 1ms and bytes < 3MiB")
    "time.self > quantity('1', 'ms') and bytes < quantity('3', 'MiB')"
    """
    return _WITH_UNIT.sub(rf"{_QUANTITY}('\1', '\2')", line)


class _Compiler:
    """Makes functions of the expressions of one line; ``names`` are those that it has met."""

    def __init__(self, line: str, measures: Mapping[str, Measure]) -> None:
        self._line = line
        self._measures = measures
        self.names: dict[str, Callable[[Scope], Any]] = {}

    def evaluator(self, tree: ast.expr) -> Callable[[Scope], Any]:
        """Return the function of an expression."""
        if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)):
            number = tree.value
            return lambda scope: number
        quantity = _quantity(tree)
        if quantity is not None:
            amount = quantity.number
            return lambda scope: amount
        name = _dotted(tree)
        if name is not None:
            return self.names.setdefault(name, self._fact(name))
        if isinstance(tree, ast.BoolOp):
            parts = [self.evaluator(part) for part in tree.values]
            decisive = not isinstance(tree.op, ast.And)  # one such part decides, whatever is not known
            return lambda scope: _combined([part(scope) for part in parts], decisive)
        if isinstance(tree, ast.UnaryOp):
            inner = self.evaluator(tree.operand)
            if isinstance(tree.op, ast.Not):
                return lambda scope: _unless_missing(operator.not_, inner(scope))
            if isinstance(tree.op, ast.USub):
                return lambda scope: _unless_missing(operator.neg, inner(scope))
        if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
            function = _BINARY[type(tree.op)]
            left, right = self.evaluator(tree.left), self.evaluator(tree.right)
            return lambda scope: _unless_missing(function, left(scope), right(scope))
        if isinstance(tree, ast.Compare) and all(type(op) in _COMPARE for op in tree.ops):
            return self._comparison(tree)
        raise UsageError(f"where={self._line!r}: use comparisons of {_KNOWN} with numbers, and/or/not")

    def _comparison(self, tree: ast.Compare) -> Callable[[Scope], bool | None]:
        terms = (tree.left, *tree.comparators)
        operands = [self.evaluator(part) for part in terms]
        signs = [_COMPARE[type(op)] for op in tree.ops]
        for one, other in itertools.pairwise(terms):
            self._require_same_unit(one, other)

        def holds(scope: Scope) -> bool | None:
            facts = [operand(scope) for operand in operands]
            pairs = zip(signs, facts, facts[1:])
            return _combined([None if None in (a, b) else _compare(sign, a, b) for sign, a, b in pairs], False)

        return holds

    def _require_same_unit(self, one: ast.expr, other: ast.expr) -> None:
        """Raise ``UsageError`` for a measure that is compared with a number of another unit."""
        for named, number in ((one, other), (other, one)):
            name, quantity = _dotted(named), _quantity(number)
            if name is not None and quantity is not None:
                unit = self._measures[place_of(name)[1]].unit
                if unit != quantity.unit:
                    is_in = f"is in {unit}" if unit else "has no unit"
                    raise UsageError(f"where={self._line!r}: {name} {is_in}, and {quantity.text} is not")

    def _fact(self, name: str) -> Callable[[Scope], Any]:
        tensors, own = place_of(name)
        measure = self._measures.get(own)
        if measure is None or (tensors != ITSELF and own not in OF_TENSORS):
            missing = f"this run has no {name!r}" if name in MEASURES else f"there is no {name!r}"
            raise UsageError(f"where={self._line!r}: {missing}; {self._known()}.{nearest(name, self._all())}")
        if tensors == ITSELF:
            return lambda scope: scope[ITSELF](own)
        fact = OF_TENSORS[own]
        return lambda scope: None if scope.get(tensors) is None else fact(scope[tensors])

    def _known(self) -> str:
        others = [name for name in self._measures if name not in OF_TENSORS]
        return f"use {_KNOWN}" + (f", or of a call or operation {', '.join(others)}" if others else "")

    def _all(self) -> list[str]:
        return [*self._measures, *(f"{tensors}.{name}" for tensors in TENSORS for name in OF_TENSORS)]


def place_of(name: str) -> tuple[str, str]:
    """Return the tensors that a name is about (or :data:`ITSELF`), and its measure.

    >>> place_of("input.absmax"), place_of("absmax"), place_of("time.self")
    (('input', 'absmax'), ('output', 'absmax'), ('', 'time.self'))
    """
    tensors, _, own = name.partition(".")
    if tensors in TENSORS and own:
        return tensors, own
    return ("output" if name in OF_TENSORS else ITSELF), name


def _dotted(tree: ast.expr) -> str | None:
    """Return a name, or several with dots between them."""
    parts = []
    while isinstance(tree, ast.Attribute):
        parts.append(tree.attr)
        tree = tree.value
    return ".".join([tree.id, *reversed(parts)]) if isinstance(tree, ast.Name) else None


class _Quantity(NamedTuple):
    """A number in plain units, its unit, and how it was written."""

    number: float
    unit: Unit
    text: str


def _quantity(tree: ast.expr) -> _Quantity | None:
    """Return a number with a unit, or ``None`` for any other expression."""
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _quantity(tree.operand)
        return None if inner is None else _Quantity(-inner.number, inner.unit, f"-{inner.text}")
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.func.id != _QUANTITY:
        return None
    texts = [part.value for part in tree.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if len(texts) != 2 or texts[1] not in UNITS:
        return None
    factor, unit = UNITS[texts[1]]
    return _Quantity(float(texts[0]) * factor, unit, "".join(texts))


def _combined(parts: Sequence[Any], decisive: bool) -> bool | None:
    """Return ``decisive`` where a part is so, ``None`` where one is not known, else the opposite.

    >>> _combined([None, True], True), _combined([None, True], False), _combined([1, 2], False)
    (True, None, True)
    """
    if any(part is not None and bool(part) is decisive for part in parts):
        return decisive
    return None if any(part is None for part in parts) else not decisive


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


_KNOWN = f"{', '.join(OF_TENSORS)} (of the output, or after {', '.join(f'{name}.' for name in TENSORS)})"


# Dtype, shape and line together ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """The dtype and the shape of a result, and a line, which must hold for one and the same tensor."""

    fits: Callable[[Value], bool] | None
    line: Condition | None

    def match(self, subject: Subject) -> dict[str, Any] | None:
        """Return the facts that the line mentions, for the first tensors that meet everything, or ``None``."""
        if self.fits is not None:
            outputs = tuple(filter(self.fits, subject.outputs))
            if not outputs:
                return None
            subject = replace(subject, outputs=outputs)
        return {} if self.line is None else self.line.match(subject)


def conditions(
    dtype: str | None, shape: Shape, line: str | None, dtypes: Collection[str], measures: Mapping[str, Measure]
) -> Conditions:
    """Return the dtype, the shape and the line as one; ``dtypes`` and ``measures`` are those of the trace."""
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
    return Conditions(None if any_fits else fits, None if line is None else compile_condition(line, measures))


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
