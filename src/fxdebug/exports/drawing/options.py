"""Options of a drawn graph: what is open and folded, its colours, its direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from fxdebug.errors import UsageError
from fxdebug.plugins.features import features

Coloring: TypeAlias = str  # "kind", "status", "none", or the name of a measure
RankDir: TypeAlias = Literal["TB", "LR", "BT", "RL"]
PictureLayout: TypeAlias = str  # "page", "dot", or one of another package
Theme: TypeAlias = Literal["light", "dark"]

KIND: Final = "kind"
STATUS: Final = "status"
NONE: Final = "none"
RANKDIRS: tuple[RankDir, ...] = get_args(RankDir)
THEMES: tuple[Theme, ...] = get_args(Theme)


@dataclass(frozen=True)
class DrawOptions:
    """The options of one drawing.

    ``depth``: calls at this depth stay closed; ``None`` opens as many levels as stay readable. ``fold``: repeated
    layers are drawn once. ``leaves``: calls without calls inside (a Linear) are opened too. ``color``: colour by
    ``kind`` of module or operation (Graphviz colours by ``status`` then), by ``status``, by a measure such as
    ``time.self`` or ``absmax``, or ``none``. ``measures``: further measures whose numbers stand in the labels.
    ``layout``: ``page`` as in the page of a run, with a straight axis; ``dot`` by Graphviz. ``theme``: ``light`` or
    ``dark``. Only Graphviz draws ``everything`` (also sizes, parameters and the inside of leaves, rearranging
    operations one by one) and a ``rankdir`` other than ``TB`` (downwards): ``LR`` (to the right), ``BT``, ``RL``.
    Raises ``UsageError`` for an unknown word, and for what a layout cannot draw.
    """

    depth: int | None = None
    fold: bool = True
    leaves: bool = False
    color: Coloring = KIND
    measures: str | Sequence[str] = ()
    everything: bool = False
    rankdir: RankDir = "TB"
    layout: PictureLayout | None = None  # None: page, except for what only Graphviz draws
    theme: Theme = "light"

    def __post_init__(self) -> None:
        if self.rankdir not in RANKDIRS:
            raise UsageError(f"rankdir={self.rankdir!r}: use TB (downwards) or LR (to the right)")
        if self.layout not in (None, "page", *(known := layouts())):
            more = "".join(f", {name}" for name in known if name != "dot")
            raise UsageError(f"layout={self.layout!r}: use page (as in the page of a run){more} or dot (Graphviz)")
        if self.theme not in THEMES:
            raise UsageError(f"theme={self.theme!r}: use light or dark")
        asked = self._only_by_graphviz()
        if asked and self.layout == "page":
            raise UsageError(f"{asked} is drawn by Graphviz: leave layout='page' out")
        if self.theme == "dark" and self.other_layout == "dot":
            raise UsageError(f"Graphviz draws no dark pictures: leave {asked or 'layout=dot'} out")

    @property
    def other_layout(self) -> str:
        """The layout that a feature draws, empty for that of the page; what only Graphviz draws is drawn by it."""
        return "dot" if self._only_by_graphviz() else "" if self.layout in (None, "page") else str(self.layout)

    def _only_by_graphviz(self) -> str:
        if self.everything:
            return "everything=True"
        return "" if self.rankdir == "TB" else f"rankdir={self.rankdir!r}"


def layouts() -> list[str]:
    """Return the layouts of pictures that features bring.

    >>> "dot" in layouts()
    True
    """
    return list(dict.fromkeys(name for feature in features() for _, name in feature.layouts))


DEFAULTS = DrawOptions()
