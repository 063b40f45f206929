"""``make zoo`` on one small model: it tells what is equal, and fails on what is not."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from support import parity


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
