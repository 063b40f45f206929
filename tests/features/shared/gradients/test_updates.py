"""What is said of a step of an optimizer, from records alone: each rule at its threshold, in a training and alone."""

from __future__ import annotations

from typing import Any

import pytest

from fxdebug.data.values import Stats
from fxdebug.features.shared.gradients.updates import (
    Progress,
    UpdateLimits,
    find_no_gradient,
    find_unregistered,
    find_updates,
)
from fxdebug.features.shared.records.gradients import (
    Cancelled,
    GradientRecord,
    GradientStop,
    ParameterGradient,
    ResultGradient,
    TensorGradient,
    Unregistered,
)

LIMITS = UpdateLimits(most=0.1, least=1e-5)
FLAT = Progress(30, "flat", tuple(range(1, 31)), (0.1,) * 30)


def gradient(norm: float = 1.0) -> TensorGradient:
    return TensorGradient(norm, Stats(4, 0.0, norm, 0.0, norm, norm), 0, "float32")


def parameter(name: str, update: float | None = 0.01, norm: float = 1.0, **more: Any) -> ParameterGradient:
    shape, dtype = more.pop("shape", (2, 2)), more.pop("dtype", "float32")
    return ParameterGradient(
        name, name.rpartition(".")[0], shape, dtype, "trained", 1.0, gradient(norm), update, **{"rate": 0.1} | more
    )


def said(*parameters: ParameterGradient, progress: Progress | None = None, **more: Any) -> list[tuple[str, str, str]]:
    record = GradientRecord(more.pop("loss", 1.0), more.pop("results", ()), parameters, optimizer="SGD", **more)
    found = find_updates(record, (), LIMITS, progress)
    return [(one.severity, one.rule, one.what) for one in found]


def schedule(high: int, low: int, rate: float, steps: int = 0) -> Progress:
    """A training whose rate is 1 for some steps, and another one after them."""
    return Progress(high + low, None, tuple(range(high + low)), (1.0,) * high + (rate,) * low)


@pytest.mark.parametrize(
    ("progress", "fallen", "is_spent", "is_warming_up"),
    [
        (Progress(0, None), None, False, False),
        (Progress(2, None, (0, 1), (0.0, 0.0)), None, False, False),
        (schedule(5, 5, 0.11), None, False, False),
        (schedule(5, 5, 0.1), (5, 1.0, 0.1), False, False),
        (schedule(40, 20, 0.01), (40, 1.0, 0.01), False, False),
        (schedule(40, 20, 0.009), (40, 1.0, 0.009), True, False),
        (schedule(40, 19, 0.009), (40, 1.0, 0.009), False, False),
        (schedule(70, 30, 0.009), (70, 1.0, 0.009), False, False),
        (schedule(69, 31, 0.009), (69, 1.0, 0.009), True, False),
        (Progress(3, None, (0, 1, 2), (0.1, 0.2, 0.3)), None, False, True),
        (Progress(3, None, (0, 1, 2), (0.3, 0.2, 0.3)), None, False, False),
    ],
)
def test_a_schedule_is_known_by_its_rates(progress: Progress, fallen: Any, is_spent: bool, is_warming_up: bool) -> None:
    assert (progress.fallen(), progress.is_spent, progress.is_warming_up) == (fallen, is_spent, is_warming_up)


def test_updates_between_the_limits_are_usual() -> None:
    assert said(parameter("a.w", 0.1), parameter("b.w", 1e-5), parameter("c.b", 5.0, shape=(2,))) == []


def test_updates_that_are_too_large_are_a_warning_where_the_median_is() -> None:
    what = "a step of SGD changes b.w by 20 % of its norm; {} matrices have an update too large"
    one = [parameter("a.w", 0.01), parameter("b.w", 0.2)]
    assert said(*one, parameter("c.w", 0.1)) == [("advice", "update too large", what.format("1 of 3"))]
    assert said(*one, parameter("c.w", 0.11)) == [("warning", "update too large", what.format("2 of 3"))]
    falling = said(*one, parameter("c.w", 0.11), progress=Progress(9, "falling"))
    assert falling == [("advice", "update too large", f"{what.format('2 of 3')}; the loss falls nevertheless")]


def test_updates_that_are_too_small_are_judged_by_the_course_of_the_training() -> None:
    tiny = [parameter("a.w", 2e-6), parameter("b.w", 1e-6), parameter("c.w", 0.01)]
    what = "a step of SGD changes b.w by 0.0001 % of its norm; 2 of 3 matrices have an update too small"

    def of(progress: Progress | None, *parameters: ParameterGradient) -> list[tuple[str, str, str]]:
        return said(*(parameters or tiny), progress=progress)

    assert of(None) == [("advice", "update too small", what)]
    assert of(Progress(9, "falling")) == of(Progress(3, None, (0, 1), (0.1, 0.2))) == []
    assert of(Progress(9, "rising")) == [("advice", "update too small", f"{what}, and the loss rises")]
    flat = f"{what}; the loss stayed where it was in 30 steps"
    assert of(FLAT) == [("warning", "update too small", flat)]
    assert of(FLAT, *tiny, parameter("d.w"))[0][0] == "advice"
    fell = f"{what}; the learning rate fell from 1 to 0.005, below a tenth since step 40"
    assert of(schedule(40, 20, 0.005)) == [("warning", "update too small", fell)]
    assert of(schedule(40, 19, 0.005)) == [("advice", "update too small", fell)]


def test_parameters_that_a_step_leaves_as_they_were() -> None:
    stuck = [parameter("a.w", 0.0), parameter("b.w", 0.0)]
    what = "a step of SGD leaves a.w, b.w exactly as they were, although gradients arrive"
    assert said(*stuck) == [("advice", "no update", what)]
    half = [parameter(name, 0.0, dtype="float16") for name in ("a.w", "b.w")]
    rounds = f"{what}; float16 rounds a change of less than 1/2048 of a number away"
    assert said(*half) == [("warning", "no update", rounds)]
    assert said(*half, parameter("c.w"), parameter("d.w")) == [("advice", "no update", rounds)]
    fell = f"{what}; the learning rate fell from 1 to 0.005, below a tenth since step 40"
    assert said(*stuck, progress=schedule(40, 20, 0.005)) == [("warning", "no update", fell)]
    assert said(*stuck, progress=schedule(40, 9, 0.005))[0][0] == "advice"
    still = [parameter("a.w", 0.0, rate=0), parameter("b.w", 0.0, rate=0)]
    zero = "the learning rate of a.w, b.w is 0: they do not change"
    assert said(*still) == said(*still, progress=Progress(19, None, (), (0.1,) * 19)) == [("advice", "no update", zero)]
    assert said(*still, progress=FLAT) == [("warning", "no update", zero)]
    assert said(*still, parameter("c.w", 0.0), progress=FLAT)[0][0] == "advice"
    since = "the learning rate of a.w, b.w is 0 since step 40 (it was 1): they do not change"
    assert said(*still, progress=schedule(40, 20, 0.0)) == [("warning", "no update", since)]
    assert said(*still, progress=schedule(40, 19, 0.0)) == [("advice", "no update", since)]


def test_gradients_of_exactly_zero_are_explained_by_what_is_known() -> None:
    zero, fine = [parameter(f"{name}.w", norm=0.0) for name in "abcd"], parameter("e.w")
    what = "no gradient reaches a.w, b.w, c.w and 1 more ({} of all elements): it is exactly 0"
    all_of, some = what.format("100 %"), what.format("80 %")
    assert said(*zero) == [("warning", "zero gradient", all_of)]
    assert said(*zero, fine) == [("advice", "zero gradient", some)]
    assert said(*zero, loss=0.0) == [("advice", "zero gradient", f"{all_of}; the loss is 0, too")]
    names = tuple(one.name for one in zero)
    flat = GradientStop("", 0, "round", None, False, names)
    through = f"{some}, as it comes back through round, whose derivative is 0 everywhere"
    assert said(*zero, fine, flat=(flat,)) == [("warning", "zero gradient", through)]
    far, near = (Cancelled(path, 0, "mul", None, ("sub", "add"), names) for path in ("far", "near"))
    cancel = f"{some}, as the gradients of sub and add cancel where the result of mul in near is used"
    assert said(*zero, fine, cancelled=(far, near)) == [("warning", "zero gradient", cancel)]
    silent = ResultGradient(0, "act", 0, "ReLU", None, "", (2,), gradient(0.0), silent=True)
    zeros = f"{some}; act (ReLU) returned only zeros"
    assert said(*zero, fine, results=(silent,)) == [("warning", "zero gradient", zeros)]
    few = [zero[0], *(parameter(f"{name}.w") for name in "fghijklmno")]
    assert [one[0] for one in said(*few, results=(silent,))] == ["advice"]  # a tenth of all elements, or more
    assert [one[0] for one in said(*few[:10], results=(silent,))] == ["warning"]


def test_gradients_that_are_gone_when_the_optimizer_steps() -> None:
    zero = [parameter(f"{name}.w", norm=0.0) for name in "abcd"]
    arrived = [ResultGradient(i, name, 0, "Linear", None, "", (2,), gradient()) for i, name in enumerate("abc")]
    gone = "gradients reached what the modules returned, and no parameter has one when the optimizer steps"
    assert said(*zero, results=tuple(arrived)) == [("warning", "zero gradient", gone)]
    assert said(*zero, results=tuple(arrived[:2]))[0][2].startswith("no gradient reaches a.w, b.w, c.w and 1 more")


def test_what_no_optimizer_has() -> None:
    left = [parameter("a.w", None, optimised=False), parameter("b.w")]
    what = "a.w (50 % of all elements) get gradients and are in no group of the optimizer: they do not learn"
    assert said(*left) == [("warning", "not optimised", what)]
    assert said(*left, progress=FLAT) == []
    other = "SGD has none of the model's parameters: its steps change nothing here"
    assert said(*left, foreign=True) == [("error", "other optimizer", other)]


@pytest.mark.parametrize(
    ("found", "what", "advice"),
    [
        (
            [Unregistered("hidden[0]", "Linear", 4), Unregistered("hidden[1]", "Linear", 4)],
            "hidden[0], hidden[1] (Linear) get gradients and are not registered: parameters(), state_dict() and to() "
            "do not see them",
            "Hold modules as attributes, in nn.ModuleList or in nn.ModuleDict. Then make the optimizer.",
        ),
        (
            [Unregistered("scale", "", 1)],
            "scale (Tensor) gets gradients and is not registered: parameters(), state_dict() and to() do not see it",
            "Make the tensor an nn.Parameter, or put it in an nn.ParameterList. Then make the optimizer.",
        ),
        (
            [Unregistered("<Linear>", "Linear", 4, new=True)],
            "<Linear> gets gradients and is not registered: parameters(), state_dict() and to() do not see it; the "
            "forward makes a new one",
            "Make layers in __init__, not in the forward. Then make the optimizer.",
        ),
    ],
)
def test_what_is_not_registered_says_what_to_do(found: list[Unregistered], what: str, advice: str) -> None:
    (one,) = find_unregistered(GradientRecord(1.0, (), (), unregistered=tuple(found)))
    assert (one.severity, one.what, one.advice) == ("error", what, advice)
    assert one.others == tuple([each.path for each in found[1:]])


def test_a_loss_behind_which_nothing_has_a_gradient() -> None:
    alone = ParameterGradient("a.w", "a", (2, 2), "float32", "not reached", 1.0, None)
    (one,) = find_no_gradient(GradientRecord(1.0, (), (alone,)))
    assert (one.severity, one.call) == ("error", "#0")
    assert one.what == "no gradient reaches any parameter: the loss does not depend on them"
    stop = GradientStop("head", 0, "item", "m.py:3", False, ("a.w",))
    (one,) = find_no_gradient(GradientRecord(1.0, (), (alone,), stops=(stop,)))
    assert (one.what, one.source) == ("no gradient reaches any parameter: gradients stop at item in head", "m.py:3")
    assert not list(find_no_gradient(GradientRecord(1.0, (), (alone, parameter("b.w")))))
    assert not list(find_no_gradient(GradientRecord(1.0, (), ())))
