"""No text of a file reaches a terminal, a page or another program raw: one field at a time is poisoned, all is read."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.api import measures_text, page_of, page_of_training, save_measures
from fxdebug.errors import FxDebugError
from fxdebug.exports import records, registry
from fxdebug.features.console.start import start_recorded
from fxdebug.features.mcp import answers
from fxdebug.features.mcp.paging import error_of
from fxdebug.features.mcp.paging import page_of as answer_page
from fxdebug.features.serve.runs import runs_in
from fxdebug.features.serve.start_page import message_page, start_page
from support import poison, sweep
from support.stored import Small

Output = Callable[[], str]
EVERY = 18  # of the outputs of a field `make test` reads each eighteenth, from another one on for each field
_OF_BYTES = (".onnx", ".png", ".pdf", "netron", "tensorboard", "perfetto", ".pftrace", "mlflow", "wandb", ".timeline")
_CONSOLE = (
    "where", "info", "info inputs", "info measures", "list", "print module", "locals", "backtrace", "tree", "find *",
    "inspect out", "check", "step", "step", "display shape", "info breakpoints", "help where",
)  # fmt: skip


class Branches(nn.Module):
    """Calls a layer with a dictionary, makes a NaN, and raises at the end if asked to."""

    def __init__(self, raises: bool = False) -> None:
        super().__init__()
        self.layer, self.raises = nn.Linear(4, 4), raises
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("scale", torch.zeros(1))

    def forward(self, x: torch.Tensor, options: dict[str, Any]) -> dict[str, torch.Tensor]:
        y = torch.einsum("bi,ij->bj", self.layer(x), torch.eye(4)) / self.scale
        if self.raises:
            raise ValueError("the message of an exception")
        z = torch.nn.functional.pad(y[None], (0, 0), mode="constant")
        return {"out": self.attention(z, z, z)[0], "kind": options["kind"]}


# Outputs -------------------------------------------------------------------------------------------


def exported(kind: Any, thing: Any, folder: Path) -> Iterator[tuple[str, Output]]:
    """Yield every form of text that a run, a comparison or a report can be written in."""
    for form in [*registry.suffixes(kind), *registry.names(kind)]:
        if form in _OF_BYTES:
            continue
        path = folder / f"exported{form if form.startswith('.') else '-' + form}"

        def written(path: Path = path, form: str = form) -> str:
            registry.export(kind, thing, path, to=form)
            (_, text), *_ = poison.contents(path)
            return text

        is_page = form == ".html" and kind in ("trace", "comparison", "training")
        yield (f"{form}.page" if is_page else form if form.startswith(".") else f"{form}.json"), written


def of_run(path: Path, folder: Path) -> Iterator[tuple[str, Output]]:
    """Yield everything that reads a saved run."""
    trace = fxdebug.load(path)
    calls = trace.find("*") or [trace.root]
    last = calls[-1]
    yield "text", lambda: trace.text(width=200, color=False)
    yield "text.color", lambda: trace.text(width=100, color=True)
    yield "columns", lambda: trace.text(width=300, color=False, columns="source,params,input")
    yield "describe", lambda: trace.describe(last, width=120, color=False) + trace.describe("", color=False)
    yield "reprs", lambda: "\n".join([*map(repr, (*trace.calls, *trace.values)), *map(str, trace.ops("*")[:9])])
    yield "code", lambda: "\n".join([call.code for call in trace.calls])
    yield "found", lambda: records_of(trace)
    yield "found.json", lambda: records.trace_json(trace, records.calls_to(trace, None))
    yield "call.json", lambda: records.call_json(trace, last)
    yield "measures", lambda: measures_text(trace, width=100)
    yield "notebook.html", lambda: trace._repr_html_()
    yield "check", lambda: fxdebug.check(trace, config=False).text(width=100, color=False)
    yield "check.color", lambda: fxdebug.check(trace, config=False).text(width=100, color=True)
    yield from exported("trace", trace, folder)
    yield from exported("report", fxdebug.check(trace, config=False), folder)
    yield from exported("report", fxdebug.flops(trace), folder)
    other = fxdebug.load(folder / "other")
    for a, b in ((trace, other), (other, trace)):
        comparison = fxdebug.compare(a, b)
        yield "compared", lambda comparison=comparison: comparison.text(width=100, color=False)
        yield "compared.color", lambda comparison=comparison: comparison.text(width=100, color=True)
        yield "compared-notebook.html", lambda comparison=comparison: comparison._repr_html_()
        yield from exported("comparison", comparison, folder)
    yield "console", lambda: console(trace)
    yield "served.page", lambda: page_of(trace, {"revision": "1", "url": "/revision/x"})
    yield "runs.html", lambda: start_page(path.parent, runs_in(path.parent))
    for answer in (
        lambda runs: answers.list_runs(runs), lambda runs: answers.tree(runs, "bad", None, 9, None),
        lambda runs: answers.tree(runs, "bad", "layer", 9, None), lambda runs: answers.check(runs, "bad"),
        lambda runs: answers.find(runs, "bad", None, None, None, "*"), lambda runs: answers.measures(runs, "bad"),
        lambda runs: answers.explain(runs, "bad", "layer#0"), lambda runs: answers.compare(runs, "bad", "other"),
    ):  # fmt: skip
        yield "answer", lambda answer=answer: answer_page(answer(answers.Runs(folder)), 1, 100_000, "less")


def records_of(trace: Any) -> str:
    rows = records.found_rows(trace, trace.ops("*") or trace.find("*"), None, None, None)
    return records.found_csv(rows) + fxdebug.api.listing(rows, 200)


def console(trace: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        start_recorded(trace, [*_CONSOLE, "quit"])
    return out.getvalue()


def of_report(path: Path, folder: Path) -> Iterator[tuple[str, Output]]:
    """Yield everything that reads a saved report."""
    report = fxdebug.Report.load(path)
    yield "text", lambda: report.text(width=300, color=False)
    yield "text.color", lambda: report.text(width=90, color=True)
    yield "notebook.html", lambda: report._repr_html_()
    yield "compared", lambda: report.compare(folder / "report.json").text(width=200, color=False)
    yield from exported("report", report, folder)


def of_training(path: Path, folder: Path) -> Iterator[tuple[str, Output]]:
    """Yield everything that reads a watched training."""
    report = fxdebug.api.watched_training(path)
    yield "text", lambda: report.text(width=200, color=False)
    yield "check", lambda: fxdebug.check(path, config=False).text(width=100, color=False)
    yield "served.page", lambda: page_of_training(path, {"revision": "1", "url": "/revision/x"})
    yield from exported("report", report, folder)


# Fields --------------------------------------------------------------------------------------------


def settings_of(path: Path, folder: Path) -> Iterator[tuple[str, Output]]:
    """Yield what is told of a project's settings: they are refused, as nothing is called so."""
    yield "settings", lambda: str(fxdebug.api.project_settings())


def seeds(folder: Path) -> None:
    """Save a run with a NaN, a similar one, one that raised, a report, a training and a debug tree."""
    torch.manual_seed(0)
    x, options = torch.ones(4, 4), {"kind": "plain text"}
    trace = fxdebug.fx_debug(Branches(), (x, options), values="tensors", save=folder / "run")
    save_measures(fxdebug.load(folder / "run").with_measures(fxdebug.flops(trace)))
    fxdebug.fx_debug(Branches(), (x, options), values="tensors", save=folder / "other")
    with contextlib.suppress(ValueError):
        fxdebug.fx_debug(Branches(raises=True), (x, options), save=folder / "raised")
    fxdebug.check(trace, config=False).json(folder / "check.json")
    fxdebug.memory(nn.Sequential(nn.Linear(4, 4)), x, steps=2).json(folder / "report.json")
    model = nn.Sequential(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, optimizer, every=2, save=folder / "training"):
        for step in range(4):
            (model(x).mean() * (float("nan") if step == 3 else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    small = Small()
    with fxdebug.model_addition_debugger_context(small, debug_path=str(folder / "tree"), do_prune_layers=False):
        small(x)


SEEDS: dict[str, tuple[str, Callable[[Path, Path], Iterator[tuple[str, Output]]]]] = {
    "run/trace.json": ("bad", of_run),
    "run/measures.json": ("bad", of_run),
    "raised/trace.json": ("bad", of_run),
    "check.json": ("", of_report),
    "report.json": ("", of_report),
    "training/training.jsonl": ("bad", of_training),
    "tree/Small_debug_tree_FULL_TENSORS.json": ("bad", of_run),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("poisoned")
    seeds(root)
    return root


def read(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def written(content: Any, path: Path) -> None:
    lines = [json.dumps(line) for line in content] if path.suffix == ".jsonl" else [json.dumps(content)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_field_of_a_file_leaves_raw_in_anything_that_reads_it(seed: str, folder: Path, tmp_path: Path) -> None:
    name, outputs = SEEDS[seed]
    shutil.copytree(folder / "other", tmp_path / "other")
    shutil.copy(folder / "report.json", tmp_path)
    source = folder / seed
    content = read(source)
    wrong = []
    for number, (field, _) in enumerate(poison.fields(content)):
        if name:
            shutil.copytree(source.parent, tmp_path / name, dirs_exist_ok=True)
        place = tmp_path / (name or "bad.json")
        written(poison.poisoned(content, field), place / source.name if name else place)
        try:
            listed = list(outputs(place, tmp_path))
        except FxDebugError as error:
            told = error_of(str(error), 2000) + message_page("No", str(error))
            wrong += [f"{field}: the error: {one}" for one in poison.wrong_with("", told)]
            continue
        every = 1 if sweep.whole() else EVERY
        for what, output in listed[number % every :: every]:
            try:
                text = output()
            except FxDebugError as error:
                text, what = str(error), f"{what}: the error"
            except Exception as error:
                wrong.append(f"{field}: {what}: {type(error).__name__}: {str(error)[:100]}")
                continue
            wrong += [f"{field}: {what}: {one}" for one in poison.wrong_with(what, text)]
    assert wrong == [], "\n".join(wrong)
