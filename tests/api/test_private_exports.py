"""A run that was saved as private stays private, whatever is attached to it and in whichever form it leaves."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fxdebug
from fxdebug import fx_debug
from fxdebug.api.files import save_measures
from fxdebug.data.calls import Note
from fxdebug.data.findings import Finding
from fxdebug.data.measures import Measure, Taken
from fxdebug.data.report import Column, ReportData
from fxdebug.data.trace import replaced
from fxdebug.exports import registry
from fxdebug.store.private import report_without_private

SECRET = "hunter2"
FOLDER = str(Path(__file__).parent)
_NEEDS = {"mlflow": "mlflow", "wandb": "wandb", "tensorboard": "tensorboard", ".onnx": "onnx", "netron": "onnx"}
FORMS = [form for kind, form in registry.EXPORTERS if kind == "trace"]


class Account:
    def __repr__(self) -> str:
        return f"Account({SECRET!r})"


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, prompt: str, user: Any) -> Any:
        return {"out": self.layer(x).log(), "said": f"{prompt}!", "user": user}


@dataclass(frozen=True)
class Row:
    call: str
    source: str
    remark: str


def _plain_report(trace: fxdebug.Trace) -> ReportData[Any]:
    """Return a report that says in every text what a private run leaves out."""
    said = f"of {FOLDER}/model.py: ValueError: no user '{SECRET}'"
    finding = Finding(
        "nan", "error", "layer", "layer#0", "linear", said, "layer#0/linear", f"{FOLDER}/m.py:3", advice=said
    )
    inner = ReportData("inner", "Model", (), notes=(Note(said),))
    return ReportData(
        "mine", "Model", (Column("call", "call"), Column("source", "line"), Column("remark", "remark")),
        rows=(Row("layer#0", f"{FOLDER}/m.py:3", said),), totals={"all": (said, "")}, findings=(finding,),
        notes=(Note(said),), settings={"file": f"{FOLDER}/m.py"}, measures={"flops": {"layer#0": 1.0}}, parts=(inner,),
    )  # fmt: skip


@pytest.fixture
def runs(tmp_path: Path) -> tuple[fxdebug.Trace, fxdebug.Trace, ReportData[Any]]:
    """Return a run, the same run loaded after it was saved as private, and a report of the plain run."""
    plain = fx_debug(Model(), (torch.ones(1, 2), SECRET, Account()), values="repr")
    private = fxdebug.load(plain.save(tmp_path / "private", private=True))
    return plain, private, _plain_report(plain)


def _written(trace: fxdebug.Trace, form: str, folder: Path, report: ReportData[Any]) -> str:
    """Export to a folder of its own; return the bytes of all its files as text."""
    folder.mkdir()
    taken = trace.with_measures(fxdebug.flops(trace))
    options: dict[str, Any] = {}
    if "reports" in registry.option_names(registry.exporter("trace", form)):
        options["reports"] = [replace(report, measures={})]
    taken.export(folder / (f"run{form}" if form.startswith(".") else "run"), to=form, **options)
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()).decode("latin1")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("mlflow", "wandb")])  # they need a server
def test_no_form_has_a_folder_or_a_text_that_the_private_run_left_out(form, runs, tmp_path):
    package = _NEEDS.get(form)
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    _, private, report = runs
    text = _written(private, form, tmp_path / "out", report)
    assert SECRET not in text and FOLDER not in text and str(tmp_path) not in text


def test_an_exporter_gets_a_private_run_and_reports_without_those_texts(runs, monkeypatch):
    """Pages are compressed: what their exporter is given is looked at, as that of any plug-in."""
    _, private, report = runs
    given: list[Any] = []

    def write(trace: Any, path: Path, *, reports: Any = ()) -> Path:
        given.extend([trace.notes, trace.settings, trace.calls, trace.taken, reports])
        return path

    monkeypatch.setattr(registry, "exporter", lambda kind, form: write)
    noted = replaced(private, notes=(*private.notes, Note(f"of {FOLDER}/x.py: ValueError: {SECRET}")))
    registry.export("trace", noted, Path("x.html"), reports=[report])
    said = repr(given)
    assert SECRET not in said and FOLDER not in said
    assert "m.py:3" in said and "layer#0/linear" in said and "of x.py: ValueError" in said


@pytest.mark.parametrize("is_private", [False, True])
def test_saving_again_and_saving_measures_keeps_a_run_private(runs, tmp_path, is_private):
    trace = runs[is_private]
    taken = Taken(Measure("mine", "", f"from {FOLDER}/mine.py", frozenset(["call"])), {"layer#0": 1.0}, f"'{SECRET}'")
    attached = replaced(trace, taken={"mine": taken})
    folder = attached.save(tmp_path / "again")
    for _ in range(2):
        text = "".join(path.read_text("latin1") for path in folder.iterdir() if path.is_file())
        assert (FOLDER in text, SECRET in text) == (not is_private, not is_private)
        assert fxdebug.load(folder).taken["mine"].numbers == {"layer#0": 1.0}
        save_measures(replaced(attached, folder=folder))


def test_a_report_keeps_numbers_and_names_and_loses_texts(runs):
    *_, report = runs
    cleaned = report_without_private(report)
    assert SECRET not in repr(cleaned) and FOLDER not in repr(cleaned)
    assert cleaned.rows == (Row("layer#0", "m.py:3", "of model.py: ValueError"),)
    assert cleaned.findings[0].node == "layer#0/linear" and cleaned.findings[0].source == "m.py:3"
    assert cleaned.measures == report.measures and cleaned.columns == report.columns


def test_what_a_private_run_shows_in_a_notebook_and_a_terminal_is_private(runs):
    _, private, _ = runs
    for text in (private._repr_html_(), str(private), repr(private), str(fxdebug.flops(private)), str(private.check())):
        assert SECRET not in text and FOLDER not in text
