"""The cause of NaN and infinities that one operation made, as a sentence; what it only passed on has none here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, inf, nan, tensor

from fxdebug.data.values import Value
from fxdebug.operators.nonfinite import count_of, has_nonfinite, nonfinite_counts, summary_of
from fxdebug.operators.nonfinite_cause import find_cause, leaves_memory_unwritten
from fxdebug.stats.measure import measure

HALF = torch.float16


def value_of(data: Tensor, number: int = 0) -> Value:
    return Value(number, tuple(data.shape), str(data.dtype)[6:], "cpu", stats=measure(data))


def cause(op: str, result: Tensor, *given: Tensor, literals: Sequence[float] = (), **more: bool) -> str:
    found = find_cause(op, literals, [value_of(x) for x in given], [value_of(result)], **more)
    return "passed on" if found is None else f"{found.kind}: {found.why}"


def unmeasured(dtype: str = "float32") -> Value:
    return Value(0, (2,), dtype, "cpu")


def test_an_overflow_of_a_mask_is_intended_and_one_of_scores_is_not() -> None:
    lowest = tensor([0.0, torch.finfo(HALF).min], dtype=HALF)
    scores = tensor([-6e4, 1.0], dtype=HALF)
    assert cause("add", lowest + lowest, lowest, lowest) == "intended: a mask as low as it goes"
    assert cause("add", scores + scores, scores, scores) == "inf: the result is beyond the largest float16, 6.55e+04"


ZERO, ONE, TWO = tensor([0.0, 1.0, 0.0]), tensor([1.0, 1.0, 1.0]), tensor([-4.0, 2.0, 3.0])
BIG = tensor([6e4, -6e4, 1.0], dtype=HALF)
INFINITIES = [
    ("log", ZERO, ZERO.log(), (), "intended: the logarithm of a mask of zeros and ones"),
    ("log10", ZERO * 2, (ZERO * 2).log10(), (), "inf: the logarithm of 0 (2 of 3 elements)"),
    ("atanh", ONE, ONE.atanh(), (), "inf: atanh of 1 or -1 is infinite"),
    ("log1p", -ONE, (-ONE).log1p(), (), "inf: log1p of -1 is infinite"),
    ("lgamma", ZERO, ZERO.lgamma(), (), "inf: lgamma of 0 or a negative whole number is infinite"),
    ("rsqrt", ZERO, ZERO.rsqrt(), (), "inf: rsqrt of 0 (2 of 3 elements)"),
    ("reciprocal", ZERO, ZERO.reciprocal(), (), "inf: reciprocal of 0 (2 of 3 elements)"),
    ("rtruediv", ZERO, 1 / ZERO, (1.0,), "inf: a division by 0 (2 of 3 elements)"),
    ("div", ONE, ONE / 0, (0,), "inf: a division by 0"),
    ("truediv", BIG, BIG / 0.1, (0.1,), "inf: the quotient is beyond the largest float16, 6.55e+04"),
    ("pow", ZERO, ZERO**-1, (-1,), "inf: a negative power of 0 (2 of 3 elements)"),
    ("pow", BIG, BIG**2, (2,), "inf: the result is beyond the largest float16, 6.55e+04"),
    ("exp", TWO * 40, (TWO * 40).exp(), (), "inf: exp of up to 120 is beyond the largest float32, 3.4e+38"),
    (
        "half",
        TWO * 1e5,
        (TWO * 1e5).half(),
        (),
        "inf: float32 up to 4e+05 does not fit into float16, whose largest is 6.55e+04",
    ),
    ("view", ONE, ONE / 0, (), "inf: its memory was written to unnoticed, through .data, numpy or another library"),
    ("fft", ONE, (ONE / 0).cfloat(), (), "inf: it made infinities of finite numbers"),
    (
        "ctc_loss",
        ONE,
        ONE / 0,
        (),
        "inf: a target that does not fit into its input (a label twice in a row takes a blank "
        "between) has no alignment",
    ),
    ("masked_fill", ONE, ONE / 0, (inf,), "intended: an infinity is written there as a number"),
    (
        "masked_fill",
        ONE.half(),
        -ONE.half() / 0,
        (-1e9,),
        "intended: a number that float16 does not have is written there",
    ),
    ("mul", ONE.half(), ONE.half() * 1e9, (1e9,), "inf: the result is beyond the largest float16, 6.55e+04"),
    ("mul", ONE.half(), ONE.half() * -1e9, (-1e9,), "intended: a number that float16 does not have is written there"),
    ("linear", ZERO.half(), -ONE.half() / 0, (-6e4,), "intended: a mask times a number as low as it goes"),
    ("linear", ZERO.half(), -ONE.half() / 0, (-100,), "inf: the result is beyond the largest float16, 6.55e+04"),
    ("linear", ZERO.half(), ONE.half() / 0, (-6e4,), "inf: the result is beyond the largest float16, 6.55e+04"),
]


@pytest.mark.parametrize(("op", "given", "result", "literals", "expected"), INFINITIES)
def test_the_cause_of_an_infinity(
    op: str, given: Tensor, result: Tensor, literals: tuple[float, ...], expected: str
) -> None:
    assert cause(op, result, given, literals=literals) == expected


ROWS = tensor([[-inf, -inf], [0.0, 1.0]])
UP, DOWN = tensor([inf, 1.0]), tensor([-inf, 2.0])
NANS = [
    (
        "softmax",
        [ROWS],
        (),
        "softmax over 1 of 2 rows, masked altogether: every score there is -Inf, so nothing is left to attend to",
        ROWS.softmax(-1),
    ),
    (
        "softmax",
        [ROWS],
        (),
        "softmax over rows that are masked altogether: every score there is -Inf, so nothing is left to attend to",
        tensor([[nan, 1.0], [0.0, 1.0]]),
    ),
    ("softmax", [UP], (), "softmax over a row with +Inf in it: Inf - Inf is NaN", UP.softmax(-1)),
    (
        "scaled_dot_product_attention",
        [ONE, ONE > 0],
        (),
        "it was given a mask that seems to leave rows with nothing to attend to",
        ONE * nan,
    ),
    ("add", [UP, DOWN], (), "Inf - Inf (1 +Inf of 2 were given)", UP + DOWN),
    ("sum", [tensor([inf, -inf])], (), "Inf - Inf (1 +Inf, 1 -Inf of 2 were given)", tensor(nan)),
    ("div", [UP, UP], (), "Inf divided by Inf, or a remainder of Inf (1 +Inf of 2 were given)", UP / UP),
    (
        "mul",
        [UP, tensor([0.0, 1.0])],
        (),
        "0 times Inf, or Inf - Inf in a sum of products (1 +Inf of 2 were given)",
        UP * tensor([0.0, 1.0]),
    ),
    ("sin", [UP], (), "sin of infinities is NaN (1 +Inf of 2 were given)", UP.sin()),
    ("mul", [ZERO], (inf,), "0 times the infinity that is written there", ZERO * inf),
    ("sqrt", [TWO], (), "sqrt of negative numbers (it was given -4 to 3)", TWO.sqrt()),
    ("acos", [TWO], (), "acos of numbers beyond ±1 (it was given -4 to 3)", TWO.acos()),
    ("acosh", [ZERO], (), "acosh of numbers below 1 (it was given 0 to 1)", ZERO.acosh()),
    ("logit", [TWO], (), "logit of numbers outside 0 to 1 (it was given -4 to 3)", TWO.logit()),
    ("remainder", [ONE], (0,), "the remainder of a division by 0", ONE * nan),
    ("div", [ZERO, ZERO], (), "0 divided by 0", ZERO / ZERO),
    ("div", [ONE, TWO], (), "a quotient of numbers that is not defined", ONE * nan),
    ("pow", [TWO], (0.5,), "a power that is not whole, of negative numbers (it was given -4 to 3)", TWO**0.5),
    ("std", [tensor([1.0])], (), "std divides by n - 1, and there is one element along that dimension", tensor(nan)),
    ("mean", [tensor([])], (), "the mean of no elements", tensor(nan)),
    ("cross_entropy", [ONE], (), "its mean is over nothing: every target seems to be ignored", tensor(nan)),
    ("kl_div", [ONE, TWO], (), "it takes the logarithm of targets below 0 (-4 to 3)", tensor(nan)),
    ("layer_norm", [ONE], (0,), "a variance of 0, and an eps of 0: 0 divided by 0", ONE * nan),
    (
        "normalize",
        [ZERO.half()],
        (2.0, 1e-12),
        "a norm of 0, and eps=1e-12 is 0 in float16: 0 divided by 0",
        ZERO.half() / ZERO.half(),
    ),
    ("normalize", [ZERO], (0.0,), "a norm of 0, and an eps of 0: 0 divided by 0", ONE * nan),
    (
        "layer_norm",
        [BIG],
        (0,),
        "its mean and variance of numbers up to 6e+04 are beyond float16 or not defined",
        BIG * nan,
    ),
    (
        "layer_norm",
        [ONE],
        (1e-5,),
        "its mean and variance of numbers up to 1 are beyond float32 or not defined",
        ONE * nan,
    ),
    (
        "batch_norm",
        [ONE, ONE, -ONE],
        (),
        "it takes the root of a variance; a running variance below 0 has none",
        ONE * nan,
    ),
    (
        "batch_norm",
        [ONE, -ONE],
        (),
        "its mean and variance of numbers up to 1 are beyond float32 or not defined",
        ONE * nan,
    ),
    (
        "layer_norm",
        [ONE, ONE, -ONE],
        (),
        "its mean and variance of numbers up to 1 are beyond float32 or not defined",
        ONE * nan,
    ),
    ("view", [ONE], (), "its memory was written to unnoticed, through .data, numpy or another library", ONE * nan),
    ("matmul", [BIG], (), "numbers up to 6e+04: sums of their products are beyond the largest float16", BIG * nan),
    ("matmul", [ONE.half()], (), "it made NaN of finite numbers", BIG * nan),
    ("matmul", [ONE * 1e30], (), "it made NaN of finite numbers", ONE * nan),
    ("half", [ONE], (), "float32 up to 1 does not fit into float16", BIG * nan),
    ("masked_fill", [ONE], (nan,), "NaN is written there as a number", ONE * nan),
    ("tensor", [], (), "it is made of data with NaN in it", ONE * nan),
]


@pytest.mark.parametrize(("op", "given", "literals", "expected", "result"), NANS)
def test_the_cause_of_a_nan(
    op: str, given: list[Tensor], literals: tuple[float, ...], expected: str, result: Tensor
) -> None:
    assert cause(op, result, *given, literals=literals) == f"nan: {expected}"


def test_what_was_given_is_passed_on_and_more_infinities_or_others_are_made() -> None:
    assert cause("relu", ONE, ONE) == "passed on"
    assert cause("add", ONE * nan, ONE * nan, UP) == "passed on"
    assert cause("relu", UP, UP) == "passed on"
    beyond = "inf: the result is beyond the largest float32, 3.4e+38"
    sums = "inf: the sum is beyond the largest float32, 3.4e+38"
    assert cause("add", UP, DOWN, UP * 0 + 1) == "passed on"  # NaN was given
    assert cause("add", UP, DOWN, tensor([3e38, 1.0])) == sums
    assert cause("sum", tensor([inf]), DOWN) == beyond
    assert cause("cosh", UP, DOWN) == "passed on"
    assert cause("sub", UP, tensor([1.0, 2.0]), DOWN) == "passed on"
    assert cause("sub", UP, UP, tensor([1.0, 2.0])) == "passed on"
    assert cause("sub", UP, DOWN, tensor([1.0, 2.0])) == beyond
    assert cause("sub", DOWN, tensor([1.0, 2.0]), UP) == "passed on"
    assert cause("mul", tensor([inf, -inf]), UP) == beyond
    assert cause("mul", tensor([inf, inf]), tensor([inf])) == "passed on"  # broadcast
    assert cause("matmul", tensor([inf, inf]), UP) == "passed on"  # not element by element


def test_unwritten_memory_and_what_other_ranks_send_are_causes_of_their_own() -> None:
    assert cause("empty", ONE * nan) == "uninitialised: its memory was never written to"
    sent = "it comes from another rank: what this one gave is finite"
    assert cause("broadcast", ONE * nan, ONE, from_ranks=True) == f"nan: {sent}"
    assert cause("broadcast", UP, ONE, from_ranks=True) == f"inf: {sent}"
    assert cause("all_reduce", UP, ONE, from_ranks=True) == f"inf: {sent}, or the sum is beyond the largest float32"
    assert cause("all_reduce", ONE * nan, ONE, from_ranks=True) == f"nan: {sent}"
    assert cause("all_reduce", UP, UP, from_ranks=True) == "passed on"
    values = [value_of(ONE)], [value_of(UP)]
    assert leaves_memory_unwritten("copy", (), values[0]) and leaves_memory_unwritten("fill", (1.0,), [])
    assert not leaves_memory_unwritten("copy", (), values[1])
    assert not leaves_memory_unwritten("fill", (inf,), [])
    assert not leaves_memory_unwritten("add", (), values[0])
    assert not leaves_memory_unwritten("copy", (), values[0], from_ranks=True)


def test_a_probability_that_reached_zero_is_no_mask() -> None:
    given, made = value_of(ZERO, number=7), value_of(ZERO.log())
    assert find_cause("log", (), [given], [made]).kind == "intended"
    assert find_cause("log", (), [given], [made], {7}).kind == "inf"


def test_values_without_statistics_are_left_out() -> None:
    assert find_cause("exp", (), [unmeasured()], [unmeasured()]) is None
    made = value_of(ONE / 0)
    said = [find_cause(op, (), [unmeasured()], [made]).why for op in ("exp", "log", "reciprocal", "div")]
    far = "is beyond the largest float32, 3.4e+38"
    assert said == [f"the result {far}", "the logarithm of 0", f"the result {far}", f"the quotient {far}"]
    assert find_cause("half", (), [unmeasured("float64")], [made]).why == (
        "float64 up to an unknown number does not fit into float32, whose largest is 3.4e+38"
    )
    assert find_cause("tensor", (), [], [made]).why == "it is made of data with infinities in it"


def test_a_value_in_a_line_has_its_counts_and_its_span() -> None:
    mixed = value_of(tensor([nan, inf, -inf, 1.5, 2.5]))
    assert summary_of(mixed) == "float32[5], 1 NaN, 1 +Inf, 1 -Inf of 5, 1.5 to 2.5"
    assert summary_of(value_of(tensor([1, 12345678]))) == "int64[2], 1 to 1.235e+07"
    assert summary_of(value_of(tensor([inf]))) == "float32[1], 1 +Inf of 1"
    assert summary_of(unmeasured()) == "float32[2], not measured" and nonfinite_counts(None) == "not measured"
    assert [has_nonfinite(value_of(x)) for x in (ONE, UP, DOWN, ONE * nan)] == [False, True, True, True]
    assert not has_nonfinite(unmeasured())
    assert count_of([mixed, unmeasured(), value_of(DOWN)], "neginf") == 2
