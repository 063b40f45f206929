"""Rules about numbers: logarithms of 0, updates that rounding loses, silent activations, vanishing gradients."""

from __future__ import annotations

import math
from itertools import takewhile

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.features.shared.records.learning import CANCELS, TOP_ONE, StepSigns
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, listed, middle, path_of, places

NARROW = ("bfloat16", "float16")
FEWEST_LAYERS = 5
DECADES = 3.0
FEWEST_STEPS = 5
SHARE = 0.1  # of all elements
ENDLESS = 1e4  # times the first loss
SMALLEST_HALF = 2.0**-25  # half of the smallest number above 0 in float16


def rules(seen: Seen) -> Found:
    """Yield what is wrong with the numbers, the first cause first."""
    facts, state = seen.facts, seen.progress.state
    zero = facts.loss.log_of_zero
    if zero is not None and state == "not finite":
        yield found(
            "log of zero", ERROR,
            f"step {zero[0]}: the loss takes the logarithm of 0, of {zero[1]} of {zero[2]} numbers",
            "Use cross_entropy on what the last layer returned, log_softmax, or clamp what the logarithm is taken of.",
        )  # fmt: skip
    root = facts.loss.root_of_zero
    if root is not None and (state == "not finite" or _is_followed(seen)):
        yield found(
            "root of zero", ERROR,
            f"step {root[0]}: the loss takes the square root of 0, of {root[1]} of {root[2]} numbers: its slope there "
            "is infinite, and gradients become NaN",
            "Add a small number under the root, (x + 1e-8).sqrt(), or use torch.linalg.vector_norm or torch.cdist.",
        )  # fmt: skip
    outside = seen.sign("out of domain")
    is_too_large = outside is not None and " too large for " in outside.names[0]
    grew = is_too_large and outside is not None and outside.numbers[0] > 1 and not outside.names[0].endswith(NARROW)
    if outside is not None and zero is None and root is None and state == "not finite" and not grew:  # else: why?
        step, count, whole = outside.numbers
        of = f", for {count:.0f} of {whole:.0f} numbers" if whole > 1 else ""
        yield found(
            "loss not finite", ERROR,
            f"step {step:.0f}: the loss comes to {outside.names[0]}{of}, while all that the model "
            "returned is finite",
            "Compute the loss in float32, as of output.float(), or of smaller numbers."
            if is_too_large and outside.names[0].endswith(NARROW)
            else "Look at the size of what it takes: the scale of targets, and of what the model returns."
            if is_too_large
            else "Add a small number to what it divides by or takes the logarithm of, (x + 1e-8), clamp it, or leave "
            "such examples out (silence, empty masks, rows without a target).", measured=count,
        )  # fmt: skip
    yield from _eps(seen)
    yield from _over_one(seen)
    if facts.silent:
        rest = (
            f", and the gradients of {listed(facts.resting)} ({100 * facts.resting.share:.3g} % of all elements) are 0"
            if facts.resting.share > SHARE
            else ""
        )
        ends = facts.loss.bounds if "the end" in facts.silent[0] else None
        yield found(
            "silent activation", ERROR if seen.progress.is_bad else ADVICE,
            f"{places(facts.silent)} returned only zeros, from the first step on: no gradient passes{rest}",
            f"The model ends with a {ends[0]}, and its loss takes numbers of both signs: leave it out."
            if ends is not None
            else "Look at the weights and the bias in front of it (zeros, a bias far below 0?), for round() of numbers "
            "below 0.5, and at the scale of the inputs.",
            path="" if "the end" in facts.silent[0] else facts.silent[0].rpartition(" ")[2],
            measured=facts.resting.share, threshold=SHARE,
        )  # fmt: skip
    if facts.bounded:
        yield found(
            "saturated activation", ERROR if seen.progress.is_bad else ADVICE,
            f"{places(facts.bounded)} {'is' if len(facts.bounded) == 1 else 'are'} at the bounds in 9 of 10 "
            "elements and more, from the first step on: next to no gradient passes",
            "Look at the weights in front, and at the scale of the inputs: what a sigmoid or tanh takes is to be of "
            "size 1.",
            path=facts.bounded[0],
        )  # fmt: skip
    yield from _without_slope(seen)
    yield from _without_end(seen)
    first, last = facts.first_gradient, facts.last_gradient
    if first is not None and last is not None and first[1] > 0 and last[1] > 0 and facts.depth >= FEWEST_LAYERS:
        decades = math.log10(last[1] / first[1])
        slope = decades / (facts.depth - 1)
        stays = state in ("flat", "above", "early", "slow") and seen.steps >= 5
        if stays and slope > seen.limits.slope and decades > DECADES and not facts.silent and not facts.died:
            yield found(
                "gradients vanish", ERROR,
                f"gradients shrink by 10^{slope:.2f} in each of {facts.depth} matrices on their way back, from "
                f"{g(last[1])} at "
                f"{last[0]} to {g(first[1])} at {first[0]}",
                "Use ReLU or GELU, a normalisation, or residual connections.",
                op=first[0], measured=slope, threshold=seen.limits.slope,
            )  # fmt: skip


def rounded(seen: Seen) -> Found:
    """Yield that updates are lost in the dtype of the weights: told before what the model is like."""
    facts, state = seen.facts, seen.progress.state
    end = seen.not_finite_at
    moving = [  # NaN does not change any more
        one.unmoved
        for one, rate in zip(seen.signs, seen.rates)
        if one.unmoved is not None and rate > 0 and one.number < end
    ]
    lost = middle(moving)
    if len(moving) >= 5 and lost is not None and lost > seen.limits.unmoved and facts.dtype in NARROW:
        yield found(
            "updates rounded away", ERROR if state != "falling" else WARNING if seen.barely_learns else ADVICE,
            f"{100 * lost:.0f} % of the elements that have a gradient do not change in a step: the update is below "
            "half a unit "
            f"in the last place of {facts.dtype}",
            "Keep the weights in float32, and use autocast for speed.", measured=lost, threshold=seen.limits.unmoved,
        )  # fmt: skip


def _over_one(seen: Seen) -> Found:
    """Yield that something is normalised alone, so that it is the same for every input."""
    over = seen.facts.over_one
    if over:
        makes = {"layer norm": "its bias", "softmax": "1", TOP_ONE: "1"}.get(over[0], "0")
        yield found(
            "normalised alone",
            ERROR if seen.progress.is_bad else WARNING if seen.facts.resting.count or over[0] == TOP_ONE else ADVICE,
            f"a {over[0]} runs over a dimension of 1 element, and returns {makes} for every input: nothing in front of "
            f"it counts, and no gradient passes (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Leave it out where one expert is chosen: its weight is then the gate's own share, which the loss teaches."
            if over[0] == TOP_ONE
            else "Give it the dimension that has the numbers to be compared: the keys of an attention, the classes, "
            "the features. For one output of two classes take a sigmoid.",
            op=over[0],
        )  # fmt: skip


def _is_followed(seen: Seen) -> bool:
    """Are gradients not finite in the last step?"""
    norm = seen.record.steps[-1].norm if seen.record.steps else None
    return norm is not None and not math.isfinite(norm)


def _eps(seen: Seen) -> Found:
    """Yield that what keeps an adaptive optimizer from dividing by 0 is 0 itself in the dtype of the weights."""
    if seen.facts.dtype != "float16" or seen.progress.state != "not finite":
        return
    for one in seen.facts.optimizers:
        eps = dict(one.settings).get("eps")
        if one.adapts and eps is not None and float(eps) < SMALLEST_HALF:
            yield found(
                "eps of zero", ERROR,
                f"{one.name} divides by the root of squared gradients plus eps, and its eps of {eps} is 0 in float16: "
                "where the squares round to 0 as well, the weights become infinite",
                "Keep the weights in float32, with autocast for speed; or give it eps=1e-4.", op=one.name,
                measured=float(eps), threshold=SMALLEST_HALF,
            )  # fmt: skip
            return


def _without_slope(seen: Seen) -> Found:
    """Yield that gradients arrive, and all of them are 0, from a step on; or those of many weights."""
    signs, facts, progress = seen.signs, seen.facts, seen.progress
    if len(signs) < FEWEST_STEPS or facts.silent or facts.zero.count or progress.state == "not finite":
        return
    if facts.died and max(seen.updates[1:11], default=0.0) > seen.limits.largest_update:
        return  # the learning rate led there, and is named for it
    known = {step.number: step.norm for step in seen.record.steps if step.norm is not None}
    run = list(takewhile(lambda one: _rests(one, known.get(one.number)), reversed(signs)))
    is_long = len(run) == len(signs) or (2 * len(run) > len(signs) and progress.state != "falling")
    if len(run) < len(signs) and progress.last == 0:
        return  # of a margin there is nothing left to learn
    if len(run) >= FEWEST_STEPS and is_long and any(one.number in known for one in run):  # the norm is of every element
        before = len(signs) - len(run)
        steps = f"in the last {len(run)} of {len(signs)} steps" if before else f"in all {len(signs)} steps"
        died = f"; {places(facts.died)} returned only zeros since step {facts.died_at}" if facts.died else ""
        dead = seen.sign("dead")
        if dead is not None and not died:
            function, weight = dead.names
            died = (
                f"; a {function} of what {path_of(weight) or weight} returns gives only zeros, and passes no gradient"
            )
        rate = f"The first steps led there: try a lower learning rate than {g(max(seen.rates, default=0.0))}. "
        yield found(
            "zero gradients", ERROR,
            f"gradients reach the weights, and are exactly 0 {steps} (loss {g(progress.first)} → {g(progress.last)}): "
            f"no small change of the weights changes the loss{died}",
            f"{rate if before else ''}Use softplus there, or begin with a bias above 0." if dead is not None else
            f"{rate if before else ''}Look at the loss function: a clamp or a margin beyond its bound, a mask that "
            "leaves nothing, zero_infinity=True in ctc_loss with fewer moments than labels need.",
            measured=0.0,
        )  # fmt: skip
    elif SHARE < facts.resting.share < 1 and not facts.died and progress.state not in ("none", "early"):
        why = "what these weights compute changes the loss by steps only, or not at all"
        advice = "Look behind them for round(), sign(), argmax, a comparison, a mask or a hook that multiplies with 0."
        if all("weight_hh" in name or "bias_hh" in name for name in facts.resting.some):
            why = "what is kept from place to place changes nothing: only the first place of what the layer returns is "
            why += "used, which begins with a state of 0, or each sequence has one place"
            advice = "Take the last place of a sequence, out[:, -1] with batch_first=True, or h_n; look at the sizes."
        if any(name == CANCELS for name, _ in facts.parts.shown):
            why = "the loss takes a number from a sum that it is a part of, so that it cancels: a mean from what was "
            why += "drawn around it, as log_prob() of what rsample() returned does"
            advice = "Detach what was drawn: log_prob(action.detach()), or draw it with sample()."
        yield found(
            "zero gradients", ERROR if progress.is_bad else ADVICE,
            f"the gradients of {listed(facts.resting)} ({100 * facts.resting.share:.3g} % of all elements) are "
            f"exactly 0 at every look: {why}",
            advice,
            op=facts.resting.some[0], measured=facts.resting.share, threshold=SHARE,
        )  # fmt: skip


def _rests(one: StepSigns, norm: float | None) -> bool:
    """Are the gradients of a step 0, and were there any?"""
    return one.arrived == 0.0 and one.update is not None and not norm


def _without_end(seen: Seen) -> Found:
    """Yield that a loss falls far below 0, and has no least value."""
    finite = [loss for loss in seen.losses if math.isfinite(loss)] or [0.0]
    lowest = min(finite)
    if lowest < -ENDLESS * max(1.0, abs(finite[0])) and seen.progress.state in ("falling", "not finite"):
        yield found(
            "wrong sign", ERROR,
            f"the loss fell from {g(finite[0])} to {g(lowest)}: it has no least value, and nothing is learned by that",
            "Look at the sign of each of its terms: what is subtracted grows without end. nll_loss has no least value "
            "where it is given anything but log_softmax of the last layer's results.", measured=lowest,
        )  # fmt: skip
