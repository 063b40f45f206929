"""``make bench`` on one small model: it measures, tells, and fails when it should."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

import fxdebug


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
