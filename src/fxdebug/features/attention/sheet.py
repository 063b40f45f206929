"""The attention maps of a report, for the page of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxdebug.data.report import ReportData
from fxdebug.exports.page.pack import integers
from fxdebug.exports.page.places import Places
from fxdebug.features.attention.picture import labels_for, layers_to_show
from fxdebug.features.attention.report import AttentionData
from fxdebug.printable import printable

MOST_WEIGHTS = 1 << 22  # numbers of attention maps in a page; maps beyond them are left out, with a note
_FEW_WEIGHTS = 1 << 18  # up to which a weight has 16 bits


def attention_data(report: ReportData[Any], places: Places) -> tuple[list[dict[str, Any]], str]:
    """Return the maps of a report, and a remark where there are more than a page can hold.

    A weight is a whole number of ``steps``; -1 stands for NaN.
    """
    found = layers_to_show(report) if isinstance(report, AttentionData) else []
    steps = 65_535 if sum(one.weights.size for one in found) <= _FEW_WEIGHTS else 255
    kept: list[dict[str, Any]] = []
    room, missing = MOST_WEIGHTS, 0
    for one in found:
        assert isinstance(report, AttentionData)
        batch, heads, queries, keys = one.weights.shape
        rows = min(batch, room // max(heads * queries * keys, 1))
        missing += batch - rows
        if not rows:
            continue
        room -= rows * heads * queries * keys
        labels = [labels_for(report, one, row) for row in range(rows)]
        parts = (one.weights[:rows].astype("f8").ravel() * steps).round().clip(0, steps)
        weights = np.where(np.isnan(parts), -1, parts).astype("i8").tolist()
        kept.append(
            {
                "call": places.of_call(one.call),
                "name": printable(one.path or report.subject),
                "heads": heads,
                "shape": [rows, heads, queries, keys],
                "queries": [[printable(label) for label in down] for down, _ in labels],
                "keys": [[printable(label) for label in across] for _, across in labels],
                "weights": integers(weights),
                "steps": steps,
                "error": one.error,
            }
        )
    return kept, f"{missing} maps are left out: the page holds {MOST_WEIGHTS:,} weights" if missing else ""
