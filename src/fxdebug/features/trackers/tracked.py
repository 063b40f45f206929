"""A run or a report for programs that track experiments: parameters, metrics by step, tags and files."""

from __future__ import annotations

import importlib
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from fxdebug.analyses.measures import available, derive
from fxdebug.data.measures import CALL, names_in
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.errors import UsageError
from fxdebug.exports.registry import exporter
from fxdebug.exports.report import files as report_files
from fxdebug.exports.report import html as report_html
from fxdebug.files.write_file import write_text
from fxdebug.printable import printable_lines
from fxdebug.query.measures import STATISTICS, id_of, numbers_of
from fxdebug.query.network import network_of

MOST_METRICS = 5_000  # of one run: pages of these programs become slow with more
MOST_NODES = 20_000  # of a run whose page and graph are logged without being asked for: they take longer than the rest
LONGEST_NAME = 250
_SHOWN = ("duration", "params", "mean", "std", "absmax", "nan", "inf")


@dataclass(frozen=True)
class Tracked:
    """Parameters, tags and numbers of one run by name, and numbers by name and step."""

    name: str
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    step: int = 0

    def steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the metrics of each step."""
        rows: dict[int, dict[str, float]] = {self.step: dict(self.metrics)} if self.metrics else {}
        for name, numbers in self.series.items():
            for step, number in enumerate(numbers):
                if math.isfinite(number):
                    rows.setdefault(step, {})[name] = number
        yield from sorted(rows.items())


Log = Callable[[Tracked, Path, Path, Mapping[str, Any]], None]


def write_mlflow(
    trace: TraceData,
    path: Path,
    *,
    measures: str | Sequence[str] = (),
    step: int = 0,
    experiment: str = "fxdebug",
    tracking: str = "",
    artifacts: str | Sequence[str] | None = None,
) -> Path:
    """Log a run to MLflow: to the database ``path`` (``mlflow.db``), or to the server of the address ``tracking``.

    Metrics are ``time.self/h.0.attn#0``: each measure that was taken or is named in ``measures`` and some statistics,
    of every call, or of the outer ones where these would be more than 5,000. ``names.json`` beside the page and the
    graph has the run's names of metrics whose own names MLflow does not take. ``artifacts`` are the files to log, of
    ``run.html``, ``run.md`` and ``graph.json``: all of them, or none of a run with more than 20,000 operations. Raises
    ``MissingExtra`` without mlflow.
    """
    tracked, files = _tracked_run(trace, measures, step, artifacts)
    return _log("mlflow", tracked, files, path, {"experiment": experiment, "tracking": tracking})


def write_wandb(
    trace: TraceData,
    path: Path,
    *,
    measures: str | Sequence[str] = (),
    step: int = 0,
    project: str = "fxdebug",
    artifacts: str | Sequence[str] | None = None,
) -> Path:
    """Log a run for Weights & Biases into the folder ``path``, without a network; ``wandb sync`` sends it.

    Its metrics and ``artifacts`` are those of :func:`write_mlflow`. Raises ``MissingExtra`` without wandb.
    """
    tracked, files = _tracked_run(trace, measures, step, artifacts)
    return _log("wandb", tracked, files, path, {"project": project})


def report_to_mlflow(report: ReportData[Any], path: Path, *, experiment: str = "fxdebug", tracking: str = "") -> Path:
    """Log a report to MLflow: its totals, its measures of calls, and its series over steps."""
    options = {"experiment": experiment, "tracking": tracking}
    return _log("mlflow", _tracked_report(report), _files_of_report(report), path, options)


def report_to_wandb(report: ReportData[Any], path: Path, *, project: str = "fxdebug") -> Path:
    """Log a report for Weights & Biases: its totals, its measures of calls, and its series over steps."""
    return _log("wandb", _tracked_report(report), _files_of_report(report), path, {"project": project})


Writer = Callable[[Path], object]


def _log(program: str, run: Tracked, files: Mapping[str, Writer], path: Path, options: Mapping[str, Any]) -> Path:
    """Hand a run with its files to the program's own library, which is imported here and nowhere else."""
    client = importlib.import_module(f"fxdebug.features.trackers.{program}_client")
    log: Log = client.log
    with tempfile.TemporaryDirectory(prefix="fxdebug-") as folder:
        for name, write in files.items():
            write(Path(folder) / name)
        log(run, Path(folder), path, options)
    return path


# Runs --------------------------------------------------------------------------------------------


def _tracked_run(
    trace: TraceData, measures: str | Sequence[str], step: int, artifacts: str | Sequence[str] | None
) -> tuple[Tracked, dict[str, Writer]]:
    facts = {"model": trace.model, "method": trace.root.method, "started": trace.started}
    facts |= {"calls": str(len(trace.calls)), "values": str(len(trace.values))}
    facts |= {f"version.{name}": text for name, text in trace.versions.items()}
    facts |= {f"setting.{name}": str(one) for name, one in trace.settings.items()}
    tags = {"fxdebug.analysis": "trace"}
    if trace.error is not None:
        tags["fxdebug.raised"] = printable_lines(str(trace.error))
    names = _measures_to_log(trace, names_in(measures) if measures else ())
    depth = _deepest(trace, len(names))
    ids = {id_of(trace, call) for call in trace.calls if depth is None or call.depth <= depth}
    notes = []
    if depth is not None:
        notes.append(f"calls below depth {depth} have no metrics: there would be more than {MOST_METRICS}")
    files = _files_of_run(trace, artifacts)
    if artifacts is None and not files:
        notes.append(f"no artifacts: of a run with more than {MOST_NODES} operations they are logged when asked for")
    if notes:
        tags["fxdebug.note"] = "; ".join(notes)
    metrics = {"duration": trace.duration}
    for name in names:
        numbers = numbers_of(trace, name)
        found = {id: one for id, one in numbers.items() if id in ids and isinstance(one, (int, float))}
        metrics |= {f"{name}/{id}": float(one) for id, one in found.items() if math.isfinite(one)}
    return Tracked(trace.model, facts, metrics, tags=tags, step=step), files


def _measures_to_log(trace: TraceData, asked: Sequence[str]) -> list[str]:
    counted = ("flops",) if trace.graph_source is not None and len(trace.calls) <= MOST_METRICS else ()
    names = list(dict.fromkeys([*asked, *trace.taken, *counted, *_SHOWN]))
    derive(trace, *names)
    known = available(trace)
    return [name for name in names if name not in known or CALL in known[name].of or name in STATISTICS]


def _deepest(trace: TraceData, measures: int) -> int | None:
    """Return the depth down to which the metrics of all calls are few enough; ``None`` for all."""
    if len(trace.calls) * measures <= MOST_METRICS:
        return None
    depth, count = -1, 0
    at: dict[int, int] = {}
    for call in trace.calls:
        at[call.depth] = at.get(call.depth, 0) + 1
    while (count + at.get(depth + 1, 0)) * measures <= MOST_METRICS:
        depth += 1
        count += at[depth]
    return max(depth, 0)


def _files_of_run(trace: TraceData, asked: str | Sequence[str] | None) -> dict[str, Writer]:
    """Return the files to log and what writes each. Raises ``UsageError`` for one that there is not."""
    files: dict[str, Writer] = {
        "run.html": lambda path: exporter("trace", ".html")(trace, path),
        "run.md": lambda path: exporter("trace", ".md")(trace, path),
        "graph.json": lambda path: exporter("trace", ".json")(trace, path),
    }
    if asked is None:
        return files if len(network_of(trace).nodes) <= MOST_NODES else {}
    names = names_in(asked) if asked else ()
    wrong = next((name for name in names if name not in files), None)
    if wrong is not None:
        raise UsageError(f"artifacts={wrong!r}: a run has {', '.join(files)}")
    return {name: files[name] for name in names}


# Reports -----------------------------------------------------------------------------------------


def _tracked_report(report: ReportData[Any]) -> Tracked:
    facts = {"model": report.subject, "analysis": report.analysis}
    facts |= {f"setting.{name}": str(cell) for name, cell in report.settings.items()}
    totals = {name.strip(): cell for name, (cell, _) in report.totals.items()}
    metrics = {f"total/{name}": float(one) for name, one in totals.items() if isinstance(one, (int, float))}
    facts |= {f"total.{name}": str(one) for name, one in totals.items() if isinstance(one, str)}
    every = [(f"{name}/{id}", one) for name, numbers in report.measures.items() for id, one in numbers.items()]
    metrics |= {name: float(one) for name, one in every[:MOST_METRICS] if isinstance(one, (int, float))}
    metrics = {name: one for name, one in metrics.items() if math.isfinite(one)}
    tags = {"fxdebug.analysis": report.analysis, "fxdebug.findings": str(len(report.findings))}
    if len(every) > MOST_METRICS:
        tags["fxdebug.note"] = f"{len(every) - MOST_METRICS} numbers are in report.json only"
    return Tracked(f"{report.subject} {report.analysis}", facts, metrics, report.series, tags)


def _files_of_report(report: ReportData[Any]) -> dict[str, Writer]:
    return {
        "report.json": lambda path: report_files.write_json(report, path),
        "report.html": lambda path: report_html.write_page(report, path),
    }


# Names -------------------------------------------------------------------------------------------


def accepted_names(names: Sequence[str], allowed: str, longest: int = LONGEST_NAME) -> dict[str, str]:
    """Return a name for each that has only ``allowed`` letters (a class of a regular expression); all are different.

    A letter that is not allowed becomes its number between dashes, ``#`` for example ``-23-``, and so does a dash:
    :func:`own_name` reads it. A name that is too long keeps its ends, and has a number between them; ``names.json`` has
    such names in full.

    >>> accepted_names(["h.0#0", "h.0-23-0"], r"[A-Za-z0-9_.]")
    {'h.0#0': 'h.0-23-0', 'h.0-23-0': 'h.0-2d-23-2d-0'}
    """
    found: dict[str, str] = {}
    for name in names:
        accepted = "".join([c if c != "-" and re.fullmatch(allowed, c) else f"-{ord(c):x}-" for c in name])
        if len(accepted) > longest:
            mark = f"--{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}--"
            half = (longest - len(mark)) // 2
            accepted = f"{accepted[:half]}{mark}{accepted[-half:]}"
        found[name] = accepted
    return found


def own_name(accepted: str) -> str:
    """Return the name that :func:`accepted_names` made an accepted one of, unless it was too long.

    >>> own_name("h.0-23-0"), own_name("h.0-2d-23-2d-0")
    ('h.0#0', 'h.0-23-0')
    """
    return re.sub(r"-([0-9a-f]+)-", lambda found: chr(int(found[1], 16)), accepted)


def write_names(names: Mapping[str, str], path: Path) -> None:
    """Write the own names of metrics by those that a program accepted, where they differ."""
    changed = {accepted: name for name, accepted in names.items() if accepted != name}
    if changed:
        write_text(path, json.dumps(changed, indent=1))
