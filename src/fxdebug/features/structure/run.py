"""The structure of a run, for ``check``."""

from __future__ import annotations

from typing import Any

from fxdebug.api.reports.report import Report
from fxdebug.api.trace import Trace
from fxdebug.data.report import Cell, ReportData
from fxdebug.features.structure.batch_statistics import find_batch_statistics
from fxdebug.features.structure.draws import find_draws
from fxdebug.features.structure.dropped_results import find_dropped_results
from fxdebug.features.structure.kept_state import find_changed_inputs, find_kept_state
from fxdebug.features.structure.linear_pairs import find_linear_pairs
from fxdebug.features.structure.masks import find_added_masks, find_unread_masks
from fxdebug.features.structure.mixed_dimensions import find_mixed_dimensions
from fxdebug.features.structure.never_called import find_never_called
from fxdebug.features.structure.normalised_result import find_normalised_results
from fxdebug.features.structure.positions import find_rounded_positions
from fxdebug.features.structure.repeats import find_repeats
from fxdebug.features.structure.softmax_axis import find_other_axes
from fxdebug.plugins import report
from fxdebug.query.network import network_of


def on_run(trace: Trace, limits: None) -> ReportData[Any]:
    """Answer ``check`` about a run."""
    net = network_of(trace)
    findings = [
        *find_draws(net),
        *find_batch_statistics(net),
        *find_unread_masks(net),
        *find_added_masks(net),
        *find_rounded_positions(net),
        *find_other_axes(net),
        *find_repeats(net),
        *find_dropped_results(net),
        *find_changed_inputs(net),
        *find_kept_state(net),
        *find_mixed_dimensions(net),
        *find_never_called(net),
        *find_linear_pairs(net),
        *find_normalised_results(net),
    ]
    operations = sum(node.kind in ("call_function", "call_method") for node in net.nodes.values())
    rows: list[dict[str, Cell]] = [{"kind": "operations", "count": operations}]
    return Report.of(report("structure", trace, rows, findings=findings))
