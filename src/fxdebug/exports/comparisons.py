"""Which suffix a comparison is written by. An exporter is ``(comparison, path, **options) → Path``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fxdebug.comparison import Comparison
from fxdebug.errors import UsageError


def export(comparison: Comparison, path: Path, **options: Any) -> Path:
    """Write ``path`` by its suffix."""
    raise UsageError(f"nothing exports a comparison to {path.suffix!r} yet")
