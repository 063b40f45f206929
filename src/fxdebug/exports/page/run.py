"""All that a page has of one run, as plain data with columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fxdebug.analyses.numbers import numerics
from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import SEVERITIES, Finding
from fxdebug.data.measured.histograms import Histogram
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports.page.bodies import bodies_of, body_columns
from fxdebug.exports.page.findings import finding_data, note_data
from fxdebug.exports.page.measures import measure_data
from fxdebug.exports.page.pack import Texts
from fxdebug.exports.page.places import Places
from fxdebug.exports.page.reports import histogram_columns, report_data
from fxdebug.exports.page.tables import call_columns, parameter_columns, step_columns, value_columns
from fxdebug.printable import printable

# Nodes in the graphs of a run. Up to 1,000,000 were tried: one core does about 12,000 a second, with 4.5 KB for each.
CHECKED = 500_000  # a page has its findings by itself up to here: they would take another half a minute
LARGEST = 3_000_000  # beyond, a page would take four minutes and 13 GB


@dataclass(frozen=True)
class PageOptions:
    """The parts of a page beside the run itself.

    ``check``: the findings of :func:`fxdebug.check` about its numbers; ``None``: unless it is a large run, of which a
    note then says so. ``reports``: of other analyses: times, memory,
    attention, activations. ``histograms`` of values by their numbers, where a run kept its tensors. ``remarks`` are
    shown as notes.
    """

    check: bool | None = None
    reports: Sequence[ReportData[Any]] = ()
    histograms: Mapping[int, Histogram] = field(default_factory=dict)
    remarks: Sequence[str] = ()


DEFAULTS = PageOptions()


def run_data(
    trace: TraceData,
    texts: Texts,
    options: PageOptions = DEFAULTS,
    key: Callable[[Call], Hashable] = lambda call: None,
) -> dict[str, Any]:
    """Return ``RunData`` of payload.ts: everything that the page shows of a run; ``key`` as in ``bodies_of``.

    Raises ``UsageError`` for a run that is too large for a page.
    """
    size = _size_of(trace)
    is_checked = size <= CHECKED if options.check is None else options.check
    unchecked = [] if is_checked or options.check is not None else [Note(_UNCHECKED.format(size))]
    bodies = bodies_of(trace, texts, key)
    places = Places(trace)
    measures, left_out = measure_data(trace, places)
    checked = numerics.check_numerics(trace, tensors=False).findings if is_checked else ()
    findings = {(one.rule, one.call, one.node, one.what): one for one in (*_told(options.reports), *checked)}
    return {
        "model": printable(trace.model),
        "started": printable(trace.started),
        "duration": trace.duration,
        "folder": "" if trace.folder is None else printable(trace.folder.name),
        "versions": _pairs(trace.versions),
        "settings": _pairs(trace.settings),
        "hasGraphs": trace.call_graphs is not None,
        "partial": _partial(trace),
        "bodies": body_columns(bodies),
        **call_columns(trace, bodies, texts),
        "steps": step_columns(trace, texts),
        "values": value_columns(trace.values, texts),
        "parameters": parameter_columns(trace.parameters, texts),
        "notes": note_data([*unchecked, *trace.notes, *map(Note, options.remarks), *left_out]),
        "findings": finding_data(_worst_first(findings.values()), places),
        "neverCalled": _never_called(trace),
        "lines": [[printable(source), printable(text)] for source, text in trace.named_lines().items()],
        "measures": measures,
        "histograms": histogram_columns(options.histograms),
        **report_data(trace, options.reports, places, texts),
    }


def _worst_first(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _told(reports: Iterable[ReportData[Any]]) -> Iterator[Finding]:
    """Yield the findings of reports; each names the analysis that it is of."""
    for report in reports:
        for finding in report.findings:
            yield finding if finding.analysis else replace(finding, analysis=report.analysis)


_UNCHECKED = (
    "findings were not looked for: the graphs have {:,} nodes (export(..., check=True) looks for them, and so does "
    "fxdebug check)"
)


def _size_of(trace: TraceData) -> int:
    """Return the number of nodes in the graphs of a run. Raises ``UsageError`` where a page cannot show so many."""
    bodies = () if trace.call_graphs is None else trace.call_graphs.bodies
    size = sum(len(body.results) for body in bodies if body is not None)
    if size > LARGEST:
        raise UsageError(
            f"{trace.model}: a page of a run whose graphs have {size:,} nodes would take minutes, and {LARGEST:,} is "
            "the most: trace a part of the model (fx_debug(model.part, ...)), or the calls alone (graph=False). "
            "Of this run trace.text(depth=2), trace.find(...) and trace.check() tell"
        )
    return size


def _never_called(trace: TraceData) -> list[list[Any]]:
    """Return the modules that were never called, each with the call it stands directly in, -1 inside another one."""
    calls = {"": 0, **{call.path: call.index for call in reversed(trace.calls)}}
    missing = set(trace.never_called)
    listed: list[list[Any]] = []
    for path in trace.never_called:
        around = path.rpartition(".")[0]
        while around not in calls and around not in missing:
            around = around.rpartition(".")[0]
        listed.append([printable(path), printable(trace.modules[path]), calls.get(around, -1)])
    return listed


def _partial(trace: TraceData) -> str:
    """Return in a sentence why a run is not whole; empty where it is."""
    if trace.error is not None:
        return f"The run raised {printable(str(trace.error))}"
    open_calls = [call for call in trace.calls if call.outputs is None and call.error is None]
    if open_calls:
        inside = printable(open_calls[-1].path or trace.model)
        return f"The run ended inside {inside}: its process was killed, or it is still running"
    return ""


def _pairs(facts: Mapping[str, Any]) -> list[list[str]]:
    return [[printable(str(name)), printable(str(fact))] for name, fact in facts.items()]
