"""Options of a drawn graph: what is open and folded, its colours, its direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from fxdebug.errors import UsageError, nearest

Coloring: TypeAlias = Literal["status", "mean", "std", "min", "max", "absmax", "zeros", "none"]
RankDir: TypeAlias = Literal["TB", "LR", "BT", "RL"]

COLORINGS: tuple[Coloring, ...] = get_args(Coloring)
RANKDIRS: tuple[RankDir, ...] = get_args(RankDir)


@dataclass(frozen=True)
class DrawOptions:
    """The options of one drawing.

    ``depth``: calls at this depth stay closed; ``None`` opens as many levels as stay readable. ``fold``: repeated
    layers are drawn once. ``leaves``: calls without calls inside (a Linear) are opened too. ``color``: colour by
    ``status``, by a statistic, or ``none``. ``everything``: also draw sizes, parameters and the inside of leaves, and
    join no rearranging operations. ``rankdir``: ``TB`` (downwards), ``LR`` (to the right), ``BT`` or ``RL``.
    Raises ``UsageError`` for an unknown colour or direction.
    """

    depth: int | None = None
    fold: bool = True
    leaves: bool = False
    color: Coloring = "status"
    everything: bool = False
    rankdir: RankDir = "TB"

    def __post_init__(self) -> None:
        if self.color not in COLORINGS:
            raise UsageError(
                f"color={self.color!r}: use one of {', '.join(COLORINGS)}.{nearest(self.color, COLORINGS)}"
            )
        if self.rankdir not in RANKDIRS:
            raise UsageError(f"rankdir={self.rankdir!r}: use TB (downwards) or LR (to the right)")


DEFAULTS = DrawOptions()
