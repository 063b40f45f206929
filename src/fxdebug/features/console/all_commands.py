"""Every command of the console: importing this registers them."""

from __future__ import annotations

from fxdebug.features.console.commands import changing, helping, looking, movement, searching, stopping

__all__ = ["changing", "helping", "looking", "movement", "searching", "stopping"]
