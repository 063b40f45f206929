"""The state of a model that no gradient shows, for ``check``: buffers, what was not loaded, modes, ties."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="state",
    on_model="fxdebug.features.state.run:on_model",
    needs=(),
    rules="fxdebug.features.state.rules:BOOK",
)
