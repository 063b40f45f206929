"""The reason why an operation made NaN or infinities, in a sentence: domains, poles, overflow, masked rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxdebug.data.values import Stats, Value
from fxdebug.operators.categories import (
    ADDS,
    ATTENTIONS,
    CASTS,
    DIVIDES,
    EXPONENTIALS,
    LOGS,
    PRODUCTS,
    SINGULAR_AT_ZERO,
    SOFTMAXES,
    VIEWS,
)
from fxdebug.operators.dtypes import FLOATS, largest_of
from fxdebug.operators.nonfinite import count_of, has_nonfinite, nonfinite_counts

# op → the numbers at which it is infinite
_POLES = {
    **dict.fromkeys(("atanh", "arctanh", "erfinv"), "1 or -1"), "logit": "0 or 1", "log1p": "-1",
    **dict.fromkeys(("lgamma", "digamma", "polygamma"), "0 or a negative whole number"),
}  # fmt: skip


def reason_of_infinity(op: str, literals: Sequence[float], inputs: Sequence[Value], output: Value) -> str:
    """Return the reason why an operation made infinities from finite ``inputs``."""
    first = inputs[0].stats if inputs else None
    largest = largest_text(output)
    if not inputs:
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
        divisor = inputs[0] if op in ("rtruediv", "rdiv") else inputs[-1] if len(inputs) > 1 else None
        if divisor is None and 0 in literals:
            return "a division by 0"
        if divisor is not None and divisor.stats is not None and divisor.stats.zeros:
            return f"a division by {_zeros(divisor.stats)}"
        return f"the quotient is beyond the largest {output.dtype}, {largest}"
    if op in ("pow", "rpow", "ipow") and first is not None and first.zeros and any(n < 0 for n in literals):
        return f"a negative power of {_zeros(first)}"
    if op in EXPONENTIALS and first is not None:
        return f"{op} of up to {_short(first.max)} is beyond the largest {output.dtype}, {largest}"
    if op in CASTS and inputs[0].dtype != output.dtype:
        reach = first.absmax if first is not None else None
        return f"{inputs[0].dtype} up to {_short(reach)} does not fit into {output.dtype}, whose largest is {largest}"
    if op in VIEWS:
        return "its memory was written to unnoticed, through .data, numpy or another library"
    if output.dtype not in FLOATS:
        return "it made infinities of finite numbers"
    return f"the result is beyond the largest {output.dtype}, {largest}"


# NaN ---------------------------------------------------------------------------------------------

# op → the numbers for which it is not defined
_DOMAINS = {
    **dict.fromkeys((*LOGS, "sqrt", "rsqrt"), "negative numbers"),
    **dict.fromkeys("acos arccos asin arcsin atanh arctanh erfinv".split(), "numbers beyond ±1"),
    **dict.fromkeys(("acosh", "arccosh"), "numbers below 1"),
    "log1p": "numbers below -1", "logit": "numbers outside 0 to 1",
}  # fmt: skip


# Operations that are not defined, or overflow, for some numbers. They are often applied to all elements, and ``where``
# then chooses the valid results.
PARTLY_UNDEFINED = (
    SINGULAR_AT_ZERO | frozenset(_DOMAINS) | EXPONENTIALS | frozenset("pow rpow ipow float_power".split())
)


def reason_of_nan(op: str, literals: Sequence[float], inputs: Sequence[Value], output: Value) -> str:
    """Return the reason why an operation made NaN from ``inputs`` without any."""
    first = inputs[0].stats if inputs else None
    if not inputs:
        return "it is made of data with NaN in it"
    if op in CASTS and inputs[0].dtype != output.dtype and first is not None:  # float8_e4m3fn has no infinity
        return f"{inputs[0].dtype} up to {_short(first.absmax)} does not fit into {output.dtype}"
    infinite = [value for value in inputs if has_nonfinite(value)]
    if (op in SOFTMAXES or op in ATTENTIONS) and infinite and not count_of(inputs, "posinf"):
        return f"softmax over {_rows(output)}: every score there is -Inf, so nothing is left to attend to"
    if op in ATTENTIONS and any(value.dtype == "bool" for value in inputs):
        return "it was given a mask that seems to leave rows with nothing to attend to"
    if infinite:
        return _reason_of_infinite_inputs(op, infinite)
    if op in PRODUCTS and any(map(math.isinf, literals)):
        return "0 times the infinity that is written there"
    if op in _DOMAINS and first is not None:
        return f"{op} of {_DOMAINS[op]} (it was given {_range(first)})"
    if op in ("remainder", "fmod"):
        return "the remainder of a division by 0"
    if op in DIVIDES:
        return "0 divided by 0" if count_of(inputs, "zeros") else "a quotient of numbers that is not defined"
    if op in ("pow", "rpow", "ipow", "float_power") and first is not None:
        return f"a power that is not whole, of negative numbers (it was given {_range(first)})"
    if op in ("std", "var", "std_mean", "var_mean") and first is not None:
        return f"{op} divides by n - 1, and there is one element along that dimension"
    if op in ("mean", "median", "nanmean") and first is not None and first.count == 0:
        return f"the {op} of no elements"
    if op in ("cross_entropy", "nll_loss"):
        return "its mean is over nothing: every target seems to be ignored"
    if op == "kl_div" and (below := _below_zero(inputs[1:])) is not None:
        return f"it takes the logarithm of targets below 0 ({_range(below)})"
    if op in _NORMS:
        return _reason_in_norm(op, literals, inputs, output)
    if op in VIEWS:
        return "its memory was written to unnoticed, through .data, numpy or another library"
    reach = max((value.stats.absmax for value in inputs if value.stats and value.stats.absmax is not None), default=0.0)
    if output.dtype in ("float16", "bfloat16") and reach * reach > FLOATS[output.dtype].max:
        return f"numbers up to {_short(reach)}: sums of their products are beyond the largest {output.dtype}"
    return "it made NaN of finite numbers"


_NORMS = frozenset("batch_norm instance_norm layer_norm group_norm rms_norm normalize cosine_similarity".split())


_DEFAULT_EPS = {"normalize": 1e-12, "cosine_similarity": 1e-8}
_ZERO_IN_FLOAT16 = 2.0**-25  # half of its smallest number: what is not larger is rounded to 0


def _reason_in_norm(op: str, literals: Sequence[float], inputs: Sequence[Value], output: Value) -> str:
    first = inputs[0].stats
    negative = [v for v in inputs[1:] if v.stats is not None and isinstance(v.stats.min, float) and v.stats.min < 0]
    if op in ("batch_norm", "instance_norm") and len(inputs) > 2 and negative:
        return "it takes the root of a variance; a running variance below 0 has none"
    reach = None if first is None else first.absmax
    what = "norm" if op in ("rms_norm", "normalize", "cosine_similarity") else "variance"
    eps = min((each for each in literals if 0 < each < 1), default=_DEFAULT_EPS.get(op, 1.0))
    if output.dtype == "float16" and eps <= _ZERO_IN_FLOAT16 and first is not None and first.zeros:
        return f"a {what} of 0, and eps={eps:g} is 0 in float16: 0 divided by 0"
    if 0 in literals and reach is not None and reach * reach < largest_of(output.dtype):
        return f"a {what} of 0, and an eps of 0: 0 divided by 0"
    what = "norm" if what == "norm" else "mean and variance"
    return f"its {what} of numbers up to {_short(reach)} are beyond {output.dtype} or not defined"


def _reason_of_infinite_inputs(op: str, infinite: Sequence[Value]) -> str:
    if op in SOFTMAXES:
        return "softmax over a row with +Inf in it: Inf - Inf is NaN"
    if op in ADDS or op in ("sum", "mean", "cumsum", "logsumexp", "std", "var"):
        return f"Inf - Inf ({nonfinite_counts(infinite[0].stats)} were given)"
    if op in DIVIDES:
        return f"Inf divided by Inf, or a remainder of Inf ({nonfinite_counts(infinite[0].stats)} were given)"
    if op in PRODUCTS:
        return f"0 times Inf, or Inf - Inf in a sum of products ({nonfinite_counts(infinite[0].stats)} were given)"
    return f"{op} of infinities is NaN ({nonfinite_counts(infinite[0].stats)} were given)"


# Parts of sentences ------------------------------------------------------------------------------


def _rows(output: Value) -> str:
    assert output.stats is not None
    width = output.shape[-1] if output.shape else 1
    if width and output.stats.nan % width == 0:
        return f"{output.stats.nan // width} of {output.stats.count // width} rows, masked altogether"
    return "rows that are masked altogether"


def _below_zero(values: Sequence[Value]) -> Stats | None:
    """Return the statistics of the first value that has numbers below 0."""
    known = [value.stats for value in values if value.stats is not None]
    return next((stats for stats in known if stats.min is not None and stats.min < 0), None)


def _range(stats: Stats) -> str:
    return f"{_short(stats.min)} to {_short(stats.max)}"


def _zeros(stats: Stats | None) -> str:
    return "0" if stats is None or not stats.zeros else f"0 ({stats.zeros} of {stats.count} elements)"


def largest_text(value: Value) -> str:
    """Return the largest number of a value's dtype as text."""
    return _short(FLOATS[value.dtype].max if value.dtype in FLOATS else None)


def _short(number: float | None) -> str:
    return "an unknown number" if number is None else f"{number:.4g}" if abs(number) < 1e5 else f"{number:.3g}"
