"""Samples of sweeps: each element of every axis has its turn."""

from __future__ import annotations

import collections
import itertools

import pytest

from support import sweep


@pytest.fixture
def of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_whole", False)


def test_a_sweep_has_every_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_whole", True)
    assert sweep.spread("abc", "xy", [1, 2]) == list(itertools.product("abc", "xy", [1, 2]))
    assert sweep.sampled("abcd", 3) == ["a", "b", "c", "d"]


@pytest.mark.usefixtures("of_a_sample")
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("lengths", [(16, 3, 3), (7, 5, 3), (3, 20, 9), (22, 3), (6, 3, 2)])
def test_a_sample_has_each_element_of_the_longest_axis_and_draws_those_of_others_equally_often(
    lengths: tuple[int, ...], rounds: int
) -> None:
    drawn = sweep.spread(*[range(length) for length in lengths], rounds=rounds)
    assert len(drawn) == max(lengths) * rounds
    for axis, length in enumerate(lengths):
        often = collections.Counter(each[axis] for each in drawn)
        assert len(often) == length and max(often.values()) - min(often.values()) <= 1
    assert drawn == sweep.spread(*[range(length) for length in lengths], rounds=rounds)


@pytest.mark.usefixtures("of_a_sample")
def test_a_sample_of_names_has_one_of_each_so_many_and_all_that_are_always_taken() -> None:
    assert sweep.sampled(["a1", "b1", "c1", "d2"], 3, ("c",)) == ["a1", "c1", "d2"]
