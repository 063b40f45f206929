"""The pytest plugin: the fixture ``trace_regression`` compares a model with a golden trace beside the test.

    def test_the_forward_pass(trace_regression):
        trace_regression.check(model, inputs)

``pytest --fxdebug-update`` writes the golden traces again. ``pytest --fxdebug-debug`` opens the console where a run
differs from its golden trace. Torch is imported when a test first uses the fixture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fxdebug
from fxdebug import api
from fxdebug.errors import LoadError

if TYPE_CHECKING:
    from fxdebug.api.trace import Trace

FOLDER = "golden_traces"  # beside the test file; in it a folder for each test file
SUFFIX = ".json.gz"
LONGEST = 120  # characters of a file name, so that it can be checked out on every system

_PROPERTY = "fxdebug golden trace"
_UNSAFE = re.compile(r"[^\w.,=+-]+")


class TraceRegression:
    """Compare the runs of one test with their golden traces in ``folder``.

    ``test`` names the files and ``id`` is the test's id for pytest. ``written`` is called with a line about each file
    that an update wrote. ``debug`` is called with a run that differs and the path of its golden trace.
    """

    def __init__(
        self,
        folder: Path,
        test: str,
        id: str,
        *,
        update: bool,
        root: Path,
        written: Callable[[str], None],
        debug: Callable[[Trace, Path], None] | None = None,
    ) -> None:
        self._folder = folder
        self._test = test
        self._id = id
        self._update = update
        self._root = root
        self._written = written
        self._debug = debug
        self._checks = 0

    def check(
        self,
        model: Any,
        inputs: Any = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        tolerance: float | None = None,
        ignore: str | Iterable[str] = (),
        mapping: Mapping[str, str] | str | None = None,
    ) -> Trace:
        """Run the model once and return its trace; fail the test if the trace differs from its golden trace.

        ``inputs`` and ``kwargs`` are those of :func:`fxdebug.fx_debug`, the rest those of :func:`fxdebug.compare`.
        The golden file is named after the test, with ``-2`` for a second check in it, and so on. ``name`` names it
        instead; tests with the same ``name`` share the file. Nothing is seeded: seed a model that draws random numbers
        in the test. An exception of the model is raised unchanged.
        """
        self._checks += 1
        path = self._path(name)
        trace = api.fx_debug(model, inputs, kwargs, values="samples")
        if self._update:
            self._write(trace, path)
        elif not path.exists():
            pytest.fail(self._missing(path), pytrace=False)
        else:
            self._compare(path, trace, tolerance=tolerance, ignore=ignore, mapping=mapping)
        return trace

    def _path(self, name: str | None) -> Path:
        if name is None:
            name = self._test if self._checks == 1 else f"{self._test}-{self._checks}"
        return self._folder / (file_name(name) + SUFFIX)

    def _write(self, trace: Trace, path: Path) -> None:
        before = path.read_bytes() if path.exists() else None
        api.save_golden(trace, path)
        after = path.read_bytes()
        what = "new" if before is None else "as it was" if before == after else "changed"
        self._written(f"{self._shown(path)}  {len(trace.calls)} calls, {len(after) / 1024:.0f} KiB, {what}")

    def _compare(self, path: Path, trace: Trace, **options: Any) -> None:
        golden, damage = None, ""
        try:
            golden = api.load(path)
        except LoadError as error:
            damage = str(error)
        if golden is None:
            pytest.fail(f"{damage}\n{self._advice('write it again')}", pytrace=False)
        comparison = api.compare(golden, trace, **options)
        if comparison.equal:
            return
        if self._debug is not None:
            self._debug(trace, path)
        first = comparison.first
        place = "" if first is None else f" in {first.where}"
        what = "differs from" if comparison.verdict == "different" else "could not be compared with"
        lines = [f"the run {what} its golden trace{place}", "", str(comparison), ""]
        other = [
            f"{name} {version}, now {trace.versions.get(name, 'not loaded')}"
            for name, version in golden.versions.items()
            if trace.versions.get(name) != version
        ]
        if other:
            lines.append(f"the golden trace was made with {'; '.join(other)}")
        lines += [f"golden trace (a): {self._shown(path)}", self._advice("if the change is intended")]
        pytest.fail("\n".join(lines), pytrace=False)

    def _missing(self, path: Path) -> str:
        return (
            f"there is no golden trace {self._shown(path)}\n{self._advice('write it')}\n"
            f"look at it: fxdebug show {self._shown(path)}, and keep it with the test"
        )

    def _advice(self, why: str) -> str:
        return f'{why}: pytest --fxdebug-update "{self._id}"'

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path)


def file_name(name: str) -> str:
    """Return a file name for every system: characters that some do not allow are replaced, and a digest is added.

    >>> file_name("test_forward[bert-2]"), file_name("test_forward")
    ('test_forward_bert-2-44c82b', 'test_forward')
    """
    import hashlib

    plain = _UNSAFE.sub("_", name).strip("_.")
    if plain == name and len(name) <= LONGEST:
        return name
    return f"{plain[: LONGEST - 7]}-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=3).hexdigest()}"


# Hooks and fixture -----------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--fxdebug-update`` and ``--fxdebug-debug``."""
    group = parser.getgroup("fxdebug", "golden traces of models")
    group.addoption(
        "--fxdebug-update",
        action="store_true",
        help="write the golden traces of trace_regression again, from what the models do now",
    )
    group.addoption(
        "--fxdebug-debug",
        action="store_true",
        help="open the console at the first difference where a run of trace_regression differs from its golden trace",
    )


@pytest.fixture
def trace_regression(request: pytest.FixtureRequest) -> TraceRegression:
    """Compare a model with the golden trace beside the test: ``trace_regression.check(model, inputs)``."""
    node, path = request.node, request.path
    names = [part.name for part in node.listchain() if isinstance(part, (pytest.Class, pytest.Item))]
    return TraceRegression(
        path.parent / FOLDER / path.stem,
        ".".join(names),  # not the node's id: pytest-xdist appends the name of a group to that
        "::".join([node.nodeid.partition("::")[0], *names]),
        update=request.config.getoption("--fxdebug-update"),
        root=request.config.rootpath,
        written=lambda line: node.user_properties.append((_PROPERTY, line)),  # pytest-xdist brings these along
        debug=_console(request.config) if request.config.getoption("--fxdebug-debug") else None,
    )


def _console(config: pytest.Config) -> Callable[[Trace, Path], None]:
    """Return a function that opens the console on a run, at its first difference from a golden trace."""
    if hasattr(config, "workerinput"):  # a process of pytest-xdist, which has no terminal
        raise pytest.UsageError("--fxdebug-debug needs the terminal: run pytest with -n 0")

    def converse(trace: Trace, golden: Path) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend(in_=True)
        try:
            fxdebug.post_mortem(trace, against=golden)
        finally:
            if capture is not None:
                capture.resume()

    return converse


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the golden traces that an update wrote."""
    if not terminalreporter.config.getoption("--fxdebug-update"):
        return
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    lines = [
        line
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, line in report.user_properties
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("golden traces written")
        for line in sorted(lines):
            terminalreporter.line(line)
