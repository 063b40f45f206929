"""Whatever is packed is read back: numbers in the smallest type that holds them, texts once, without control marks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fxdebug.exports.page.pack import Texts, compressed, firsts, integers, packed, reals
from support.page_data import unpacked

SOME = settings(deadline=None, database=None)
INTEGERS = st.lists(st.integers(-(1 << 53), 1 << 53), max_size=80) | st.lists(st.integers(-1, 300), max_size=80)


@SOME
@given(INTEGERS)
def test_whole_numbers_are_read_back(numbers: list[int]) -> None:
    assert unpacked(packed({"a": [{"b": integers(numbers)}]})) == {"a": [{"b": numbers}]}


@pytest.mark.parametrize(
    "numbers, kind",
    [
        ([], "u8"), ([0, 255], "u8"), ([256], "u16"), ([65535], "u16"), ([65536], "u32"), ([2**32 - 1], "u32"),
        ([2**32], "f64"), ([-1, 0], "i32"), ([-1, 2**31 - 1], "i32"), ([-1, 2**31], "f64"), ([-(2**31)], "i32"),
        ([-(2**31) - 1], "f64"),
    ],
)  # fmt: skip
def test_the_type_of_whole_numbers_is_the_smallest_that_holds_all(numbers: list[int], kind: str) -> None:
    assert integers(numbers).type == kind
    assert unpacked(packed({"x": integers(numbers)})) == {"x": numbers}


@SOME
@given(st.lists(st.integers(0, 1 << 20), max_size=80))
def test_numbers_that_grow_are_read_back_from_their_differences(counts: list[int]) -> None:
    expected = [sum(counts[:i]) for i in range(len(counts) + 1)]
    assert unpacked(packed({"first": firsts(counts)}))["first"] == expected


@SOME
@given(st.lists(st.floats(), max_size=80))
def test_real_numbers_keep_seven_digits_and_stay_finite(numbers: list[float]) -> None:
    for before, after in zip(numbers, unpacked(packed({"x": reals(numbers)}))["x"], strict=True):
        same = math.isnan(after) if math.isnan(before) else math.isclose(before, after, rel_tol=1e-6, abs_tol=1e-44)
        assert same and (after == 0) == (before == 0)


def test_counts_beyond_single_precision_stay_exact() -> None:
    assert unpacked(packed({"x": reals([2**24 + 1, 0.1])}))["x"] == [2**24 + 1, 0.1]


def test_a_text_is_there_once_and_nothing_in_it_moves_a_cursor() -> None:
    texts = Texts()
    added = [texts.add(text) for text in ("a", "b\x1b[2J", None, "", "a", "\u202eb", "b\\x1b[2J")]
    assert added == [0, 1, -1, -1, 0, 2, 1]
    assert texts.listed == ["a", "b\\x1b[2J", "\\u202eb"]
    assert texts.listed[texts.add("one\n\ttwo", lines=True)] == "one\n\\ttwo"


def test_the_same_data_give_the_same_bytes() -> None:
    def made() -> str:
        return compressed(packed({"texts": ["×", "…"], "x": reals([0.1] * 100), "n": None, "t": [1, 2]}))

    assert made() == made() and made().isascii()
