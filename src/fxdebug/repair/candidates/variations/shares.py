"""Operations whose result is not divided by its sum, as the weights of chosen experts are in some models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.operators.names import PICKING
from fxdebug.repair.candidates.variations.variation import Variation
from fxdebug.repair.rerun.replaced_operations import Ran, tensors_in
from fxdebug.repair.trials.edits_of_operations import NoEdit

MOST_SHARES = 64  # in a row: more are no choice

_OF_CHOICES = PICKING | frozenset(["topk", "softmax", "sigmoid"])


def divided_by_sum(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation that picks or makes positive numbers with these divided by their sum, as shares are."""
    if name in _OF_CHOICES and _positive(ran) is not None:
        told = "what {op} returns is not divided by its sum over the last dimension, as a's values are"
        yield Variation(told, "{op} with its result divided by its sum over the last dimension", _divided)


def _positive(ran: Ran) -> Tensor | None:
    """Return the result of floats of an operation, where all are positive."""
    made = tensors_in(ran.result)
    floats = made[0] if made and made[0].is_floating_point() else None
    if floats is None or not floats.ndim or not 1 < floats.shape[-1] <= MOST_SHARES:
        return None
    return floats if bool((floats >= 0).all()) and bool((floats.sum(-1) > 0).all()) else None


def _divided(ran: Ran) -> Any:
    floats = _positive(ran)
    if floats is None:
        raise NoEdit
    shares = floats / floats.sum(-1, keepdim=True)
    return (
        shares
        if isinstance(ran.result, Tensor)
        else internals.tree_map(lambda leaf: shares if leaf is floats else leaf, ran.result)
    )
