"""Every command of the console: importing this registers them, with those of features."""

from __future__ import annotations

from fxdebug.features.console.commands import changing, helping, looking, movement, searching, stopping
from fxdebug.plugins.features import features, part

__all__ = ["changing", "helping", "looking", "movement", "searching", "stopping"]

for _feature in features():
    for _module in _feature.console:
        part(_feature, _module)
