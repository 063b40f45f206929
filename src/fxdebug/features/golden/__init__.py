"""Golden files: ``save_golden``, one small file of a run for a repository, and the fixture of pytest."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(name="golden", functions={"save_golden": "fxdebug.features.golden.run:save_golden"})
