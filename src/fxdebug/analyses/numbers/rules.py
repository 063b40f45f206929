"""The rules of the numbers of a run."""

from __future__ import annotations

import math

from fxdebug.analyses.numbers.dtype_limits import FLOAT16_MAX, NumberLimits
from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.data.rules import CALIBRATED, NOT_FINITE, RuleBook, RuleSpec, Threshold
from fxdebug.operators.dtypes import FLOATS

BOOK = RuleBook(
    "numbers",
    (
        RuleSpec("nan", ERROR, "an operation makes NaN of operands without", subject=NOT_FINITE),
        RuleSpec("inf", ERROR, "an operation makes an infinity of finite operands", subject=NOT_FINITE),
        RuleSpec("input", ERROR, "an input has NaN or infinities before the run", subject=NOT_FINITE),
        RuleSpec("weight", ERROR, "a weight has NaN or infinities before the run", subject=NOT_FINITE),
        RuleSpec("uninitialised", ERROR, "memory is read before it is written", subject=NOT_FINITE),
        RuleSpec("headroom", WARNING, "a result in few bits is close to overflow", "headroom"),
        RuleSpec("underflow", WARNING, "numbers became 0", "lost_share most_lost"),
        RuleSpec("cancellation", WARNING, "digits cancel in a difference of rounded numbers", "digits"),
        RuleSpec("subnormal", ADVICE, "saved results are so small that digits are missing", "subnormal_share"),
        RuleSpec("float16", ADVICE, "a result would overflow in float16", "float16_max"),
    ),
    limits=NumberLimits,
    about={
        "headroom": ("", "times that a narrow result is below its dtype's largest number", "two doublings"),
        "lost_share": ("", "share of elements that became 0, for advice", CALIBRATED),
        "most_lost": ("", "share of the nonzero elements that became 0, for a warning", CALIBRATED),
        "subnormal_share": ("", "share of the nonzero elements that are subnormal", CALIBRATED),
    },
    fixed=(
        Threshold("numbers.float16_max", FLOAT16_MAX, "", "|x|", "IEEE 754", False),
        Threshold(
            "numbers.digits",
            math.sqrt(FLOATS["float32"].eps),
            "",
            "result over its operands: √eps of the dtype, here of float32",
            "Higham 2002",
            False,
        ),
    ),
)
