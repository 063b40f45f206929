"""Answers about the runs in one folder, as lines of text: which runs there are, their trees, findings, differences.

A run is named by its path below the folder. Nothing outside of the folder is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final

from fxdebug import api
from fxdebug.analyses.rules.settings import RuleSettings
from fxdebug.api import Trace
from fxdebug.api.reports.report import Report
from fxdebug.data.calls import Call
from fxdebug.data.measures import quantity
from fxdebug.data.report import ReportData
from fxdebug.errors import FxDebugError, LoadError, NotFound, UsageError, first_line, nearest
from fxdebug.exports.comparison.finding import short
from fxdebug.exports.records import FoundRow, found_rows
from fxdebug.exports.report.text import screen
from fxdebug.plugins.features import feature_of, folder_kind, folder_kinds, part
from fxdebug.query.network import Node

_KEPT: Final = 4  # runs that stay loaded
_MOST_RUNS: Final = 1000
_NEIGHBOURS: Final = 12  # producers and consumers that are listed of one operation
_WIDTH: Final = 120


class Runs:
    """The saved runs and watched trainings in a folder; the last ones that were asked for stay loaded."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder: give the one that has the runs")
        self._folder = folder.resolve()
        self._loaded: dict[tuple[Path, int], Trace] = {}
        self._lock = Lock()  # the server answers in several threads

    def names(self) -> list[str]:
        """Return the names of runs and trainings, in order."""
        found = {Path(folder) for folder, _, files in os.walk(self._folder) if _is_listed(files)}
        inside = sorted(path for path in found if path.resolve().is_relative_to(self._folder))
        return [path.relative_to(self._folder).as_posix() for path in inside[:_MOST_RUNS]]

    def folder_of(self, name: str) -> Path:
        """Return the folder of a run. Raises ``UsageError`` for a name that is not in the list, with near ones."""
        known = self.names()
        if name not in known:
            raise UsageError(f"no run {name!r}: `runs` lists them.{nearest(name, known)}")
        return self._folder / name

    def load(self, name: str) -> Trace:
        """Return a run by its name. Raises ``LoadError`` for a damaged one."""
        folder = self.folder_of(name)
        files = sorted(folder.glob("trace.json*"))
        key = (folder, files[0].stat().st_mtime_ns if files else 0)
        with self._lock:
            if key not in self._loaded:
                while len(self._loaded) >= _KEPT:
                    del self._loaded[next(iter(self._loaded))]
                self._loaded[key] = api.load(folder)
            return self._loaded[key]


def _is_listed(names: list[str]) -> bool:
    """Are these the names of files of a run, or of a folder that a feature reads?"""
    kinds = (kind.files(names) for _, kind in folder_kinds() if kind.files is not None)
    return any(name.startswith("trace.json") for name in names) or any(kinds)


def list_runs(runs: Runs) -> list[str]:
    """Return a line for each run and each training: name, model, extent, and the exception that ended it."""
    names = runs.names()
    return [_about(runs, name) for name in names] or ["There is no saved run in this folder."]


def _about(runs: Runs, name: str) -> str:
    try:
        kind = folder_kind(runs.folder_of(name))
        if kind is not None:
            return f"{name}: {kind[1].made_by}{_card(runs.folder_of(name), kind[0])}; `training` reports it"
        trace = runs.load(name)
    except FxDebugError as error:
        return f"{name}: cannot be read: {first_line(error)}"
    raised = trace.root.error
    ended = "" if raised is None else f", raised {raised}"
    return f"{name}: {trace.model}, {len(trace.calls)} calls, {len(trace.values)} values{ended}"


def _card(folder: Path, name: str) -> str:
    """Return the state and the verdict that the feature of a folder tells of it."""
    feature = feature_of(name)
    card_of = None if feature is None else part(feature, feature.card)
    if card_of is None:
        return ""
    card = card_of(folder)
    return f", {card.state}: {card.verdict}"


def tree(runs: Runs, run: str, path: str | None, depth: int, columns: str | None) -> list[str]:
    """Return the tree of a run, or one call with its inputs, results, weights and code."""
    trace = runs.load(run)
    if path is not None:
        return trace.describe(path, width=_WIDTH, color=False).splitlines()
    return trace.text(width=_WIDTH, color=False, depth=depth, columns=columns).splitlines()


def find(
    runs: Runs, run: str, path: str | None, type: str | None, where: str | None, operations: str | None
) -> list[str]:
    """Return a line for each call, or each operation of these names, that meets the conditions."""
    trace = runs.load(run)
    found: Sequence[Call | Node]
    if operations is None:
        found = trace.find(path, type=type, where=where)
    else:
        found = trace.ops(operations, path=path, type=type, where=where)
    rows = found_rows(trace, found, None, None, where)
    return [_line(row) for row in rows] or ["Nothing meets these conditions."]


def _line(row: FoundRow) -> str:
    shapes = ", ".join(f"{value.dtype}{list(value.shape)}" for value in row.values[:4])
    numbers = " ".join(
        f"{name}={quantity(number, row.units.get(name, '')) if isinstance(number, (int, float)) else number}"
        for name, number in row.facts.items()
    )
    line = f" at {short(row.source)}" if row.source else ""
    return f"{row.id} {row.kind} -> {shapes or 'no tensor'} {numbers}{line}"


def explain(runs: Runs, run: str, place: str) -> list[str]:
    """Return all about a call or an operation: statistics, line, code, what it reads and who reads it."""
    trace = runs.load(run)
    lines, node = [], _node(trace, place)
    try:
        lines += trace.describe(place, width=_WIDTH, color=False).splitlines()
    except NotFound:
        if node is None:
            raise
        lines += _operation(trace, node)
    if node is not None:
        lines += _neighbours("reads", trace.producers(place))
        lines += _neighbours("read by", trace.consumers(place))
    return lines


def _node(trace: Trace, place: str) -> Node | None:
    try:
        return trace.node(place)
    except NotFound:
        return None


def _operation(trace: Trace, node: Node) -> Iterator[str]:
    yield f"{node.id}  {node.op} in {node.call.type} {node.call.id}" + (
        f", at {short(node.source)}" if node.source else ""
    )
    (row,) = found_rows(trace, [node], None, None, None)
    yield _line(row)
    for name, number in row.measures.items():
        yield f"  {name}: {quantity(number, trace.measures[name].unit)}"


def _neighbours(title: str, nodes: Sequence[Node]) -> Iterator[str]:
    yield f"{title}:" if nodes else f"{title}: nothing"
    for node in nodes[:_NEIGHBOURS]:
        yield f"  {node.id} {node.op}" + (f" at {short(node.source)}" if node.source else "")
    if len(nodes) > _NEIGHBOURS:
        yield f"  … and {len(nodes) - _NEIGHBOURS} more"


def check(runs: Runs, run: str) -> list[str]:
    """Return the findings of all analyses of a run, or of a training, the worst first, then its notes."""
    folder = runs.folder_of(run)
    found = api.check(runs.load(run) if folder_kind(folder) is None else folder, config=False)
    return found.text(width=_WIDTH, color=False).splitlines()


def compare(runs: Runs, a: str, b: str) -> list[str]:
    """Return the comparison of a run b with a run a, the reference: the first step that adds error, the coverage."""
    comparison = api.compare(runs.load(a), runs.load(b))
    return [f"verdict: {comparison.verdict}", *comparison.text(width=_WIDTH, color=False).splitlines()]


def training(runs: Runs, run: str) -> list[str]:
    """Return the verdict on a watched training, and its report: its steps, its incidents and its findings.

    Folders of other features are reported as well.
    """
    folder = runs.folder_of(run)
    found = folder_kind(folder)
    if found is None:
        raise LoadError(f"{run} is a run, not a training: `tree` and `check` read it")
    name, kind = found
    feature = feature_of(name)
    verdict = None if feature is None else part(feature, feature.verdict)
    report = Report.of(kind.report(folder, None, RuleSettings().limits_of)[1])
    told = [] if verdict is None or report.answer else [verdict(folder)]
    return [*told, *report.text(width=_WIDTH, color=False).splitlines()]


def measures(runs: Runs, run: str) -> list[str]:
    """Return the measures that a run has: names for columns and for conditions, with units and meanings."""
    return api.measures_text(runs.load(run), width=_WIDTH).splitlines()


def report_of(runs: Runs, name: str, function: Callable[[Trace], ReportData[Any]]) -> list[str]:
    """Return the report of a feature on a run. Raises ``UsageError`` with the reason where it fails."""
    try:
        report = function(runs.load(name))
    except FxDebugError:
        raise
    except Exception as error:  # of another package
        raise UsageError(f"{type(error).__name__}: {first_line(error)}") from error
    return screen(report, width=_WIDTH, color=False, rows=None).splitlines()
