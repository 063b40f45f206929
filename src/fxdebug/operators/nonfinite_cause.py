"""Why one operation returned NaN or infinities, judged by its inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fxdebug.data.values import Value
from fxdebug.operators.categories import (
    ELEMENTWISE,
    KEEPS_SIGN_OF_INF,
    LOGS,
    PLACES_LITERALS,
    PRODUCTS,
    SCALES,
    UNFILLED,
    WRITES,
)
from fxdebug.operators.dtypes import largest_of
from fxdebug.operators.masks import HIGHEST_MASK, is_mask, is_zero_one_mask
from fxdebug.operators.nonfinite import count_of, has_nonfinite
from fxdebug.operators.nonfinite_reasons import largest_text, reason_of_infinity, reason_of_nan

CauseKind: TypeAlias = Literal["nan", "inf", "meant", "uninitialised", "input", "weight"]  # where it comes from
NAN: Final = "nan"
INF: Final = "inf"
INTENDED: Final = "meant"
UNINITIALISED: Final = "uninitialised"


@dataclass(frozen=True, slots=True)
class NonFiniteCause:
    """What an operation made, or what came from an input or a weight; ``why`` says how."""

    kind: CauseKind
    why: str


def find_cause(
    op: str,
    literals: Sequence[float],
    given: Sequence[Value],
    made: Sequence[Value],
    probabilities: Container[int] = (),
) -> NonFiniteCause | None:
    """What one operation did to give the values ``made``; ``None`` if it only passed on what it was ``given``.

    ``op`` is its name without underscores around it, ``literals`` the numbers written among its arguments,
    ``probabilities`` the numbers of values that are some (see :func:`is_probability`): those are no masks. Values
    without statistics say nothing.
    """
    bad = [value for value in made if has_nonfinite(value)]
    if not bad:
        return None
    if op in UNFILLED:
        return NonFiniteCause(UNINITIALISED, "its memory was never written to")
    nan = any(value.stats.nan for value in bad if value.stats)
    if any(value.stats.nan for value in given if value.stats):
        return None
    if nan:
        if any(map(math.isnan, literals)):
            return NonFiniteCause(NAN, "NaN is written there as a number")
        return NonFiniteCause(NAN, reason_of_nan(op, literals, given, bad[0]))
    if any(map(has_nonfinite, given)):
        return _cause_of_more_infinities(op, literals, given, bad)
    return _cause_of_new_infinity(op, literals, given, bad[0], probabilities)


def leaves_memory_unwritten(op: str, literals: Iterable[float], given: Iterable[Value]) -> bool:
    """Did an operation write finite numbers to memory that began as nothing, so that what is not finite was there?"""
    return op in WRITES and not any(map(has_nonfinite, given)) and all(map(math.isfinite, literals))


# Infinities --------------------------------------------------------------------------------------


def _cause_of_more_infinities(
    op: str, literals: Sequence[float], given: Sequence[Value], bad: Sequence[Value]
) -> NonFiniteCause | None:
    """Infinities beside those that were given: of a sign that these do not lead to, or more than there were."""
    if op in KEEPS_SIGN_OF_INF and count_of(bad, "posinf") and not count_of(given, "posinf"):
        if op in ("add", "radd", "iadd"):
            return NonFiniteCause(INF, f"the sum is beyond the largest {bad[0].dtype}, {largest_text(bad[0])}")
        return _cause_of_new_infinity(op, literals, given, bad[0])
    if op in ("sub", "isub", "subtract") and len(given) == 2:  # +Inf comes of the first one's, or of the other's -Inf
        first, other = ([value] for value in given)
        if count_of(bad, "posinf") and not count_of(first, "posinf") and not count_of(other, "neginf"):
            return _cause_of_new_infinity(op, literals, given, bad[0])
    is_each_by_itself = op in ELEMENTWISE and all(
        value.numel == bad[0].numel for value in given if has_nonfinite(value)
    )  # one that is broadcast counts more than once
    if is_each_by_itself and _infinities(bad) > _infinities(given):
        return _cause_of_new_infinity(op, literals, given, bad[0])
    return None


def _infinities(values: Sequence[Value]) -> int:
    return count_of(values, "posinf") + count_of(values, "neginf")


def _cause_of_new_infinity(
    op: str, literals: Sequence[float], given: Sequence[Value], made: Value, probabilities: Container[int] = ()
) -> NonFiniteCause:
    """Infinities out of finite numbers."""
    assert made.stats is not None
    largest = largest_of(made.dtype)
    if any(map(math.isinf, literals)):
        return NonFiniteCause(INTENDED, "an infinity is written there as a number")
    beyond = [n for n in literals if n < -largest or (isinstance(n, float) and n > largest)]
    if beyond and (op in PLACES_LITERALS or not made.stats.posinf) and (op not in SCALES or max(beyond) < 0):
        return NonFiniteCause(INTENDED, f"a number that {made.dtype} does not have is written there")
    if not made.stats.posinf:
        if any(map(is_mask, given)):
            return NonFiniteCause(INTENDED, "a mask as low as it goes")
        if op in LOGS and any(is_zero_one_mask(value) and value.number not in probabilities for value in given):
            return NonFiniteCause(INTENDED, "the logarithm of a mask of zeros and ones")
        if op in PRODUCTS and any(map(is_zero_one_mask, given)) and any(number < HIGHEST_MASK for number in literals):
            return NonFiniteCause(INTENDED, "a mask times a number as low as it goes")
    return NonFiniteCause(INF, reason_of_infinity(op, literals, given, made))
