"""Findings about a loss whose operands it is not made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.values import shape_text
from fxdebug.features.shared.records.gradients import LossInput

WHAT = {
    "probabilities": "{op} takes logits, and is given what {given} returned: squashed twice, gradients are small",
    "no logarithms": "{op} takes logarithms of probabilities, and is given what {given} returned",
    "one class": "{op} runs over a dimension of size 1 ({shape}): its result is 0, and so is every gradient",
    "broadcast": "{op} of {shape} and a target of another shape, broadcast to {result}: each output meets each target",
}
ADVICE = {
    "probabilities": "Give it what the last layer returned, without {given}.",
    "no logarithms": "Use log_softmax, or cross_entropy on what the last layer returned.",
    "one class": "For one output use binary_cross_entropy_with_logits, for classes a last layer with one output each.",
    "broadcast": "Give both the same shape: squeeze(1) one, or unsqueeze(1) the other.",
}


def find_loss_inputs(found: Sequence[LossInput]) -> Iterator[Finding]:
    """Yield a finding for each operand of a loss that it is not made for."""
    for one in found:
        what, advice = wrong_loss_input(one)
        yield Finding("loss input", WARNING, "", "#0", op=one.op, what=what, advice=advice)


def wrong_loss_input(one: LossInput) -> tuple[str, str]:
    """Return what is wrong with an operand of a loss, and what to do."""
    parts = {"op": one.op, "given": one.given, "shape": shape_text(one.shape), "result": shape_text(one.result)}
    return WHAT[one.kind].format(**parts), ADVICE[one.kind].format(**parts)
