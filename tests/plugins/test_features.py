"""A package of some lines brings a feature that does what a built-in one does; broken ones are told and left out."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from support.begun import FXDEBUG, TORCH, ran
from support.package import python_with_package

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "fxdebug-widths"
version = "2.0"

[tool.setuptools]
py-modules = ["widths", "broken"]

[project.entry-points."fxdebug.features"]
widths = "widths:FEATURE"
gradients = "broken:OURS"
number = "broken:NUMBER"
lost = "no_such_module:FEATURE"
parts = "broken:PARTS"
fails = "broken:FAILS"
"""
BROKEN = """
from fxdebug.plugins.feature import Feature
from fxdebug.plugins.given import RunFiles

OURS = Feature(name="gradients", functions={"gradients": "broken:missing"})
PARTS = Feature(
    name="parts", rules="broken:no_rules", commands="no_such_module:COMMANDS", measures=("no_such_module",),
    folder="no_such_module:FOLDER",
)
FAILS = Feature(name="fails", on_run="broken:fails", sheet="broken:fails", opens="broken:OPENS")
NUMBER = 3

def fails(trace, limits=None):
    raise KeyError("planted")

OPENS = RunFiles(fails, lambda folder: folder / "one.odd", fails)

def ends(given, limits):
    raise SystemExit(3)

def number(given, limits):
    return 3
"""
SOURCE = Path(__file__).parents[1] / "support" / "widths.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {"pyproject.toml": PROJECT, "widths.py": SOURCE.read_text(encoding="utf-8"), "broken.py": BROKEN}
    return python_with_package(tmp_path_factory.mktemp("plugin"), files)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 3))
    fxdebug.fx_debug(model, torch.ones(1, 2), save=folder, values="tensors")
    return folder


def told(python: Path, *arguments: object, status: int = 0, imports: str = FXDEBUG) -> str:
    done = ran([python, *map(str, arguments)], imports=imports)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_features_are_listed_with_what_they_add_and_broken_ones_tell_why(python: Path) -> None:
    assert told(python, "-m", "fxdebug", "plugins", imports=TORCH).splitlines() == [
        "features",
        "  fails  adds an analysis of check (fxdebug-widths 2.0)",
        "  widths  adds fxdebug.widths, an analysis of check, the command widths_of_run",
        "    (fxdebug-widths 2.0)",
        "  gradients  does not work: fxdebug has gradients itself (fxdebug-widths 2.0)",
        "  lost  does not work: ModuleNotFoundError: No module named 'no_such_module'",
        "    (fxdebug-widths 2.0)",
        "  number  does not work: broken:NUMBER is int, not a Feature (fxdebug-widths",
        "    2.0)",
        "  parts  does not work: ModuleNotFoundError: No module named 'no_such_module'",
        "    (fxdebug-widths 2.0)",
        "",
        "exporters",
        "  .calls  widths:write_run (fxdebug-widths 2.0)",
        "",
        "measures",
        "  rows  Rows of what a call returns. (fxdebug-widths 2.0)",
    ]


def test_its_analysis_is_a_function_and_a_part_of_check_with_rules_and_thresholds(python: Path, saved: Path) -> None:
    shown = told(
        python, "-c",
        f"import fxdebug; run = fxdebug.load({str(saved)!r}); print([row.width for row in fxdebug.widths(run).rows])\n"
        "print([(one.rule, one.analysis, one.call) for one in fxdebug.check(run)], 'widths' in fxdebug.__all__)",
    ).splitlines()  # fmt: skip
    assert shown == [
        "[8, 3]",
        "[('wide layer', 'widths', '0#0'), ('not looked at', 'fails', 'Sequential#0')] True",
    ]
    report = json.loads(told(python, "-m", "fxdebug", "check", saved, "--json", status=1))
    assert report["findings"][0]["threshold"] == 4
    limit = ("--limit", "widths.most=8", "--off", "fails.not looked at")
    told(python, "-m", "fxdebug", "check", saved, *limit)
    told(python, "-m", "fxdebug", "check", saved, "--off", "wide layer", "--off", "fails.not looked at")
    rules = told(python, "-m", "fxdebug", "rules")
    assert "widths.most = 4: numbers in a row; a guess" in rules


def test_a_model_is_checked_by_it_too(python: Path) -> None:
    code = (
        "import torch, fxdebug; from torch import nn\n"
        "found = fxdebug.check(nn.Sequential(nn.Linear(2, 8)), torch.ones(1, 2), analyses=['widths'])\n"
        "print([(one.rule, one.severity) for one in found])"
    )
    assert told(python, "-c", code) == "[('wide layer', 'error')]\n"


def test_its_command_prints_its_report_and_writes_its_picture_and_its_file(
    python: Path, saved: Path, tmp_path: Path
) -> None:
    command = (python, "-m", "fxdebug", "widths_of_run", saved, "--fail-on", "never")
    assert told(*command).splitlines()[:4] == ["widths of Sequential", "call width", "0        8", "1        3"]
    told(*command, "-o", tmp_path / "run.svg")
    assert "widths of layers" in (tmp_path / "run.svg").read_text() or (tmp_path / "run.svg").stat().st_size > 5000
    told(*command, "-o", tmp_path / "run.widths")
    assert (tmp_path / "run.widths").read_text() == "0#0 8\n1#0 3\n"
    assert "widths_of_run" in told(python, "-m", "fxdebug", "--help")


def test_its_measure_is_a_condition_once_it_is_attached_and_its_sheet_is_on_the_page(
    python: Path, saved: Path, tmp_path: Path
) -> None:
    code = (
        f"import fxdebug; run = fxdebug.load({str(saved)!r}); run = run.with_measures(fxdebug.widths(run))\n"
        "print([call.id for call in run.find(where='width > 4')])\n"
        f"run.export({str(tmp_path / 'run.html')!r})"
    )
    assert told(python, "-c", code) == "['0#0']\n"
    assert "width" in told(python, "-m", "fxdebug", "measures")
    page = told(
        python, "-c", f"from fxdebug.api.page.tensors import kept_in; import fxdebug\n"
        f"kept = kept_in(fxdebug.load({str(saved)!r}), ())\n"
        "print([one.analysis for one in kept['reports']], [one.partition(':')[0] for one in kept['remarks']])"
    )  # fmt: skip
    assert page == "['widths'] ['no fails of fxdebug-widths 2.0']\n"


def test_its_command_of_the_console_and_its_tool_for_agents_answer(python: Path, saved: Path) -> None:
    assert told(python, "-m", "fxdebug", "debug", saved, "-c", "widths").splitlines()[-1] == "[8, 3]"
    if importlib.util.find_spec("mcp") is None:
        return
    code = (
        "import asyncio; from pathlib import Path; from mcp import Client\n"
        "from fxdebug.features.mcp.mcp_server import server_of\n"
        "async def ask():\n"
        f"    async with Client(server_of(Path({str(saved.parent)!r}))) as client:\n"
        "        told = [tool.description for tool in (await client.list_tools()).tools if tool.name == 'widths']\n"
        "        return told, (await client.call_tool('widths', {'run': 'run'})).content[0].text.splitlines()[:2]\n"
        "print(asyncio.run(ask()))"
    )
    assert told(python, "-c", code) == (
        "(['The width of every linear layer of a run.'], ['widths of Sequential', 'call width'])\n"
    )


@pytest.mark.parametrize(
    ("feature", "reason"),
    [
        ("Feature(name='odd', on_run='broken:fails')", "it raised KeyError: 'planted'"),
        ("Feature(name='odd', on_run='no_such_module:f')", "it raised ModuleNotFoundError: No module named"),
        ("Feature(name='odd', on_model='broken:ends')", "it raised SystemExit: 3"),
        ("Feature(name='odd', on_model='broken:number')", "it returned int, not a report"),
    ],
)
def test_an_analysis_that_fails_on_a_model_is_told_and_the_others_are_done(
    python: Path, tmp_path: Path, feature: str, reason: str
) -> None:
    code = (
        "import sys, torch, fxdebug; from dataclasses import replace; from torch import nn\n"
        "from fxdebug.plugins import features; from fxdebug.plugins.feature import Feature\n"
        f"every = (*features.built_in(), replace({feature}, package='other 1.0'))\n"
        "features.features = lambda: every\n"
        "print(fxdebug.check(nn.Linear(2, 8), torch.ones(1, 2), analyses=['odd', 'weights']))"
    )
    shown = " ".join(told(python, "-c", code, imports=TORCH).split())
    assert f"odd was not looked at: {reason}" in shown and "Checked: weights." in shown


def test_it_takes_a_measure_and_writes_runs(python: Path, saved: Path, tmp_path: Path) -> None:
    assert told(python, "-m", "fxdebug", "find", saved, "--where", "rows > 0", "--csv").count("\n") == 4
    told(python, "-m", "fxdebug", "export", saved, "-o", tmp_path / "run.calls")
    assert (tmp_path / "run.calls").read_text() == "#0 0#0 1#0"


def test_it_opens_files_of_its_own_as_runs(python: Path, saved: Path, tmp_path: Path) -> None:
    shortcut = tmp_path / "file" / "saved.run"
    shortcut.parent.mkdir()
    shortcut.write_text(str(saved))
    assert told(python, "-m", "fxdebug", "show", shortcut) == told(python, "-m", "fxdebug", "show", saved)
    code = (
        f"import fxdebug\ntry:\n    fxdebug.load({str(tmp_path)!r})\nexcept fxdebug.LoadError as error:\n"
        "    print(error)"
    )
    said = "one.odd cannot be read by fxdebug-widths 2.0: KeyError: 'planted'"
    assert told(python, "-c", code).replace(str(tmp_path), "").strip(f"{os.sep}\n") == said


def test_it_checks_and_exports_folders_of_its_own(python: Path, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "of.run").write_text(str(saved))
    checked = told(python, "-m", "fxdebug", "check", tmp_path, status=1)
    assert "rows of 8 numbers" in checked
    told(python, "-m", "fxdebug", "export", tmp_path, "-o", tmp_path / "out.widths")
    assert (tmp_path / "out.widths").read_text() == "0#0 8\n1#0 3\n"


def test_serve_and_agents_list_its_folders_with_its_card_and_its_verdict(
    python: Path, saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    (folder / "of.run").write_text(str(saved))
    code = (
        "from pathlib import Path; from fxdebug.features.serve import runs, server, start_page\n"
        "from fxdebug.features.mcp.answers import Runs, list_runs, training\n"
        f"folder = Path({str(tmp_path)!r}); found = runs.runs_in(folder)\n"
        "page = start_page.start_page(folder, found, server._Cards().of(found.values()))\n"
        "print(page.partition('<h2>')[2].partition('</article>')[0].replace('><', '>\\n<'))\n"
        "print(list_runs(Runs(folder)), training(Runs(folder), 'measured')[0])"
    )
    shown = told(python, "-c", code)
    assert shown.startswith("Widths</h2>") and "measured</a>" in shown and "checkbox" not in shown
    assert '<p class="verdict">the widest row has 8 numbers</p>' in shown and "<span>2 layers</span>" in shown
    assert "/now/" not in shown
    assert shown.splitlines()[-1] == (
        "['measured: widths of a run, measured: the widest row has 8 numbers; `training` reports it'] "
        "the widest row has 8 numbers"
    )


def test_it_draws_in_a_layout_of_its_own_and_tells_what_it_finds_beside_a_comparison(
    python: Path, saved: Path, tmp_path: Path
) -> None:
    code = (
        f"import fxdebug; run = fxdebug.load({str(saved)!r})\n"
        f"run.export({str(tmp_path / 'run.svg')!r}, layout='line')\n"
        "print(fxdebug.compare(run, run).notes)\n"
        "try:\n    run.export('run.svg', layout='circle')\nexcept fxdebug.UsageError as error:\n    print(error)"
    )
    assert told(python, "-c", code).splitlines() == [
        "('widths: 8 and 8',)",
        "layout='circle': use page (as in the page of a run), line or dot (Graphviz)",
    ]
    assert (tmp_path / "run.svg").read_text() == "0#0→1#0"


@pytest.mark.parametrize(
    "first", ["analyses.rules.table", "exports.report.text", "exports.registry", "features.mcp.answers"]
)
def test_it_works_whichever_part_of_fxdebug_is_imported_first(python: Path, first: str) -> None:
    code = f"import fxdebug.{first}; from fxdebug.plugins.features import broken; print([one[0] for one in broken()])"
    assert "widths" not in told(python, "-c", code, imports=TORCH)
