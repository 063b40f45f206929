"""The cause of NaN or infinities in the results of one operation, judged by statistics of its inputs and outputs.

Works while the model runs and on a saved trace. An infinity that is written as a number (``masked_fill(mask, -inf)``)
or that a mask is made of (``finfo.min + finfo.min``) is *intended*. An infinity from arithmetic is not, whatever
happens to it later: ``log(0)``, a division by zero, an overflow.
"""

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
    SUMS_OF_RANKS,
    UNFILLED,
    WRITES,
)
from fxdebug.operators.dtypes import largest_of
from fxdebug.operators.masks import HIGHEST_MASK, is_mask, is_zero_one_mask
from fxdebug.operators.nonfinite import count_of, has_nonfinite
from fxdebug.operators.nonfinite_reasons import largest_text, reason_of_infinity, reason_of_nan

CauseKind: TypeAlias = Literal["nan", "inf", "intended", "uninitialised", "input", "weight"]
NAN: Final = "nan"
INF: Final = "inf"
INTENDED: Final = "intended"
UNINITIALISED: Final = "uninitialised"
MADE_ANEW: Final = "its memory can be made anew unseen, through untyped_storage(), and nothing was seen to fill it"


@dataclass(frozen=True, slots=True)
class NonFiniteCause:
    """The cause of NaN or infinities: an operation that made them, an input or a weight that had them.

    ``kind``: ``nan`` or ``inf`` (an operation made them), ``intended`` (a mask), ``uninitialised`` memory, ``input``,
    ``weight``. ``why`` is the reason, as part of a sentence.
    """

    kind: CauseKind
    why: str


def find_cause(
    op: str,
    literals: Sequence[float],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    probabilities: Container[int] = (),
    *,
    from_ranks: bool = False,
) -> NonFiniteCause | None:
    """Return the cause of NaN or infinities in the ``outputs`` of one operation.

    ``None`` if there are none, or the operation only passed them on from its ``inputs``. ``op`` is its name without
    underscores around it, ``literals`` the numbers written among its arguments. ``probabilities``: the numbers of
    values that are probabilities (see :func:`is_probability`), which are never masks. ``from_ranks``: it writes what
    other ranks send. Values without statistics are ignored.
    """
    nonfinite = [value for value in outputs if has_nonfinite(value)]
    if not nonfinite:
        return None
    if op in UNFILLED:
        return NonFiniteCause(UNINITIALISED, "its memory was never written to")
    nan = any(value.stats.nan for value in nonfinite if value.stats)
    if any(value.stats.nan for value in inputs if value.stats):
        return None
    if from_ranks and not any(map(has_nonfinite, inputs)):
        overflow = "" if nan or op not in SUMS_OF_RANKS else f", or the sum is beyond the largest {nonfinite[0].dtype}"
        return NonFiniteCause(
            NAN if nan else INF, f"it comes from another rank: what this one gave is finite{overflow}"
        )
    if nan:
        if any(map(math.isnan, literals)):
            return NonFiniteCause(NAN, "NaN is written there as a number")
        return NonFiniteCause(NAN, reason_of_nan(op, literals, inputs, nonfinite[0]))
    if any(map(has_nonfinite, inputs)):
        return _cause_of_more_infinities(op, literals, inputs, nonfinite)
    return _cause_of_new_infinity(op, literals, inputs, nonfinite[0], probabilities)


def leaves_memory_unwritten(
    op: str, literals: Iterable[float], inputs: Iterable[Value], *, from_ranks: bool = False
) -> bool:
    """Did an operation write finite numbers to a part of uninitialised memory, so that the rest is not finite?"""
    if op not in WRITES or from_ranks:
        return False
    return not any(map(has_nonfinite, inputs)) and all(map(math.isfinite, literals))


def _cause_of_more_infinities(
    op: str, literals: Sequence[float], inputs: Sequence[Value], nonfinite: Sequence[Value]
) -> NonFiniteCause | None:
    """Return the cause of infinities beyond those of the inputs: of another sign, or more of them."""
    if op in KEEPS_SIGN_OF_INF and count_of(nonfinite, "posinf") and not count_of(inputs, "posinf"):
        if op in ("add", "radd", "iadd"):
            return NonFiniteCause(
                INF, f"the sum is beyond the largest {nonfinite[0].dtype}, {largest_text(nonfinite[0])}"
            )
        return _cause_of_new_infinity(op, literals, inputs, nonfinite[0])
    if (
        op in ("sub", "isub", "subtract") and len(inputs) == 2
    ):  # +Inf comes from +Inf in the first or -Inf in the second
        first, other = ([value] for value in inputs)
        if count_of(nonfinite, "posinf") and not count_of(first, "posinf") and not count_of(other, "neginf"):
            return _cause_of_new_infinity(op, literals, inputs, nonfinite[0])
    is_elementwise = op in ELEMENTWISE and all(
        value.numel == nonfinite[0].numel for value in inputs if has_nonfinite(value)
    )  # a broadcast infinity appears several times
    if is_elementwise and _infinities(nonfinite) > _infinities(inputs):
        return _cause_of_new_infinity(op, literals, inputs, nonfinite[0])
    return None


def _infinities(values: Sequence[Value]) -> int:
    return count_of(values, "posinf") + count_of(values, "neginf")


def _cause_of_new_infinity(
    op: str, literals: Sequence[float], inputs: Sequence[Value], outputs: Value, probabilities: Container[int] = ()
) -> NonFiniteCause:
    """Return the cause of infinities made from finite numbers."""
    assert outputs.stats is not None
    largest = largest_of(outputs.dtype)
    if any(map(math.isinf, literals)):
        return NonFiniteCause(INTENDED, "an infinity is written there as a number")
    beyond = [n for n in literals if n < -largest or (isinstance(n, float) and n > largest)]
    if beyond and (op in PLACES_LITERALS or not outputs.stats.posinf) and (op not in SCALES or max(beyond) < 0):
        return NonFiniteCause(INTENDED, f"a number that {outputs.dtype} does not have is written there")
    if not outputs.stats.posinf:
        if any(map(is_mask, inputs)):
            return NonFiniteCause(INTENDED, "a mask as low as it goes")
        if op in LOGS and any(is_zero_one_mask(value) and value.number not in probabilities for value in inputs):
            return NonFiniteCause(INTENDED, "the logarithm of a mask of zeros and ones")
        if op in PRODUCTS and any(map(is_zero_one_mask, inputs)) and any(number < HIGHEST_MASK for number in literals):
            return NonFiniteCause(INTENDED, "a mask times a number as low as it goes")
    return NonFiniteCause(INF, reason_of_infinity(op, literals, inputs, outputs))
