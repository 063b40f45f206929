"""Modules of ``tools``, which tests look at too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> Any:
    """Import a module of ``tools``, whose folder does not stay on the path: its ``zoo`` would hide the tests' own."""
    before = list(sys.path)
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before
