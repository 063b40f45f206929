"""Every form a trace can be exported to keeps the same promises, whatever the form, and whoever added it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.errors import SaveError, UsageError
from fxdebug.exports.registry import EXPORTERS, exporter, form_of, names, option_names, suffixes
from support import plugin_exporters
from support.trees import Does, linear, ones

FORMS = sorted(suffixes("trace"))  # ours
PROGRAMS = names("trace")
# Where the bytes say when they were made.
_WHEN = re.compile(rb"/CreationDate \([^)]*\)|/ID \[[^]]*\]|trailer.*|(?<=\n)<[0-9a-f]{32}>.*", re.DOTALL)
_STREAM = re.compile(rb"stream\r?\n(.*?)\r?\nendstream", re.DOTALL)


class Net(nn.Module):
    """A little of everything: a repeated layer, NaN, a module that is not called, an integer input, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
        self.spare = nn.Linear(4, 4)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.layers(self.embed(tokens))
        return {"x": x, "log": (x * 0).log() * math.nan}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    torch.manual_seed(0)
    return fx_debug(Net(), torch.tensor([[1, 2, 4]]), save=tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", autouse=True)
def exporters_of_a_package() -> Iterator[None]:
    with plugin_exporters.installed_exporters():
        yield


@pytest.fixture(params=[*FORMS, *plugin_exporters.SUFFIXES])
def form(request: pytest.FixtureRequest) -> str:
    return request.param


def contents(path: Path) -> bytes:
    whole = path.read_bytes()
    if path.suffix.lower() == ".pdf":  # its fonts have random names, and its objects a random order
        return b"".join(sorted(_STREAM.findall(whole)))
    return _WHEN.sub(b"", whole)


# The contract ------------------------------------------------------------------------------------


def test_an_export_writes_one_file_that_is_not_empty_and_returns_its_path(trace, tmp_path, form):
    path = trace.export(tmp_path / "new" / f"run{form}")
    assert path == tmp_path / "new" / f"run{form}"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.stat().st_size > 100


def test_a_loaded_trace_is_exported_to_the_same_bytes(trace, tmp_path, form):
    loaded = fxdebug.load(trace.folder)
    # the headline of a text has the duration, which is kept too
    assert contents(loaded.export(tmp_path / f"b{form}")) == contents(trace.export(tmp_path / f"a{form}"))


def test_an_export_changes_nothing_about_the_trace(trace, tmp_path, form):
    trace.export(tmp_path / f"run{form}")
    assert trace == fxdebug.load(trace.folder)


def test_a_path_may_be_a_string_and_its_suffix_in_capitals(trace, tmp_path, form):
    path = trace.export(str(tmp_path / f"RUN{form.upper()}"))
    assert contents(path) == contents(trace.export(tmp_path / f"run{form}"))


def test_an_export_replaces_an_earlier_one(trace, tmp_path, form):
    path = tmp_path / f"run{form}"
    path.write_bytes(b"x" * 1_000_000)
    trace.export(path)
    assert not path.read_bytes().endswith(b"xxx")


@pytest.mark.parametrize("kind", ["raised", "without graphs", "without data", "odd names"])
def test_any_kind_of_run_can_be_exported(tmp_path, form, kind):
    assert odd_run(kind).export(tmp_path / f"run{form}").stat().st_size > 100


def odd_run(kind: str) -> Trace:
    """A run that is not as runs are."""
    if kind == "raised":
        with pytest.raises(RuntimeError):
            fx_debug(nn.Sequential(linear(), nn.Linear(3, 3)), ones())
        found = fxdebug.last_failed()
        assert found is not None
        return found
    if kind == "without graphs":
        return fx_debug(nn.Sequential(linear(), nn.ReLU()), ones(), graph=False)
    if kind == "without data":
        return fx_debug(nn.Sequential(linear()).to("meta"), torch.empty(1, 4, device="meta"))
    return fx_debug(
        Does(lambda self, x: self._modules["<&\"'\x00:ü\ud800>"](x), **{"<&\"'\x00:ü\ud800>": linear()}), ones()
    )


def test_a_place_that_cannot_be_written_to_is_an_error_that_names_it(trace, tmp_path, form):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=re.escape(str(tmp_path / "file"))):
        trace.export(tmp_path / "file" / f"run{form}")


def test_an_unknown_option_names_those_there_are(trace, tmp_path, form):
    known = option_names(exporter("trace", form))
    with pytest.raises(
        UsageError, match=re.escape(f"{form} has no option 'deepth'; it has {', '.join(known) or 'none'}")
    ):
        trace.export(tmp_path / f"run{form}", deepth=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["run.docx", "run"])
def test_an_unknown_form_names_those_there_are(trace, tmp_path, name):
    with pytest.raises(UsageError, match="nothing exports to .*: use " + re.escape(", ".join(suffixes("trace")))):
        trace.export(tmp_path / name)


def test_the_documentation_of_export_names_every_form():
    said = Trace.export.__doc__
    assert [form for form in [*FORMS, *PROGRAMS] if form not in said] == []


def test_a_form_is_chosen_by_its_name_whatever_the_suffix(trace, tmp_path):
    for to in ("txt", ".txt", "TXT"):
        path = trace.export(tmp_path / "run.md", to=to)
        assert path.name == "run.md" and contents(path) == contents(trace.export(tmp_path / "run.txt"))


def test_a_name_that_there_is_not_is_an_error_with_the_nearest_one(trace, tmp_path):
    with pytest.raises(UsageError, match=r"nothing exports to 'graphmll': use .*Did you mean '\.graphml'"):
        trace.export(tmp_path / "run", to="graphmll")


def test_the_longest_suffix_that_there_is_decides(monkeypatch):
    monkeypatch.setitem(EXPORTERS, ("trace", ".long.json"), "fxdebug.features.graphml.run:write_json")
    assert form_of("trace", Path("a.LONG.json")) == ".long.json"
    assert form_of("trace", Path("a.short.json")) == ".json"


@pytest.mark.parametrize("to", ["row_viewer", "Row-Viewer", "rows", ".ROWS", "two.rows"])
def test_a_form_of_a_package_is_chosen_by_its_name_however_it_is_spelled(trace, tmp_path, to):
    path = trace.export(tmp_path / "run", to=to, separator="|")
    assert path == tmp_path / "run" and "|Embedding|" in path.read_text()


def test_an_exporter_of_a_package_that_raises_is_named_with_what_it_raised(trace, tmp_path):
    with pytest.raises(SaveError, match=r"the plug-in '\.bad' of an unknown package failed: KeyError: 'planted'"):
        trace.export(tmp_path / "run.bad")


def test_forms_of_a_package_are_offered_and_do_not_replace_ours(trace, tmp_path):
    with pytest.raises(UsageError, match=r"nothing exports to 'rowz': use .*row_viewer.*Did you mean '.rows'"):
        trace.export(tmp_path / "run", to="rowz")
    assert [form for form in plugin_exporters.FORMS if form not in (*suffixes("trace"), *names("trace"))] == []
    assert suffixes("comparison") == [form for kind, form in EXPORTERS if kind == "comparison" and form[0] == "."]


# Single forms ------------------------------------------------------------------------------------


def test_a_page_is_whole_html_that_needs_nothing_else(trace, tmp_path):
    text = trace.export(tmp_path / "run.html").read_text(encoding="utf-8")
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                opened.append(tag)
            assert tag not in ("link", "img") and not {"src", "href"} & {name for name, _ in attrs}

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Parser().feed(text)
    assert opened == []
    for said in ("0 … 2 ×3", "never called: spare", "Embedding", "1×3×4 +1"):
        assert said in text, said


def test_the_text_is_what_is_printed(trace, tmp_path):
    assert trace.export(tmp_path / "run.txt", width=80).read_text(encoding="utf-8") == f"{trace}\n"
    whole = trace.export(tmp_path / "all.txt", fold=False, depth=1).read_text(encoding="utf-8")
    assert "embed Embedding" in whole and "0 Linear" not in whole


def test_a_page_of_a_run_with_the_flops_of_a_report_has_the_multiply_adds_too(trace, tmp_path):
    counted = trace.with_measures(fxdebug.flops(trace))
    assert counted.export(tmp_path / "run.html").stat().st_size > 100
    assert "macs" not in counted.taken and counted.numbers("macs")


def test_folders_above_a_file_are_made(tmp_path: Path) -> None:
    trace = fx_debug(nn.ReLU(), torch.ones(1))
    for _ in range(2):
        assert trace.export(tmp_path / "a" / "b" / "run.txt").parent == tmp_path / "a" / "b"
