"""Rules about the model: modes, frozen parts, softmax before the loss, layers without an activation."""

from __future__ import annotations

import math

from fxdebug.data.findings import ADVICE, ERROR, WARNING, Finding, Severity
from fxdebug.features.shared.records.learning import MixedBatch
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, listed, path_of, places

TURNED_AWAY = -0.3  # a cosine
FAR_LOSS = 3.0  # times the constant answer: a fresh net begins at 1 to 1.5 of it
LARGE_GAIN, SMALL_GAIN = 4.0, 0.1  # as the recorder has them (model_facts.py)
FEWEST_SMALL = 3  # layers
FEWEST_ALIKE = 5  # steps


def rules(seen: Seen) -> Found:
    """Yield what is wrong with the model, the first cause first."""
    facts, learns = seen.facts, seen.progress.state == "falling"
    if facts.loss.over_batch and facts.loss.known:
        yield found(
            "softmax over batch", ERROR,
            "the softmax before the loss runs over dimension 0, the examples of a batch, not over the classes: the "
            "answer "
            f"to an example depends on the others (loss {g(seen.progress.last)} after {seen.steps} steps)",
            "Give it dim=1, or give cross_entropy what the last layer returned.",
        )  # fmt: skip
    elif facts.weighs_examples:
        yield found(
            "softmax over batch", WARNING if learns else ERROR,
            "a softmax inside of the model runs over dimension 0, the examples of a batch: the answer to an example "
            f"depends on the others (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Give it the dimension that has the numbers to be compared: dim=-1, or dim=1.",
        )  # fmt: skip
    if facts.mixed is not None:
        yield _over_examples(seen, facts.mixed)
    if facts.viewed is not None:
        before, after = facts.viewed
        yield found(
            "viewed for transposed", WARNING if learns else ERROR,
            f"a view makes {after} of {before}: it moves no number, so that each row now has numbers of several "
            f"examples (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Call transpose(0, 1), or make the layer with batch_first=True.", op="view",
        )  # fmt: skip
    if facts.interleaved is not None:
        channels, near, far = facts.interleaved
        yield found(
            "viewed for transposed", WARNING if learns else ERROR,
            f"along the rows of the pictures every {channels}. number is like the last (correlation {far:.2f}), and "
            f"neighbours are not ({near:.2f}): {channels} colours take turns, as where channels stand last and are "
            f"viewed as if they stood first (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Move them: permute(0, 3, 1, 2) in place of reshape or view.", op="view", measured=far - near,
        )  # fmt: skip
    if facts.inverted:
        yield found(
            "mask inverted", WARNING if learns else ERROR,
            f"key_padding_mask of {', '.join(facts.inverted[:3])} ignores all tokens, and keeps the one value that "
            "fills up short sequences: nothing is seen of the rest "
            f"(loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "True means ignore: give it ids == padding, which is ~keep.", path=facts.inverted[0],
            op="MultiheadAttention", others=facts.inverted[1:],
        )  # fmt: skip
    if facts.hidden:
        yield found(
            "mask inverted", WARNING if learns else ERROR,
            "the mask of attention hides all places of all examples: the shares are the same for all of them, and "
            f"nothing can be looked up (loss {g(seen.progress.first)} → {g(seen.progress.last)})",
            "Look at how the mask is made: 1 for what is to be seen where the model asks for that (ids != padding), "
            "True for what is to be hidden where it fills those in.", op="softmax",
        )  # fmt: skip
    if facts.loss.factor < 0 and facts.loss.known and facts.alone and not facts.maximizes:
        yield _wrong_sign(seen)
    if facts.loss.cosine == 1 and facts.alone and not facts.maximizes and seen.progress.last < TURNED_AWAY:
        yield found(
            "wrong sign", ERROR,
            f"what is minimised is the cosine of answers and targets: it goes from {g(seen.progress.first)} to "
            f"{g(seen.progress.last)}, and answers turn away from their targets",
            "Minimise 1 - cosine_similarity(…).", op="cosine_similarity", measured=seen.progress.last,
            threshold=TURNED_AWAY,
        )  # fmt: skip
    if facts.loss.upside_down and not facts.maximizes:
        yield found(
            "wrong sign", ERROR,
            "what is minimised is the clipped surrogate itself, the smaller of ratio × advantage and clipped ratio × "
            f"advantage: actions that turned out well become rarer (loss {g(seen.progress.first)} → "
            f"{g(seen.progress.last)})",
            "Minimise it with a minus: -torch.min(ratio * advantage, ratio.clamp(…) * advantage).mean().", op="min",
        )  # fmt: skip
    yield from _lost(seen)
    if facts.norms and facts.norms_in_eval.count == facts.norms and seen.steps:
        if facts.norms_unused.count:
            on_purpose = learns and any(one.training for one in seen.signs)  # the rest of the model is in training
            yield found(
                "eval mode", ADVICE if on_purpose else ERROR,
                f"{facts.norms_unused.count} normalisations over batches ({listed(facts.norms_unused)}) train in "
                "eval mode and "
                "never saw a batch: they subtract 0 and divide by 1",
                "Call model.train() before the loop.", path=facts.norms_unused.some[0],
            )  # fmt: skip
        elif seen.signs and not any(one.training for one in seen.signs[-5:]):
            yield _in_eval(WARNING if not learns else ADVICE, "its normalisations keep the statistics that they have")
    elif facts.drops and facts.drops_in_eval.count == facts.drops and not any(one.training for one in seen.signs[-5:]):
        yield _in_eval(ADVICE, f"its {facts.drops} dropouts drop nothing")
    if facts.constants.count and seen.steps >= seen.limits.steps:
        yield found(
            "statistics stay", WARNING if not learns else ADVICE,
            f"the running mean and variance of {listed(facts.constants)} ({facts.constants.count} of {facts.norms} "
            f"normalisations over batches) are 0 and 1 after {seen.steps} steps, as at the beginning, because their "
            "momentum is 0: eval() will return something else than training did",
            "Give them a momentum of 0.1, or track_running_stats=False.", path=facts.constants.some[0], measured=0.0,
        )  # fmt: skip
    yield from _beginning(seen)
    single = [one for one in seen.signs if one.batch == 1]
    if facts.norms > facts.norms_in_eval.count and len(single) > len(seen.signs) / 2 and len(single) >= 3:
        yield found(
            "batch of one", WARNING if learns else ERROR,
            f"{len(single)} of {len(seen.signs)} steps had a batch of 1, and {facts.norms} normalisations over "
            "batches take each "
            "example by itself: what they note is not what eval mode needs",
            "Take larger batches, or GroupNorm; accumulating gradients does not change it.",
        )  # fmt: skip
    if facts.strong_drops.count:
        share = facts.strongest
        yield found(
            "dropout too strong",
            ADVICE if learns and not seen.barely_learns else ERROR if seen.progress.is_bad else WARNING,
            f"{facts.strong_drops.count} dropouts ({listed(facts.strong_drops)}) drop {100 * share:.0f} % of their "
            "input: noise "
            f"of {(share / (1 - share)) ** 0.5 if share < 1 else float('inf'):.1f} times the signal",
            "0.1 to 0.5 is usual.", path=facts.strong_drops.some[0], measured=share, threshold=0.8,
        )  # fmt: skip
    constant = seen.progress.constant
    if facts.last_drop and facts.loss.known:
        is_done = learns and constant is not None and seen.progress.last < seen.limits.halved * constant
        yield found(
            "answers dropped", ADVICE if is_done else WARNING if learns else ERROR,
            f"the dropout {facts.last_drop} is the last thing that the model does: some answers are 0 at random, and "
            f"the loss counts them (now {g(seen.progress.last)}, a constant answer has {g(constant)})",
            "Put it in front of the last layer.", path=facts.last_drop,
        )  # fmt: skip
    is_far_below = constant is not None and learns and seen.progress.last < seen.limits.halved * constant
    is_meant = is_far_below or (bool(seen.signs) and not any(one.digest for one in seen.signs))  # its input is sought
    if facts.frozen_fresh.count and seen.steps:
        yield found(
            "frozen at random",
            ADVICE if is_meant or (learns and facts.frozen_fresh.share < 0.5) else WARNING if learns else ERROR,
            f"{listed(facts.frozen_fresh)} ({facts.frozen_fresh.count} matrices, "
            f"{100 * facts.frozen_fresh.share:.3g} % of all "
            "elements) are frozen and have the distribution with which layers are drawn: they never learned anything",
            "Load the weights first, or call requires_grad_(True).",
            path=path_of(facts.frozen_fresh.some[0]), op=facts.frozen_fresh.some[0], others=facts.frozen_fresh.some[1:],
        )  # fmt: skip
    if facts.untied is not None:
        one, other = facts.untied
        yield found(
            "not tied", ADVICE,
            f"{one} and {other} were equal in every bit at the beginning and are two tensors: they have drifted apart",
            "Where they are to be tied, assign one to the other, again after loading: lm_head.weight = wte.weight.",
            path=path_of(one), op=one, others=(other,),
        )  # fmt: skip
    if (
        facts.linear >= 2
        and not facts.cut.count
        and seen.steps >= seen.limits.steps
        and (seen.progress.is_bad or learns)
    ):
        yield found(
            "no activation", ADVICE if learns else ERROR,
            f"{facts.linear} layers follow one another with nothing that is not linear between the input and the "
            "output: "
            "together they are one linear map",
            "Put activations between them.",
        )  # fmt: skip


def _lost(seen: Seen) -> Found:
    """Yield that all examples, or all places, are the same behind a module: what the inputs told is lost."""
    lost, progress, place = seen.facts.lost, seen.progress, seen.facts.places_alike
    if seen.facts.small.count >= FEWEST_SMALL:  # weights that began far too small are why
        return
    if place and seen.steps >= FEWEST_ALIKE and (progress.is_bad or seen.barely_learns):
        yield found(
            "examples alike", ERROR,
            f"from {place} on all places of an example are the same, to 0.3 %, at every look, though what the model is "
            f"given differs, and each place has a target of its own: nothing can tell them apart (loss "
            f"{g(progress.first)} → {g(progress.last)})",
            "Look at what is put together there: a mean over all places (a graph in which all are joined), an "
            "attention that sees all alike; add what a place was before.", path=place,
        )  # fmt: skip
        return
    if lost is None or seen.steps < FEWEST_ALIKE or seen.facts.silent or seen.facts.over_one:
        return
    path, way = lost
    before = ", though what it is given differs" if way == "returns" else ", though what the model is given differs"
    advice = (
        "Look at its weights, at what it normalises or pools over, and at the size of what it is given."
        if way == "returns"
        else "Look at what is done in front of it: a cast to integers, a mask, a mean over the wrong dimension, "
        "a wrong variable?"
    )
    yield found(
        "examples alike", ERROR if progress.is_bad else ADVICE,
        f"{path} {way} the same for all examples of a batch, to 0.3 %, at every look{before}: nothing behind it can "
        f"tell them apart (loss {g(progress.first)} → {g(progress.last)})",
        advice, path=path,
    )  # fmt: skip


def _beginning(seen: Seen) -> Found:
    """Yield that weights began far too large, far too small, or all alike."""
    facts, progress, learns = seen.facts, seen.progress, seen.progress.state == "falling"
    first, constant = next((loss for loss in seen.losses if math.isfinite(loss)), 0.0), progress.constant
    times = first / constant if constant else 0.0
    is_most = constant is None and 2 * facts.large.count > facts.matrices and progress.state in ("rising", "not finite")
    harmed = progress.is_bad and (times > FAR_LOSS or bool(facts.bounded) or is_most)
    if facts.large.count and (harmed or (learns and times > FAR_LOSS)):
        far = f"; before any step the loss was {times:.3g} times that of a constant answer" if times > FAR_LOSS else ""
        bounded = f"; {places(facts.bounded)} stayed at the bounds" if facts.bounded else ""
        yield found(
            "weights too large", ADVICE if learns else ERROR,
            f"the weights of {listed(facts.large)} began so large that a layer turns numbers of size 1 into "
            f"numbers of size {g(facts.largest_gain)} (0.5 to 1.7 is usual){far}{bounded}",
            "Draw them as torch does, or by nn.init.kaiming_normal_: a deviation of 1 / sqrt(inputs of the layer).",
            path=path_of(facts.large.some[0]), op=facts.large.some[0], others=facts.large.some[1:],
            measured=facts.largest_gain, threshold=LARGE_GAIN,
        )  # fmt: skip
    stays = progress.state in ("flat", "slow", "above") and seen.steps >= seen.limits.steps
    if facts.small.count >= FEWEST_SMALL and (stays or learns):
        yield found(
            "weights too small", ADVICE if learns else ERROR,
            f"the weights of {listed(facts.small)} began so small that a layer leaves {g(facts.gain)} of what differs "
            f"between its inputs (0.5 to 1.7 is usual): after {facts.small.count} of them all examples look the same "
            f"(loss {g(progress.first)} → {g(progress.last)})",
            "Draw them as torch does, or by nn.init.kaiming_normal_: a deviation of 1 / sqrt(inputs of the layer).",
            path=path_of(facts.small.some[0]), op=facts.small.some[0], others=facts.small.some[1:],
            measured=facts.gain, threshold=SMALL_GAIN,
        )  # fmt: skip
    is_done = constant is not None and progress.last < seen.limits.halved * constant
    if facts.alike.count and seen.steps >= FEWEST_ALIKE and (progress.is_bad or learns):
        yield found(
            "units alike", ERROR if not learns else ADVICE if is_done else WARNING,
            f"all units of {listed(facts.alike)} began with the same weights, and have the same after {seen.steps} "
            "steps: a layer of such units is worth one of them",
            "Draw their weights at random: nn.init.kaiming_normal_.",
            path=path_of(facts.alike.some[0]), op=facts.alike.some[0], others=facts.alike.some[1:],
        )  # fmt: skip


def _over_examples(seen: Seen, mixed: MixedBatch) -> Finding:
    sizes, number = "×".join(map(str, mixed.sizes)), mixed.sizes[mixed.dimension]
    learns = seen.progress.state == "falling"
    what = "attends" if mixed.type == "MultiheadAttention" else "goes"
    if mixed.is_single:
        advice = "Give it sequences (examples, places, numbers); leave it out where an example is no sequence."
    elif mixed.dimension == 0:
        advice = "Make it with batch_first=True, or give it x.transpose(0, 1)."
    else:
        advice = "Leave out its batch_first=True, or give it x.transpose(0, 1)."
    return found(
        "batch mixed", ADVICE if learns and mixed.is_single else WARNING if learns else ERROR,
        f"{mixed.path} ({mixed.type}) {what} over dimension {mixed.dimension} of {sizes} as over a sequence, and that "
        f"is the batch of {number} examples: the answer to one depends on the others",
        advice, path=mixed.path, op=mixed.type,
    )  # fmt: skip


def _wrong_sign(seen: Seen) -> Finding:
    kind, progress = seen.facts.loss.kind, seen.progress
    return found(
        "wrong sign", ERROR,
        f"what is minimised is minus {kind}: the {kind} itself goes from {g(progress.first)} to {g(progress.last)}",
        "Leave out the minus.", op=kind,
    )  # fmt: skip


def _in_eval(severity: Severity, what: str) -> Finding:
    return found(
        "eval mode",
        severity,
        f"the model trains in eval mode: {what}",
        "Call model.train(), where it is not on purpose.",
    )
