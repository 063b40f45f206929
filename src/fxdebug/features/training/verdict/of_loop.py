"""Rules about the loop: what the optimizer has, whether gradients reach it, and whether they are its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.features.shared.records.learning import StepSigns
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.verdict.of_data import targets_grow
from fxdebug.features.training.verdict.progress import SURE, lower
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, listed, middle, path_of

FEWEST_IDLE = 5  # steps of an optimizer
FEWEST = 3  # steps of which nearly all show the same
FEWEST_CHANGES = 8  # by something else: a training that has hardly begun does not show whether they harm it
MOST = 0.9  # nearly all
SKIPS = 10
USUAL = 1e-3  # update over weight
EARLY, LARGE = 30, 0.03  # steps of the beginning, and the update over weight that may be too large


def rules(seen: Seen) -> Found:
    """Yield what is wrong with the loop, the first cause first."""
    yield from _optimizers(seen)
    yield from _outdated(seen)
    yield from _cut(seen)
    yield from _detached_state(seen)
    yield from _never_used(seen)
    yield from _idle(seen)
    yield from _idle_term(seen)
    yield from _scaler(seen)
    yield from _cleared(seen)
    yield from _carried(seen)
    yield from _clipped(seen)
    yield from _clipped_late(seen)
    yield from _uphill(seen)
    yield from _state(seen)
    yield from _still(seen)


def _optimizers(seen: Seen) -> Found:
    facts = seen.facts
    others = [one for one in facts.optimizers if not one.own]
    if others and len(others) == len(facts.optimizers) and not facts.missing.count:
        one = others[0]
        made = "it was made before they were replaced (moved by to(), loaded, made again), or from another copy"
        alike = f" (its {one.parameters} parameters have the same shapes: {made})" * (one.alike == one.parameters > 0)
        yield found(
            "other optimizer", ERROR,
            f"{one.name} has none of the model's parameters{alike}: its steps change nothing here",
            "Make the optimizer after the model is complete, from this model's parameters().", op=one.name,
        )  # fmt: skip
    missing = facts.missing
    if missing.count and seen.steps and seen.facts.optimizers and any(one.own for one in facts.optimizers):
        share = f"{100 * missing.share:.3g} % of all elements"
        if facts.anew:
            yield found(
                "not optimised", ERROR,
                f"{listed(missing)} ({share}) get gradients and are in no optimizer: since the training began "
                f"{facts.anew} of them took the place of others, of which the optimizer may still have the old ones",
                "Make layers in __init__, not in forward or in the loop; where one is replaced once, make the "
                "optimizer after it.",
                path=path_of(missing.some[0]), op=missing.some[0], others=missing.some[1:],
            )  # fmt: skip
        elif facts.stale:
            yield found(
                "not optimised", ERROR,
                f"{listed(missing)} ({share}) get gradients and are in no optimizer, which has {facts.stale} that "
                "the model no longer has: it was made before they were replaced",
                "Make the optimizer after the last change of the model.", path=path_of(missing.some[0]),
                op=missing.some[0], others=missing.some[1:],
            )  # fmt: skip
        else:
            yield found(
                "not optimised", WARNING,
                f"{listed(missing)} ({share}) get gradients and are in no optimizer that made a step: they do not "
                "learn",
                "Give them to an optimizer; where they are not to learn, requires_grad_(False) saves their gradients.",
                path=path_of(missing.some[0]), op=missing.some[0], others=missing.some[1:],
            )  # fmt: skip


def _outdated(seen: Seen) -> Found:
    paths = seen.facts.outdated
    if paths:
        named = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
        one = len(paths) == 1
        yield found(
            "outdated weights", ERROR,
            f"the forward does not use the weights of now: under autocast {named} return{'s' * one} something else "
            f"than {'its' if one else 'their'} weights make of the input; autocast keeps the casts of weights in a "
            "cache until its block ends",
            "Let autocast end before optimizer.step(), and begin anew at the next forward; or call "
            "torch.clear_autocast_cache() after the step.",
            path=paths[0], op="Linear", others=paths[1:],
        )  # fmt: skip


def _cut(seen: Seen) -> Found:
    facts = seen.facts
    if facts.cut.count and facts.cut_at and facts.backwards >= 2:
        yield found(
            "gradient cut", ERROR,
            f"no gradient ever reaches {listed(facts.cut)} ({100 * facts.cut.share:.3g} % of all elements), though "
            "their "
            f"modules run: its way is cut {facts.cut_at}",
            "Look there for detach(), .data, .item(), numpy(), no_grad() or a cast to integers"
            + ("; use_reentrant=False for checkpoints." if "reentrant" in facts.cut_at else "."),
            path=path_of(facts.cut.some[0]), op=facts.cut.some[0], others=facts.cut.some[1:],
        )  # fmt: skip
    elif facts.detached.count and facts.backwards >= 2:
        yield found(
            "gradient cut", ADVICE,
            f"no gradient ever reaches {listed(facts.detached)} ({100 * facts.detached.share:.3g} % of all elements), "
            "which an optimizer has, though their modules run: what they return is detached before the loss, or the "
            "loss does not use it",
            "Look behind them for detach(), .data, no_grad() or argmax; leave out of the optimizer what is not to "
            "learn.",
            path=path_of(facts.detached.some[0]), op=facts.detached.some[0], others=facts.detached.some[1:],
        )  # fmt: skip


def _detached_state(seen: Seen) -> Found:
    """Yield that a state is detached each time that it is handed on."""
    path, progress = seen.facts.detached_state, seen.progress
    if path is None or seen.steps < FEWEST:
        return
    constant = progress.constant
    is_done = progress.state == "falling" and (constant is None or progress.last < seen.limits.halved * constant)
    what = f"{path} is run" if path else "the model is run"
    yield found(
        "gradient cut", ADVICE if is_done else ERROR if progress.is_bad else WARNING,
        f"{what} several times for one loss, and each time it is given what it returned before without its gradient: "
        f"it cannot learn to keep anything from one call to the next (loss {g(progress.first)} → {g(progress.last)})",
        "Hand the state on as it is, and detach it only where a piece of a long sequence ends, after backward().",
        path=path,
    )  # fmt: skip


def _never_used(seen: Seen) -> Found:
    """Yield that an optimizer has modules that never ran."""
    resting = seen.facts.asleep
    if resting.count and seen.steps >= seen.limits.steps:
        yield found(
            "never used", ADVICE,
            f"{listed(resting)} ({100 * resting.share:.3g} % of all elements) are in the optimizer, and their modules "
            "never run: no gradient reaches them",
            "Is a call missing in forward()? Else leave them out.",
            path=path_of(resting.some[0]), op=resting.some[0], others=resting.some[1:],
        )  # fmt: skip


def _idle(seen: Seen) -> Found:
    facts = seen.facts
    is_one_of_several = len([one for one in facts.optimizers if one.own]) > 1
    if facts.idle_steps >= FEWEST_IDLE and is_one_of_several:
        yield found(
            "idle optimizer", ERROR,
            f"{facts.idle_of} made {facts.idle_steps} steps with {listed(facts.idle)} ({100 * facts.idle.share:.3g} % "
            "of all elements), and no gradient ever reached one of them: its steps change nothing",
            "Look for detach() or no_grad() between these parameters and the loss on which backward() is called before "
            "its step.",
            path=path_of(facts.idle.some[0]), op=facts.idle.some[0], others=facts.idle.some[1:],
        )  # fmt: skip


def _idle_term(seen: Seen) -> Found:
    both, rest = seen.facts.idle_term, seen.facts.parts.without_gradient
    if rest is not None:
        yield found(
            "idle term", ADVICE if seen.progress.state == "falling" and seen.facts.alone else WARNING,
            f"a part of the loss has no gradient: {g(rest[0])} of {g(rest[1])} on average, and it changes from step to "
            "step: it is computed, and teaches nothing",
            "Look for detach(), no_grad() or .data on the way to this term: a generator learns through the "
            "discriminator, so its score is not to be detached in the generator's own step.",
            measured=rest[0],
        )  # fmt: skip
    if both is not None and both[1].count and not seen.facts.missing.count:
        reached, changed = both
        some = listed(reached) if reached.count else "weights that are none of the model's"
        yield found(
            "idle term", WARNING,
            f"a term of the loss after which {listed(changed)} are changed depends on none of them, only on {some}: "
            "it is computed, and teaches them nothing",
            "Look for detach(), no_grad() or .data between these weights and the term: a generator learns through the "
            "discriminator, so what it made is not to be detached in its own step.",
            path=path_of(changed.some[0]), op=changed.some[0], others=changed.some[1:],
        )  # fmt: skip


def went_on(seen: Seen) -> Finding | None:
    """Return that a scaler left out steps in a row, where enough followed that it did not: its factor was too high."""
    facts, tries = seen.facts, seen.steps + seen.facts.skipped
    if not facts.skipped or _is_in_vain(seen) or seen.steps < seen.limits.steps:
        return None
    return found(
        "steps skipped", ADVICE,
        f"a GradScaler left out {facts.skipped} of {tries} steps, ten of them in a row, and went on with a smaller "
        f"factor ({g(facts.first_scale)} at first, {g(facts.last_scale)} now)",
        f"Begin with a smaller one: GradScaler(init_scale=2.0**{round(math.log2(max(facts.last_scale, 1.0)))}).",
    )  # fmt: skip


def _is_in_vain(seen: Seen) -> bool:
    """Does a scaler leave out most steps, or has its factor fallen so far that it is not what is too high?"""
    return seen.facts.skipped > (seen.steps + seen.facts.skipped) / 2 or seen.facts.last_scale < 1


def _scaler(seen: Seen) -> Found:
    facts = seen.facts
    tries = seen.steps + facts.skipped
    if facts.skipped >= SKIPS and _is_in_vain(seen):
        yield found(
            "steps skipped", ERROR,
            f"a GradScaler left out {facts.skipped} of {tries} steps, and its factor fell from "
            f"{g(facts.first_scale)} to "
            f"{g(facts.last_scale)}: gradients are not finite without it either",
            "Look for what makes NaN in the backward: fxdebug.gradients names the operation; a lower scale does not "
            "mend it.",
        )  # fmt: skip


def _cleared(seen: Seen) -> Found:
    without = [one for one in seen.signs if one.arrived and one.used == 0.0]
    if len(without) >= FEWEST and len(without) > MOST * len(seen.signs):
        yield found(
            "cleared before step", ERROR,
            f"gradients arrive (norm {g(middle([one.arrived or 0.0 for one in without]))}), and none is left at the "
            "step, in "
            f"{len(without)} of {len(seen.signs)} steps: they are cleared between backward() and step()",
            "Call zero_grad() after step(), or before the forward.",
        )  # fmt: skip
    facts = seen.facts
    if facts.after_step > MOST * seen.steps >= FEWEST and not any(one.used for one in seen.signs):
        yield found(
            "cleared before step", ERROR,
            f"backward() comes after step(), {facts.after_step} times in {seen.steps} steps, and gradients are cleared "
            "before the next step: none sees a gradient",
            "Call backward() before step(), and zero_grad() after it.",
        )  # fmt: skip
    between = [one for one in seen.signs if one.cleared]
    if len(between) >= FEWEST and len(between) > MOST * len(seen.signs) and facts.alone and not facts.nested:
        count = middle([float(one.backwards) for one in seen.signs]) or 0
        yield found(
            "cleared between", WARNING,
            f"a step has {count:.0f} backwards, and gradients are cleared before each of them: only the last one "
            "counts",
            "Call zero_grad() once for each step, after it.",
        )  # fmt: skip


def _carried(seen: Seen) -> Found:
    later = seen.signs[1:]
    carried = [one for one in later if one.carried]
    if len(carried) >= FEWEST and len(carried) > MOST * len(later) and not seen.facts.nested:
        norms = [step.norm for step in seen.record.steps if step.norm is not None]
        grown = f" (norm {g(norms[0])} → {g(norms[-1])})" if norms else ""
        yield found(
            "not cleared", ERROR,
            f"each backward adds to the gradients of all steps before: they were not cleared in {len(carried)} "
            f"steps{grown}",
            "Call optimizer.zero_grad() once for each step.",
        )  # fmt: skip


def norms_of_clipping(record: TrainingRecord) -> tuple[float, float] | None:
    """Return the norm to which gradients are cut down, and one that leaves nine of ten steps as they are."""
    share = middle(_shares(record.signs))
    norms = sorted(step.norm for step in record.steps if step.norm is not None and math.isfinite(step.norm))
    return (norms[len(norms) // 2], norms[int(0.9 * (len(norms) - 1))] / share) if norms and share else None


def _shares(signs: Sequence[StepSigns]) -> list[float]:
    """Return what is left of the gradients that arrived, by step."""
    pairs = [(one.arrived, one.used) for one in signs if _is_number(one.arrived) and _is_number(one.used)]
    return [used / arrived for arrived, used in pairs]  # type: ignore[operator]


def _clipped(seen: Seen) -> Found:
    pairs = [(one.arrived, one.used) for one in seen.signs if _is_number(one.arrived) and _is_number(one.used)]
    shares = _shares(seen.signs)
    if len(shares) < 5 or (middle(shares) or 1.0) >= seen.limits.clipped:
        return
    arrived, used = middle([a or 0.0 for a, _ in pairs]), middle([u or 0.0 for _, u in pairs])
    norms = norms_of_clipping(seen.record)
    often = 100 * sum(share < 0.99 for share in shares) / len(shares)
    learns, is_bad = seen.progress.state == "falling", seen.progress.is_bad
    update = middle(seen.updates)
    is_harmless = learns or (update or 0.0) > USUAL  # steps are as large as usual: Adam's do not depend on clipping
    severity: Severity = ADVICE if is_harmless else ERROR if is_bad else WARNING
    yield found(
        "clipped away", severity,
        f"gradients are cut down to {g(middle(shares))} of what arrives ({g(arrived)} → {g(used)} on a sample) in "
        f"{often:.0f} % of the steps; a step changes the weights by {100 * (update or 0):.2g} %",
        f"Clip at about {g(norms and norms[1])}, which leaves 9 of 10 steps as they are; with a GradScaler unscale_() "
        "first.",
        measured=middle(shares), threshold=seen.limits.clipped,
    )  # fmt: skip


def _clipped_late(seen: Seen) -> Found:
    late = seen.facts.clipped_late
    if late is not None:
        yield found(
            "clipped too late", ERROR if seen.progress.is_bad else ADVICE,
            f"gradients are scaled after the step that they are for, in {late[0]} of {len(seen.signs)} steps (to "
            f"{g(late[1])} of what the step used): clipping has no effect there",
            "Call clip_grad_norm_() between backward() and step().", measured=late[1], threshold=1.0,
        )  # fmt: skip


def _uphill(seen: Seen) -> Found:
    facts, decay = seen.facts, max([one.decay for one in seen.signs], default=0.0)
    if facts.uphill > MOST and not decay and facts.alone and not (facts.maximizes or facts.nested):
        yield found(
            "steps uphill", ERROR if seen.progress.state != "falling" else ADVICE,
            f"in {100 * facts.uphill:.0f} % of the first steps weights go where gradients point, not against them "
            f"(loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Look at the sign of what the optimizer adds, and at what changes gradients between backward() and step().",
            measured=facts.uphill, threshold=MOST,
        )  # fmt: skip

    usual, cosine = (
        middle(seen.updates[:EARLY]),
        middle([one.cosine for one in seen.signs[:EARLY] if one.cosine is not None]),
    )
    losses, constant = seen.losses[:EARLY], seen.progress.constant
    if (
        constant is None
        or usual is None
        or cosine is None
        or seen.progress.state not in ("rising", "not finite", "above")
    ):
        return
    half = len(losses) // 2
    is_small = usual < LARGE and cosine > 0 and facts.uphill < 1 - MOST
    if half < EARLY // 2 or not is_small or not all(map(math.isfinite, losses)) or facts.maximizes or not facts.alone:
        return
    if targets_grow(seen) or facts.loss.factor < 0:  # another loss in each step, or the gradient of its opposite
        return
    if lower(losses[:half], losses[half:]) > SURE and min(losses[half:]) > losses[0] and not decay:
        yield found(
            "steps uphill", ERROR,
            f"the loss rises from the first steps on ({g(losses[0])} → {g(losses[-1])} in {len(losses)}), although "
            f"each step goes against the gradient that it is given, is small ({100 * usual:.2g} % of the weights) and "
            f"points where the one before did (cosine {cosine:.2f}): that is not the gradient of this loss",
            "Look at its sign: hooks on tensors or parameters, a backward written by hand, what changes p.grad between "
            "backward() and step().",
            measured=losses[-1] / losses[0] if losses[0] else None,
        )  # fmt: skip


def _is_number(number: float | None) -> bool:
    return number is not None and math.isfinite(number) and number > 0


def _state(seen: Seen) -> Found:
    """An optimizer that is new, or weights that are those of the beginning, at every step."""
    facts, signs = seen.facts, seen.signs
    if len(signs) >= FEWEST + 2 and facts.restored >= MOST * (len(signs) - 1):
        yield found(
            "set back", ERROR if seen.progress.state != "falling" else WARNING,
            f"before {facts.restored} of {len(signs)} steps the weights are again what they were at the first: "
            "something "
            "loads or makes them anew",
            "Look for load_state_dict(), a deepcopy or init inside of the loop.",
        )  # fmt: skip
    elif (undone := seen.sign("steps undone")) is not None:
        steps, share = undone.numbers
        yield found(
            "set back", WARNING,
            f"of the numbers that a step changes, {100 * share:.0f} % are as they were before when the next one comes, "
            f"in {steps:.0f} steps: something undoes them (rounding to a grid, a copy of averaged weights; loss "
            f"{g(seen.progress.first)} → {g(seen.progress.last)})",
            "Keep the weights that the optimizer changes as they are, and round or average a copy of them: in the "
            "forward, weight + (rounded(weight) - weight).detach().",
            measured=share, threshold=0.5,
        )  # fmt: skip
    else:
        yield from _changed(seen)
    fresh = [one for one in signs if one.fresh]
    if len(fresh) >= 5 and len(fresh) > MOST * len(signs) and facts.alone:
        severity: Severity = ADVICE if seen.progress.state == "falling" else WARNING
        yield found(
            "optimizer anew", severity,
            f"the optimizer has no state before {len(fresh)} of {len(signs)} steps: a new one is made for each, "
            "without "
            "momentum and moments",
            "Make the optimizer once, before the loop.",
        )  # fmt: skip


def _changed(seen: Seen) -> Found:
    """Weights that something else than the optimizer changes, where that may be why it does not learn."""
    facts, progress, usual = seen.facts, seen.progress, middle(seen.updates)
    often, change = facts.changed_between, facts.change_between
    if often < FEWEST_CHANGES or change is None or not facts.alone or progress.constant is None or usual is None:
        return
    if progress.state in ("flat", "above", "rising", "slow") and change > 0.5 * usual:
        yield found(
            "set back", WARNING,
            f"before {often} of {len(seen.signs)} steps the weights are not what the step before left: something else "
            f"changes them by {100 * change:.2g} % (the optimizer by {100 * usual:.2g} %)",
            "Look for load_state_dict(), a copy of averaged weights, a new init or a clamp inside of the loop.",
            measured=change, threshold=usual,
        )  # fmt: skip


def _still(seen: Seen) -> Found:
    facts = seen.facts
    hardly = facts.still_rate and (middle(seen.updates) or 1.0) < seen.limits.small_update  # all of it hardly changes
    if facts.still.count and facts.dtype not in ("bfloat16", "float16") and not hardly:
        why = ": the learning rate of their group is 0" if facts.still_rate == 0 else ""
        yield found(
            "group stays", WARNING if seen.progress.state != "falling" or facts.still.share > 0.01 else ADVICE,
            f"{listed(facts.still)} ({100 * facts.still.share:.3g} % of all elements) get gradients and never "
            f"change{why}",
            "Give the group a learning rate; where it is to stay, requires_grad_(False).",
            path=path_of(facts.still.some[0]), op=facts.still.some[0], others=facts.still.some[1:],
        )  # fmt: skip
    if facts.zero.count >= 2 and facts.zero.count > facts.matrices / 2:
        yield found(
            "zero weights", ERROR if seen.progress.state != "falling" else ADVICE,
            f"{facts.zero.count} of {facts.matrices} matrices that learn ({listed(facts.zero)}) began as zeros: all "
            "units of a layer get the same gradient, or none",
            "Initialise them: nn.init.kaiming_normal_.", path=path_of(facts.zero.some[0]), op=facts.zero.some[0],
        )  # fmt: skip
