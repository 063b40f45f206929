"""Sizes that remember where they come from: an ``int`` with an expression beside it.

While a body is traced symbolically, ``x.shape[0]`` is a :class:`Size`: arithmetic on it gives
expressions, so that ``x.view(b, -1, h * d)`` stays right for other sizes. Where Python decides by a
size (a comparison, ``float(n)``, a dict key) the decision becomes a guard. C code (``range(n)``) reads
the plain integer, which goes unnoticed here; that is why a graph is matched before it is run on other
sizes. A size is another key in dicts and caches than the integer: a function whose results are cached by
size (``functools.lru_cache``) computes anew, and its results are sizes, too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

# An expression: ("size", slot, dim), ("numel", slot), ("node", index), (GIVEN, number) or
# (operator function, operand, operand). GIVEN is an integer among the arguments of the call, by number.
Expression = tuple[Any, ...]
GIVEN = "given"


class Listener(Protocol):
    """The tracer that runs."""

    def size_asked(self, what: str, answer: Any) -> None:
        """Take note of a question about a size that Python's further course depends on."""

    def hash_of(self, size: Size) -> int:
        """Return the hash of a size: that of the integer or, for another key in dicts and caches, :func:`own_hash`."""


_listener: Listener | None = None


def set_listener(listener: Listener | None) -> Listener | None:
    """Ask this listener about sizes from now on; return the one that was asked before."""
    global _listener
    before, _listener = _listener, listener
    return before


def _ask(what: str, answer: Any) -> None:
    if _listener is not None:
        _listener.size_asked(what, answer)


class Size(int):
    """An integer that is a size, or computed from sizes."""

    expression: Expression

    def __new__(cls, value: int, expression: Expression) -> Size:
        size = int.__new__(cls, value)
        size.expression = expression
        return size

    def __hash__(self) -> int:
        return int.__hash__(self) if _listener is None else _listener.hash_of(self)

    def __deepcopy__(self, memo: Any) -> Size:
        return self

    def __neg__(self) -> Size:
        return Size(-plain(self), (operator.neg, self))

    def __abs__(self) -> Size:
        return Size(abs(plain(self)), (operator.abs, self))

    def __round__(self, digits: Any = None) -> int:
        return self if digits is None else round(plain(self), digits)

    def __floor__(self) -> Size:
        return self

    def __ceil__(self) -> Size:
        return self

    def __trunc__(self) -> Size:
        return self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __float__(self) -> float:
        _ask(f"float({plain(self)})", float(plain(self)))
        return int.__float__(self)

    def __bool__(self) -> bool:
        _ask(f"bool({plain(self)})", bool(plain(self)))
        return int.__bool__(self)

    def __str__(self) -> str:
        _ask(f"str({plain(self)})", str(plain(self)))
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        _ask(f"format({plain(self)})", plain(self))
        return format(plain(self), spec)

    def __truediv__(self, other: Any) -> Any:
        result = int.__truediv__(self, other)
        _ask(f"{plain(self)} / {other!r}", result)
        return result

    def __rtruediv__(self, other: Any) -> Any:
        result = int.__rtruediv__(self, other)
        _ask(f"{other!r} / {plain(self)}", result)
        return result

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        result = int.__pow__(self, other, modulo) if modulo is not None else int.__pow__(self, other)
        if modulo is None and type(result) is int and type(other) in (int, Size):
            return Size(result, (operator.pow, self, other))
        if result is NotImplemented:  # a float exponent
            result = float(plain(self)) ** other
        _ask(f"{plain(self)} ** {other!r}", result)
        return result


def plain(size: int) -> int:
    """Return the integer without its expression."""
    return int.__add__(size, 0)


def own_hash(size: Size) -> int:
    """Return a hash that differs from the integer's, and between sizes of different origin."""
    return hash((_shallow(size), *[_shallow(each) for each in size.expression[1:]]))


def _shallow(operand: Any) -> Any:
    if type(operand) is not Size:
        return operand
    return plain(operand), operand.expression if _is_measured(operand) else operand.expression[0]


def _is_measured(size: Size) -> bool:
    return size.expression[0] in ("size", "numel", "node", GIVEN)


def _is_same(size: Size, other: Any) -> bool:
    """Are both the same size, whatever the inputs?"""
    if size is other:
        return True
    return type(other) is Size and _is_measured(size) and _is_measured(other) and size.expression == other.expression


def _arithmetic(name: str, function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Any, Any], Any]:
    own = getattr(int, name)

    def method(self: Size, other: Any) -> Any:
        result = own(self, other)
        if type(result) is not int or type(other) not in (int, Size):
            return result
        return Size(result, (function, other, self) if swapped else (function, self, other))

    return method


def _comparison(name: str, sign: str) -> Callable[[Any, Any], Any]:
    own = getattr(int, name)

    def method(self: Size, other: Any) -> Any:
        result = own(self, other)
        if result is not NotImplemented and not _is_same(self, other):
            _ask(f"{plain(self)} {sign} {int(other) if isinstance(other, int) else other!r}", result)
        return result

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    _function = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(Size, f"__{_name}__", _arithmetic(f"__{_name}__", _function, False))
    setattr(Size, f"__r{_name}__", _arithmetic(f"__r{_name}__", _function, True))
for _name, _sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    setattr(Size, f"__{_name}__", _comparison(f"__{_name}__", _sign))


def is_given(template: Any) -> bool:
    """Is this leaf of a template an integer among the call's arguments?"""
    return type(template) is Size and template.expression[0] == GIVEN


class Shape(tuple[Any, ...]):
    """The ``x.shape`` of a placeholder: a tuple of sizes with the methods of ``torch.Size``."""

    def numel(self) -> int:
        """The product of the sizes."""
        total = 1
        for size in self:
            total = size * total
        return total

    def __getitem__(self, key: Any) -> Any:
        part = tuple.__getitem__(self, key)
        return Shape(part) if type(key) is slice else part

    def __add__(self, other: Any) -> Shape:
        return Shape(tuple.__add__(self, tuple(other)))

    def __radd__(self, other: Any) -> Shape:
        return Shape(tuple.__add__(tuple(other), self))

    def __mul__(self, times: Any) -> Shape:
        return Shape(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size({list(self)!r})"

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # for ``isinstance(x.shape, torch.Size)``
        return torch.Size


def evaluate(
    expression: Expression,
    size_of: Callable[[int, int], int],
    node: Callable[[int], int],
    given: Mapping[int, int],
    known: dict[int, int] | None = None,
) -> int:
    """Return the value of an expression: ``size_of(slot, dim)`` gives the sizes, ``node(index)`` the recorded answers,
    ``given`` the integers among the arguments.

    A ``dim`` of -1 asks for the number of elements. ``known`` keeps the sizes computed on the way, by ``id``: one size
    may occur in an expression a million times.
    """
    head = expression[0]
    if head == "size":
        return size_of(expression[1], expression[2])
    if head == "numel":
        return size_of(expression[1], -1)
    if head == "node":
        return node(expression[1])
    if head == GIVEN:
        return given[expression[1]]
    known = {} if known is None else known
    operands = []
    for x in expression[1:]:
        if type(x) is Size:
            if id(x) not in known:
                known[id(x)] = evaluate(x.expression, size_of, node, given, known)
            x = known[id(x)]
        operands.append(x)
    return int(head(*operands))
