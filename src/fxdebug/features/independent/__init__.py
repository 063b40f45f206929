"""Independence of a sample from what stands beside it: ``independent``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(
    name="independent",
    functions={"independent": "fxdebug.features.independent.run:independent"},
)
