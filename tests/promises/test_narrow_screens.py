"""What terminals of 60 and of 80 columns show: lines fit, sentences begin at their beginning, columns are never cut."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Trace
from fxdebug.apps.cli.main import main
from fxdebug.cells import cell_len
from fxdebug.data.report import ReportData
from fxdebug.exports.report.text import own_text
from support.analyses import ANALYSES, RUN

WIDTHS = (60, 80)


class Reader(nn.Module):
    """Long names, equal layers, a layer that is never called, and a division by zero at the end."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.a_rather_long_name_of_an_encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.classification_head_for_sequences = nn.Linear(16, 2)
        self.a_layer_that_nobody_calls = nn.Linear(2, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        read = self.a_rather_long_name_of_an_encoder(tokens)
        return self.classification_head_for_sequences(read) / (tokens[:, :, :2] * 0)


@pytest.fixture(scope="module")
def reader() -> tuple[Reader, Tensor, Trace]:
    torch.manual_seed(0)
    model, tokens = Reader(), torch.randn(2, 5, 16)
    return model, tokens, fxdebug.fx_debug(model, tokens, values="tensors")


def trained(folder: Path) -> ReportData[Any]:
    """Return the report of a training whose loss rises at its end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with warnings.catch_warnings(), fxdebug.watch(model, optimizer, save=folder) as watched:
        warnings.simplefilter("ignore")
        for step in range(30):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean() * (1 if step < 27 else 1e4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watched.report()


def words(text: str) -> str:
    return "".join(text.split())


def told(report: ReportData[Any], text: str) -> Iterator[str]:
    """Yield the sentences of a report that its text does not begin to say."""
    shown = words(text)
    for finding in report.findings:
        if not own_text(report.analysis) and words(finding.what)[:30] not in shown:
            yield finding.what
    for note in report.notes:
        if not own_text(report.analysis) and words(note.what)[:30] not in shown:
            yield note.what


def unnamed(report: ReportData[Any], text: str) -> Iterator[str]:
    """Yield the headings of number columns that are neither shown nor said to be left out."""
    for one in (report, *report.parts):
        rows = [one.cells(row) for row in one.rows]
        for column in one.columns if not own_text(one.analysis) else ():
            if column.shown and column.unit and any(row[column.field] for row in rows) and column.heading not in text:
                yield column.heading


def too_wide(text: str, width: int) -> list[str]:
    return [line for line in text.splitlines() if cell_len(line) > width]


@pytest.mark.parametrize("name", [*ANALYSES, "watch"])
def test_every_report_fits_and_begins_its_sentences(name: str, reader: Any, tmp_path: Path) -> None:
    model, tokens, trace = reader
    if name == "watch":
        report = trained(tmp_path / "train")
    else:
        analysis = ANALYSES[name]
        given = (trace,) if analysis.needs == RUN else (model, tokens)
        report = analysis.function(*given, **analysis.options)
    for width in WIDTHS:
        text = report.text(width=width, color=False)
        assert too_wide(text, width) == []
        assert list(told(report, text)) == []
        assert list(unnamed(report, text)) == []
        assert not re.search(r"(^|\s)(error|warning|advice): #\d", text), "the run has a name"


def test_runs_calls_and_comparisons_fit(reader: Any) -> None:
    model, tokens, trace = reader
    with torch.no_grad():
        model.classification_head_for_sequences.bias.add_(1)
    other = fxdebug.fx_debug(model, tokens)
    for width in WIDTHS:
        for text in (trace.text(width=width, color=False), fxdebug.compare(trace, other).text(width=width)):
            assert too_wide(text, width) == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["show", "find", "measures", "rules", "plugins"])
def test_commands_fit(command: str, width: int, reader: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    arguments = {"show": [tmp_path / "run"], "find": [tmp_path / "run", "--type", "Linear"]}.get(command, [])
    if arguments:
        reader[2].save(tmp_path / "run")
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([command, *map(str, arguments)]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) > 1
    assert too_wide(text, width) == []


def test_an_order_of_columns_is_left_out_before_a_number_is_cut(reader: Any) -> None:
    report = fxdebug.memory(reader[0], reader[1])
    lines = report.text(width=60, color=False).splitlines()
    (head,) = [line for line in lines if line.startswith("call ")]
    first = lines.index(head)
    numbers = re.split(r"\s{1,}", head)[1:]
    assert numbers and set(numbers) < {"parameters", "activations", "saved", "outputs", "temporary", "peak", "inputs"}
    said = next(line for line in lines[first:] if line.startswith("no room in 60 columns for"))
    assert "type" in said
    for line in lines[first + 1 : lines.index(said)]:
        assert len(re.findall(r"\d (?:B|KiB|MiB)\b|n/a", line)) >= len(numbers), line
