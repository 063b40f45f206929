"""Rules about targets and inputs: all alike, shifted, sorted, told by an input, not normalised."""

from __future__ import annotations

import math

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Severity
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, path_of

DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
TOLD = 0.1  # share of a target's variance that other inputs explain: a target of its own, not one of the inputs
FEW_CHARACTERS = 3  # classes: with fewer, neighbours agree by chance
FEWEST_PLACES = 200
FEWEST_TARGETS = 100
FEWEST_BATCHES = 10
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
REACHED = (*DISTANCES, "binary_cross_entropy_with_logits")
LEAST_ENTROPY = 0.05
NEARLY = 0.9  # of the constant answer
BEYOND = 0.1  # of the targets
DRIFT = 10.0  # times: a deviation goes so far when something is done to the data over and over
AT_FLOOR = 1.15  # times the least loss that such logits come to
STILL_GROWS = 1.2  # times
FAR_GROWN = 100.0  # times: values of rewards that go on and on reach 20 to 100 times one of them
NEXT_TO_NOTHING = 1 / 254  # of shares: masks of 0 and 1 that are divided by 255 reach 0.0039
FAR_LEVEL = 10.0  # of targets: layers begin with results of about 1
FAR_LOSS = 3.0  # times the constant answer
FAR_START = 10.0  # times it, before any step


def rules(seen: Seen) -> Found:
    """Yield what is wrong with the data, the first cause first."""
    yield from _targets(seen)
    yield from _shifted(seen)
    yield from _told(seen)
    yield from _inputs(seen)
    yield from _drift(seen)
    yield from _batches(seen)
    yield from _out_of_reach(seen)
    yield from _scaled(seen)
    yield from _smoothed(seen)
    yield from _outlying(seen)
    yield from _grown(seen)
    if seen.facts.loss.upturned is not None:
        most, share, times = seen.facts.loss.upturned
        yield found(
            "weights upturned", WARNING,
            f"the weights of classes grow with their counts: class {most}, which {100 * share:.3g} % of the targets "
            f"have, weighs {g(times)} times the rarest one (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Weigh by 1 / count, which makes rare classes count as much as common ones.", measured=times,
        )  # fmt: skip


def _out_of_reach(seen: Seen) -> Found:
    """Yield that the last operation keeps the answers from where the targets are, or logits from telling classes."""
    loss, progress = seen.facts.loss, seen.progress
    bounds, beyond = loss.bounds, loss.beyond or 0.0
    if bounds is not None and loss.kind in REACHED and beyond > BEYOND and not seen.facts.silent:
        name, low, high = bounds
        between = (
            f"below {low:g}" if high == math.inf
            else f"above {high:g}" if low == -math.inf
            else f"outside of {low:g} to {high:g}"
        )  # fmt: skip
        between += f", so that shares stay within {g(_share(low))} and {g(_share(high))}" if loss.kind in BINARY else ""
        yield found(
            "targets out of reach", ERROR if progress.is_bad else WARNING,
            f"the last operation, {name}, returns nothing {between}, and {100 * beyond:.0f} % of targets lie beyond "
            f"(loss {g(progress.first)} → {g(progress.last)}, a constant answer has {g(progress.constant)})",
            f"Leave out the {name} at the end, or bring the targets to where it comes.", measured=beyond,
            threshold=BEYOND,
        )  # fmt: skip
    near = FAR_LOSS
    if bounds is not None and bounds[0] == "softmax":  # squashed twice: told of what the loss is given
        return
    if bounds is not None and bounds[0] in ("tanh", "sigmoid"):
        reach, what = bounds[2] - bounds[1], f"a {bounds[0]} at the end keeps logits"
    elif progress.state != "falling":  # else they are small as they began
        return
    elif loss.widest is not None:
        reach, what = 2.0, "logits are cosines and stay"
    elif loss.bound is not None and loss.bound < 1 and seen.barely_learns:
        reach, what, near = 2 * loss.bound, f"logits never pass {g(loss.bound)}, and stay", AT_FLOOR
    else:
        return
    if loss.kind != "cross_entropy" or loss.classes < 2 or progress.state == "early":
        return
    least = math.log(1 + (loss.classes - 1) * math.exp(-reach))
    if progress.last < near * least:
        yield found(
            "logits bounded", ERROR if progress.is_bad else WARNING,
            f"{what} within a distance of {reach:g}: of {loss.classes} classes the loss cannot fall below {g(least)} "
            f"(now {g(progress.last)}, a constant answer has {g(progress.constant)})",
            "Give the loss what the last layer returned; multiply cosines by 10 to 30 first.", measured=reach,
        )  # fmt: skip


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(min(-logit, 700.0)))


def _scaled(seen: Seen) -> Found:
    """Yield that targets lie where what the model returns does not come to."""
    loss, progress = seen.facts.loss, seen.progress
    if loss.level is None or loss.spread is None or not progress.constant or not progress.is_bad or targets_grow(seen):
        return
    far = abs(loss.level) > FAR_LEVEL and loss.kind in DISTANCES and not seen.facts.silent  # zeros come to nowhere
    if far and progress.last <= FAR_LOSS * progress.constant and progress.first > FAR_START * progress.constant:
        yield found(
            "targets not scaled", ERROR,
            f"targets have mean {g(loss.level)} and deviation {g(loss.spread)}: the loss began at "
            f"{progress.first / progress.constant:.3g} times that of a constant answer, and after {progress.steps} "
            f"steps it is no better than that ({g(progress.last)}, a constant answer has {g(progress.constant)}): the "
            "steps went into reaching the mean",
            "Subtract the mean of the targets and divide by their deviation.",
            measured=progress.first / progress.constant, threshold=FAR_START,
        )  # fmt: skip
    if far and progress.last > FAR_LOSS * progress.constant:
        yield found(
            "targets not scaled", ERROR,
            f"targets have mean {g(loss.level)} and deviation {g(loss.spread)}, and after {progress.steps} steps the "
            "loss "
            f"({g(progress.last)}) is still {progress.last / progress.constant:.3g} times that of a constant answer "
            f"({g(progress.constant)}): what the model returns does not come to where they are",
            "Subtract the mean of the targets and divide by their deviation; leave out a sigmoid or tanh at the end.",
            measured=progress.last / progress.constant, threshold=FAR_LOSS,
        )  # fmt: skip


def _outlying(seen: Seen) -> Found:
    """Yield that few targets lie so far out that a squared loss is made of them."""
    out, progress, loss = seen.facts.loss.outlying, seen.progress, seen.facts.loss
    if out is not None and loss.kind == "mse_loss" and progress.is_bad and not targets_grow(seen):
        far, low, high = out
        yield found(
            "outlier batch", WARNING,
            f"a target is {g(far)}, and nine of ten lie from {g(low)} to {g(high)}: squared, such ones outweigh all "
            f"others (loss {g(progress.first)} → {g(progress.last)}, a constant answer has {g(progress.constant)})",
            "Look at where it comes from; clamp targets, take their logarithm, or smooth_l1_loss.", measured=far,
        )  # fmt: skip


def _grown(seen: Seen) -> Found:
    """Yield that targets grow on and on with the answers, of which they are made."""
    grown, progress = seen.facts.loss.grown, seen.progress
    if grown is not None and progress.is_bad and targets_grow(seen):
        first, half, last = grown
        yield found(
            "targets grow", WARNING if progress.state == "rising" and last > FAR_GROWN * first else ADVICE,
            f"targets reach {g(first)} in the first steps, {g(half)} halfway, and {g(last)} at the end, and go on: "
            f"what is made of the model's own answers grows with them (loss {g(progress.first)} → {g(progress.last)})",
            "Where targets are rewards and the value of what follows: add nothing after the end of an episode "
            "(times 1 - done), take the value from a target network that follows slowly, give it next states that are "
            "normalised as states are, and a discount below 1. "
            "Else look at what grows in the data.",
            measured=last / first, threshold=DRIFT,
        )  # fmt: skip


def targets_grow(seen: Seen) -> bool:
    """Do targets grow on and on, as such do that are made of the model's own answers? The loss is then another one."""
    first, half, last = seen.facts.loss.grown or (0.0, 0.0, 0.0)
    return bool(first) and last > DRIFT * first and last > STILL_GROWS * half


def _smoothed(seen: Seen) -> Found:
    """Yield that labels are smoothed so far that a right answer is hardly better than a constant one."""
    loss, constant = seen.facts.loss, seen.progress.constant
    if loss.lowest_loss is None or not constant or loss.lowest_loss < NEARLY * constant:
        return
    yield found(
        "labels smoothed", ERROR if seen.progress.is_bad else WARNING,
        f"label_smoothing={g(loss.smoothing)} leaves next to nothing to learn: a right answer has a loss of "
        f"{g(loss.lowest_loss)}, a constant one {g(constant)} (now {g(seen.progress.last)})",
        "0.1 is usual.", measured=loss.lowest_loss / constant, threshold=NEARLY,
    )  # fmt: skip


def _targets(seen: Seen) -> Found:
    loss = seen.facts.loss
    infinite = seen.facts.infinite_targets
    if infinite is not None and seen.progress.state == "not finite":
        yield found(
            "targets not finite", ERROR,
            f"step {infinite[0]}: {infinite[1]} of {infinite[2]} targets are not finite, and so the loss is not",
            "Look at how targets are made: a division by 0, a logarithm of 0, a value that is missing; leave such out "
            "of the loss by a mask.", measured=infinite[1],
        )  # fmt: skip
    if loss.targets and loss.ignored == loss.targets:
        yield found(
            "targets ignored", ERROR, f"all {loss.targets} targets are the ignored index: the mean of nothing is NaN",
            "Look at how labels are masked (-100).",
        )  # fmt: skip
        return
    if loss.emptied is not None and seen.progress.state == "not finite":
        yield found(
            "targets ignored", ERROR,
            f"step {loss.emptied}: all targets of the batch are the ignored index: the mean of nothing is NaN",
            "Leave such batches out, or divide the sum of the loss by max(1, number of targets that count).",
        )  # fmt: skip
        return
    lowest, highest = loss.lowest or 0.0, loss.highest or 0.0
    if loss.kind in BINARY and (lowest < 0 or highest > 1):
        yield found(
            "targets out of range", ERROR,
            f"targets of {loss.kind} lie between {g(lowest)} and {g(highest)}, where they are to be shares from 0 to "
            f"1: the loss has no lowest value (now {g(seen.progress.last)})",
            "Bring them to 0 and 1: of -1 and 1 by (target + 1) / 2." if lowest < 0 else
            f"Divide them by {g(highest)}, or compare: (target > 0).float().",
            measured=highest, threshold=1.0,
        )  # fmt: skip
    elif loss.kind in BINARY and lowest == 0 < highest <= NEXT_TO_NOTHING and loss.targets >= FEWEST_TARGETS:
        yield found(
            "targets out of range", ERROR if seen.progress.is_bad else WARNING,
            f"targets of {loss.kind} lie between 0 and {g(highest)} (1 / {1 / highest:.4g}): the answer 0 is right "
            f"nearly everywhere, and has a loss of {g(seen.progress.constant)} (now {g(seen.progress.last)})",
            "Are masks of 0 and 1 divided by 255, as pictures are? Compare: (target > 0).float().",
            measured=highest, threshold=NEXT_TO_NOTHING,
        )  # fmt: skip
    if loss.targets and loss.ignored > 0.98 * loss.targets:
        yield found(
            "targets ignored", ADVICE if seen.progress.state == "falling" else WARNING,
            f"{100 * loss.ignored / loss.targets:.1f} % of {loss.targets} targets are the ignored index",
            "Look at how labels are masked (-100).",
        )  # fmt: skip
    counted = loss.targets - loss.ignored
    if loss.only is not None and counted >= FEWEST_TARGETS and seen.facts.alone and loss.terms <= 1:
        is_sure = counted >= seen.limits.alike
        yield found(
            "targets alike", ERROR if is_sure and loss.known else ADVICE,
            f"all {counted} targets are {loss.only:g}: the loss falls without anything that is learned of the inputs",
            "Look at how the targets are made, and whether the data is sorted by them.",
            measured=counted, threshold=seen.limits.alike,
        )  # fmt: skip


def _shifted(seen: Seen) -> Found:
    shares = {k: (agree / places, places) for k, agree, places in seen.facts.loss.shifts if places >= FEWEST_PLACES}
    if not shares or seen.facts.loss.classes <= FEW_CHARACTERS:
        return
    k, (share, places) = max(shares.items(), key=lambda pair: pair[1])
    if share <= seen.limits.shifted:
        return
    if k == 1:
        yield from _ahead(seen, share, places)
        return
    told = {0: "the targets are the inputs, and the model only has to copy"}
    what = told.get(
        k, f"the targets are shifted by {k}" + (": one position is skipped" if k > 1 else ": they lie behind")
    )
    rule = "targets are inputs" if k == 0 else "targets shifted"
    yield found(
        rule, ERROR,
        f"target[i] is input[i{k:+d}] in {100 * share:.1f} % of {places} places: {what}",
        "The target of the next token is input[i+1]: shift once, in the data or in the model, not in both.",
        measured=share, threshold=seen.limits.shifted,
    )  # fmt: skip


def _ahead(seen: Seen, share: float, places: int) -> Found:
    """Yield that a model that is to tell the next token sees it."""
    where = ", ".join(seen.facts.sees_ahead[:3])
    if not where and seen.sign("asked ahead"):
        where = "the model, asked again with another last token,"
    if where and seen.steps >= FEWEST_BATCHES:
        progress = seen.progress
        yield found(
            "sees ahead", ERROR,
            f"the target is the next token of the input (in {100 * share:.1f} % of {places} places), and the model is "
            f"given it: {where} lets each place see those that follow (loss {g(progress.first)} → {g(progress.last)})",
            "Give attentions a causal mask (is_causal=True, or attn_mask), recurrent layers one direction, and "
            "pad convolutions on the left alone.",
            measured=share, threshold=seen.limits.shifted,
        )  # fmt: skip


def _told(seen: Seen) -> Found:
    leak = seen.facts.loss.leak
    if leak is not None and seen.facts.alone:
        place, what, size, rows = leak
        is_number = what == "the target" and seen.facts.loss.kind in DISTANCES
        is_lesson = place.startswith("number")  # of a sequence: one to be kept in mind, or found
        may_be_meant = is_lesson or (is_number and (seen.facts.loss.others_tell or 0.0) < TOLD)
        yield found(
            "target in input", ADVICE if may_be_meant else ERROR,
            f"{place} is {what} itself: their correlation is {size:.4f} over {rows} examples",
            "Leave this input out: at test time it is not there.", measured=size,
        )  # fmt: skip


def _loud(seen: Seen) -> Found:
    """Yield that a layer inside of the model is given numbers of the data that are far larger than 1."""
    loud = seen.sign("loud")
    if loud is not None:
        yield found(
            "inputs not normalised", ERROR if seen.progress.is_bad else ADVICE,
            f"{loud.names[0]} is given numbers of the data of root mean square {g(loud.numbers[0])}, where about 1 is "
            "usual: what else is added to them or put beside them, as noise of 1, is drowned (loss "
            f"{g(seen.progress.first)} → {g(seen.progress.last)})",
            "Subtract the mean and divide by the deviation of the training data, or bring them to -1 to 1, before "
            "noise is added.", path=path_of(loud.names[0]), op=loud.names[0], measured=loud.numbers[0],
            threshold=seen.limits.large_input,
        )  # fmt: skip


def _inputs(seen: Seen) -> Found:
    one, limits = seen.facts.inputs, seen.limits
    if one is None:
        yield from _loud(seen)
        return
    if one.learned:
        return
    if one.alike and seen.signs and seen.signs[0].batch >= 4:
        what = "all 0" if one.largest == 0 else f"the same in all {seen.signs[0].batch} examples of the first batch"
        yield found(
            "inputs alike",
            WARNING if seen.progress.is_bad else ADVICE,
            f"the inputs are {what}",
            "Look at how they are loaded.",
        )
        return
    if one.normed or one.size == 0:
        return
    if limits.small_input <= one.size <= limits.large_input:
        yield from _loud(seen)
        taken = seen.facts.taken or one.size
        if not limits.small_input <= taken <= limits.large_input:
            yield found(
                "inputs not normalised", ERROR if seen.progress.is_bad else ADVICE,
                f"the inputs have root mean square {g(one.size)}, and the first layer is given {g(taken)} of it; usual "
                f"is about 1 (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
                "Look at what is done to them in front of the first layer: are they divided or normalised twice?",
                measured=taken, threshold=limits.large_input if taken > 1 else limits.small_input,
            )  # fmt: skip
        return
    lost = seen.facts.answers_alike is not None
    severity: Severity = ERROR if seen.progress.is_bad else WARNING if lost else ADVICE
    pixels = " (divide pixels by 255 first)" if 100 < one.largest <= 255.5 else ""
    yield found(
        "inputs not normalised", severity,
        f"the inputs have root mean square {g(one.size)} (mean {g(one.mean)}, deviation {g(one.deviation)}, largest "
        f"{g(one.largest)}); usual is about 1",
        f"Subtract the mean and divide by the deviation of the training data{pixels}.",
        measured=one.size, threshold=limits.large_input if one.size > 1 else limits.small_input,
    )  # fmt: skip


def inputs_drift(seen: Seen) -> bool:
    """Are inputs spread far more, or less, at the end than in the first step? They may then have become alike."""
    first, last = seen.facts.spreads or (0.0, 0.0)
    return first > 0 and not 1 / DRIFT < last / first < DRIFT


def _drift(seen: Seen) -> Found:
    spreads = seen.facts.spreads
    if spreads is None or not inputs_drift(seen):
        return
    yield found(
        "inputs drift", ERROR if seen.progress.is_bad and seen.progress.constant is not None else ADVICE,
        f"the deviation of the inputs goes from {g(spreads[0])} in the first step to {g(spreads[1])} at the end",
        "Look for what is done to stored data in place, and so once more in each epoch (sub_, div_, normalising with "
        "inplace=True, x /= 255): change a copy.",
        measured=spreads[1] / spreads[0], threshold=DRIFT,
    )  # fmt: skip


def _batches(seen: Seen) -> Found:
    loss, signs = seen.facts.loss, seen.signs
    several = loss.batches >= FEWEST_BATCHES and loss.classes >= 2
    if several and loss.constant is not None and loss.within is not None and loss.shuffled is not None:
        least = seen.limits.within * loss.shuffled if loss.shuffled > LEAST_ENTROPY else 0.0
        if loss.within < least:
            yield found(
                "data sorted", ERROR,
                f"the targets in a batch are nearly all alike: their entropy is {g(loss.within)} in a batch, and "
                f"{g(loss.shuffled)} in batches drawn at random from all {loss.batches}",
                "Shuffle the training data: DataLoader(shuffle=True).", measured=loss.within, threshold=least,
            )  # fmt: skip
    digests = {one.digest for one in signs}
    if len(signs) < seen.limits.steps or "" in digests:
        return
    if len(digests) == 1 and loss.different >= FEWEST_BATCHES:
        yield found(
            "inputs alike", WARNING if seen.progress.is_bad else ADVICE,
            f"all {len(signs)} steps had the same inputs, and targets that differ ({loss.different} batches of "
            "them and more): the inputs tell nothing of the targets",
            "Look at how they are loaded: a tokenizer or a lookup that gives the same for all?",
        )  # fmt: skip
    elif len(digests) == 1:
        falls = seen.progress.state == "falling" or seen.progress.last < seen.limits.learned * seen.progress.first
        more = seen.sign("more data")
        is_meant = falls or seen.progress.constant is None or signs[0].batch >= FEWEST_TARGETS or more is None
        number = f" with {more.numbers[0]:.0f}" if more is not None and more.numbers[0] else ""
        count = "" if more is None else f", {more.names[0]}{number}"
        yield found(
            "same batch", ADVICE if is_meant else WARNING,
            f"all {len(signs)} steps had the same batch of {signs[0].batch}{count}: the model learns it by heart (loss "
            f"{g(seen.progress.first)} → {g(seen.progress.last)})",
            "To see whether a model can learn one batch, and to train on all of the data at once, it is right; else "
            "make "
            "the iterator once, before the loop.",
        )  # fmt: skip
    elif len(signs) >= 2 * seen.limits.steps and len(digests) < len(signs) / 20:
        yield found(
            "same batch", ADVICE, f"{len(signs)} steps had only {len(digests)} different batches", "Look at the loader."
        )
