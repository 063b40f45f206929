"""``make bench`` and ``make zoo`` on one small model each: they measure, tell, and fail when they should."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

from support import parity
import pytest

import fxdebug

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool that the test's first words name, as a module under a name of its own."""
    names = sorted((path.stem for path in TOOLS.glob("*.py")), key=len, reverse=True)
    name = next(name for name in names if request.function.__name__.startswith(f"test_{name}_"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location(f"{name}_tool", TOOLS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_bench_writes_what_it_measured(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BARS", [tool.Bar("mlp-12", "tree", "reference, repr", 1e6)])
    monkeypatch.setattr(tool, "kernel_verdicts", list)  # a busy machine may miss those bars
    path = tmp_path / "new" / "bench.json"
    modes = ["tree", "drop-in, files", "reference, repr"]
    options = ["--models", "mlp-12", "--modes", *modes, "--rounds", "2"]
    assert tool.main([*options, "--json", str(path), "--baseline", str(path)]) == 0
    written = json.loads(path.read_text())
    found = written["models"]["mlp-12"]["modes"]
    assert list(found) == modes
    for cost in found.values():
        assert cost["rounds"] == 2
        assert cost["quartiles_s"][0] <= cost["median_s"] <= cost["quartiles_s"][1]
        assert cost["ratio_to_plain"] > 0  # in two rounds on a busy machine it may be less than one
        assert cost["added_of"]["reference, repr"] == pytest.approx(cost["added_s"] / found[modes[2]]["added_s"])
    assert written["bars"][0]["met"]
    assert written["versions"]["fxdebug"] == fxdebug.__version__
    shown = capsys.readouterr().out
    assert all(mode in shown for mode in modes)
    assert "met: tree on mlp-12: at most" in shown


def test_bench_fails_when_a_bar_is_missed(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    beyond_reach = -1e9  # in the noise of a busy machine even a share of what is added can be less than nothing
    monkeypatch.setattr(tool, "BARS", [tool.Bar("mlp-12", "tree", "reference, repr", beyond_reach)])
    options = ["--models", "mlp-12", "--modes", "tree", "reference, repr", "--rounds", "1"]
    options += ["--baseline", str(tmp_path / "none.json")]
    assert tool.main([*options, "--json", str(tmp_path / "bench.json")]) == 1
    assert "MISSED: tree on mlp-12: at most" in capsys.readouterr().out


def test_bench_tells_what_got_slower(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "BARS", [])
    monkeypatch.setattr(tool, "kernel_verdicts", list)  # how fast this machine is at the moment is no matter here
    before = tmp_path / "before.json"
    options = ["--models", "mlp-12", "--modes", "tree", "hooks", "--rounds", "1", "--json", str(tmp_path / "now.json")]
    for then, status in ((1e-3, 1), (1e6, 0)):
        known = {"modes": {mode: {"ratio_to_plain": then} for mode in ("tree", "hooks")}}
        before.write_text(json.dumps({"models": {"mlp-12": known}}))
        assert tool.main([*options, "--baseline", str(before)]) == status
        slower = [line for line in capsys.readouterr().out.splitlines() if line.startswith("SLOWER")]
        assert [line.split(":")[1].strip() for line in slower] == ["tree on mlp-12"] * status


def test_zoo_tells_what_is_equal(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["flow/early-exit"]) == 0
    shown = capsys.readouterr().out
    assert "1/1 flow/early-exit" in shown
    assert "1 models; the reference runs 1, the drop-in all: 4 of 4 runs that both finish wrote the same files" in shown


def test_zoo_fails_on_a_difference_nobody_explained(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(parity.KNOWN, "flow/caught-exception")
    assert tool.main(["flow/caught-exception"]) == 1
    shown = capsys.readouterr().out
    assert "DIFFERS" in shown
    assert "NOT EXPLAINED: flow/caught-exception" in shown


def test_zoo_names_the_defects_it_knows(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["flow/caught-exception"]) == 0
    assert "defects of the reference (flow/caught-exception)" in capsys.readouterr().out


def test_zoo_judges_graphs(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["flow/early-exit", "--only", "graphs"]) == 0
    shown = capsys.readouterr().out
    assert "26 of 26 calls verified" in shown
    assert "met     silently wrong verified graphs over the zoo: 0 of 26 executed" in shown


def test_zoo_fails_on_a_wrong_graph(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from support import audit

    monkeypatch.setattr(audit, "problem_with", lambda explained, kept: "other bits")
    assert tool.main(["flow/branch-on-data", "--only", "graphs"]) == 1
    shown = capsys.readouterr().out
    assert "GRAPHS WRONG" in shown
    assert "MISSED  silently wrong verified graphs over the zoo: 4 of 4 executed" in shown


def test_zoo_puts_its_summary_between_the_marks(tool: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- zoo summary -->\nold\n<!-- /zoo summary -->\nbelow\n")
    tool.put_between(page, "zoo summary", "new \\1")
    assert page.read_text() == "above\n<!-- zoo summary -->\n\nnew \\1\n\n<!-- /zoo summary -->\nbelow\n"


def test_bench_compare_counts_what_is_named_and_what_is_quiet(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    only = ["--only", "faults", "--only", "equal", "--jobs", "1", "--json", str(path)]
    assert tool.main(["vit/pooled-at-the-last-token", "twice/vit", *only]) == 0
    shown = capsys.readouterr().out
    assert "statistics: right; tensors: right" in shown
    assert "| **all** | 1 | 1 | 1 | 1 | 1 |" in shown
    assert "| the same; the reference saved | 1 | 1 | 0 |" in shown
    assert "met     planted faults whose call is named: 2 of 2" in shown
    assert "Misses" not in shown
    assert [found["part"] for found in json.loads(path.read_text())] == ["faults"] * 2 + ["equal"] * 3


def test_bench_compare_fails_on_misses_and_false_alarms(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults.bench import EQUAL, FAULTS

    name, faulty = "vit/pooled-at-the-last-token", FAULTS["vit/norm-without-bias"].build
    monkeypatch.setitem(FAULTS, name, dataclasses.replace(FAULTS[name], calls=frozenset(["layernorm"])))
    monkeypatch.setitem(EQUAL, "twice/vit", dataclasses.replace(EQUAL["twice/vit"], build=faulty))
    assert tool.main([name, "twice/vit", "--only", "faults", "--only", "equal", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert f"- {name}, statistics and tensors: named `pooler` `getitem`" in shown
    assert re.search(
        r"- twice/vit, statistics and tensors and saved: \d+ found, first layers\.1\.layernorm_before", shown
    )
    assert "MISSED  planted faults whose call is named: 0 of 2" in shown
    assert "MISSED  pairs and models in which nothing is found: 0 of 3" in shown


def test_bench_compare_counts_only_pairs_that_are_equal(
    tool: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from faults import zoo_pairs

    monkeypatch.setattr(zoo_pairs, "difference", lambda a, b: "bits")
    assert tool.main(["flow/early-exit", "--only", "zoo", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "twice: none; saved: none" in shown
    assert "its outputs differ: bits" in shown
