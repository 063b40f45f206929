"""``make bench-compare`` on a few pairs: it counts, tells, and fails when it should."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import ModuleType

import pytest


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
