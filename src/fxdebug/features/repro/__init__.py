"""Scripts that show a finding of a comparison without the model and without fxdebug: ``finding.repro``."""

from __future__ import annotations

from fxdebug.plugins.feature import Feature

FEATURE = Feature(name="repro", further={"write_repro": "fxdebug.features.repro.script:write_repro"})
