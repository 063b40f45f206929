"""Exporters as a package that is installed adds them by entry points, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from fxdebug.plugins import installed

FORMS = {".rows": "write_rows", ".Two.Rows": "write_rows", "row_viewer": "write_rows", ".bad": "write_half"}
SUFFIXES = [".rows", ".Two.Rows"]


def write_rows(trace: Any, path: Path, *, separator: str = " ") -> None:
    """Write a line for each call, and return nothing."""
    lines = [f"{call.id}{separator}{call.type}{separator}{call.status}" for call in trace.calls]
    path.write_text("\n".join([f"{trace.model}: {'=' * 100}", *lines]), encoding="utf-8", errors="replace")


def write_half(trace: Any, path: Path) -> None:
    """Begin to write, and raise."""
    path.write_text(trace.model)
    raise KeyError("planted")


@contextmanager
def installed_exporters() -> Iterator[None]:
    """Let these exporters be found beside the plug-ins that are installed."""
    found = installed.entry_points

    def entry_points(group: str) -> list[EntryPoint]:
        ours = [EntryPoint(name, f"{__name__}:{function}", group) for name, function in FORMS.items()]
        return [*found(group=group), *(ours if group == f"fxdebug.{installed.EXPORTERS}" else [])]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installed, "entry_points", entry_points)
        installed.plugins.cache_clear()
        try:
            yield
        finally:
            installed.plugins.cache_clear()
