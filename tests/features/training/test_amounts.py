"""What counts too much or the wrong way in a loss is named, and neighbours of these mistakes have no warning."""

from __future__ import annotations

import pytest

from fxdebug.features.training.verdict.judge import Verdict
from support.loops import cases_of, verdict_on, warnings_of

CASES = cases_of("learn_amounts")
STEPS = {
    "a_line_that_goes_on_below_zero": 68,
    "an_optimizer_that_plans_too_few_steps": 110,
    "a_schedule_in_place_of_the_step": 10,
    "an_error_averaged_beside_a_code_summed": 110,
    "an_entropy_averaged_beside_a_code_summed": 120,
    "squares_averaged_beside_a_code_summed": 120,
    "a_volume_that_is_subtracted": 30,
    "a_volume_of_the_way_back_that_is_subtracted": 30,
    "shares_for_logits_of_ctc": 60,
    "logits_behind_a_relu": 100,
    "neighbours_multiplied_by_their_number": 30,
    "noise_that_drowns": 60,
    "a_copy_of_a_part_that_stays": 110,
    "an_advantage_that_draws_values_along": 60,
}


def told_by(verdict: Verdict) -> list[str]:
    """Return the rule of the verdict, and those of findings that are more than advice."""
    return [verdict.rule, *warnings_of(verdict)]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rules])
def test_the_cause_is_named_and_the_loop_without_it_has_no_warning(name: str) -> None:
    wrong, right = (verdict_on(CASES[name], bad, STEPS.get(name, 60)) for bad in (True, False))

    assert (wrong.rule in CASES[name].rules, told_by(right)) == (True, [""]), (wrong, right)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.rules])
def test_loops_that_only_look_like_these_have_no_warning(name: str) -> None:
    assert told_by(verdict_on(CASES[name], False, STEPS.get(name, 60))) == [""]
