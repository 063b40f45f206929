"""Measures: every number about a call, an operation, a value or a parameter, by name, with unit and meaning.

An analysis registers the measures that it takes. Its report has their numbers by the id of a call or of a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fxdebug.errors import UsageError

Unit: TypeAlias = Literal["", "s", "B", "FLOP", "MAC", "FLOP/s", "B/s", "FLOP/B", "1/s", "%"]
Subject: TypeAlias = Literal["call", "operation", "value", "parameter"]

CALL: Final = "call"
OPERATION: Final = "operation"
VALUE: Final = "value"
PARAMETER: Final = "parameter"

Numbers: TypeAlias = Mapping[str, float]  # by the id of a call, of a node, or the name of a parameter


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with a name: ``time.self``, ``flops``, ``mean``.

    ``unit`` is that of the number as it is stored: seconds, bytes, operations. ``of`` has the subjects that have this
    number. ``adds`` tells whether the numbers of repeated layers add up; where they do not, statistics are pooled and
    other numbers averaged.
    """

    name: str
    unit: Unit
    about: str
    of: frozenset[Subject]
    adds: bool = False


MEASURES: dict[str, Measure] = {}


def register(name: str, unit: Unit, about: str, of: Iterable[Subject], *, adds: bool = False) -> Measure:
    """Add a measure to the registry and return it. Raises ``UsageError`` for a name with another meaning.

    >>> register("flops", "FLOP", "floating point operations of products, forward", [CALL, OPERATION], adds=True).unit
    'FLOP'
    """
    measure = Measure(name, unit, about, frozenset(of), adds)
    if MEASURES.setdefault(name, measure) != measure:
        raise UsageError(f"there is a measure {name!r} with another meaning: {MEASURES[name].about}")
    return measure


def quantity(number: float | None, unit: Unit = "") -> str:
    """Return a number with its unit, in three digits: bytes in powers of 1024, all else in powers of 1000.

    >>> quantity(0.01523, "s"), quantity(3 * 2**20, "B"), quantity(2.1823488e7, "FLOP"), quantity(None, "s")
    ('15.2 ms', '3 MiB', '21.8 MFLOP', 'n/a')
    >>> quantity(12, "s"), quantity(4.2e-8, "s"), quantity(37.5, "%"), quantity(1234567.0)
    ('12 s', '42 ns', '37.5 %', '1.23e+06')
    """
    if number is None:
        return "n/a"
    if unit in ("", "%"):
        return f"{_three_digits(number)} {unit}".strip()
    if unit == "s":
        steps = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
        factor, name = next((step for step in steps if abs(number) >= step[0] * 0.9995), steps[-1])
        return f"{_three_digits(number / factor if number else 0.0)} {name if number else 's'}"
    base, prefixes = (1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi")) if unit[0] == "B" else (1e3, ("", *"kMGTPE"))
    power = 0
    while abs(number) >= base * 0.9995 and power < len(prefixes) - 1:
        number, power = number / base, power + 1
    return f"{_three_digits(number)} {prefixes[power]}{unit}"


def _three_digits(number: float) -> str:
    text = f"{number:.3g}"
    return f"{number:.0f}" if "e+0" in text and abs(number) < 10_000 else text
