"""Work that a backward does again, to keep less memory: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecomputedForward:
    """The calls of ``torch.utils.checkpoint`` in a forward: how many, and the line of the first.

    ``share`` is their part of the time of the forward. ``bytes`` are those that the backward would need, were they
    kept, and ``free`` those that the machine has free; ``None`` where it does not tell.
    """

    calls: int
    line: str | None
    share: float
    bytes: int
    free: int | None
