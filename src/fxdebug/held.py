"""Does anybody still hold a part of a trace that is let go? References tell, as Python counts them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Linked(Protocol):
    """Where a call stands: the calls below it, as one tuple, and the one above."""

    children: tuple[Any, ...]
    parent: Any


def are_held(trace: Mapping[str, Any], links: Sequence[Linked]) -> bool:
    """Does anybody hold one of the ``calls`` besides the trace and the other calls, and may ask it for those?

    ``trace``: what the trace has under its names. ``links``: of each of its calls, which nobody but the calls hold.
    """
    alone = _references((object(),))[0]
    lists = tuple([link.children for link in links if link.children])
    return (
        _references((trace["calls"],)) != [alone + 1]
        or not set(_references(lists)) <= {alone + 1}
        or _references(trace["calls"]) != [alone + len(link.children) + (link.parent is not None) for link in links]
    )


def _references(things: tuple[object, ...]) -> list[int]:
    """How many references there are to each, as Python counts them here: so many to one that only ``things`` holds."""
    return [sys.getrefcount(thing) for thing in things]
