"""A comparison for Model Explorer: both runs, which operations and layers are pairs, and the error as an overlay."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fxdebug.comparison.result import ComparisonData, Row, Side
from fxdebug.features.model_explorer.run import RunGraph, collection_text, json_text
from fxdebug.files.write_file import all_written_whole, write_text

_COLORS = {
    "equal": "#e8f1e8", "adds": "#e0655f", "inherited": "#ffd28a", "absorbed": "#fff3dc", "ignored": "#ececf0",
    "unknown": "#ececf0", "only_a": "#c9b8e8", "only_b": "#c9b8e8",
}  # fmt: skip
_ERRORS = [{"stop": 0, "bgColor": "#eef6ee"}, {"stop": 0.1, "bgColor": "#ffd28a"}, {"stop": 1, "bgColor": "#b0413e"}]


def write_model_explorer(comparison: ComparisonData, path: Path) -> Path:
    """Write a folder: ``graph.json`` has both runs, ``mapping.json`` the pairs, ``error.json`` and ``verdict.json``.

    Open the graph in two panes, with the overlays, and upload the mapping as the way to synchronize them: what one
    side has alone is marked there.
    """
    sides = RunGraph(comparison.a, _id("a", comparison)), RunGraph(comparison.b, _id("b", comparison))
    with all_written_whole(path) as new:
        new.mkdir()
        write_text(new / "graph.json", collection_text(f"{comparison.a.model} and {comparison.b.model}", sides))
        write_text(new / "mapping.json", json_text(_mapping(comparison, *sides)))
        for name, overlay in (("error", _error), ("verdict", _verdict)):
            write_text(new / f"{name}.json", json_text({side.id: overlay(comparison, side) for side in sides}))
    return path


def _id(side: str, comparison: ComparisonData) -> str:
    trace = comparison.a if side == "a" else comparison.b
    return f"{side}: {trace.model}"


def _mapping(comparison: ComparisonData, a: RunGraph, b: RunGraph) -> dict[str, Any]:
    """Return the pairs; the program reads each id once, so that the first pair counts."""
    entries: list[dict[str, list[str]]] = []
    taken_a: set[str] = set()
    taken_b: set[str] = set()
    for left, right in [*_compared(comparison, a, b), *_around(comparison, a, b)]:
        if left not in taken_a and right not in taken_b:
            taken_a.add(left)
            taken_b.add(right)
            entries.append({"leftNodeIds": [left], "rightNodeIds": [right]})
    return {"mappingEntries": entries, "showDiffHighlights": True, "disableMappingFallback": True}


def _compared(comparison: ComparisonData, a: RunGraph, b: RunGraph) -> Iterator[tuple[str, str]]:
    """Yield the pairs that were compared."""
    for row in comparison.rows:
        left, right = _node(row.a, a), _node(row.b, b)
        if row.certain and left is not None and right is not None:
            yield left, right


def _around(comparison: ComparisonData, a: RunGraph, b: RunGraph) -> Iterator[tuple[str, str]]:
    """Yield pairs of what is not compared in calls that are pairs: inputs, reads of weights, sizes, in their order."""
    coverage = comparison.coverage
    alone = [{side.node for side in sides} for sides in (coverage.operations_a, coverage.operations_b)]
    for row in comparison.rows:
        if row.op is None and row.certain and row.a is not None and row.b is not None:
            others = a.contents(row.a.call, alone[0]), b.contents(row.b.call, alone[1])
            for key, ids in others[0].items():
                yield from zip(ids, others[1].get(key, ()))


def _node(side: Side | None, graph: RunGraph) -> str | None:
    return None if side is None or side.node is None else graph.id_of_node(side.node)


def _rows_of(comparison: ComparisonData, graph: RunGraph) -> Iterator[tuple[str, Row]]:
    """Yield the rows that say something about the nodes of one side, findings last: they count."""
    for row in sorted(comparison.rows, key=lambda row: row.kind is not None):
        side = row.a if graph.trace is comparison.a else row.b
        node = _node(side, graph)
        if node is not None and row.certain:
            yield node, row


def _error(comparison: ComparisonData, graph: RunGraph) -> dict[str, Any]:
    measured = [(node, row) for node, row in _rows_of(comparison, graph) if row.measured and math.isfinite(row.error)]
    results = {node: {"value": row.error} for node, row in measured}
    return {"name": "relative error", "results": results, "gradient": _ERRORS}


def _verdict(comparison: ComparisonData, graph: RunGraph) -> dict[str, Any]:
    results = {
        node: {"value": row.kind or row.verdict, "bgColor": _COLORS["adds" if row.kind else row.verdict]}
        for node, row in _rows_of(comparison, graph)
    }
    return {"name": "verdict", "results": results}
