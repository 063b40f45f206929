"""The structure of a run, for ``check``: random draws, masks, positions, axes of attention, repeated modules."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="structure",
    on_run="fxdebug.features.structure.run:on_run",
    rules="fxdebug.features.structure.rules:BOOK",
)
