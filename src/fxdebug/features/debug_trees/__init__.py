"""Debug trees of transformers, read as runs: ``fxdebug.load`` opens them."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(name="debug_trees", opens="fxdebug.features.debug_trees.opens:FILES")
