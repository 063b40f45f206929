"""A package of some lines adds an exporter, a measure, a rule and an analysis; broken ones are told and skipped."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from support.package import OneProcess, python_with_package

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "fxdebug-widths"
version = "1.2"

[tool.setuptools]
py-modules = ["widths", "ends"]

[project.entry-points."fxdebug.exporters"]
".rows" = "widths:write_rows"
"rows" = "widths:write_rows"
".bad" = "widths:missing"
".half" = "widths:write_half"
".svg" = "widths:write_rows"
".few" = "widths:write_few"
".ends" = "widths:write_and_end"
".none" = "widths:write_nothing"
".odd" = "widths:write_oddly"

[project.entry-points."fxdebug.measures"]
"widths.weights" = "widths:weights"
"widths.broken" = "widths:no_such_function"
"widths.list" = "widths:a_list"
"flops" = "widths:weights"
"widths.ends" = "ends:measure"

[project.entry-points."fxdebug.rules"]
"wide layer" = "widths:wide_layer"
"broken rule" = "widths:broken_rule"
"lost rule" = "no_such_module:rule"

[project.entry-points."fxdebug.analyses"]
"widths" = "widths:widths"
"broken" = "widths:broken"
"ending" = "widths:write_nothing_and_end"
"cells" = "widths:odd_cells"
"""

MODULE = '''
from math import prod

from fxdebug.plugins import found, measure, report, rule

def write_rows(trace, path, *, separator=" "):
    """Write a line for each call."""
    path.write_text("".join(f"{call.id}{separator}{call.type}\\n" for call in trace.calls))

@measure("B", adds=True)
def weights(trace):
    """Bytes of a call's own weights."""
    sizes = {}
    for weight in trace.parameters:
        path = weight.name.rpartition(".")[0]
        sizes[path] = sizes.get(path, 0) + 4 * prod(weight.shape)
    return {call.id: sizes.get(call.path, 0) for call in trace.calls}

@rule("error")
def wide_layer(trace):
    """A linear layer returns more than 4 numbers a row."""
    for call in trace.find(type="Linear"):
        if (width := call.outputs[0].shape[-1]) > 4:
            yield found(call, f"returns rows of {width} numbers", measured=width, threshold=4)

def widths(trace, least=0):
    """The width of every layer."""
    rows = [{"call": call.id, "width": call.outputs[0].shape[-1]} for call in trace.find(type="Linear")]
    return report("widths", trace, [row for row in rows if row["width"] >= least])

def broken_rule(trace):
    raise KeyError("planted")

def broken(trace):
    return 3

def write_half(trace, path):
    path.write_text("half")
    raise OSError(28, "No space left on device", str(path))

def write_few(trace, path):
    path.mkdir(exist_ok=True)
    path.joinpath("first").write_text("new")
    raise ValueError("planted")

def write_and_end(trace, path):
    path.write_text("half")
    raise SystemExit(3)

def write_nothing(trace, path):
    return 3

def write_oddly(trace):
    pass

def a_list(trace):
    return [1]

def write_nothing_and_end(trace):
    raise SystemExit(3)

def odd_cells(trace):
    return report("cells", trace, [{"call": "#0", "width": object()}])
'''

ENDS = "raise SystemExit(4)"  # a script without a guard, which ends whoever imports it


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the package, on top of the environment that runs these tests."""
    files = {"pyproject.toml": PROJECT, "widths.py": MODULE, "ends.py": ENDS}
    return python_with_package(tmp_path_factory.mktemp("plugin"), files)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    torch.manual_seed(0)
    fxdebug.fx_debug(nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 3)), torch.ones(1, 2), save=folder)
    return folder


@pytest.fixture(scope="module")
def process(python: Path) -> Iterator[OneProcess]:
    """A process of that environment, for one command after the other."""
    process = OneProcess(python)
    yield process
    process.close()


def told(process: OneProcess, *arguments: str, status: int = 0) -> str:
    ended, out, err = process.told("-m", "fxdebug", *arguments)
    assert ended == status, out + err
    return out if status != 2 else err


def test_plugins_are_listed_and_broken_ones_tell_why(python: Path, process: OneProcess) -> None:
    command = [str(python), "-m", "fxdebug", "plugins"]
    alone = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}, check=True)
    assert alone.stdout == told(process, "plugins")
    assert alone.stdout.splitlines() == [
        "exporters",
        "  .bad  does not work: AttributeError: module 'widths' has no attribute",
        "    'missing' (fxdebug-widths 1.2)",
        "  .ends  widths:write_and_end (fxdebug-widths 1.2)",
        "  .few  widths:write_few (fxdebug-widths 1.2)",
        "  .half  widths:write_half (fxdebug-widths 1.2)",
        "  .none  widths:write_nothing (fxdebug-widths 1.2)",
        "  .odd  widths:write_oddly (fxdebug-widths 1.2)",
        "  .rows  Write a line for each call. (fxdebug-widths 1.2)",
        "  .svg  does not work: fxdebug has .svg itself (fxdebug-widths 1.2)",
        "  rows  Write a line for each call. (fxdebug-widths 1.2)",
        "",
        "analyses",
        "  broken  widths:broken (fxdebug-widths 1.2)",
        "  cells  widths:odd_cells (fxdebug-widths 1.2)",
        "  ending  widths:write_nothing_and_end (fxdebug-widths 1.2)",
        "  widths  The width of every layer. (fxdebug-widths 1.2)",
        "",
        "measures",
        "  flops  does not work: fxdebug has flops itself (fxdebug-widths 1.2)",
        "  widths.broken  does not work: AttributeError: module 'widths' has no attribute",
        "    'no_such_function' (fxdebug-widths 1.2)",
        "  widths.ends  does not work: SystemExit: 4 (fxdebug-widths 1.2)",
        "  widths.list  widths:a_list (fxdebug-widths 1.2)",
        "  widths.weights  Bytes of a call's own weights. (fxdebug-widths 1.2)",
        "",
        "rules",
        "  broken rule  widths:broken_rule (fxdebug-widths 1.2)",
        "  lost rule  does not work: ModuleNotFoundError: No module named",
        "    'no_such_module' (fxdebug-widths 1.2)",
        "  wide layer  A linear layer returns more than 4 numbers a row. (fxdebug-widths",
        "    1.2)",
    ]
    listed = json.loads(told(process, "plugins", "--json"))
    assert listed["schema"] == "fxdebug.plugins/1" and len(listed["plugins"]) == 21


def test_an_exporter_is_chosen_by_suffix_or_name(process: OneProcess, saved: Path, tmp_path: Path) -> None:
    told(process, "export", str(saved), "-o", str(tmp_path / "run.rows"))
    assert (tmp_path / "run.rows").read_text() == "#0 Sequential\n0#0 Linear\n1#0 Linear\n"
    told(process, "export", str(saved), "-o", str(tmp_path / "run"), "--to", "rows", "--option", "separator=:")
    assert (tmp_path / "run").read_text() == "#0:Sequential\n0#0:Linear\n1#0:Linear\n"
    error = told(process, "export", str(saved), "-o", str(tmp_path / "run.bad"), status=2)
    assert "the plug-in '.bad' of fxdebug-widths 1.2 cannot be imported" in error and "Traceback" not in error


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        (".half", "failed: OSError: [Errno 28] No space left on device: '{}'"),
        (".few", "failed: ValueError: planted"),
        (".ends", "failed: SystemExit: 3"),
        (".none", "wrote nothing to {}"),
        (".odd", "cannot be called with a trace and a path: too many positional arguments"),
    ],
)
def test_an_exporter_that_fails_is_named_and_leaves_what_was_there(
    process: OneProcess, saved: Path, tmp_path: Path, suffix: str, reason: str
) -> None:
    path = tmp_path / f"run{suffix}"
    for is_new in (True, False):
        error = told(process, "export", str(saved), "-o", str(path), status=2)
        assert error == f"fxdebug: the plug-in '{suffix}' of fxdebug-widths 1.2 {reason.format(path)}\n"
        if is_new:
            assert list(tmp_path.iterdir()) == []
            if suffix == ".few":
                path.mkdir()
            (path / "first" if suffix == ".few" else path).write_text("earlier")
    assert [file.read_text() for file in tmp_path.rglob("*") if file.is_file()] == ["earlier"]


def test_an_exporter_may_write_a_folder_that_is_there_and_files_beside(tmp_path: Path) -> None:
    from fxdebug.files.write_file import all_written_whole

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    with all_written_whole(tmp_path / "out") as new:
        (new / "deep").mkdir(parents=True)
        (new / "deep" / "file").write_text("new")
        new.with_name("out.index").write_text("beside")
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"out/old": "old", "out/deep/file": "new", "out.index": "beside"}


def test_plugins_that_fail_leave_other_commands_alone(
    process: OneProcess, python: Path, saved: Path, tmp_path: Path
) -> None:
    told(process, "page", str(saved), "-o", str(tmp_path / "run.html"))
    error = told(process, "show", str(saved), "--columns", "widths.list", status=2)
    assert error.endswith("fxdebug-widths 1.2 returned list, not numbers by the id of a call or an operation\n")
    error = told(process, "analyse", "ending", str(saved), status=2)
    assert error == "fxdebug: the plug-in 'ending' of fxdebug-widths 1.2 failed: SystemExit: 3\n"
    error = told(process, "analyse", "cells", str(saved), status=2)
    assert error.startswith("fxdebug: row 0 of the report 'cells' has object as 'width'")
    code = "import sys; from fxdebug.apps.cli.main import main; main(sys.argv[1:]); assert 'widths' not in sys.modules"
    for arguments in (["find", saved, "--where", "nan > 0"], ["export", saved, "-o", tmp_path / "g.dot"]):
        subprocess.run([str(python), "-c", code, *map(str, arguments)], check=True, capture_output=True)


def test_a_measure_is_a_column_and_a_condition(process: OneProcess, saved: Path) -> None:
    shown = told(process, "show", str(saved), "--columns", "widths.weights")
    assert [line.split()[-1] for line in shown.splitlines()[1:]] == ["widths.weights", "B", "0", "96", "108"]
    found = told(process, "find", str(saved), "--where", "widths.weights > 100")
    assert "1#0" in found and "0#0" not in found
    assert "widths.weights" in told(process, "measures")


def test_a_rule_is_part_of_check_and_a_broken_one_a_warning(process: OneProcess, saved: Path) -> None:
    report = json.loads(told(process, "check", str(saved), "--json", status=1))
    assert [(one["rule"], one["severity"], one["call"], one["measured"]) for one in report["findings"]] == [
        ("wide layer", "error", "0#0", 8),
        ("not looked at", "warning", "Sequential#0", None),
        ("not looked at", "warning", "Sequential#0", None),
    ]
    notes = " ".join(report["notes"])
    assert "'broken rule' of fxdebug-widths 1.2 was skipped: KeyError: 'planted'" in notes
    assert "'lost rule' of fxdebug-widths 1.2 was skipped" in notes and "Checked: numbers, structure, plugins." in notes
    told(process, "check", str(saved), "--off", "wide layer", status=1)
    told(process, "check", str(saved), "--off", "wide layer", "--off", "plugins.not looked at")
    assert "wide layer" in told(process, "rules")


def test_an_analysis_answers_with_a_report(process: OneProcess, saved: Path) -> None:
    assert told(process, "analyse", "widths", str(saved), "--csv", "--option", "least=4").splitlines() == [
        "call,width", "0#0,8",
    ]  # fmt: skip
    error = told(process, "analyse", "width", str(saved), status=2)
    assert "no analysis 'width': there are broken, cells, ending, widths. Did you mean 'widths'?" in error
    assert "returned int, not a report" in told(process, "analyse", "broken", str(saved), status=2)


def test_without_plugins_the_list_says_where_they_are_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    from fxdebug.exports.plugins import plugins_text

    assert plugins_text(width=200) == (
        "No package that is installed adds anything. Entry points are looked for in fxdebug.exporters, "
        "fxdebug.analyses, fxdebug.measures, fxdebug.rules, fxdebug.features."
    )
