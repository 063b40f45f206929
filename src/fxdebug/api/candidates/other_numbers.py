"""Operations with one of their settings replaced: a number, a dimension, a mode in words, a switch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fxdebug.api.candidates.variation import Change, Variation
from fxdebug.api.trials.edits_of_operations import tensors_of
from fxdebug.capture.pausing.replaced_operations import Ran
from fxdebug.comparison.constants import BY_POSITION, DEFAULTS


def other_settings(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield an operation with one of its numbers, dimensions or modes replaced by another."""
    named = iter(BY_POSITION.get(name, ()))
    for at, value in enumerate(ran.args):
        if at and not isinstance(value, Tensor) and name != "getitem":
            label = next(named, "")
            yield from _others(label, value, ran, numbers, partial(_with_argument, at))
    for key, value in ran.kwargs.items():
        if not isinstance(value, Tensor):
            yield from _others(key, value, ran, numbers, partial(_with_keyword, key))


def _others(
    label: str, value: Any, ran: Ran, numbers: Sequence[float], make: Callable[[Any], Change]
) -> Iterator[Variation]:
    for new in _values(label, value, ran, numbers):
        yield _setting(label, value, new, make(new))


def _setting(label: str, value: Any, new: Any, change: Change) -> Variation:
    was, better = (f"{label}={_text(each)}" if label else _text(each) for each in (value, new))
    return Variation(f"{was} in b, where a's values need {better}", f"{{op}} with {better}", change)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _values(label: str, value: Any, ran: Ran, numbers: Sequence[float]) -> Iterator[Any]:
    """Yield other values of a setting."""
    if value is True or value is False:
        yield not value
    elif isinstance(value, str):
        known = next((group for group in _WORDS if value in group), ())
        yield from (word for word in known if word != value)
    elif isinstance(value, int):
        if label in _DIMENSIONS:
            dims = max((each.ndim for each in tensors_of(ran)), default=0)
            yield from (dim for dim in range(-dims, 0) if dim % dims != value % dims)
        else:
            whole = [int(number) for number in numbers if number == int(number)]
            yield from dict.fromkeys(new for new in (value + 1, value - 1, -value, *whole) if new != value)
    elif isinstance(value, float) and math.isfinite(value):
        scaled = [new for number in numbers if number not in (0.0, 1.0) for new in (value / number, value * number)]
        yield from dict.fromkeys(new for new in (*numbers, *scaled, -value) if new != value)
    elif isinstance(value, (list, tuple)) and label in _DIMENSIONS and all(type(each) is int for each in value):
        dims = max((each.ndim for each in tensors_of(ran)), default=0)
        others = itertools.combinations(range(dims), len(value))
        yield from (list(new) for new in others if {*new} != {each % dims for each in value})


_DIMENSIONS = frozenset(["dim", "dims", "axis"])
_WORDS = (
    ("none", "tanh"),
    ("zeros", "border", "reflection"),
    ("constant", "reflect", "replicate", "circular"),
    ("nearest", "nearest-exact", "bilinear", "bicubic", "linear", "area"),
    ("sum", "mean", "prod", "amax", "amin"),
    ("floor", "trunc"),
    ("ij", "xy"),
)


def other_switches(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with a switch that it was not given turned from its default."""
    for key, default in DEFAULTS.get(name, {}).items():
        if key in ran.kwargs or default not in ("True", "False") or any(type(each) is bool for each in ran.args):
            continue
        if key == "unbiased" and "correction" in ran.kwargs:
            continue
        new = default == "False"
        yield _setting(key, not new, new, _with_keyword(key, new))


def _with_argument(at: int, new: Any) -> Change:
    return lambda ran: ran.function(*ran.args[:at], new, *ran.args[at + 1 :], **ran.kwargs)


def _with_keyword(key: str, new: Any) -> Change:
    return lambda ran: ran.function(*ran.args, **{**ran.kwargs, key: new})
