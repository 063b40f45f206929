"""Pack the data of a page: texts once, numbers as columns, all of it compressed; ``web/src/payload.ts`` reads it.

A packed block is the length of a JSON head (4 bytes, little-endian), the head, zeros up to a multiple of 8, and the
columns. In the head ``{"column": type, "at": byte, "length": n}`` stands for a column; ``delta``: its numbers are
differences to the one before; ``planes``: the first bytes of all numbers come first, then all second bytes: bytes that
are alike lie together, and compress.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fxdebug.printable import printable, printable_lines

NONE = -1
_NAMES = {"B": "u8", "H": "u16", "I": "u32", "i": "i32", "f": "f32", "d": "f64"}
_FEW = 32  # numbers for which it does not pay to put bytes apart
_LARGE = 4 << 20  # bytes that are compressed fast rather than small


class Column:
    """A column of numbers: the bytes that are packed, and how they are to be read."""

    __slots__ = ("delta", "numbers")

    def __init__(self, numbers: array[int] | array[float], delta: bool = False) -> None:
        self.numbers = numbers
        self.delta = delta

    @property
    def type(self) -> str:
        """The name of its type in the packed head."""
        return _NAMES[self.numbers.typecode]


class Texts:
    """The texts of a page, each once; everything refers to them by position. Control characters are escaped."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._positions: dict[str, int] = {}
        self._safe: dict[str, int] = {}

    def add(self, text: str | None, lines: bool = False) -> int:
        """Return the position of a text; -1 for none and for an empty one. ``lines`` keeps line breaks."""
        if not text:
            return NONE
        position = self._positions.get(text)
        if position is None:
            safe = printable_lines(text) if lines else printable(text)
            position = self._safe.setdefault(safe, len(self.listed))
            if position == len(self.listed):
                self.listed.append(safe)
            if not lines:
                self._positions[text] = position
        return position

    def column(self, texts: Iterable[str | None]) -> Column:
        """Return the positions of texts."""
        return integers([self.add(text) for text in texts])


def integers(numbers: Sequence[int], *, grows: bool = False) -> Column:
    """Return a column of whole numbers in the smallest type that holds them; ``grows``: never smaller than before.

    >>> integers([0, 3, -1]).type, integers([0, 300]).type
    ('i32', 'u16')
    """
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low < -(1 << 31) or high >= 1 << 32 or (low < 0 and high >= 1 << 31):
        return Column(array("d", numbers))  # exact up to 2**53
    kind = "i" if low < 0 else "B" if high < 1 << 8 else "H" if high < 1 << 16 else "I"
    return Column(array(kind, numbers), grows and len(numbers) > _FEW)


def reals(numbers: Sequence[float]) -> Column:
    """Return a column of numbers in single precision, or in double where single cannot hold one; NaN is no number.

    Whole numbers, such as counts, stay exact.

    >>> reals([0.5, float("nan")]).type, reals([1e200]).type, reals([2**24 + 1]).type
    ('f32', 'f64', 'f64')
    """
    single = array("f", numbers)
    for number, rounded in zip(numbers, single):
        if number != rounded and number == number and _is_lost(number, rounded):
            return Column(array("d", numbers))
    return Column(single)


def _is_lost(number: float, rounded: float) -> bool:
    if math.isinf(number):
        return False
    return math.isinf(rounded) or rounded == 0 or (abs(number) >= 1 << 24 and number == math.floor(number))


def firsts(counts: Sequence[int]) -> Column:
    """Return where the parts of each begin in one list of all, and where the last ends.

    >>> firsts([2, 0, 3]).numbers.tolist()
    [0, 2, 2, 5]
    """
    return integers([0, *itertools.accumulate(counts)], grows=True)


def packed(head: Mapping[str, Any]) -> bytes:
    """Return a head with its columns as one block of bytes."""
    pieces: list[bytes] = []
    size = 0

    def place(node: Any) -> Any:
        nonlocal size
        if isinstance(node, Column):
            described, data = _described(node)
            described["at"] = size
            padding = -len(data) % 8
            pieces.append(data + bytes(padding))
            size += len(data) + padding
            return described
        if isinstance(node, Mapping):
            return {printable_lines(str(key)): place(inner) for key, inner in node.items()}
        if isinstance(node, (list, tuple)) and node and not isinstance(node[0], (int, float, bool)):
            return [place(inner) for inner in node]
        return printable_lines(node) if isinstance(node, str) else node

    text = json.dumps(place(head), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    return len(text).to_bytes(4, "little") + text + bytes(-(4 + len(text)) % 8) + b"".join(pieces)


def compressed(block: bytes) -> str:
    """Return a block as the text that a page holds: base64 of its zlib form."""
    return base64.b64encode(zlib.compress(block, 6 if len(block) > _LARGE else 9)).decode("ascii")


def _described(column: Column) -> tuple[dict[str, Any], bytes]:
    numbers = column.numbers
    described: dict[str, Any] = {"column": column.type, "length": len(numbers)}
    if column.delta:
        described["delta"] = True
        steps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
        numbers = array(numbers.typecode, [numbers[0], *steps])  # type: ignore[list-item]
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    data, width = numbers.tobytes(), numbers.itemsize
    if width > 1 and len(numbers) > _FEW:
        described["planes"] = True
        data = b"".join([data[plane::width] for plane in range(width)])
    return described, data
