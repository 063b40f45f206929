"""NaN and infinities in a value: their presence, their counts, and the value in a line of text."""

from __future__ import annotations

from collections.abc import Iterable

from fxdebug.data.values import Stats, Value


def has_nonfinite(value: Value) -> bool:
    """Has the value a NaN or an infinity? ``False`` without statistics."""
    stats = value.stats
    return stats is not None and (stats.nan > 0 or stats.posinf > 0 or stats.neginf > 0)


def nonfinite_counts(stats: Stats | None) -> str:
    """Return the counts of NaN and infinities as text.

    >>> nonfinite_counts(Stats(12, 0.0, 1.0, -1.0, 1.0, 1.0, nan=3, neginf=1))
    '3 NaN, 1 -Inf of 12'
    """
    if stats is None:
        return "not measured"
    counts = ((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "-Inf"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) + f" of {stats.count}"


def summary_of(value: Value) -> str:
    """Return a value in a line: dtype and shape, its name, counts of NaN and infinities, minimum and maximum."""
    stats = value.stats
    name = f" {value.name}" if value.name else ""
    if stats is None:
        return f"{value.label}{name}, not measured"
    counts = f", {nonfinite_counts(stats)}" if has_nonfinite(value) else ""
    span = f", {_number(stats.min)} to {_number(stats.max)}" if stats.min is not None and stats.max is not None else ""
    return f"{value.label}{name}{counts}{span}"


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) and abs(number) < 1e7 else f"{number:.4g}"


def count_of(values: Iterable[Value], name: str) -> int:
    """Return the sum of one count (``nan``, ``posinf``, ``neginf``, ``zeros``) over values."""
    return sum(getattr(value.stats, name) for value in values if value.stats)
