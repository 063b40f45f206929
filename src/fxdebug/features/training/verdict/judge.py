"""The verdict on a training: the first rule that holds, else how the loss went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from fxdebug.brief import brief
from fxdebug.data.findings import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.verdict import (
    of_beside,
    of_data,
    of_loop,
    of_model,
    of_numbers,
    of_odd,
    of_pairs,
    of_parts,
    of_rates,
)
from fxdebug.features.training.verdict.limits import Limits
from fxdebug.features.training.verdict.progress import FLAT, Progress, is_game
from fxdebug.features.training.verdict.seen import Seen, found, g, middle, seen_of

CAUSES = (  # of incidents: what the loop, and what the loss is; numbers that are not finite follow from others
    "other optimizer", "not registered", "no gradient", "no step", "steps skipped", "not optimised", "loss input",
    "maximizes",
)  # fmt: skip
GATED = ("other optimizer", "not optimised")  # told once it is sure: copies of weights, optimizers that come later
TOLD = (
    "gradient cut", "targets unrelated", "same batch", "answers alike", "silent activation", "statistics stay",
    "targets grow", "never used", "wrong sign", "idle term", "copy stays", "padding counts", "schedule too fast",
    "no end", "warms up again", "clipped too early", "order unknown",
)  # fmt: skip  # first, although they are advice
PASSES = 3  # through the data
AT_IT = 0.985  # of the constant answer
PART = 0.05  # of the elements: of a run that learns, too, it is told first that so many never do
LARGE_ENOUGH = 3e-4  # update over weight
EXPLAINED = "steps skipped"  # the incident names the operation


@brief
@dataclass(frozen=True)
class Verdict:
    """Whether a training learns, in one sentence, and why not. ``str`` is the sentence.

    ``state`` is ``learns``, ``fault`` or ``cannot tell``. ``rule`` is the one that named the cause, else empty.
    ``findings`` are all that was found, the cause first. ``first`` and ``last`` are losses, ``constant`` that of the
    best answer that is always the same, ``None`` where the loss is not known.
    """

    state: str
    sentence: str
    rule: str = ""
    findings: tuple[Finding, ...] = ()
    first: float | None = None
    last: float | None = None
    constant: float | None = None
    steps: int = 0

    def __str__(self) -> str:
        return self.sentence


def judge(record: TrainingRecord, incidents: Sequence[Finding] = (), limits: Limits | None = None) -> Verdict:
    """Return the verdict on a training; ``incidents`` are the findings that its incidents made."""
    seen = seen_of(record, limits or Limits())
    listed = [_as_tried(one, record) for one in _causes(seen, incidents)]
    listed.sort(key=_rank)  # stable: causes stay in their order
    progress = seen.progress
    numbers = (progress.first, progress.last, progress.constant, progress.steps)
    first = listed[0] if listed else None
    if first is not None and first.severity != ADVICE:
        return Verdict("fault", _sentence(first), first.rule, tuple(listed), *numbers)
    told = next(
        (one for one in listed if one.rule in TOLD and _is_told(one, seen)),
        None,
    )
    if told is not None:
        state = (
            "learns"
            if progress.state == "falling" and told.rule not in ("answers alike", "targets unrelated", "wrong sign")
            else "cannot tell"
        )
        return Verdict(state, _sentence(told), told.rule, tuple(listed), *numbers)
    state, sentence = _course(seen)
    return Verdict(state, sentence, "", tuple(listed), *numbers)


def _as_tried(one: Finding, record: TrainingRecord) -> Finding:
    """Return a finding with what its change did on a copy: what does not help there is no more than advice."""
    trial = next((trial for trial in reversed(record.trials) if trial.rule == one.rule), None)
    if trial is None or trial.answer == "not tried":
        return one
    told = (
        f"Tried on a copy: {trial.steps} steps with {trial.change} end at {g(trial.changed)} on {trial.batches} "
        f"batches that were kept back, as many without at {g(trial.control)}"
    )
    if trial.answer == "yes":
        return replace(one, advice=f"{one.advice} {told}.")
    return replace(one, severity=ADVICE, advice=f"{one.advice} {told}: it did not help there.")


def _rank(one: Finding) -> int:
    is_cause = one.rule in ("not optimised", "no step", "loss input") and one.severity == WARNING
    return 0 if is_cause else SEVERITIES.index(one.severity)


def _causes(seen: Seen, incidents: Sequence[Finding]) -> list[Finding]:
    """Return everything that was found, in the order in which one thing may cause another."""
    harmless = of_loop.went_on(seen)
    if harmless is not None:
        incidents = [harmless if one.rule == EXPLAINED else one for one in incidents]
    learns = seen.progress.state == "falling"
    explained = {one.rule for one in incidents} & {EXPLAINED}
    own = [one for one in of_loop.rules(seen) if one.rule not in explained]
    sure = {one.rule for one in incidents}
    own = [one for one in own if one.rule not in GATED or one.rule in sure]
    rules = {one.rule for one in own}
    is_skipped = EXPLAINED in rules | explained
    told = [one for one in incidents if one.rule not in rules and not (is_skipped and one.rule == "no step")]
    causes = sorted([one for one in told if one.rule in CAUSES], key=lambda one: CAUSES.index(one.rule))
    listed = [
        *causes,
        *own,
        *of_beside.rules(seen),
        *of_numbers.rounded(seen),
        *of_odd.rules(seen),
        *of_parts.rules(seen),
        *of_pairs.rules(seen),
        *of_data.rules(seen),
        *of_model.rules(seen),
        *of_numbers.rules(seen),
    ]
    listed += of_rates.schedules(seen)
    if not any(one.severity == ERROR for one in listed):
        is_told = any(one.severity == WARNING and one.op != "relu" for one in listed)  # the rate may be right then
        listed += [replace(one, severity=ADVICE) if is_told else one for one in of_rates.size(seen)]
    symptoms = [one for one in told if one.rule not in CAUSES]
    if learns or (seen.progress.constant is None and seen.progress.state in ("flat", "slow")):
        symptoms = [replace(one, severity=ADVICE) if one.severity == WARNING else one for one in symptoms]
    listed += symptoms
    if not any(one.severity != ADVICE for one in listed):
        unequal = _unequal(seen)  # of few rare ones draws at random show nothing
        is_told = any(one.severity != ADVICE for one in unequal)
        listed += [*unequal, *([] if is_told else _unrelated(seen)), *_alike(seen)]
    if not any(one.severity != ADVICE for one in listed):
        listed += of_beside.asked(seen)
    return [*listed, *of_rates.waiting(seen)]


def _unrelated(seen: Seen) -> list[Finding]:
    """Return that nothing computed says anything of the targets: they may be shuffled, or a plateau is long."""
    progress, unrelated = seen.progress, seen.facts.loss.unrelated
    if seen.barely_learns and progress.state in ("falling", "slow") and not seen.is_warming_up:
        return _by_heart(seen)
    if progress.state not in ("flat", "above") or progress.constant is None or seen.is_warming_up:
        return []
    if seen.facts.loss.in_batch and progress.steps >= seen.limits.plateau:
        return [_of_pairs(seen)]
    if unrelated is None:
        return []
    begin, now, rows = unrelated
    if progress.steps < seen.limits.plateau or min(begin, now) <= seen.limits.chance:
        return []
    update = 100 * (sorted(seen.updates)[len(seen.updates) // 2] if seen.updates else 0.0)
    return [
        found(
            "targets unrelated", ADVICE,
            f"after {progress.steps} steps the loss ({g(progress.last)}) is that of a constant answer "
            f"({g(progress.constant)}), "
            f"although a step changes the weights by {update:.2g} %, and nothing that the model computes says "
            "anything about "
            f"the targets ({100 * now:.0f} % of targets drawn at random fit as well, on {rows} examples)",
            "Labels are shuffled or paired with other inputs, or the task has a long plateau: look at a few pairs "
            "first.",
            measured=now, threshold=seen.limits.chance,
        )
    ]  # fmt: skip


def _by_heart(seen: Seen) -> list[Finding]:
    """Return that a loss fell a little, and only on examples that were seen before."""
    progress, end, constant = seen.progress, seen.facts.first_pass, seen.progress.constant
    usual = middle(seen.updates)
    if constant is None or usual is None or usual < LARGE_ENOUGH:
        return []
    if end < seen.limits.steps or seen.steps < PASSES * end or fmean(seen.losses[end // 2 : end]) < AT_IT * constant:
        return []
    return [
        found(
            "targets unrelated", ADVICE,
            f"in the first pass through the data, {end} steps, the loss stayed at that of a constant answer "
            f"({g(constant)}), although a step changes the weights by {100 * usual:.2g} %; since then it fell to "
            f"{g(progress.last)}, on examples that were seen before: they are learned by heart",
            "Labels are shuffled or paired with other inputs, or there is little to be learned of them: look at a few "
            "pairs, and at the loss on examples that were kept back.",
            measured=progress.last, threshold=AT_IT * constant,
        )
    ]  # fmt: skip


def _of_pairs(seen: Seen) -> Finding:
    """Return that a contrast with the others of a batch tells no pair from others."""
    progress = seen.progress
    update = 100 * (sorted(seen.updates)[len(seen.updates) // 2] if seen.updates else 0.0)
    return found(
        "targets unrelated", ADVICE,
        f"after {progress.steps} steps the loss ({g(progress.last)}) is no better than that of guessing which of a "
        f"batch belong together ({g(progress.constant)}), although a step changes the weights by {update:.2g} %",
        "The pairs may belong to others (shuffled or sorted apart), the similarity may have no temperature (of cosines "
        "0.05 to 0.5 is usual), or both sides may be cut off from the loss: look at a few pairs first.",
        measured=progress.last, threshold=progress.constant,
    )  # fmt: skip


def _unequal(seen: Seen) -> list[Finding]:
    """Return that nearly all targets are of one class, where the loss stays at that of always answering it."""
    most, progress, limits = seen.facts.loss.most, seen.progress, seen.limits
    if most is None or progress.constant is None or not limits.unequal <= most[1] < 1 or not seen.facts.alone:
        return []
    is_at_it = progress.state in ("flat", "above") and progress.last < FLAT * progress.constant
    stays = is_at_it and progress.steps >= limits.plateau
    if not stays and progress.state != "falling":
        return []
    what = (
        f"{100 * most[1]:.3g} % of the targets are {most[0]:g}: always to answer it has a loss of "
        f"{g(progress.constant)} already (now {g(progress.last)})"
    )
    return [
        found(
            "targets unequal", WARNING if stays else ADVICE, what,
            "Draw the rare ones more often (WeightedRandomSampler) or weigh their loss (weight=, pos_weight=), and "
            "look at a measure that counts each class alike.",
            measured=most[1], threshold=limits.unequal,
        )
    ]  # fmt: skip


def _alike(seen: Seen) -> list[Finding]:
    """Return that a loss falls which means nothing known, while the model answers the same to different examples."""
    since, progress, code = seen.facts.answers_alike, seen.progress, seen.facts.empty_code
    one_way = seen.facts.one_way if seen.facts.loss.attracts else None
    if one_way is not None and progress.state in ("falling", "flat"):
        return [
            found(
                "answers alike", ADVICE,
                f"the loss went from {g(progress.first)} to {g(progress.last)}, and since step {one_way} answers to "
                "different examples point one way: every term of the loss draws two answers together, both learn, and "
                "nothing keeps others apart (collapse)",
                "Detach one side (stop-gradient, a target network), or add a term that keeps answers apart: other "
                "examples as negatives, or their variance.",
            )
        ]  # fmt: skip
    if code is not None and progress.state in ("falling", "flat"):
        return [
            found(
                "answers alike", ADVICE,
                f"the loss went from {g(progress.first)} to {g(progress.last)}, and since step {code[0]} the mean and "
                f"the log-variance in its KL term are nearly 0 for all examples (KL {code[1]:.2g} nats of an example): "
                "the code says nothing of the input (posterior collapse)",
                "Weigh the KL term less: take sums or means of both terms over the same elements, raise its weight "
                "from 0 on, or leave some nats free.",
                measured=code[1],
            )
        ]  # fmt: skip
    if seen.facts.loss.both_learn and progress.state in ("falling", "flat"):
        return [
            found(
                "answers alike", ADVICE,
                f"the loss went from {g(progress.first)} to {g(progress.last)}, and all of it is how far two answers "
                "of the model are from one another, both of which learn: it is lowest where all answers are the same, "
                "so that it says nothing of what is learned",
                "Detach one side (a teacher, a target network, stop-gradient), or add a term that keeps answers apart.",
            )
        ]  # fmt: skip
    margin = seen.facts.parts.margin
    if (
        since is None
        and margin is not None
        and progress.constant is None
        and progress.state in ("falling", "flat", "slow")
    ):
        return [
            found(
                "answers alike", ADVICE,
                f"the loss went from {g(progress.first)} to {g(progress.last)}, and is made of margins that all come "
                f"to about {g(margin)} in the last looks, with hardly a difference: that is what they come to where "
                "all answers are the same, so that answers have drawn together (collapse)",
                "Lower the learning rate, take the mean over all triplets that still have a loss in place of the "
                "hardest ones, or divide answers by their norm.",
                measured=margin,
            )
        ]  # fmt: skip
    if since is None or progress.constant is not None or progress.state not in ("falling", "flat"):
        return []
    return [
        found(
            "answers alike", ADVICE,
            f"the loss went from {g(progress.first)} to {g(progress.last)}, and since step {since} the model returns "
            "the same for all examples of a batch, though they differ: nothing is learned of them",
            "Where no constant answer is meant, lower the learning rate, and look at what the loss is for answers that "
            "are all the same (of triplets: the margin).",
        )
    ]  # fmt: skip


def _is_told(one: Finding, seen: Seen) -> bool:
    is_small = bool(seen.signs) and seen.signs[0].batch < of_data.FEWEST_TARGETS
    is_of_more = seen.sign("more data") is not None  # else it may be all of the data
    everywhere = one.what.startswith("all ") and is_small and is_of_more and seen.steps >= seen.limits.steps
    if one.rule == "silent activation":  # a part of the model, for good
        return seen.facts.resting.share > of_numbers.SHARE
    if one.rule in ("gradient cut", "never used"):
        return (
            seen.progress.is_bad or seen.barely_learns or (one.severity == ADVICE and seen.facts.detached.share > PART)
        )
    if one.rule == "no end":
        return one.severity == ERROR or (one.measured or 0.0) < of_beside.RARE
    if one.rule == "copy stays":
        return seen.steps >= seen.limits.plateau
    always = (
        "targets unrelated", "answers alike", "statistics stay", "targets grow", "wrong sign", "idle term",
        "padding counts", "schedule too fast", "warms up again", "clipped too early", "order unknown",
    )  # fmt: skip
    return one.rule in always or everywhere


def _sentence(one: Finding) -> str:
    return f"{one.what}. {one.advice}" if one.advice else f"{one.what}."


def _course(seen: Seen) -> tuple[str, str]:
    """Return the state and the sentence where nothing is at fault."""
    progress: Progress = seen.progress
    known = "" if progress.constant is None else f" (a constant answer has {g(progress.constant)})"
    way = f"{g(progress.first)} → {g(progress.last)}"
    if progress.state == "none" and is_game(seen.record):
        return (
            "cannot tell",
            f"cannot tell: several optimizers take turns in {seen.steps} steps, and what one of them gains the other "
            "may lose: their losses do not say whether it learns; nothing that was measured is wrong",
        )
    if progress.state == "none":
        unseen = (
            ""
            if seen.facts.called or not seen.steps
            else f": {seen.record.model} itself was never called, only its parts"
        )
        return "cannot tell", f"cannot tell: no loss was seen in {seen.steps} steps{unseen}"
    if progress.state == "early":
        return "cannot tell", f"cannot tell yet ({progress.steps} of {seen.limits.steps:.0f} steps)"
    if progress.state == "falling":
        little = (
            " little"
            if progress.constant is not None and progress.last > seen.limits.learned * progress.constant
            else ""
        )
        return "learns", f"it learns{little}: {way}{known}"
    if seen.is_warming_up:
        planned = seen.facts.initial_rate
        share = f", {100 * seen.rates[-1] / planned:.2g} % of {g(planned)}, after {seen.steps} steps" if planned else ""
        return "cannot tell", f"cannot tell yet: the learning rate still warms up ({g(seen.rates[-1])}{share})"
    words = {
        "flat": "the loss stays where it is" if progress.constant is None else "the loss is no better than a "
        "constant answer",
        "above": "the loss falls, and is no better than a constant answer",
        "slow": "the loss lies below a constant answer and hardly falls", "rising": "the loss rises",
        "not finite": "the loss is not finite",
    }[progress.state]  # fmt: skip
    unknown = "" if progress.constant is not None else "; what a loss of this kind means is not known"
    return (
        "cannot tell",
        f"cannot tell: {words} ({way} in {progress.steps} steps){known}{unknown}; nothing that was measured is wrong",
    )
