"""What is read from inputs, results and rows of trials without trying anything."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from fxdebug.features.shared.records.padded import Padded
from fxdebug.features.shared.tried_settings.checkpointed import worth_most
from fxdebug.features.shared.tried_settings.padded_inputs import padded_inputs
from fxdebug.features.shared.tried_settings.trial import REFUSED, Change, TrialRow, change_of, told

IDS = torch.tensor([[5, 7, 0, 0, 0], [3, 0, 0, 0, 0]])


def steps(used: int, length: int, *features: int) -> Tensor:
    """Two rows of as many steps, of which those in use are 2."""
    x = torch.zeros(2, length, *features)
    x[0, :used] = 2.0
    return x


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        (IDS, 2),
        (IDS + 9, 2),  # whatever the filling is
        (IDS[:, :4], 2),
        (IDS[:, :3], None),  # too short to be worth it
        (torch.zeros_like(IDS), None),  # nothing is told by it
        (steps(2, 5, 3), 2),
        (steps(2, 5), None),  # features of a row
        (steps(2, 5) / 2, 2),  # a mask
        (steps(2, 5, 3, 3), None),  # pictures
        (IDS > 0, 2),
        (steps(9, 10, 3), None),
        (steps(8, 10, 3), 8),
        (torch.ones(2, 5, dtype=torch.long), None),
        (IDS.to("meta"), None),
        (IDS[0], None),
    ],
)
def test_inputs_whose_last_steps_hold_nothing_are_padded(given: Tensor, longest: int | None) -> None:
    expected = [] if longest is None else [Padded("args[0]", given.shape[1], longest)]
    assert padded_inputs((given,), {}) == expected


def test_where_there_is_a_mask_it_alone_tells() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    assert padded_inputs((IDS,), {"mask": mask}) == [Padded("mask", 5, 3)]
    assert padded_inputs((IDS,), {"mask": torch.ones_like(mask)}) == []


NAN = float("nan")


@pytest.mark.parametrize(
    ("before", "after", "rows", "change"),
    [
        ({"a": [1.0, -4.0]}, {"a": [1.0, -4.0]}, 1, Change(0.0, "", None)),
        ({"a": [1.0, -4.0], "b": [8.0]}, {"a": [1.0, -3.0], "b": [7.0]}, 1, Change(0.25, "a", None)),
        ({"a": [1.0], "c": [1.0]}, {"a": [1.0], "b": [1.0]}, 1, Change(form="b is in one of both only")),
        ({"a": [[1.0], [2.0]]}, {"a": [[1.0]]}, 1, Change(0.0, "", None)),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, 1, Change(form="a is (2,), and was (1,)")),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, 2, Change(0.0, "", None)),
        ({"a": [1.0]}, {"a": [[1.0]]}, 1, Change(form="a is (1, 1), and was (1,)")),
        ({"a": [1.0, NAN]}, {"a": [1.0, 2.0]}, 1, Change(math.inf, "a", None)),
        ({"a": [1.0, NAN]}, {"a": [1.0, NAN]}, 1, Change(0.0, "", None)),
        ({"a": []}, {"a": []}, 1, Change(0.0, "", None)),
        ({"output": [[1.0, 2.0], [4.0, 3.0]]}, {"output": [[2.0, 1.0], [4.0, 3.0]]}, 1, Change(0.25, "output", 50.0)),
        ({"output": [[1.0], [4.0]]}, {"output": [[2.0], [4.0]]}, 1, Change(0.25, "output", None)),
        ({"output": [1.0, 4.0]}, {"output": [1.0, 4.0]}, 1, Change(0.0, "", None)),
    ],
)
def test_the_change_of_a_result_is_a_share_of_its_largest_number(
    before: dict[str, Any], after: dict[str, Any], rows: int, change: Change
) -> None:
    made = [{name: torch.tensor(numbers) for name, numbers in of.items()} for of in (before, after)]
    assert change_of(*made, rows) == change


def test_complex_results_differ_by_both_parts_and_whole_numbers_have_no_agreement() -> None:
    one = torch.tensor([1 + 4j])
    assert change_of({"a": one}, {"a": one.conj().resolve_conj()}) == Change(2.0, "a", None)
    assert change_of({"output": IDS}, {"output": IDS}) == Change(0.0, "", None)


def row(**facts: Any) -> TrialRow:
    nothing = dict.fromkeys("gain low high peak change agreement first paid_back".split())
    usual = {"change_of": "compile", "verdict": "gains", "begins": "head", "why": "", "code": ""}
    return TrialRow(**{**usual, **nothing, **facts})


def test_a_trial_is_told_with_what_it_measured() -> None:
    gain: dict[str, Any] = {"gain": 1.5, "low": 1.25, "high": 1.75}
    assert told(row(why="it raises")) == "it raises"
    assert told(row(**gain)) == "1.50 [1.25, 1.75] times as fast"
    assert told(row(**gain, why="small")) == "1.50 [1.25, 1.75] times as fast"
    assert told(row(**gain, why="it differs", verdict=REFUSED)) == "it differs; 1.50 [1.25, 1.75] times as fast"
    whole = row(**gain, peak=2048, change=0.01234, agreement=99.5, first=12.0, paid_back=1000)
    assert told(whole) == (
        "1.50 [1.25, 1.75] times as fast; peak 2 KiB; changes by 0.01, from head on; argmax 99.5 % equal; first step "
        "12 s, paid back after 1,000"
    )
    assert told(row(**gain, change=0.5, paid_back=1, first=1.0)).endswith("times as fast; changes by 0.5, from head on")


def test_a_call_that_keeps_more_than_half_is_left_to_those_in_it_and_a_tie_is_not() -> None:
    half = [("a", 10, 4.0), ("a.up", 2, 1.0), ("b", 10, 1.0)]
    assert worth_most(half) == [("b", 10, 1.0), ("a", 10, 4.0)]
    more = [("a", 11, 4.0), ("a.up", 2, 1.0), ("b", 10, 1.0)]
    assert worth_most(more) == [("b", 10, 1.0), ("a.up", 2, 1.0)]
    assert worth_most([("a", 0, 1.0)]) == []
