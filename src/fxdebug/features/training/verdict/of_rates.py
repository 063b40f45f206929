"""Rules about the learning rate and what acts like it: schedules, weight decay, sums, accumulation."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.features.training.spikes import is_spike
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, middle, places

FEWEST = 20
LONG = 10  # steps
FEW = 3  # losses, before the first that is not finite
AS_LONG = 0.1  # how far a schedule's length may be from that of the training
HARDLY = 0.2  # of its steps
STILL = 0.05  # of the loss
NOTHING = 0.01  # of the highest learning rate
GONE, FAR_FROM_DONE = 1e-4, 0.1  # of the highest rate, and of the constant answer
JUMP = 5.0
LARGE = 0.3  # update over weight
RESTLESS, ONE_WAY = 0.01, 0.5  # update over weight at the end, and cosine of gradients one after the other
WRECKED = 1.5  # times the loss of before
VANISHED = 0.1  # of the norm of the weights at the beginning
RISES = 0.5  # of what the loss had fallen
INERT = 0.985  # momentum: 0.9 to 0.98 is usual
DAMPED = 10.0  # times the gradients' size
USUAL = 1e-3
A_RATE = "a learning rate of "  # a change that is tried
WAS_ENOUGH = 30.0  # 1e-3, which is usual, over 3e-5
FAR = 100.0  # times the constant answer: no fresh net begins there
ALIKE, MANY = 0.9, 50  # cosine of gradients one after the other; steps


def schedules(seen: Seen) -> Found:
    """Yield what is wrong with the schedule, with weight decay, and with how a loss is summed."""
    yield from _below_zero(seen)
    yield from _jumps(seen)
    yield from _climbs(seen)
    yield from _spent(seen)
    yield from _hardly_begun(seen)
    yield from _begins_late(seen)
    yield from _zero(seen)
    yield from _sums(seen)
    yield from _decay(seen)
    yield from _resumed(seen)


def _below_zero(seen: Seen) -> Found:
    """Yield that a schedule goes on past its end, below 0: from then on steps climb."""
    below = [step for step, rate in enumerate(seen.rates) if rate < 0]
    if len(below) >= FEW and max(seen.rates) > 0 and not seen.facts.maximizes:
        bad, least = seen.progress.is_bad or seen.losses[-1:] > seen.losses[below[0] : below[0] + 1], min(seen.rates)
        yield found(
            "steps uphill", ERROR if bad else WARNING,
            f"the learning rate is below 0 in {len(below)} of {len(seen.rates)} steps, from step {below[0]} on "
            f"({g(max(seen.rates))} → {g(least)}): such steps go where gradients point (loss {g(seen.progress.first)} "
            f"→ {g(seen.progress.last)})",
            "Plan the schedule for the number of steps that are made, and keep its factor above 0: "
            "max(0, 1 - step / steps).", measured=least,
        )  # fmt: skip


def _jumps(seen: Seen) -> Found:
    """A loss that rises where the learning rate does, or where a batch is far larger than those before."""
    losses, rates, signs = list(seen.losses), seen.rates, seen.signs
    if not seen.facts.alone:  # optimizers that take turns have rates of their own
        return
    if seen.progress.state == "falling" or len(signs) < len(losses) or len(rates) < len(losses):
        return
    for step in range(FEWEST, len(losses)):
        if math.isfinite(losses[step]) and not is_spike(losses[:step], losses[step]):
            continue
        known = [loss for loss in losses[max(0, step - 100) : step] if math.isfinite(loss)]
        if len(known) < FEWEST:
            return
        before = median(known)
        jump = next((j for j in range(max(1, step - 5), step + 1) if rates[j] > JUMP * rates[j - 1] > 0), None)
        sizes = [one.largest for one in signs[max(0, step - 100) : step] if one.largest]
        size = signs[step].largest
        if jump is not None:
            yield found(
                "learning rate jumps", ERROR,
                f"step {jump}: the learning rate goes from {g(rates[jump - 1])} to {g(rates[jump])}, and the loss from "
                f"{g(before)} to {g(losses[step])} at step {step}",
                "Look at the scheduler at that step.", measured=rates[jump],
            )  # fmt: skip
        elif sizes and size and size > 10 * median(sizes):
            yield found(
                "outlier batch", WARNING,
                f"step {step}: the inputs reach {g(size)}, {size / median(sizes):.0f} times those of the steps "
                "before, and the "
                f"loss goes from {g(before)} to {g(losses[step])}",
                "Look at this batch; clip gradients where such batches are to be expected.", measured=size,
            )  # fmt: skip
        else:
            continue
        return


def _climbs(seen: Seen) -> Found:
    """A loss that was at its lowest while the learning rate was far lower than it became."""
    losses, rates = list(seen.losses), seen.rates
    finite = [loss for loss in losses if math.isfinite(loss)]
    size = max(5, len(finite) // 20)
    if len(rates) < len(losses) or len(finite) < 3 * FEWEST:
        return
    is_known = seen.progress.constant is not None or (seen.facts.alone and min(finite) >= 0)
    if not is_known or (seen.progress.constant is None and max(seen.updates, default=0.0) <= LARGE):
        return
    levels = [(median(finite[i : i + size]), i + size // 2) for i in range(0, len(finite) - size + 1, size)]
    (lowest, at), (last, _) = min(levels), levels[-1]
    later = max(rates[at:])
    is_worse = last - lowest > RISES * (levels[0][0] - lowest) > 0 or len(finite) < len(losses)
    if rates[at] > 0 and later > JUMP * rates[at] and is_worse and max(rates) > JUMP * rates[0] > 0:
        yield found(
            "learning rate jumps", ERROR,
            f"the loss is lowest about step {at} ({g(lowest)}), with a learning rate of {g(rates[at])}; it goes on to "
            f"{g(later)}, and the loss to {g(finite[-1])}",
            "Look at the scheduler: does it raise the rate and not lower it (gamma above 1), or warm up too far?",
            measured=later,
        )  # fmt: skip


def _spent(seen: Seen) -> Found:
    rates = seen.rates
    if not rates or min(rates) < 0:  # told above
        return
    top = max(rates)
    start = rates.index(top)
    low = [step for step in range(start + 1, len(rates)) if rates[step] < NOTHING * top]
    if len(low) < FEWEST or len(low) <= seen.limits.spent * len(rates) or not top:
        return
    wrecked = _wrecked(seen, start, low[0])
    if wrecked is not None:
        yield wrecked
        return
    if seen.progress.state != "falling":
        was_too_high = (_largest_update(seen, low[0]) or 0.0) > LARGE  # that it fell is not why
        severity: Severity = ADVICE if was_too_high else ERROR
    else:
        is_early = _was_still_falling(seen, low[0]) or _has_stopped(seen) or _is_gone(seen, top)
        severity = WARNING if is_early else ADVICE
    yield found(
        "rate spent early", severity,
        f"the learning rate fell from {g(top)} to {g(rates[-1])}, and is under 1 % of its highest since step "
        f"{low[0]}, for "
        f"{100 * len(low) / len(rates):.0f} % of {len(rates)} steps",
        "Look at the scheduler: its number of steps, and whether step() is called for each batch where it counts "
        "epochs.",
        measured=len(low) / len(rates), threshold=seen.limits.spent,
    )  # fmt: skip


def _wrecked(seen: Seen, top: int, low: int) -> Finding | None:
    """Return that the rate was far too high at its highest: the loss was lower before it fell, and not after it."""
    losses, signs = seen.losses, seen.signs
    if len(signs) < len(losses) or len(losses) < len(seen.rates) or top < FEW or not all(map(math.isfinite, losses)):
        return None
    size = max(5, len(losses) // 20)
    before = min([median(losses[i : i + size]) for i in range(max(top - size, 1))])
    change = _largest_update(seen, low)
    after, last = median(losses[low : low + size]), median(losses[-size:])
    if change is None or change < LARGE or before <= 0 or min(after, last) < WRECKED * before:
        return None
    return found(
        "learning rate too high", ERROR,
        f"the learning rate rises to {g(seen.rates[top])} at step {top}, and steps change the weights by up to "
        f"{100 * change:.3g} % (0.1 to 1 % is usual); the loss was {g(before)} before, and is {g(last)} since, though "
        f"the rate has fallen to {g(seen.rates[-1])}",
        "Look at what the warm-up leads to: its end is to be the learning rate itself, not a factor of 1.",
        measured=change, threshold=LARGE,
    )  # fmt: skip


def _largest_update(seen: Seen, until: int) -> float | None:
    """Return the largest update over weight of the steps before one, but for the first."""
    return max([one.update for one in seen.signs[1:until] if one.update is not None], default=None)


def _was_still_falling(seen: Seen, step: int) -> bool:
    """Was the loss far from done when the rate went: is it still above half of the constant answer?"""
    constant = seen.progress.constant
    return constant is not None and seen.progress.last > seen.limits.halved * constant


def _is_gone(seen: Seen, top: float) -> bool:
    """Was the rate a ten-thousandth of its highest for long, where the loss is far from nothing?"""
    constant, gone = seen.progress.constant, sum(rate < GONE * top for rate in seen.rates)
    is_long = gone > seen.limits.spent * len(seen.rates)
    return is_long and constant is not None and seen.progress.last > FAR_FROM_DONE * constant


def _has_stopped(seen: Seen) -> bool:
    """Did steps change nothing, not in one bit, in the last half of the training?"""
    last = seen.updates[len(seen.updates) // 2 :]
    return len(last) >= FEWEST and not any(last)


def _hardly_begun(seen: Seen) -> Found:
    """Yield that a schedule as long as the training has made few of its steps: one for each epoch, it may be."""
    if seen.facts.schedule is None or seen.steps < MANY or not seen.rates:
        return
    name, planned, gone = seen.facts.schedule
    if abs(planned - seen.steps) > AS_LONG * planned or gone > HARDLY * planned:
        return
    learns = seen.progress.state == "falling"
    yield found(
        "schedule too slow", ERROR if seen.progress.is_bad else WARNING if seen.barely_learns or not learns else ADVICE,
        f"{name} was planned for {planned} steps, and after {seen.steps} steps of the optimizer it has made {gone}: "
        f"the learning rate has gone from {g(seen.rates[0])} to {g(seen.rates[-1])}",
        "Call its step() after each optimizer.step(), or plan it in epochs.", measured=gone / planned, threshold=HARDLY,
    )  # fmt: skip


def _begins_late(seen: Seen) -> Found:
    """Yield that a warm-up begins with a rate of 0 for many steps, and is not over: one step for each epoch."""
    rates = seen.rates
    late = next((step for step, rate in enumerate(rates) if rate), 0)
    changes = [step for step in range(1, len(rates)) if rates[step] != rates[step - 1]]
    if late < LONG or len(changes) < 2 or rates[-1] < max(rates) or min(rates) < 0:
        return
    apart = middle([float(b - a) for a, b in pairwise(changes)]) or 0.0
    if apart < LONG:
        return
    yield found(
        "schedule too slow", ERROR if seen.progress.is_bad else WARNING,
        f"the learning rate was 0 in the first {late} steps, so that they changed nothing; it rises once in "
        f"{apart:.0f} steps, and is {g(rates[-1])} after {len(rates)}, still rising (loss {g(seen.progress.first)} → "
        f"{g(seen.progress.last)})",
        "Call scheduler.step() after each batch, or plan the warm-up in epochs.", measured=float(late), threshold=LONG,
    )  # fmt: skip


def _zero(seen: Seen) -> Found:
    if len(seen.rates) >= 5 and max(seen.rates) == 0:
        yield found(
            "rate of zero", ERROR, f"the learning rate is 0 in all {len(seen.rates)} steps: nothing changes",
            "Give the optimizer a learning rate; look at the scheduler's factor.", measured=0.0,
        )  # fmt: skip


def _sums(seen: Seen) -> Found:
    facts, loss, progress = seen.facts, seen.facts.loss, seen.progress
    is_sure = progress.is_bad and (progress.constant is not None or progress.state == "rising")
    batch = seen.signs[0].batch if seen.signs else 0
    if loss.known and loss.reduction == "sum" and batch > 1 and not loss.divided:
        yield found(
            "loss is a sum", ERROR if is_sure else ADVICE,
            f"the loss is the sum over {loss.elements} targets "
            f"({g(seen.record.steps[0].loss if seen.record.steps else None)} "
            f"at the beginning = {loss.elements} × {g(progress.first)}): gradients are {loss.elements} times those "
            "of the mean",
            f"Take the mean, or divide the learning rate by {loss.elements}.",
        )  # fmt: skip
    added = _added(seen)
    carried = sum(one.carried for one in seen.signs[1:]) > 0.5 * len(seen.signs)
    if added is None or added < 2 or loss.divided:
        return
    finite = [one for one in seen.losses if math.isfinite(one)]
    if loss.known:
        is_told = loss.reduction == "mean"
    else:  # taken for a mean, as most losses are, where it rises
        rises_far = len(finite) >= FEWEST and _went_up(finite) and progress.last > 1.1 * abs(progress.first)
        is_told = is_sure = not loss.kind and progress.is_bad and rises_far
    if not is_told:
        return
    if facts.alone and not facts.nested and not carried:
        adapts = any(one.adapts and one.own for one in facts.optimizers)
        name = next((one.name for one in facts.optimizers if one.own), "the optimizer")
        of_mean = ", each of a mean," if loss.known else ""
        rises = "" if loss.known else f"; the loss went from {g(progress.first)} to {g(progress.last)}"
        harmless = f" (which does not change the size of the steps of {name})" if adapts else ""
        yield found(
            "accumulated undivided", ERROR if is_sure and not adapts else ADVICE,
            f"a step adds the gradients of {added:.0f} backwards{of_mean} and divides "
            f"none: they are {added:.0f} times those of the mean{harmless}{rises}",
            f"Divide the loss by {added:.0f} before backward(), or the learning rate by {added:.0f}.",
        )  # fmt: skip


def _added(seen: Seen) -> float | None:
    """Return the gradients of how many backwards a step adds."""
    return middle([float(one.added) for one in seen.signs if one.added is not None])


def _decay(seen: Seen) -> Found:
    pairs = [(rate * one.decay, one.decay) for one, rate in zip(seen.signs, seen.rates)]
    rate, decay = max(pairs, default=(0.0, 0.0))
    if rate > seen.limits.decay and decay > seen.limits.strong_decay:
        yield found(
            "weight decay", ADVICE if seen.progress.state in ("falling", "early") else ERROR,
            f"weight decay {g(decay)} times the learning rate is {g(rate)}: without gradients the weights would be "
            "halved in "
            f"{math.log(2) / rate:.0f} steps",
            "0.01 to 0.1 is usual: a halving in 10,000 steps and more.", measured=rate, threshold=seen.limits.decay,
        )  # fmt: skip
    elif seen.facts.kept < VANISHED and (seen.progress.is_bad or seen.facts.answers_alike is not None):
        yield found(
            "weight decay", ERROR,
            f"the weights shrank to {100 * seen.facts.kept:.2g} % of what they were, though the optimizer decays them "
            f"by {g(decay)} only: something in the loss that makes them small outweighs the rest",
            "Look at the factor of a penalty on the weights (1e-4 of their squares is usual), or leave it to "
            "weight_decay.", measured=seen.facts.kept, threshold=VANISHED,
        )  # fmt: skip


def _resumed(seen: Seen) -> Found:
    progress, signs = seen.progress, seen.signs
    constant = progress.constant
    if not signs or not signs[0].fresh or constant is None or not seen.losses or not seen.rates:
        return
    if not seen.facts.loss.known or seen.facts.loss.kind not in ("cross_entropy", "binary_cross_entropy_with_logits"):
        return
    if not 0 <= seen.losses[0] < seen.limits.halved * constant:
        return
    name = next((one.name for one in seen.facts.optimizers if one.own), "the optimizer")
    highest = max([loss for loss in seen.losses[1:21] if math.isfinite(loss)], default=seen.losses[0])
    initial = seen.facts.initial_rate
    soon = seen.rates[:20]
    ahead = (
        initial is not None and soon[0] < initial and soon == tuple(sorted(soon, reverse=True)) and soon[-1] < soon[0]
    )
    gone = seen.facts.ahead
    severity: Severity = WARNING if ahead or gone >= FEWEST else ADVICE
    schedule = f", while the schedule is on its way ({g(initial)} → {g(seen.rates[0])})" if ahead else ""
    schedule = f", while the schedule has made {gone} steps already" if gone >= FEWEST else schedule
    yield found(
        "optimizer state lost", severity,
        f"the first loss is {g(seen.losses[0])}, and a constant answer has {g(constant)}: the weights are trained, "
        f"and {name} "
        f"begins without a state{schedule}; the loss reaches {g(highest)} in the next "
        f"{min(20, len(seen.losses) - 1)} steps",
        "To resume, load the optimizer's state_dict() too; to fine-tune, warm up.",
    )  # fmt: skip


def size(seen: Seen) -> Found:
    """Yield whether the learning rate is too high or too low; asked where nothing else explains the course."""
    progress, limits = seen.progress, seen.limits
    updates, top = _finite_updates(seen), max(seen.rates, default=0.0)
    if updates is None:
        return
    early = updates[1:11]  # Adam's first step is its largest, and zeros of LoRA have no norm
    if seen.is_warming_up and progress.state != "not finite":
        return
    finite = [loss for loss in seen.losses if math.isfinite(loss)]
    spike = max(finite, default=0.0) > limits.rises * abs(finite[0]) if finite else False
    is_distance = bool(progress.constant) or min(finite, default=0.0) >= 0  # else it may rise and mean nothing by it
    grew = progress.state == "not finite" and len(finite) > 0 and max(finite) > 10 * abs(finite[0])
    large = bool(early) and (median(early) > limits.large_update or max(early) > limits.largest_update)
    stays = progress.state in ("flat", "above", "rising", "slow") and (
        bool(progress.constant) or (progress.state == "rising" and is_distance)  # of targets all alike it is 0
    )
    at_once = len(finite) <= FEW and bool(updates) and max(updates) > 1.0
    soon = progress.state == "not finite" and large and (_went_up(finite) or at_once)
    harmed = bool(seen.facts.died) or _is_harmed(seen, finite)
    if top and (
        (stays and large and harmed)
        or (stays and spike and max(updates, default=0.0) > limits.largest_update)
        or (grew and large)
        or soon
    ):
        constant = progress.constant or 0.0
        far = 0 < FAR * constant < finite[0] if finite else False
        begin = (
            f"; before any step the loss was {finite[0] / constant:.2g} times that of a constant answer" if far else ""
        )
        first = "Look at the initial weights first: they, or the inputs, are far too large. Else try" if far else "Try"
        added = _added(seen) or 0.0
        since = f", and {places(seen.facts.died)} returned only zeros since step {seen.facts.died_at}"
        yield found(
            "learning rate too high", ERROR,
            f"the learning rate {g(top)} is too high: in the first steps each changes the weights "
            f"{_by(max(early, default=0.0))} (0.1 to 1 % is usual)"
            + (f", the loss went up from {g(finite[0])} to {g(max(finite))}" if _went_up(finite) else "")
            + (since if seen.facts.died else "")
            + _inert(seen)
            + begin
            + (f"; each adds the gradients of {added:.0f} backwards" if added >= 2 else ""),
            (f"Divide the loss by {added:.0f} before backward(), if that is not done. Else: " if added >= 2 else "")
            + f"{first} {_rate_tried(seen, 'learning rate too high', top / 10)}, and warm up"
            + ("; momentum of 0.9 is usual." if _inert(seen) else "."),
            measured=max(early, default=0.0), threshold=limits.largest_update,
        )  # fmt: skip
        return
    is_large = bool(early) and median(early) > limits.large_update and max(early) > limits.largest_update
    if top and is_large and _stalls(seen) and seen.facts.answers_alike is None and seen.facts.parts.margin is None:
        yield found(
            "learning rate too high", WARNING,
            f"the loss fell from {g(progress.first)} in the first quarter of {progress.steps} steps, and stays at "
            f"{g(progress.last)} since; the learning rate {g(top)} changed the weights "
            f"{_by(max(early))} in each of the first steps (0.1 to 1 % is usual)",
            f"Try {_rate_tried(seen, 'learning rate too high', top / 10)}, and warm up.",
            measured=max(early), threshold=limits.largest_update,
        )  # fmt: skip
        return
    usual = middle(updates)
    low = progress.state in ("flat", "slow", "above") and progress.steps >= limits.steps
    if progress.state == "above" and not (low and usual is not None and usual < limits.small_update):
        yield from _slowly(seen)
        return
    began = max(early, default=0.0) > WAS_ENOUGH * limits.small_update and seen.rates[:1] == (top,)  # it was enough
    if low and usual is not None and 0 < usual < limits.small_update and top and not began:
        damped = _damped(seen)
        if damped is not None:
            yield damped
            return
        factor = 10 ** round(math.log10(max(USUAL / usual, 10)))
        cosine = middle([one.cosine for one in seen.signs if one.cosine is not None])
        same = f", and steps point the same way (cosine {cosine:.2f})" if cosine is not None and cosine > 0.3 else ""
        yield found(
            "learning rate too low", ERROR if progress.constant is not None else WARNING,
            f"a step changes the weights by {100 * usual:.2g} % (0.1 to 1 % is usual){same}: in {progress.steps} "
            "steps they "
            "moved next to nothing",
            f"Raise the learning rate, from {g(top)} to about "
            f"{_rate_tried(seen, 'learning rate too low', top * factor)}.",
            measured=usual, threshold=limits.small_update,
        )  # fmt: skip


def _rate_tried(seen: Seen, rule: str, otherwise: float) -> str:
    """Return the learning rate that a rule advises: the one that helped on a copy, where that was tried."""
    trial = next((one for one in reversed(seen.record.trials) if one.rule == rule), None)
    is_rate = trial is not None and trial.answer == "yes" and trial.change.startswith(A_RATE)
    return trial.change.removeprefix(A_RATE) if trial is not None and is_rate else g(otherwise)


def _inert(seen: Seen) -> str:
    """Say that momentum makes each step go on for hundreds, where it is that large."""
    for one in seen.facts.optimizers:
        settings = dict(one.settings)
        told = settings.get("momentum") or settings.get("betas", "").partition(",")[0]
        momentum = float(told) if told else 0.0
        if one.own and INERT < momentum < 1:
            return f", and momentum {g(momentum)} goes on with each for {1 / (1 - momentum):.0f} more"
    return ""


def _damped(seen: Seen) -> Finding | None:
    """Return that what an adaptive optimizer adds to the size of gradients is larger than these."""
    sizes = [one[1] for one in (seen.facts.first_gradient, seen.facts.last_gradient) if one is not None]
    for one in seen.facts.optimizers:
        eps = dict(one.settings).get("eps")
        if one.adapts and one.own and eps is not None and sizes and float(eps) > DAMPED * max(sizes) > 0:
            return found(
                "eps too large", ERROR,
                f"{one.name} divides gradients by their size plus eps, and eps={eps} is far above their size "
                f"({g(max(sizes))}): a step changes the weights by {100 * (middle(seen.updates) or 0.0):.2g} % (0.1 to "
                "1 % is usual)",
                "Leave eps at 1e-8.", op=one.name, measured=float(eps), threshold=DAMPED * max(sizes),
            )  # fmt: skip
    return None


def _stalls(seen: Seen) -> bool:
    """Does a loss, of which nothing is known but its course, stay far from 0, and do steps still go to and fro?

    One that comes to rest stays, too: there steps are small, or point one way.
    """
    progress, losses, size = seen.progress, seen.losses, len(seen.losses) // 4
    if progress.constant is not None or progress.state != "falling" or size < FEWEST:
        return False
    late = [one for one in seen.signs[-size:] if one.update is not None]
    cosine = middle([one.cosine for one in late if one.cosine is not None])
    is_restless = (middle(seen.updates[-size:]) or 0.0) > RESTLESS and (cosine is None or cosine < ONE_WAY)
    if not is_restless or min(losses) < 0:
        return False
    second, last = median(losses[size : 2 * size]), median(losses[-size:])
    return last > seen.limits.halved * abs(progress.first) and abs(last - second) < STILL * abs(last)


def _slowly(seen: Seen) -> Found:
    """Yield that steps go on in one direction, and are small: the way is known, and it is long."""
    usual, cosine = middle(seen.updates), middle([one.cosine for one in seen.signs if one.cosine is not None])
    if usual is None or cosine is None or not 0 < usual < USUAL or cosine < ALIKE or seen.progress.steps < MANY:
        return
    yield found(
        "learning rate too low", ADVICE,
        f"a step changes the weights by {100 * usual:.2g} % (0.1 to 1 % is usual), and after {seen.progress.steps} "
        f"steps gradients still point where they did (cosine {cosine:.2f} from step to step): it is slow",
        f"Try a higher learning rate than {g(max(seen.rates, default=0.0))}.", measured=usual, threshold=USUAL,
    )  # fmt: skip


def _finite_updates(seen: Seen) -> list[float] | None:
    """Return the updates until the loss was not finite any more; ``None`` where that is so for an input that is not.

    What comes after it, and an update by gradients that are not finite, says nothing of the learning rate.
    """
    end = seen.not_finite_at
    known = [one for one in seen.signs if one.number < end]
    given = next((one.largest for one in seen.signs if one.number == end and one.largest is not None), 0.0)
    if not math.isfinite(given):
        return None
    return [one.update for one in known if one.update is not None and math.isfinite(one.update)]


def _by(update: float) -> str:
    return f"by up to {100 * update:.3g} %" if update < 10 else "by more than ten times their own size"


def _is_harmed(seen: Seen, finite: list[float]) -> bool:
    """Did the loss go up from where it began, or end above that of a constant answer?"""
    progress = seen.progress
    return _went_up(finite) or (bool(progress.constant) and progress.last > 1.1 * (progress.constant or 0.0))


def _went_up(losses: list[float]) -> bool:
    return bool(losses) and max(losses) > 1.5 * abs(losses[0])


_WORKERS = "Load batches in other processes, or in more of them (DataLoader(num_workers=…))"


def waiting(seen: Seen) -> Found:
    """Yield that most of a step's time passes before its forward begins."""
    later = [one for one in seen.signs[2:] if one.forward]
    if len(later) < FEWEST:
        return
    parts = {
        name: median([getattr(one, name) for one in later]) for name in ("before", "forward", "backward", "optimizer")
    }
    whole = sum(parts.values())
    if whole > 0.005 and parts["before"] > seen.limits.waiting * whole:
        shares = ", ".join(f"{name} {100 * parts[name] / whole:.0f} %" for name in ("forward", "backward", "optimizer"))
        loading = [one.loading for one in later if one.loading is not None]
        of_loader = median(loading) / whole if 2 * len(loading) > len(later) else None
        share, how = parts["before"] / whole, f"of a step ({whole:.3g} s)"
        if of_loader is not None and of_loader > seen.limits.waiting:
            what = f"{100 * of_loader:.0f} % {how} waits for the next batch of the DataLoader ({shares})"
            advice = f"{_WORKERS}, or make its Dataset do less for each example."
        elif of_loader is not None:
            what = f"{100 * share:.0f} % {how} passes before its forward begins ({shares}), "
            what += f"{100 * of_loader:.0f} % in the DataLoader"
            advice = "Look at what else runs between two steps: logging, evaluation, what is done with a batch."
        else:
            what = f"{100 * share:.0f} % {how} passes before its forward begins ({shares})"
            advice = f"{_WORKERS}, and look at what else runs between two steps."
        yield found("waits for data", ADVICE, what, advice, measured=share, threshold=seen.limits.waiting)
