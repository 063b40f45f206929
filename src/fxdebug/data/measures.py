"""Measures: every number about a call, an operation, a value or a parameter, by name, with unit and meaning.

An analysis registers the measures that it takes. Its report has their numbers by the id of a call or of a node.
Columns, conditions, pictures and files ask for numbers by the names of their measures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from fxdebug.brief import brief
from fxdebug.errors import UsageError

Unit: TypeAlias = Literal["", "s", "B", "FLOP", "MAC", "FLOP/s", "B/s", "FLOP/B", "1/s", "%"]
Subject: TypeAlias = Literal["call", "operation", "value", "parameter"]

CALL: Final = "call"
OPERATION: Final = "operation"
VALUE: Final = "value"
PARAMETER: Final = "parameter"

SUBJECTS: tuple[Subject, ...] = get_args(Subject)

Numbers: TypeAlias = Mapping[str, float]  # by the id of a call, of a node, or the name of a parameter


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with a name: ``time.self``, ``flops``, ``mean``.

    ``unit`` is that of the number as it is stored: seconds, bytes, operations. ``of`` has the subjects that have this
    number. ``adds`` tells whether the numbers of repeated layers add up; where they do not, statistics are pooled and
    other numbers averaged. ``own`` tells whether the number of a call leaves out the calls in it.
    """

    name: str
    unit: Unit
    about: str
    of: frozenset[Subject]
    adds: bool = False
    own: bool = False


@brief
@dataclass(frozen=True, slots=True)
class Taken:
    """A measure that was taken of one run: its numbers, and in words by which analysis, with which settings."""

    measure: Measure
    numbers: Numbers = field(repr=False)
    by: str = ""


MEASURES: dict[str, Measure] = {}


def register(
    name: str, unit: Unit, about: str, of: Iterable[Subject], *, adds: bool = False, own: bool = False
) -> Measure:
    """Add a measure to the registry and return it.

    Raises ``UsageError`` for a name with another meaning, and for one that begins with ``input.`` or ``output.``, by
    which conditions ask for a statistic of a tensor.

    >>> register("flops", "FLOP", "floating point operations of products, forward", [CALL, OPERATION], adds=True).unit
    'FLOP'
    """
    first, _, rest = name.partition(".")
    if first in ("input", "output") and rest:
        raise UsageError(f"a measure {name!r} would be read as the statistic {rest!r} of an {first}: name it {rest!r}")
    measure = Measure(name, unit, about, frozenset(of), adds, own)
    if MEASURES.setdefault(name, measure) != measure:
        raise UsageError(f"there is a measure {name!r} with another meaning: {MEASURES[name].about}")
    return measure


def names_in(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of measures that are given as a list, or as one text with commas, each once.

    >>> names_in("time.self, flops"), names_in(["flops"])
    (('time.self', 'flops'), ('flops',))
    """
    listed = names.split(",") if isinstance(names, str) else names
    return tuple(dict.fromkeys(name.strip() for name in listed))


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "call"), counted(3, "call")
    ('1 call', '3 calls')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def enumerated(names: Sequence[str]) -> str:
    """Return names as one text.

    >>> enumerated(["a"]), enumerated(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *more, last = names
    return f"{', '.join(more)} and {last}" if more else last


def quantity(number: float | None, unit: Unit = "") -> str:
    """Return a number with its unit, in three digits: bytes in powers of 1024, all else in powers of 1000.

    >>> quantity(0.01523, "s"), quantity(3 * 2**20, "B"), quantity(2.1823488e7, "FLOP"), quantity(None, "s")
    ('15.2 ms', '3 MiB', '21.8 MFLOP', 'n/a')
    >>> quantity(12, "s"), quantity(4.2e-8, "s"), quantity(37.5, "%"), quantity(1234567.0)
    ('12 s', '42 ns', '37.5 %', '1.23e+06')
    >>> quantity(-9999.0), quantity(10000.0), quantity(0.0, "s"), quantity(999.5, "FLOP"), quantity(999.4, "FLOP")
    ('-9999', '1e+04', '0 s', '1 kFLOP', '999 FLOP')
    >>> quantity(math.nan, "%"), quantity(math.nan), quantity(math.inf, "s")
    ('n/a', 'NaN', '+Inf')
    """
    if number is None or (unit and math.isnan(number)):  # nothing is NaN seconds long
        return "n/a"
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else f"{'-' if number < 0 else '+'}Inf"
    name, factor = scale(number, unit)
    return f"{_three_digits(number / factor)} {name}".strip()


def scale(number: float, unit: Unit) -> tuple[str, float]:
    """Return the name of the unit that a number is shown in, with its prefix, and how many plain units that is.

    >>> scale(0.01523, "s"), scale(3 * 2**20, "B"), scale(7.0, "")
    (('ms', 0.001), ('MiB', 1048576.0), ('', 1.0))
    """
    steps = _STEPS.get(unit, ((unit, 1.0),))
    fallback = steps[0] if number == 0 else steps[-1]
    if unit == "s":  # from seconds downwards
        return next((step for step in steps if abs(number) >= step[1] * 0.9995), fallback)
    return next((step for step in reversed(steps) if abs(number) >= step[1] * 0.9995), steps[0])


_BYTES: Final[tuple[tuple[str, Unit], ...]] = (("", "B"), ("/s", "B/s"))  # also with prefixes of 1000: MB, MB/s


def _steps(unit: Unit) -> tuple[tuple[str, float], ...]:
    """Return a unit with its prefixes: of 1024 for bytes, of 1000 for all else."""
    base, prefixes = (1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi")) if unit[0] == "B" else (1e3, ("", *"kMGTPE"))
    return tuple([(prefix + unit, base**power) for power, prefix in enumerate(prefixes)])


_STEPS: dict[Unit, tuple[tuple[str, float], ...]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)),
    **{unit: _steps(unit) for unit in get_args(Unit) if unit not in ("", "s", "%")},
}

# Every unit that may be written after a number, with the plain unit and how many of these it is.
UNITS: dict[str, tuple[float, Unit]] = {
    **{name: (factor, unit) for unit, steps in _STEPS.items() for name, factor in steps},
    **{f"{prefix}B{per}": (1e3**power, unit) for power, prefix in enumerate("kMGTP", 1) for per, unit in _BYTES},
    "us": (1e-6, "s"),
    "%": (1.0, "%"),
}


def _three_digits(number: float) -> str:
    text = f"{number:.3g}"
    return f"{number:.0f}" if "e+0" in text and abs(number) < 10_000 else text
