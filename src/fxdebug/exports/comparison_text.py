"""A comparison on one screen: the verdict, the first finding with both sides' numbers, and where it leads."""

from __future__ import annotations

from typing import Any

from fxdebug.comparison import Comparison


def screen(comparison: Comparison, *, width: int | None = None, color: bool | None = None) -> str:
    """The comparison as text."""
    lines: list[Any] = [repr(comparison)]
    for row in comparison.findings:
        lines.append(f"{row.where}  {row.kind}  error {row.error:.2g}  {row.because}  ({row.source})")
    return "\n".join(lines)
