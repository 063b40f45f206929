"""Loops with one mistake: its cause is named, and the loop without it, and its neighbours, have no warning.

``make test`` has one in three of each file, ``make sweep`` all of them, and ``make bench-learn`` more lengths.
"""

from __future__ import annotations

import pytest

from support.loops import cases_of, verdict_on, warnings_of
from support.sweep import sampled

Caused = dict[str, tuple[str, int]]  # loop → the rule that is told, and the steps that it takes

ARRIVALS: Caused = {
    "the_mean_of_actions_times_the_mean_of_rewards": ("rewards alike", 25),
    "a_group_of_one_answer": ("rewards alike", 25),
    "one_reward_for_a_batch": ("rewards alike", 25),
    "advantages_of_all_with_all": ("loss input", 25),
    "a_focus_on_what_is_easy": ("wrong sign", 100),
    "weights_of_examples_after_the_mean": ("loss input", 25),
    "a_mask_of_gaps_after_the_mean": ("loss input", 25),
    "chance_is_what_is_rewarded": ("term outweighed", 25),
    "waves_along_the_batch": ("batch mixed", 40),
    "no_waves_at_all": ("order unknown", 40),
    "convolutions_that_look_ahead": ("sees ahead", 25),
    "a_question_that_is_not_read": ("input ignored", 60),
    "last_states_that_are_viewed": ("batch mixed", 40),
    "pixels_beside_a_noise": ("inputs not normalised", 60),
    "weights_on_a_grid_after_each_step": ("set back", 30),
    "a_copy_that_draws_back": ("set back", 40),
    "a_warm_up_that_counts_epochs": ("schedule too slow", 110),
    "pairs_that_stand_elsewhere": ("targets of others", 30),
    "a_silent_voice": ("loss not finite", 40),
    "boxes_that_meet_no_anchor": ("loss not finite", 10),
    "a_density_that_dies": ("zero gradients", 40),
}
WIDE: Caused = {
    "clips_before_the_backward": ("clipped too early", 30),
    "clips_behind_the_step": ("clipped too late", 30),
    "clips_another_net": ("clipped too early", 30),
    "a_teacher_whose_statistics_stay": ("copy stays", 30),
    "a_target_net_that_stays": ("copy stays", 110),
    "the_noisy_input_for_the_target": ("targets are inputs", 30),
    "a_decoder_that_is_given_its_target": ("targets are inputs", 30),
    "codes_that_are_not_shifted": ("targets are inputs", 12),
    "padding_in_the_loss": ("padding counts", 30),
    "the_right_answer_is_masked": ("answer masked", 30),
    "actions_that_are_allowed_are_masked": ("answer masked", 30),
    "vectors_normalised_over_the_batch": ("norm misplaced", 30),
    "states_that_are_viewed": ("viewed for transposed", 30),
    "the_first_state_for_the_last": ("zero gradients", 60),
    "a_module_that_is_told_to_freeze": ("freezes nothing", 20),
    "a_slip_of_the_pen": ("freezes nothing", 20),
    "a_schedule_of_an_optimizer_of_before": ("schedule of others", 20),
    "a_rate_that_is_set_beside": ("rate set beside", 20),
    "an_adapter_times_nothing": ("zero gradients", 60),
    "a_code_that_is_rounded": ("zero gradients", 60),
    "a_term_of_a_frozen_encoder_under_no_grad": ("idle term", 40),
}
CLASSES: Caused = {
    "a_term_in_other_units": ("term outweighed", 110),
    "pos_weight_upside_down": ("weights upturned", 30),
    "a_blank_that_is_a_letter": ("blank label", 12),
    "outputs_shorter_than_the_labels": ("outputs too short", 12),
    "a_class_that_is_left_out": ("targets ignored", 30),
    "one_hot_along_the_wrong_axis": ("loss input", 30),
    "a_softmax_over_the_queries": ("softmax misplaced", 30),
    "shares_of_a_mixture_over_the_examples": ("softmax misplaced", 30),
    "similarity_with_itself_left_in": ("own pair", 30),
    "a_temperature_of_ten": ("logits bounded", 60),
    "a_log_variance_read_as_deviation": ("deviation misread", 30),
    "a_target_with_gradient": ("target learns", 30),
    "a_distance_of_all_charged_to_each": ("term outweighed", 30),
    "heads_that_end_in_relu": ("targets out of reach", 30),
    "an_actor_that_is_lowered": ("wrong sign", 40),
    "a_branch_whose_result_is_dropped": ("gradient cut", 60),
    "a_schedule_in_batches": ("rate spent early", 300),
}
AMOUNTS: Caused = {
    "a_line_that_goes_on_below_zero": ("steps uphill", 68),
    "an_optimizer_that_plans_too_few_steps": ("steps uphill", 110),
    "a_schedule_in_place_of_the_step": ("no step", 10),
    "an_error_averaged_beside_a_code_summed": ("term outweighed", 110),
    "squares_averaged_beside_a_code_summed": ("term outweighed", 120),
    "an_entropy_averaged_beside_a_code_summed": ("term outweighed", 120),
    "a_volume_that_is_subtracted": ("wrong sign", 30),
    "a_volume_of_the_way_back_that_is_subtracted": ("wrong sign", 30),
    "shares_for_logits_of_ctc": ("loss input", 60),
    "logits_behind_a_relu": ("logits bounded", 100),
    "neighbours_multiplied_by_their_number": ("inputs not normalised", 30),
    "noise_that_drowns": ("inputs not normalised", 60),
    "a_copy_of_a_part_that_stays": ("copy stays", 110),
    "an_advantage_that_draws_values_along": ("advantage learns", 60),
}
FILES = {"learn_arrivals": ARRIVALS, "learn_wide": WIDE, "learn_classes": CLASSES, "learn_amounts": AMOUNTS}
EVERY = 3
STEPS = 60  # of a neighbour


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file, caused in FILES.items() for name in sampled(caused, EVERY)]
)
def test_the_cause_is_named_and_the_loop_without_it_has_no_warning(file: str, name: str) -> None:
    (rule, steps), case = FILES[file][name], cases_of(file)[name]
    wrong, right = verdict_on(case, True, steps), verdict_on(case, False, steps)

    assert (wrong.rule, warnings_of(right)) == (rule, [])


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (file, name)
        for file in FILES
        for name in sampled([name for name, case in cases_of(file).items() if not case.rules], EVERY)
    ],
)
def test_neighbours_of_these_mistakes_have_no_warning(file: str, name: str) -> None:
    assert warnings_of(verdict_on(cases_of(file)[name], False, STEPS)) == []
