"""Rules about pairs of inputs and targets: alike where inputs are, in the right row, and the right way round."""

from __future__ import annotations

from fxdebug.data.findings import ERROR, WARNING
from fxdebug.features.training.verdict.of_data import inputs_drift
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, middle

BY_CHANCE = 0.1  # of the way from chance to certainty
MOST = 0.5  # of the examples
NEARLY_ONE = 0.9  # kind of target
FITS, MISFITS = 8.0, 3.0  # deviations
FIRST, SMALL = 5, 0.1  # steps, and the update over weight
IN_COMMON = 0.4  # of what goes together inside of batches
FEWEST_TURNED, SHARE_TURNED = 16, 0.1


def rules(seen: Seen) -> Found:
    """Yield that targets do not belong to their inputs."""
    progress, loss = seen.progress, seen.facts.loss
    way = f"loss {g(progress.first)} → {g(progress.last)}, a constant answer has {g(progress.constant)}"
    turned = seen.facts.rows.turned
    is_learned = progress.constant is not None and progress.last < seen.limits.halved * progress.constant
    if turned is not None and turned[0] >= max(FEWEST_TURNED, SHARE_TURNED * turned[2]) and not is_learned:
        yield found(
            "targets turned", ERROR if progress.is_bad else WARNING,
            f"the targets of {turned[0]} of {turned[2]} examples fit their inputs only where they are turned "
            f"({turned[1]}): inputs are turned, and targets are not, or the other way round ({way})",
            "Draw what is done to a picture once, and do it to its target, too.", measured=turned[0] / turned[2],
            threshold=SHARE_TURNED,
        )  # fmt: skip
    stays = (progress.is_bad or seen.barely_learns) and progress.constant is not None and seen.facts.alone
    if not stays or loss.in_batch:
        return
    same = seen.facts.same_inputs
    are_all_one = len({one.digest for one in seen.signs}) == 1
    told = None if same is None or same.one_alike is None else same.one_alike - same.chance
    if same is not None and same.one > MOST and told is not None and told < BY_CHANCE and not are_all_one:
        if inputs_drift(seen):  # until they are alike
            return
        yield found(
            "inputs alike", ERROR if progress.is_bad else WARNING,
            f"{100 * same.one:.0f} % of the examples are one and the same input, and their targets differ: nothing can "
            f"be learned of them ({way})",
            "Look at how they are loaded: tokens that the vocabulary does not have, a cast to integers, one array that "
            "is stored many times.",
            measured=same.one, threshold=MOST,
        )  # fmt: skip
        return
    by_chance = same is not None and same.alike - same.chance < BY_CHANCE * (1 - same.chance)
    if same is not None and same.chance < NEARLY_ONE and by_chance and not are_all_one:
        what = (
            f"the input tells {100 * same.alike:.0f} % of the variance of its targets"
            if same.chance == 0
            else f"{100 * same.alike:.0f} % of them with the target that they had before (by chance "
            f"{100 * same.chance:.0f} %)"
        )
        yield found(
            "targets differ", ERROR,
            f"{same.again} times an input came that had come before, and {what}: nothing can be learned of such "
            f"({way})",
            "Look whether inputs and targets are shuffled apart, and whether inputs have become alike: unknown "
            "tokens, a cast to integers, one array that is stored many times.",
            measured=same.alike, threshold=same.chance,
        )  # fmt: skip
        return
    rows = seen.facts.rows
    if rows.own is None or rows.other is None:
        return
    if rows.other[1] > FITS and rows.own < MISFITS:
        yield found(
            "targets of others", ERROR,
            f"inside of a batch targets fit the inputs if they are taken {_order(rows.other[0])} ({rows.other[1]:.1f} "
            f"deviations above orders drawn at random), and not as they are ({rows.own:.1f}; {way})",
            "Look at how inputs and targets are put side by side: an index that is off by one, a roll, a flip, "
            "(places, examples) against (examples, places).",
            measured=rows.own, threshold=MISFITS,
        )  # fmt: skip
    elif (
        rows.own > FITS
        and rows.across is not None
        and rows.across < IN_COMMON * rows.own
        and not seen.facts.changed_between
        and (middle(seen.updates[:FIRST]) or 0.0) < SMALL  # else what is computed changes from batch to batch
    ):
        yield found(
            "targets differ", ERROR,
            f"inside of each batch targets go with what is computed of the inputs ({rows.own:.1f} deviations above "
            f"orders drawn at random), and in each batch in another way ({rows.across:.1f}): what a label stands for "
            f"changes from batch to batch ({way})",
            "Number the classes once for all of the data, and scale targets by the same numbers in each batch.",
            measured=rows.across, threshold=IN_COMMON * rows.own,
        )  # fmt: skip


def _order(name: str) -> str:
    return name if name.startswith(("in ", "with ")) else "as those " + name
