"""Where two runs part ways: alignment of two implementations, measures, and who adds error.

``steps`` flattens a trace; ``by_path``, ``by_value``, ``by_flow`` and ``calls`` pair what belongs together;
``judge`` says which steps add error, ``blame`` and ``between`` who is to blame; ``comparing`` does all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxdebug.comparison.measures import Measures, sample_positions
from fxdebug.comparison.verdict import KINDS, Comparison, Row, Side

if TYPE_CHECKING:
    from fxdebug.comparison.comparing import compare, paired

__all__ = ["KINDS", "Comparison", "Measures", "Row", "Side", "compare", "paired", "sample_positions"]


def __getattr__(name: str) -> Any:
    """What compares is loaded when it is used: it needs networkx, which takes longer than all the rest."""
    if name in ("compare", "paired"):
        from fxdebug.comparison import comparing

        return getattr(comparing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
