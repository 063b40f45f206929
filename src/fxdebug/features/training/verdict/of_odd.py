"""Rules about what the graph of a loss shows by itself: where it is normalised, what it leaves out, what outweighs."""

from __future__ import annotations

import math

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding
from fxdebug.features.shared.records.learning import CANCELS
from fxdebug.features.training.verdict.seen import Found, Seen, found, g

OUTWEIGHED = "outweighed "
REACH = "out of reach "


def rules(seen: Seen) -> Found:
    """Yield what is odd about the loss, the first cause first."""
    way = f"loss {g(seen.progress.first)} → {g(seen.progress.last)}"
    for name, numbers in seen.facts.parts.shown:
        if name.startswith(OUTWEIGHED):
            yield from _outweighed(seen, name.removeprefix(OUTWEIGHED), numbers, way)
        elif name.startswith(REACH):
            if seen.facts.loss.bounds is None:
                yield _of_reach(seen, name.removeprefix(REACH), numbers, way)
        elif name == "sunk":
            if not seen.facts.alone:
                yield _sunk(numbers)
        elif name == "rows mixed":
            if seen.progress.is_bad or seen.barely_learns:
                yield _mixed(numbers, way)
        elif name != CANCELS:  # a reason of gradients that are 0, and of nothing else
            yield _of(seen, name, numbers, way)


def _mixed(sizes: tuple[float, ...], way: str) -> Finding:
    classes, shape = f"{sizes[1]:.0f}", "×".join(f"{one:.0f}" for one in sizes)
    return found(
        "viewed for transposed", ERROR,
        f"a view makes rows of {classes} classes of answers of {shape}: it moves no number, so that a row has numbers "
        f"of several places, and not the classes of one ({way})",
        f"Move them first: permute(0, {', '.join(map(str, range(2, len(sizes))))}, 1).reshape(-1, {classes}); or give "
        "cross_entropy the answers as they are, with targets of (examples, places).", op="view",
    )  # fmt: skip


def _outweighed(seen: Seen, kind: str, numbers: tuple[float, ...], way: str) -> Found:
    first, last, whole = numbers
    if seen.steps < seen.limits.plateau:
        return
    yield found(
        "term outweighed", WARNING if seen.facts.alone else ADVICE,
        f"a term of the loss, {kind}, stays where it is ({g(first)} → {g(last)}), and another one is "
        f"{whole / last:.0f} times as large ({g(whole)}): nearly all of each step is for that ({way})",
        "Weigh terms so that they are of one size: bring the targets of the large one to about 1 (pixels, prices), "
        "take means in place of sums, or multiply it by a small number.", op=kind, measured=last / whole,
    )  # fmt: skip


def _sunk(numbers: tuple[float, ...]) -> Finding:
    first, last = numbers
    return found(
        "wrong sign", ADVICE,
        "what one optimizer minimises is an answer itself, which another fits to given numbers (on average "
        f"{g(first)} → {g(last)}): right where these are costs",
        "Where they are rewards or returns, put a minus in front: -critic(state, actor(state)).mean().", op="mean",
        measured=last,
    )  # fmt: skip


def _of_reach(seen: Seen, name: str, numbers: tuple[float, ...], way: str) -> Finding:
    share, low, high = numbers
    below = f"below {g(low)}" if high == math.inf else f"above {g(high)}" if low == -math.inf else (
        f"outside of {g(low)} to {g(high)}"
    )  # fmt: skip
    return found(
        "targets out of reach", ERROR if seen.progress.is_bad else WARNING,
        f"a term of the loss is given what {name} returned, which is nothing {below}, and {100 * share:.0f} % of its "
        f"targets lie beyond ({way})",
        f"Leave out the {name} at the end of this head.", op=name, measured=share,
    )  # fmt: skip


def _of(seen: Seen, name: str, numbers: tuple[float, ...], way: str) -> Finding:
    first = numbers[0]
    if name == "blank label":
        return found(
            "blank label", ERROR,
            f"{100 * numbers[1]:.3g} % of the labels of ctc_loss are {first:g}, which is its blank: what is said there "
            f"is never returned ({way})",
            "Number the labels from 1 on with blank=0, or give the blank a number of its own (one class more).",
            op="ctc_loss", measured=numbers[1],
        )  # fmt: skip
    if name == "outputs too short":
        return found(
            "outputs too short", ERROR,
            f"{100 * first:.3g} % of the examples have fewer outputs ({g(numbers[1])} on average) than ctc_loss needs "
            f"for their labels (up to {numbers[2]:.0f}, with a blank between equal ones): their loss is infinite, or 0 "
            f"with zero_infinity ({way})",
            "Make the stride in time smaller, or leave such examples out; input_lengths are those of the outputs.",
            op="ctc_loss", measured=first,
        )  # fmt: skip
    if name == "softmax twice":
        return found(
            "loss input", ERROR if seen.progress.is_bad or not seen.progress.constant else WARNING,
            "the loss takes log_softmax() of what a softmax returned: squashed twice, shares stay nearly alike, and "
            f"gradients are small ({way})",
            "Return what the last layer gives, without softmax.", op="log_softmax",
        )  # fmt: skip
    if name == "sigmoid twice":
        return found(
            "loss input", WARNING,
            "binary_cross_entropy_with_logits takes logits, and is given what a sigmoid returned: squashed twice, "
            f"shares stay between 0.5 and 0.73 ({way})",
            "Return what the last layer gives, without sigmoid.", op="binary_cross_entropy_with_logits",
        )  # fmt: skip
    if name == "no logarithms":
        return found(
            "loss input", ERROR,
            "ctc_loss takes logarithms of probabilities, and is given numbers whose exponentials come to "
            f"{g(first)} in place of 1 ({way})",
            "Give it log_softmax(-1) of what the last layer returned.", op="ctc_loss", measured=first,
        )  # fmt: skip
    if name == "pos_weight":
        return found(
            "weights upturned", WARNING,
            f"{100 * first:.3g} % of the targets are 1, and pos_weight is {g(numbers[1])}: what is rare counts still "
            f"less ({way})",
            "pos_weight is the count of zeros over that of ones, 9 where a tenth are ones.", op="pos_weight",
            measured=numbers[1],
        )  # fmt: skip
    if name == "classes along":
        return found(
            "loss input", ERROR,
            f"the softmax of cross_entropy goes over dimension {first:.0f} ({numbers[2]:.0f} numbers), and the shares "
            f"of classes in the targets come to 1 along dimension {numbers[1]:.0f} ({way})",
            "Classes are to come second: transpose(1, -1) both what the model returned and the targets.",
            op="cross_entropy",
        )  # fmt: skip
    if name == "own pair":
        asked = numbers[1] > 0.5
        return found(
            "own pair", ERROR,
            f"each of {first:.0f} vectors is compared with all, itself among them"
            + (
                ", and that is the answer which is asked for: it is the most similar one whatever is learned"
                if asked
                else ": it is always the most similar one, and never the answer"
            )
            + f" ({way})",
            "Compare with vectors of the other view."
            if asked
            else "Leave it out: masked_fill(torch.eye(n, dtype=torch.bool), -inf) in front of the softmax.",
            op="cross_entropy",
        )  # fmt: skip
    if name == "pairs elsewhere":
        return found(
            "targets of others", ERROR,
            f"of {first:.0f} vectors nearly each is most like the one that stands {numbers[1]:.0f} away from it, and "
            f"the one that is asked for stands {numbers[2]:.0f} away: the answers belong to others ({way})",
            "Look at how both views are put together: cat([a, b]) has pairs half a batch apart, stack and flatten has "
            "them side by side.", op="cross_entropy",
        )  # fmt: skip
    if name == "target learns":
        return found(
            "target learns", WARNING,
            f"what answers are compared with is numbers plus {g(first)} times an answer of the same weights, which "
            f"asks for a gradient: each step moves the target towards the answer as well ({way})",
            "Compute the target under no_grad(), or detach() it; a copy that follows slowly is usual.", measured=first,
        )  # fmt: skip
    if name == "answer masked":
        return found(
            "answer masked", ERROR,
            f"{100 * first:.3g} % of the classes that are asked for are hidden by a mask in front of the softmax: no "
            f"answer can be right ({way})",
            "Look at what the mask hides: masked_fill fills in where it is True; pairs of a contrast are to be seen.",
            op="masked_fill", measured=first,
        )  # fmt: skip
    if name == "labels of pairs":
        return found(
            "targets out of range", ERROR if seen.progress.is_bad else WARNING,
            f"cosine_embedding_loss takes labels of -1 and 1, and is given others: the loss of {100 * first:.3g} % of "
            f"the pairs is 0 whatever they are, and nothing keeps them apart ({way})",
            "Give it 2 * label - 1.", op="cosine_embedding_loss", measured=first,
        )  # fmt: skip
    if name == "classes elsewhere":
        return found(
            "softmax misplaced", ERROR,
            f"the softmax goes over dimension {first:.0f} ({numbers[2]:.0f} numbers), and the loss picks classes along "
            f"dimension {numbers[1]:.0f} ({way})",
            f"Take it along dimension {numbers[1]:.0f}, or give cross_entropy what the last layer returned.",
            op="log_softmax",
        )  # fmt: skip
    if name == "exponential twice":
        return found(
            "loss input", ERROR,
            "the loss takes the exponential of what it is given, as poisson_nll_loss does, and that is a rate already: "
            f"behind an exponential, a softplus or a rectifier ({way})",
            "Give it what the last layer returned, or log_input=False.", op="exp",
        )  # fmt: skip
    if name == "class left out":
        return found(
            "targets ignored", WARNING,
            f"ignore_index is {first:.0f}, which is one of {numbers[2]:.0f} classes: the {100 * numbers[1]:.3g} % of "
            f"targets that have it count for nothing, and it is never learned to be told ({way})",
            "Leave ignore_index at -100 where this class is one of its own.", op="cross_entropy", measured=numbers[1],
        )  # fmt: skip
    if name == "charged to each":
        return found(
            "term outweighed", WARNING,
            f"a sum over all {first:.0f} numbers of a batch is charged to each of {numbers[1]:.0f} examples or places: "
            f"this term of the loss weighs that many times as much as it is meant to ({way})",
            "Sum over the last dimension alone, sum(dim=-1), or take the mean of both terms over the same elements.",
            op="sum", measured=numbers[1],
        )  # fmt: skip
    if name == "mixture along":
        return found(
            "softmax misplaced", ERROR,
            f"the parts of a mixture are added up along dimension {numbers[1]:.0f}, and their shares come to 1 along "
            f"dimension {first:.0f} ({numbers[2]:.0f} numbers), which has examples or places ({way})",
            f"Take the softmax of the shares along dimension {numbers[1]:.0f}.", op="log_softmax",
        )  # fmt: skip
    if name == "softmax over queries":
        return found(
            "softmax misplaced", ERROR,
            "an attention's softmax goes over those that ask, not over those that are looked at: what each of them "
            f"gets is no average ({way})",
            "softmax(dim=-1) of queries @ keys.transpose(-2, -1).", op="softmax",
        )  # fmt: skip
    factor = "a variance" if first else "a log-variance"
    return found(
        "deviation misread", ERROR,
        f"noise is multiplied with {factor}, where the distance from the prior takes the same as a log-variance: the "
        f"code has another spread than it is charged for ({way})",
        "mean + (0.5 * log_variance).exp() * torch.randn_like(mean).", op="exp",
    )  # fmt: skip
