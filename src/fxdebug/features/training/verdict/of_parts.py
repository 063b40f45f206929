"""Rules about the parts of a loss: which way each of them drives, and whether it tells anything apart."""

from __future__ import annotations

import math
from collections.abc import Callable

from fxdebug.data.findings import ADVICE, ERROR, WARNING
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.verdict.seen import Found, Seen, found, g

LOW_SCALE = 4.0  # of cosines: 10 to 30 is usual
DONE = 0.05  # of the constant answer
MISSED = 0.4  # of the variance
FAR_FROM = 0.2  # of the constant answer, below which a loss cannot fall


def rules(seen: Seen) -> Found:
    """Yield what is wrong with the parts of a loss, the first cause first."""
    parts, progress = seen.facts.parts, seen.progress
    for one in seen.facts.beside:
        told = _TOLD.get(one.name)
        yield from () if told is None else told(seen, one)
    way = f"loss {g(progress.first)} → {g(progress.last)}"
    if not seen.facts.maximizes:
        yield from _signs(seen, way)
    if parts.code_cut:
        yield found(
            "gradient cut", ERROR,
            "nothing in the loss but the distance from the prior depends on the mean and the variance of the code: "
            f"what is drawn from them has no gradient, and the encoder learns nothing of what it is to encode ({way})",
            "Draw with rsample(), or mean + deviation * torch.randn_like(deviation); look for sample(), detach() or "
            "no_grad() in between.", op="sample",
        )  # fmt: skip
    if parts.bits is not None:
        name, zeros = parts.bits
        yield found(
            "targets out of range", ERROR if progress.is_bad else WARNING,
            f"{name} of answers times labels is given labels of 0 and 1, where it takes -1 and 1: the loss of the "
            f"{100 * zeros:.0f} % that are 0 is the same whatever the answer, and they teach nothing ({way})",
            "Give it 2 * label - 1.", op=name, measured=zeros,
        )  # fmt: skip
    if parts.overlap_of is not None:
        yield found(
            "targets out of range", ERROR if progress.is_bad or progress.last < 0 else WARNING,
            f"the overlap with answers is taken of targets that are 0 and {g(parts.overlap_of)}, where masks are 0 and "
            f"1: it is counted {g(parts.overlap_of)} times, and the loss has no lowest value ({way})",
            f"Divide them by {g(parts.overlap_of)}, or compare: (target > 0).float().", op="overlap",
            measured=parts.overlap_of, threshold=1.0,
        )  # fmt: skip
    if parts.ratio_of_one:
        yield found(
            "ratio stays", WARNING,
            f"the ratio of probabilities in a clipped surrogate is exactly 1 at all {parts.ratio_of_one} looks with "
            "examples that came before: the old log-probabilities are those of now, so that nothing is ever clipped",
            "Keep the log-probabilities of when the actions were drawn (detached), and compute only the new ones again "
            "in each pass.", measured=1.0,
        )  # fmt: skip
    if parts.each_with_each:
        count = parts.each_with_each
        yield found(
            "loss input", ERROR,
            f"what rewards actions has {count}×1 numbers, and their probabilities {count}: multiplied they are "
            f"{count}×{count}, so that each action is rewarded for what all others brought",
            "Give both the same shape: squeeze(1) one, or unsqueeze(1) the other.", op="mul",
        )  # fmt: skip
    if parts.weights_alike is not None and seen.steps >= seen.limits.steps:
        yield found(
            "rewards alike", WARNING,
            f"log-probabilities of actions are weighed by {g(parts.weights_alike)}, all of them, at every look: "
            f"nothing says which action was better ({way})",
            "Look at how rewards are made and summed up, and whether all are taken from one step.",
            measured=parts.weights_alike,
        )  # fmt: skip
    if parts.learned_weights:
        yield found(
            "advantage learns", WARNING,
            "log-probabilities of actions are weighed by numbers that ask for a gradient: the value that is subtracted "
            f"there learns to make this term small, not to tell what follows ({way})",
            "Detach what they are weighed by: returns - values.detach().",
        )  # fmt: skip
    yield from _cosines(seen)


def _volume(seen: Seen, one: Sign) -> Found:
    progress = seen.progress
    yield found(
        "wrong sign", ERROR,
        "a squared answer is made small, and by what inputs are multiplied on the way to it is charged as well, where "
        "it is to be rewarded: the logarithm of the determinant has the wrong sign in the loss, which falls as all is "
        f"drawn together (loss {g(progress.first)} → {g(progress.last)})",
        "log p(x) = log p(z) + log |det dz/dx|: add it, and minimise the negative of all.", op="exp",
    )  # fmt: skip


def _overcharged(seen: Seen, one: Sign) -> Found:
    _, noise, variance, missed = one.numbers
    if missed < MISSED or seen.steps < seen.limits.plateau:
        return
    yield found(
        "term outweighed", WARNING,
        "the error of what is told back is averaged over more numbers than the distance of the code from its prior: it "
        f"counts as if noise of variance {g(noise)} lay on data of {g(variance)}, and {100 * min(missed, 1.0):.0f} % "
        "of these is not told back: the code says little (posterior collapse; loss "
        f"{g(seen.progress.first)} → {g(seen.progress.last)})",
        "Take the sum over the numbers of an example of both terms, and the mean over examples; or weigh the distance "
        "by the number of latents over that of what is told back.", op="mse_loss", measured=missed, threshold=MISSED,
    )  # fmt: skip


def _rectified(seen: Seen, one: Sign) -> Found:
    dead, classes = one.numbers
    stays = dead and seen.progress.last > DONE * (seen.progress.constant or 0.0)
    yield found(
        "logits bounded", WARNING if stays else ADVICE,  # what is too large a step kills them, too
        f"a relu at the end returns nothing below 0: of {classes:.0f} classes {dead:.0f} have a logit of 0 in "
        "all examples in which they are asked for, and no gradient passes to raise it (loss "
        f"{g(seen.progress.first)} → {g(seen.progress.last)}, a constant answer has {g(seen.progress.constant)})",
        "Give cross_entropy what the last layer returned, without relu.", op="relu", measured=dead,
    )  # fmt: skip


def _neighbours(seen: Seen, one: Sign) -> Found:
    largest, grown = one.numbers
    powers = f", and its last power is {g(grown)} times as large" if grown > 1 else ""
    yield found(
        "inputs not normalised", WARNING,
        f"a matrix of neighbours A comes multiplied by their numbers D, as {one.names[0]}: the rows add up to as much "
        f"as {g(largest)}{powers} (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
        "Divide by them, so that rows add up to 1: D⁻¹ A, or D^-½ A D^-½.", op="matmul", measured=largest,
    )  # fmt: skip


def _late(seen: Seen, one: Sign) -> Found:
    numbers, count = one.numbers
    way = f"loss {g(seen.progress.first)} → {g(seen.progress.last)}"
    if one.names[0] == "log_prob":
        yield found(
            "rewards alike", ERROR,
            f"the log-probabilities of {count:.0f} actions are put together first, and meet {numbers:.0f} rewards only "
            f"then: each action is rewarded for what all others brought, and nothing says which was better ({way})",
            "Multiply each log-probability with its own reward, and take the mean or the sum of that.", op="log_prob",
            measured=numbers,
        )  # fmt: skip
        return
    yield found(
        "loss input", ERROR,
        f"{one.names[0]} puts {count:.0f} losses together first, and only their mean or sum meets {numbers:.0f} "
        f"weights of examples or places: what these leave out counts as much as the rest ({way})",
        'Compute each loss by itself, reduction="none", multiply it with its weight, and take the mean of that.',
        op=one.names[0], measured=numbers,
    )  # fmt: skip


def _no_credit(seen: Seen, one: Sign) -> Found:
    if seen.steps >= seen.limits.steps:
        yield found(
            "rewards alike", WARNING,
            "the gradient of the log-probabilities of actions is exactly 0 at every look, so that all of them are "
            f"weighed by 0 and nothing says which was better (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Look at how rewards are made, and at what they are normalised over: of one number, or of equal ones, "
            "nothing is left once the mean is subtracted.", op="log_prob", measured=0.0,
        )  # fmt: skip


def _chance(seen: Seen, one: Sign) -> Found:
    leeway = one.numbers[0]
    yield found(
        "term outweighed", WARNING,
        f"beside what rewards actions, the entropy of the policy is rewarded, and rewards differ by {g(leeway)} of its "
        "weight only: the best policy for this loss has shares that go with exp(reward / weight), which is hardly "
        f"another than chance (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
        "Give the entropy a weight of 0.001 to 0.05 of the deviation of the rewards.", op="entropy", measured=leeway,
    )  # fmt: skip


def _unlearned(seen: Seen, one: Sign) -> Found:
    share, first, last = one.numbers
    yield found(
        "wrong sign", WARNING,
        f"the loss falls as the probability of the right class does: of up to {100 * share:.0f} % of the examples, "
        f"which are those with the lowest one (on average {g(first)} → {g(last)}; loss {g(seen.progress.first)} → "
        f"{g(seen.progress.last)})",
        "A focal loss weighs by what is left of the probability: -(1 - p) ** gamma * log(p).", op="log_softmax",
        measured=last,
    )  # fmt: skip


_TOLD: dict[str, Callable[[Seen, Sign], Found]] = {
    "weighed late": _late, "no credit": _no_credit, "chance rewarded": _chance, "hard ones sink": _unlearned,
    "volume upside down": _volume, "code overcharged": _overcharged, "logits rectified": _rectified,
    "degrees": _neighbours,
}  # fmt: skip


def _signs(seen: Seen, way: str) -> Found:
    parts, falls = seen.facts.parts, seen.progress.state == "falling"
    if parts.overlap:
        yield found(
            "wrong sign", ERROR,
            f"what is minimised is the overlap of answers and targets itself: they part ({way})",
            "Minimise 1 - overlap.", op="overlap",
        )  # fmt: skip
    if parts.unlikely and falls and seen.progress.last < 0 and seen.facts.alone:
        yield found(
            "wrong sign", ERROR,
            "what is minimised is the log-probability of what is asked for: it becomes rarer with each step, and the "
            f"loss has no lowest value ({way})",
            "Put a minus in front: -log_prob.mean().", op="log", measured=seen.progress.last,
        )  # fmt: skip
    if parts.code_upside_down:
        yield found(
            "wrong sign", ERROR,
            f"the distance of the code from its prior is subtracted from the loss: it is made as large "
            f"as it gets ({way})",
            "Add it: -0.5 * (1 + logvar - mean² - exp(logvar)), with a positive weight.", op="exp",
        )  # fmt: skip
    if parts.entropy_sunk:
        yield found(
            "wrong sign", WARNING,
            "beside what rewards actions, the entropy of their probabilities is minimised: soon one action is always "
            f"taken ({way})",
            "Subtract the entropy from the loss: - 0.01 * entropy.", op="entropy",
        )  # fmt: skip
    if parts.repels and falls and seen.progress.last < 0 and seen.facts.alone:
        yield found(
            "wrong sign", WARNING,
            "a distance of two things that learn is subtracted, and nothing bounds it: the loss falls below 0 by "
            f"driving them apart ({way})",
            "Bound it by a margin, relu(margin - distance), or divide vectors by their norm.", op="sub",
            measured=seen.progress.last,
        )  # fmt: skip
    if parts.rarer is not None:
        first, last = parts.rarer
        yield found(
            "wrong sign", ADVICE,
            "what is minimised is the log-probability of actions times weights, so that actions with large weights "
            f"become rarer (weights on average {g(first)} → {g(last)}; {way}): right where weights are costs",
            "Where they are rewards, returns or advantages, put a minus in front: -(log_prob * weight).mean().",
            op="log_prob", measured=last,
        )  # fmt: skip


def _cosines(seen: Seen) -> Found:
    """Yield that logits are cosines, and hardly multiplied: the loss has a bound far above 0."""
    scale, progress, loss = seen.facts.parts.cosine_scale, seen.progress, seen.facts.loss
    if scale is None or scale > LOW_SCALE or loss.kind != "cross_entropy" or progress.state in ("none", "early"):
        return
    constant = progress.constant
    classes = loss.classes if not loss.in_batch or not seen.signs else max(loss.classes, seen.signs[0].batch)
    least = math.log(1 + (classes - 1) * math.exp(-2 * scale)) if classes > 1 else 0.0
    if constant is None or least < FAR_FROM * constant or loss.widest is not None:
        return
    yield found(
        "logits bounded", ERROR if progress.is_bad else WARNING,
        f"logits are cosines times {g(scale)}, and stay within a distance of {g(2 * scale)}: of {classes} classes the "
        f"loss cannot fall below {g(least)} (now {g(progress.last)}, a constant answer has {g(constant)})",
        "Multiply cosines by 10 to 30, or divide them by a temperature of 0.05 to 0.1.", measured=2 * scale,
    )  # fmt: skip
