"""What made a NaN or an infinity: one operation judged by what it was given and what came out.

Works on statistics alone, while the model runs and on a saved trace. An infinity that somebody wrote
(``masked_fill(mask, -inf)``) or that a mask is made of (``finfo.min + finfo.min``) is *meant*; one that
arithmetic made is not, whatever becomes of it later: ``log(0)``, a division by zero, an overflow.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fxdebug.data.values import Stats, Value
from fxdebug.operators.categories import (
    ADDS,
    ATTENTIONS,
    CASTS,
    DIVIDES,
    EXPONENTIALS,
    KEEP_SIGNS,
    LOGS,
    OF_ZERO,
    ONE_BY_ONE,
    PRODUCTS,
    PUTS,
    SCALES,
    SOFTMAXES,
    UNFILLED,
    VIEWS,
    WRITES,
)
from fxdebug.operators.dtypes import FLOATS

Made: TypeAlias = Literal["nan", "inf", "meant", "uninitialised", "input", "weight"]  # where it comes from
NAN: Final = "nan"
INF: Final = "inf"
MEANT: Final = "meant"
UNINITIALISED: Final = "uninitialised"


# A number this far below zero, where all others are 0, only serves to be nothing after a softmax.
MASK_FROM = -1e3


# Lowest numbers count as masks together with the scores that were added to them: T5 adds up to thousands.
LOWEST = 0.95
_MASKS = [dtype.max for dtype in FLOATS.values() if dtype.bits > 8]  # whose lowest numbers masks are made of


def largest_of(dtype: str) -> float:
    """The largest finite number of a floating dtype; infinite for all others, where nothing overflows."""
    return FLOATS[dtype].max if dtype in FLOATS else math.inf


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an operation made, or what came from an input or a weight; ``why`` says how."""

    kind: Made
    why: str


def broken(value: Value) -> bool:
    """Has this value a NaN or an infinity in it?"""
    stats = value.stats
    return stats is not None and (stats.nan > 0 or stats.posinf > 0 or stats.neginf > 0)


def counted(stats: Stats | None) -> str:
    """How many of what: ``3 NaN, 1 -Inf of 12``.

    >>> counted(Stats(12, 0.0, 1.0, -1.0, 1.0, 1.0, nan=3, neginf=1))
    '3 NaN, 1 -Inf of 12'
    """
    if stats is None:
        return "not measured"
    counts = ((stats.nan, "NaN"), (stats.posinf, "+Inf"), (stats.neginf, "-Inf"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) + f" of {stats.count}"


def masking(value: Value) -> bool:
    """Is it a mask for scores: 0 and one number far below it, numbers as low as they go, or -Inf?

    >>> from fxdebug.data.values import Stats
    >>> masking(Value(0, (4,), "float32", "cpu", stats=Stats(4, -5e8, 5.8e8, -1e9, 0.0, 1e9, zeros=2)))
    True
    """
    stats = value.stats
    if stats is None or stats.nan or stats.posinf:
        return False
    if not isinstance(stats.min, (int, float)) or not isinstance(stats.max, (int, float)):
        return False  # nothing is left that is not masked
    if stats.neginf and not stats.absmax:
        return True
    if any(LOWEST * largest <= -stats.min <= largest for largest in _MASKS):
        return stats.max < 0.5 * -stats.min
    # two numbers only: then the sum is as many times the lower one as there are elements that are not 0
    if stats.min > MASK_FROM or stats.max > 0 or isinstance(stats.mean, complex) or stats.mean is None:
        return False
    return math.isclose(stats.mean * stats.finite, stats.min * (stats.finite - stats.zeros), rel_tol=1e-3)


def zero_or_one(value: Value) -> bool:
    """Are there zeros and ones and nothing else: a mask that was counted as numbers?"""
    stats = value.stats
    if stats is None or stats.min != 0 or stats.max != 1 or stats.std is None or not isinstance(stats.mean, float):
        return False
    ones = stats.count - stats.zeros
    return stats.zeros > 0 and math.isclose(stats.mean * stats.count, ones, rel_tol=1e-4)


def judge(
    op: str,
    literals: Sequence[float],
    given: Sequence[Value],
    made: Sequence[Value],
    probabilities: Container[int] = (),
) -> Verdict | None:
    """What one operation did to give the values ``made``; ``None`` if it only passed on what it was ``given``.

    ``op`` is its name without underscores around it, ``literals`` the numbers written among its arguments,
    ``probabilities`` the numbers of values that are some (see :func:`is_probability`): those are no masks. Values
    without statistics say nothing.
    """
    bad = [value for value in made if broken(value)]
    if not bad:
        return None
    if op in UNFILLED:
        return Verdict(UNINITIALISED, "its memory was never written to")
    nan = any(value.stats.nan for value in bad if value.stats)
    if any(value.stats.nan for value in given if value.stats):
        return None
    if nan:
        if any(map(math.isnan, literals)):
            return Verdict(NAN, "NaN is written there as a number")
        return Verdict(NAN, _why_nan(op, literals, given, bad[0]))
    if any(map(broken, given)):
        return _more_infinite(op, literals, given, bad)
    return _infinite(op, literals, given, bad[0], probabilities)


def unwritten(op: str, literals: Iterable[float], given: Iterable[Value]) -> bool:
    """Did an operation write finite numbers to memory that began as nothing, so that what is not finite was there?"""
    return op in WRITES and not any(map(broken, given)) and all(map(math.isfinite, literals))


def described(value: Value) -> str:
    """A value in a line: dtype and shape, its name, how much of it is not finite, its range."""
    stats = value.stats
    name = f" {value.name}" if value.name else ""
    if stats is None:
        return f"{value.label}{name}, not measured"
    bad = f", {counted(stats)}" if broken(value) else ""
    span = f", {_number(stats.min)} to {_number(stats.max)}" if stats.min is not None and stats.max is not None else ""
    return f"{value.label}{name}{bad}{span}"


def _number(number: float) -> str:
    return str(number) if isinstance(number, int) and abs(number) < 1e7 else f"{number:.4g}"


# Infinities --------------------------------------------------------------------------------------


def _more_infinite(op: str, literals: Sequence[float], given: Sequence[Value], bad: Sequence[Value]) -> Verdict | None:
    """Infinities beside those that were given: of a sign that these do not lead to, or more than there were."""
    if op in KEEP_SIGNS and _count(bad, "posinf") and not _count(given, "posinf"):
        if op in ("add", "radd", "iadd"):
            return Verdict(INF, f"the sum is beyond the largest {bad[0].dtype}, {_largest(bad[0])}")
        return _infinite(op, literals, given, bad[0])
    if op in ("sub", "isub", "subtract") and len(given) == 2:  # +Inf comes of the first one's, or of the other's -Inf
        first, other = ([value] for value in given)
        if _count(bad, "posinf") and not _count(first, "posinf") and not _count(other, "neginf"):
            return _infinite(op, literals, given, bad[0])
    is_each_by_itself = op in ONE_BY_ONE and all(
        value.numel == bad[0].numel for value in given if broken(value)
    )  # one that is broadcast counts more than once
    if is_each_by_itself and _infinities(bad) > _infinities(given):
        return _infinite(op, literals, given, bad[0])
    return None


def _infinities(values: Sequence[Value]) -> int:
    return _count(values, "posinf") + _count(values, "neginf")


def _count(values: Iterable[Value], name: str) -> int:
    return sum(getattr(value.stats, name) for value in values if value.stats)


def _infinite(
    op: str, literals: Sequence[float], given: Sequence[Value], made: Value, probabilities: Container[int] = ()
) -> Verdict:
    """Infinities out of finite numbers."""
    assert made.stats is not None
    largest = largest_of(made.dtype)
    if any(map(math.isinf, literals)):
        return Verdict(MEANT, "an infinity is written there as a number")
    beyond = [n for n in literals if n < -largest or (isinstance(n, float) and n > largest)]
    if beyond and (op in PUTS or not made.stats.posinf) and (op not in SCALES or max(beyond) < 0):
        return Verdict(MEANT, f"a number that {made.dtype} does not have is written there")
    if not made.stats.posinf:
        if any(map(masking, given)):
            return Verdict(MEANT, "a mask as low as it goes")
        if op in LOGS and any(zero_or_one(value) and value.number not in probabilities for value in given):
            return Verdict(MEANT, "the logarithm of a mask of zeros and ones")
        if op in PRODUCTS and any(map(zero_or_one, given)) and any(number < MASK_FROM for number in literals):
            return Verdict(MEANT, "a mask times a number as low as it goes")
    return Verdict(INF, _why_inf(op, literals, given, made))


# op → where it is infinite
_POLES = {
    **dict.fromkeys(("atanh", "arctanh", "erfinv"), "1 or -1"), "logit": "0 or 1", "log1p": "-1",
    **dict.fromkeys(("lgamma", "digamma", "polygamma"), "0 or a negative whole number"),
}  # fmt: skip


def _why_inf(op: str, literals: Sequence[float], given: Sequence[Value], made: Value) -> str:
    first = given[0].stats if given else None
    largest = _largest(made)
    if not given:
        return "it is made of data with infinities in it"
    if op in LOGS:
        return f"the logarithm of {_zeros(first)}"
    if op in _POLES:
        return f"{op} of {_POLES[op]} is infinite"
    if op in ("reciprocal", "rsqrt") and first is not None and first.zeros:
        return f"{op} of {_zeros(first)}"
    if op == "ctc_loss":
        return (
            "a target that does not fit into its input (a label twice in a row takes a blank between) has no alignment"
        )
    if op in DIVIDES or op == "addcdiv":
        divisor = given[0] if op in ("rtruediv", "rdiv") else given[-1] if len(given) > 1 else None
        if divisor is None and 0 in literals:
            return "a division by 0"
        if divisor is not None and divisor.stats is not None and divisor.stats.zeros:
            return f"a division by {_zeros(divisor.stats)}"
        return f"the quotient is beyond the largest {made.dtype}, {largest}"
    if op in ("pow", "rpow", "ipow") and first is not None and first.zeros and any(n < 0 for n in literals):
        return f"a negative power of {_zeros(first)}"
    if op in EXPONENTIALS and first is not None:
        return f"{op} of up to {_short(first.max)} is beyond the largest {made.dtype}, {largest}"
    if op in CASTS and given[0].dtype != made.dtype:
        reach = first.absmax if first is not None else None
        return f"{given[0].dtype} up to {_short(reach)} does not fit into {made.dtype}, whose largest is {largest}"
    if op in VIEWS:
        return "its memory was written to unnoticed, through .data, numpy or another library"
    if made.dtype not in FLOATS:
        return "it made infinities of finite numbers"
    return f"the result is beyond the largest {made.dtype}, {largest}"


# NaN ---------------------------------------------------------------------------------------------

# op → which numbers it is not defined for
_DOMAINS = {
    **dict.fromkeys((*LOGS, "sqrt", "rsqrt"), "negative numbers"),
    **dict.fromkeys("acos arccos asin arcsin atanh arctanh erfinv".split(), "numbers beyond ±1"),
    **dict.fromkeys(("acosh", "arccosh"), "numbers below 1"),
    "log1p": "numbers below -1", "logit": "numbers outside 0 to 1",
}  # fmt: skip


# Taken of everything, also where that is not defined or too large, to be chosen from with ``where``.
CHOSEN_FROM = OF_ZERO | frozenset(_DOMAINS) | EXPONENTIALS | frozenset("pow rpow ipow float_power".split())


def _why_nan(op: str, literals: Sequence[float], given: Sequence[Value], made: Value) -> str:
    first = given[0].stats if given else None
    if not given:
        return "it is made of data with NaN in it"
    if op in CASTS and given[0].dtype != made.dtype and first is not None:  # float8_e4m3fn has no infinity
        return f"{given[0].dtype} up to {_short(first.absmax)} does not fit into {made.dtype}"
    infinite = [value for value in given if broken(value)]
    if (op in SOFTMAXES or op in ATTENTIONS) and infinite and not _count(given, "posinf"):
        return f"softmax over {_rows(made)}: every score there is -Inf, so nothing is left to attend to"
    if op in ATTENTIONS and any(value.dtype == "bool" for value in given):
        return "it was given a mask that seems to leave rows with nothing to attend to"
    if infinite:
        return _of_infinities(op, infinite)
    if op in PRODUCTS and any(map(math.isinf, literals)):
        return "0 times the infinity that is written there"
    if op in _DOMAINS and first is not None:
        return f"{op} of {_DOMAINS[op]} (it was given {_range(first)})"
    if op in ("remainder", "fmod"):
        return "the remainder of a division by 0"
    if op in DIVIDES:
        return "0 divided by 0" if _count(given, "zeros") else "a quotient of numbers that is not defined"
    if op in ("pow", "rpow", "ipow", "float_power") and first is not None:
        return f"a power that is not whole, of negative numbers (it was given {_range(first)})"
    if op in ("std", "var", "std_mean", "var_mean") and first is not None:
        return f"{op} divides by n - 1, and there is one element along that dimension"
    if op in ("mean", "median", "nanmean") and first is not None and first.count == 0:
        return f"the {op} of no elements"
    if op in ("cross_entropy", "nll_loss", "kl_div"):
        return "its mean is over nothing: every target seems to be ignored"
    if op in _NORMS:
        return _of_norm(op, literals, given, made)
    if op in VIEWS:
        return "its memory was written to unnoticed, through .data, numpy or another library"
    reach = max((value.stats.absmax for value in given if value.stats and value.stats.absmax is not None), default=0.0)
    if made.dtype in ("float16", "bfloat16") and reach * reach > FLOATS[made.dtype].max:
        return f"numbers up to {_short(reach)}: sums of their products are beyond the largest {made.dtype}"
    return "it made NaN of finite numbers"


_NORMS = frozenset("batch_norm instance_norm layer_norm group_norm rms_norm normalize cosine_similarity".split())


def _of_norm(op: str, literals: Sequence[float], given: Sequence[Value], made: Value) -> str:
    first = given[0].stats
    negative = [v for v in given[1:] if v.stats is not None and isinstance(v.stats.min, float) and v.stats.min < 0]
    if op in ("batch_norm", "instance_norm") and len(given) > 2 and negative:
        return "it takes the root of a variance; a running variance below 0 has none"
    reach = None if first is None else first.absmax
    if 0 in literals and reach is not None and reach * reach < largest_of(made.dtype):
        what = "norm" if op in ("rms_norm", "normalize", "cosine_similarity") else "variance"
        return f"a {what} of 0, and an eps of 0: 0 divided by 0"
    return f"its mean and variance of numbers up to {_short(reach)} are beyond {made.dtype} or not defined"


def _of_infinities(op: str, infinite: Sequence[Value]) -> str:
    if op in SOFTMAXES:
        return "softmax over a row with +Inf in it: Inf - Inf is NaN"
    if op in ADDS or op in ("sum", "mean", "cumsum", "logsumexp", "std", "var"):
        return f"Inf - Inf ({counted(infinite[0].stats)} were given)"
    if op in DIVIDES:
        return f"Inf divided by Inf, or a remainder of Inf ({counted(infinite[0].stats)} were given)"
    if op in PRODUCTS:
        return f"0 times Inf, or Inf - Inf in a sum of products ({counted(infinite[0].stats)} were given)"
    return f"{op} of infinities is NaN ({counted(infinite[0].stats)} were given)"


# Words -------------------------------------------------------------------------------------------


def _rows(made: Value) -> str:
    assert made.stats is not None
    width = made.shape[-1] if made.shape else 1
    if width and made.stats.nan % width == 0:
        return f"{made.stats.nan // width} of {made.stats.count // width} rows, masked altogether"
    return "rows that are masked altogether"


def _range(stats: Stats) -> str:
    return f"{_short(stats.min)} to {_short(stats.max)}"


def _zeros(stats: Stats | None) -> str:
    return "0" if stats is None or not stats.zeros else f"0 ({stats.zeros} of {stats.count} elements)"


def _largest(value: Value) -> str:
    return _short(FLOATS[value.dtype].max if value.dtype in FLOATS else None)


def _short(number: float | None) -> str:
    return "an unknown number" if number is None else f"{number:.4g}" if abs(number) < 1e5 else f"{number:.3g}"
