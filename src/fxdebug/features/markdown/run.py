"""The state of a run as Markdown, to paste into an issue: environment, call tree, findings, or a comparison."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fxdebug.analyses.numbers.numerics import check_numerics
from fxdebug.comparison.result import ComparisonData
from fxdebug.data.findings import Finding
from fxdebug.data.trace import TraceData, replaced
from fxdebug.exports.comparison import text as comparison_text
from fxdebug.exports.comparison.finding import error_of, short
from fxdebug.exports.text import tree
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable, printable_lines
from fxdebug.version import __version__

WIDTH = 100
MOST_FINDINGS = 20
_SPECIAL = frozenset("\\`*_[]<>#|~&@")  # of Markdown, HTML, and names of people on forges
_SETTINGS = ("values", "dtype", "grad", "default_dtype", "prune", "rank", "world_size")


def write_run(trace: TraceData, path: Path, *, fold: bool = True, depth: int | None = None) -> Path:
    """Write the environment, the call tree with repeated layers once, and what ``check`` finds in the numbers."""
    return write_text(path, run_markdown(trace, fold=fold, depth=depth))


def write_comparison(comparison: ComparisonData, path: Path, *, fold: bool = True) -> Path:
    """Write the environments of both runs, the text of ``compare``, and a table of the findings."""
    return write_text(path, comparison_markdown(comparison, fold=fold))


def run_markdown(trace: TraceData, *, fold: bool = True, depth: int | None = None) -> str:
    """Return the state of a run."""
    parts = [f"# {_plain(trace.model)}: {_state(trace)}", _table(("environment", ""), _environment(trace).items())]
    if trace.error is not None:
        parts += [_failure(trace)]
    parts += ["## Calls", _code(tree(_without_folders(trace), width=WIDTH, color=False, fold=fold, depth=depth))]
    findings = check_numerics(trace).findings
    parts += ["## Findings", _findings(findings) if findings else "`check` found nothing wrong with the numbers."]
    return "\n\n".join(parts) + f"\n\n{_signed()}\n"


def comparison_markdown(comparison: ComparisonData, *, fold: bool = True) -> str:
    """Return a comparison."""
    title = f"# {_plain(comparison.a.model)} and {_plain(comparison.b.model)}: {comparison.verdict}"
    a, b = _environment(comparison.a), _environment(comparison.b)
    rows = [(name, a.get(name, ""), b.get(name, "")) for name in dict.fromkeys([*a, *b])]
    parts = [title, _table(("environment", "a", "b"), rows)]
    screen = comparison_text.screen(comparison, width=WIDTH, color=False, fold=fold)
    parts += ["## Comparison", _code(_without_places(screen, comparison.a, comparison.b))]
    if comparison.findings:
        shown = comparison.findings[:MOST_FINDINGS]
        places = [(row.where, str(row.kind), error_of(row), short(row.source or ""), row.because) for row in shown]
        parts += ["## Findings", _table(("where", "kind", "error", "line", "because"), places)]
        parts += _left_out(len(comparison.findings))
    return "\n\n".join(parts) + f"\n\n{_signed()}\n"


def _state(trace: TraceData) -> str:
    return "the run raised" if trace.error is not None else f"a run of {len(trace.calls)} calls"


def _environment(trace: TraceData) -> dict[str, str]:
    devices = sorted({value.device for value in trace.values})
    dtypes = sorted({one.dtype for one in trace.parameters if one.kind == "parameter"})
    facts = {"started": trace.started, **trace.versions}
    facts |= {name: str(trace.settings[name]) for name in _SETTINGS if name in trace.settings}
    facts |= {"devices": ", ".join(devices), "parameters": ", ".join(dtypes)}
    return {name: text for name, text in facts.items() if text}


def _failure(trace: TraceData) -> str:
    failed = next((call for call in trace.calls if call.error is not None and call.error.here), trace.root)
    source = (
        "" if failed.error is None or failed.error.source is None else f" at `{_in_code(short(failed.error.source))}`"
    )
    text = _code(printable_lines(str(failed.error or trace.error)))
    return f"Raised in `{_in_code(failed.path or trace.model)}`{source}:\n\n{text}"


def _without_folders(trace: TraceData) -> TraceData:
    """Return the run with the names of source files in place of their paths: a report is read by others."""
    if trace.error is None:
        return trace
    calls = []
    for call in trace.calls:
        error = call.error
        if error is not None:
            error = replace(error, source=None if error.source is None else short(error.source))
        calls.append(replace(call, error=error, source=None if call.source is None else short(call.source)))
    return replaced(trace, calls=tuple(calls))


def _without_places(text: str, *traces: TraceData) -> str:
    """Return text without the folders of the runs."""
    for trace in traces:
        if trace.folder is not None:
            text = text.replace(str(trace.folder), trace.folder.name)
    return text


def _findings(findings: Sequence[Finding]) -> str:
    rows = [
        (one.severity, one.rule, one.node or one.call or one.path, short(one.source or ""), one.what)
        for one in findings[:MOST_FINDINGS]
    ]
    table = _table(("severity", "rule", "where", "line", "what"), rows)
    return "\n\n".join([table, *_left_out(len(findings))])


def _left_out(count: int) -> list[str]:
    return [f"And {count - MOST_FINDINGS} more."] if count > MOST_FINDINGS else []


def _signed() -> str:
    return f"Written by fxdebug {__version__} on Python {platform.python_version()}."


# Markdown ----------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]] | Mapping[str, str]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_plain, row))} |" for row in rows)])


def _plain(text: str) -> str:
    """Return text that Markdown and HTML show as it is."""
    shown = printable(text)
    shown = shown if len(shown) <= 300 else f"{shown[:299]}…"
    return "".join([f"&#{ord(c)};" if c in _SPECIAL else c for c in shown])


def _in_code(text: str) -> str:
    return printable(text).replace("`", "'")


def _code(text: str) -> str:
    """Return lines as they are, between fences that are longer than any in them."""
    longest = max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
