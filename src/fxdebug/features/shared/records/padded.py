"""An input that is padded beyond its longest row: plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Padded:
    """An input whose last steps are padding in every row: its slot, its length, and the longest row."""

    slot: str
    length: int
    longest: int
