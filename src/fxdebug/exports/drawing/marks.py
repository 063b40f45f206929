"""Marks: how single nodes and boxes of a drawing look in place of the colours by status or statistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fxdebug.exports.drawing.colors import LINE

_LONGEST_TITLE = 48  # characters; names of modules may be of any length


@dataclass(frozen=True)
class Mark:
    """The look of one node or box, with lines for its label."""

    fill: str
    line: str = LINE
    width: str = "0.6"
    dashed: bool = False
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marks:
    """Marks of drawn nodes by id and of boxes by the index of their first call, and their meanings for the legend."""

    nodes: Mapping[str, Mark]
    boxes: Mapping[int, Mark]
    meanings: Sequence[tuple[str, str]]
    facts: Sequence[str] = ()


NO_MARKS = Marks({}, {}, ())


def shortened(text: str) -> str:
    """Return a title without its middle where it is long."""
    return text if len(text) <= _LONGEST_TITLE else f"{text[: _LONGEST_TITLE // 2]}…{text[-_LONGEST_TITLE // 2 :]}"
