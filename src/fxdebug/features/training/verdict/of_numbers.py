"""Rules about numbers: logarithms of 0, updates that rounding loses, silent activations, vanishing gradients."""

from __future__ import annotations

import math

from fxdebug.data.findings import ADVICE, ERROR
from fxdebug.features.training.verdict.seen import Found, Seen, found, g, middle

NARROW = ("bfloat16", "float16")
FEWEST_LAYERS = 5
DECADES = 3.0


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
    moving = [one.unmoved for one, rate in zip(seen.signs, seen.rates) if one.unmoved is not None and rate > 0]
    lost = middle(moving)
    if len(moving) >= 5 and lost is not None and lost > seen.limits.unmoved and facts.dtype in NARROW:
        yield found(
            "updates rounded away", ERROR if state != "falling" else ADVICE,
            f"{100 * lost:.0f} % of the elements that have a gradient do not change in a step: the update is below "
            "half a unit "
            f"in the last place of {facts.dtype}",
            "Keep the weights in float32, and use autocast for speed.", measured=lost, threshold=seen.limits.unmoved,
        )  # fmt: skip
    if facts.silent:
        yield found(
            "silent activation", ERROR if seen.progress.is_bad else ADVICE,
            f"{', '.join(facts.silent)} returned only zeros, from the first step on: no gradient passes",
            "Look at the weights and the bias in front of it (a bias far below 0?), and at the scale of the inputs.",
            path=facts.silent[0].rpartition(" ")[2],
        )  # fmt: skip
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
