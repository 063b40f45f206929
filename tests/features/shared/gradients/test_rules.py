"""What is said of the gradients of a step, from records alone: each rule at its threshold and just above."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fxdebug.data.values import Stats
from fxdebug.features.shared.gradients.rules import Limits, findings_of, structurally_zero
from fxdebug.features.shared.records.gradients import (
    BadBackward,
    GradientRecord,
    GradientStop,
    ParameterGradient,
    Reach,
    Recomputed,
    ResultGradient,
    TensorGradient,
)

LIMITS = Limits()


def gradient(rms: float = 1.0, count: int = 100, tiny: int = 0, dtype: str = "float16") -> TensorGradient:
    return TensorGradient(rms * count**0.5, Stats(count, 0.0, rms, -rms, rms, rms), tiny, dtype)


def parameter(
    name: str, found: TensorGradient | None = None, reach: Reach = "trained", **more: Any
) -> ParameterGradient:
    return ParameterGradient(
        name, name.rpartition(".")[0], (10, 10), more.pop("dtype", "float16"), reach, 1.0, found, **more
    )


def record(*parameters: ParameterGradient, **more: Any) -> GradientRecord:
    return GradientRecord(more.pop("loss", 1.0), more.pop("results", ()), parameters, **more)


def said(made: GradientRecord) -> list[tuple[str, str, str, object]]:
    return [(one.severity, one.rule, one.what, one.measured) for one in findings_of(made, LIMITS)]


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    assert said(record()) == said(record(loss=None)) == []
    assert said(record(loss=math.inf)) == [
        ("error", "loss not finite", "the loss is inf: every gradient behind it is without meaning", math.inf)
    ]


@pytest.mark.parametrize(
    ("more", "severity", "what", "advice"),
    [
        ({"nan": 2}, "error", "makes 2 NaN elements from finite gradients (LogBackward0)", "Keep its input away"),
        ({"inf": 3}, "error", "makes 3 infinite elements from finite gradients (LogBackward0)", "Keep its input away"),
        (
            {"nan": 2, "inf": 3, "held": 4},
            "warning",
            "makes 2 NaN and 3 infinite elements from finite gradients (LogBackward0): the forward gave it 4 NaN",
            "check(model, inputs) names the operation",
        ),
        (
            {"nan": 2, "of_zero": True},
            "error",
            "makes 2 NaN elements from finite gradients (LogBackward0): the gradients of these elements are 0, and 0 × "
            "an infinite derivative is NaN",
            "Where what follows leaves them out",
        ),
        (
            {"nan": 2, "of_zero": True, "held_inf": 1},
            "error",
            "makes 2 NaN elements from finite gradients (LogBackward0): the gradients of these elements are 0, and 0 × "
            "an Inf of the forward is NaN",
            "Where what follows leaves them out",
        ),
        (
            {"inf": 2, "of_zero": True},
            "error",
            "makes 2 infinite elements from finite gradients (LogBackward0)",
            "Keep its input away",
        ),
    ],
)
def test_a_backward_that_is_not_finite_says_why(more: dict[str, Any], severity: str, what: str, advice: str) -> None:
    bad = BadBackward("head", 1, "Head", "log", "LogBackward0", "m.py:3", **{"nan": 0, "inf": 0} | more)
    (one,) = findings_of(record(bad=bad), LIMITS)
    assert (one.severity, one.rule, one.call, one.source) == (severity, "backward not finite", "head#1", "m.py:3")
    assert one.what == f"the backward of log {what}" and one.advice.startswith(advice)
    assert one.measured == bad.nan + bad.inf


def test_gradients_underflow_where_more_than_five_percent_of_all_elements_are_too_small() -> None:
    at = [parameter("a.w", gradient(tiny=10)), parameter("b.w", gradient(tiny=0))]
    assert said(record(*at)) == []
    above = [
        *at,
        parameter("c.w", gradient(tiny=20)),
        parameter("d.w", gradient(tiny=5)),
        parameter("e.w", gradient(0, 0)),
    ]
    (one,) = findings_of(record(*above), LIMITS)
    assert (one.severity, one.rule, one.call, one.unit) == ("warning", "gradient underflow", "c#0", "%")
    assert one.measured == 8.75 and one.others == ("a.w",)
    assert one.what == (
        "9 % of all elements of gradients are below the smallest normal number of their dtype; of c.w (float16) 20 %"
    )


def test_a_gradient_is_zero_by_structure_below_ten_roundings_of_the_largest_of_its_module() -> None:
    at = 10 * 2.0**-10
    of_one = [("a.largest", 1.0), ("a.at", at), ("a.below", at * 0.99), ("b.alone", 1e-9), ("c.infinite", math.inf)]
    kinds = [parameter(name, gradient(rms)) for name, rms in of_one]
    kinds += [parameter("b.none"), parameter("a.whole", gradient(at / 2), dtype="int8")]
    assert structurally_zero(kinds, LIMITS) == {"a.below"}


def test_what_the_backward_runs_again_otherwise_is_named() -> None:
    first, second = Recomputed("a.drop", "Dropout", "a"), Recomputed("b.drop", "Dropout", "b.drop")
    text = "draws other random numbers than in the forward"
    end = ": the gradients are not those of the loss"
    assert said(record(recomputed=(first, second))) == [
        (
            "error",
            "recomputed otherwise",
            f"in the backward, as a is computed again, a.drop (Dropout) {text}; so do 1 more{end}",
            2.0,
        )
    ]
    assert said(record(recomputed=(second,)))[0][2] == f"in the backward b.drop (Dropout) {text}{end}"
    root = Recomputed("", "Net", "")
    (one,) = findings_of(record(moved_again=(root, first)), LIMITS)
    assert (one.severity, one.call, one.measured, one.others) == ("advice", "#0", 2.0, ("a.drop#0",))
    assert one.what == (
        "in the backward, computed again, the model (Net) moves its running statistics once more; so do 1 more: in "
        "evaluation the model returns something else than one that is not computed again"
    )


def sloped(per_layer: float, layers: int = 8) -> list[tuple[str, str, str, object]]:
    results = [
        ResultGradient(i, f"layers.{i}", 0, "Block", 0, "", (2, 4), gradient(10 ** (per_layer * i)))
        for i in range(layers)
    ]
    return said(record(results=tuple(results)))


def test_gradients_vanish_or_explode_by_their_slope_over_all_layers() -> None:
    assert sloped(0.29, 20) == sloped(-0.29, 20) == sloped(0.5, 6) == []
    what = "gradients {} by 10^0.50 in each of 8 layers on their way back: from {} at layers.7 to 1 at layers.0"
    what += " (root mean squares)"
    assert sloped(0.5) == [("warning", "vanishing", what.format("shrink", "3.2e+03"), pytest.approx(0.5))]
    assert sloped(-0.5) == [("warning", "exploding", what.format("grow", "0.00032"), pytest.approx(0.5))]
    assert [one[:2] for one in (*sloped(0.61), *sloped(-0.61))] == [("error", "vanishing"), ("error", "exploding")]
    assert [one[:2] for one in (*sloped(0.59), *sloped(-0.59))] == [("warning", "vanishing"), ("warning", "exploding")]


def without(*parameters: ParameterGradient, **more: Any) -> list[tuple[str, str, str]]:
    found = findings_of(record(parameter("head.w", gradient()), *parameters, **more), LIMITS)
    return [(one.severity, one.rule, one.what) for one in found if one.rule != "no gradient"]


def test_what_does_not_learn_is_told_by_the_largest_part_that_shares_the_reason() -> None:
    frozen = [parameter(f"encoder.{i}.{name}", reach="frozen") for i in range(5) for name in ("w", "b")]
    why = "do not ask for gradients (requires_grad is False)"
    assert without(*frozen) == [("advice", "frozen", f"10 parameters of encoder (90.9 % of all elements) {why}")]
    parts = [*frozen[:8], parameter("encoder.4.w", gradient()), frozen[9]]
    paths = "encoder.0, encoder.1, encoder.2, … 5 in all"
    assert without(*parts) == [("advice", "frozen", f"9 parameters of {paths} (81.8 % of all elements) {why}")]
    assert "frozen" not in [one[1] for one in said(record(*frozen))]  # nothing learns: another rule


def test_experts_that_others_stand_beside_may_be_routed() -> None:
    experts = [parameter("experts.0.w", gradient()), parameter("experts.1.w", reach="not called")]
    (one,) = findings_of(record(*experts), LIMITS)
    assert one.rule == "not called" and one.advice.startswith("Experts that a router did not choose are no fault")
    (one,) = findings_of(record(experts[0], parameter("spare.w", reach="not called")), LIMITS)
    assert one.advice == "Remove the modules, or call them."


def test_where_gradients_stop_is_named_with_its_line_and_a_checkpoint_is_a_warning() -> None:
    stop = GradientStop("encoder", 0, "detach", "m.py:7", False, ("encoder.a", "encoder.b"))
    behind = [parameter(name, reach="not reached") for name in (*stop.parameters, "other.w")]
    stopped, other = without(*behind, stops=(stop,))
    why = "got no gradient although their modules ran: "
    where = "it stops at detach in encoder"
    assert stopped == ("advice", "not reached", f"2 parameters of encoder (50 % of all elements) {why}{where}")
    assert other[2].startswith(f"1 parameter of other (25 % of all elements) {why}")
    cut = without(*behind, stops=(stop,), checkpointed=("encoder", "other"))
    assert [one[0] for one in cut] == ["warning", "warning"] and all("none of whose inputs" in one[2] for one in cut)
