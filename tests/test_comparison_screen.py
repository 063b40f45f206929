"""What people see of a comparison: the screen, and every form it can be exported to."""

from __future__ import annotations

import copy
import csv
import inspect
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import fxdebug
from fxdebug import SaveError, UsageError, compare, fx_debug
from fxdebug.api import Comparison
from fxdebug.comparison import Row
from fxdebug.exports import comparison_graph, registry
from fxdebug.exports.comparison_rows import COLUMNS
from fxdebug.exports.comparisons import EXPORTERS
from fxdebug.exports.drawn import drawing

FORMS = sorted(EXPORTERS)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h) * self.factor


class Net(nn.Module):
    """Six blocks, a norm, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])
        self.final = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"hidden": x, "logits": self.head(self.final(x))}


class Ported(nn.Module):
    """The same with other names, without modules for norms."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.wide = nn.ModuleList([block.up for block in net.blocks])
        self.narrow = nn.ModuleList([block.down for block in net.blocks])
        self.gains = nn.ParameterList([block.norm.weight for block in net.blocks])
        self.shifts = nn.ParameterList([block.norm.bias for block in net.blocks])
        self.last = net.final
        self.classify = net.head

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for wide, narrow, gain, shift in zip(self.wide, self.narrow, self.gains, self.shifts):
            x = x + narrow(F.gelu(wide(F.layer_norm(x, (8,), gain, shift, 2e-3))))
        return {"hidden": x, "logits": self.classify(self.last(x))}


def net() -> Net:
    torch.manual_seed(0)
    made = Net().eval()
    for block in made.blocks:
        nn.init.normal_(block.norm.weight, 1.0, 0.5)
        nn.init.normal_(block.norm.bias, 0.0, 0.5)
    return made


def x() -> torch.Tensor:
    return torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


def planted(values: str = "stats") -> Comparison:
    """A wrong epsilon in one block and a wrong weight in a later one."""
    one = net()
    other = copy.deepcopy(one)
    other.blocks[1].norm.eps = 0.2
    with torch.no_grad():
        other.blocks[4].up.weight[3, 3] += 2
        return compare(*[fx_debug(model, x(), values=values) for model in (one, other)])


@pytest.fixture(scope="module")
def different() -> Comparison:
    return planted()


@pytest.fixture(scope="module")
def equal() -> Comparison:
    with torch.no_grad():
        return compare(fx_debug(net(), x()), fx_debug(net().to(torch.bfloat16), x().to(torch.bfloat16)))


def shown(comparison: Comparison, **options: object) -> str:
    """The screen with line numbers left out: those of this file change."""
    from fxdebug.exports.comparison_text import screen

    return re.sub(r"(?<=\.py:)\d+", "‹line›", screen(comparison, **{"width": 80, "color": False, **options})) + "\n"


# The screen ----------------------------------------------------------------------------------------


def test_the_first_finding_is_shown_with_its_numbers_and_where_it_leads(different, golden):
    golden("comparison_different.txt", shown(different))


def test_with_tensors_every_measure_is_shown(golden):
    golden("comparison_tensors.txt", shown(planted("tensors")))


def test_equal_runs_say_how_large_the_largest_rounding_was(equal, golden):
    assert equal.equal
    # how bfloat16 rounds, and where most, is the processor's own
    text = re.sub(r"0\.\d+", "‹n›", shown(equal))
    golden("comparison_equal.txt", re.sub(r" at \S+, by", " at ‹step›, by", text))


def test_a_port_with_other_names_shows_what_has_no_counterpart_folded(golden):
    one = net()
    with torch.no_grad():
        golden("comparison_port.txt", shown(compare(fx_debug(one, x()), fx_debug(Ported(one), x()))))


def test_the_screen_fits_into_the_columns_there_are(different):
    for width in (60, 80, 120):
        assert max(map(len, shown(different, width=width).splitlines())) <= width
    assert "h = F.gelu(self.up(self.norm(x)))" in shown(different, width=120)


def test_printing_shows_the_screen(different):
    assert re.sub(r"(?<=\.py:)\d+", "‹line›", str(different)) + "\n" == shown(different)


def test_a_run_that_raised_is_told_without_numbers_it_does_not_have():
    text = shown(odd("raised"))
    assert "  raised     RuntimeError: mat1 and mat2 shapes cannot be multiplied" in text
    assert "error  " not in text and "statistics only" not in text


def test_other_inputs_are_told_before_anything_else():
    text = shown(odd("without graphs"))
    assert text.splitlines()[4].endswith("the runs were given different inputs: args[0]")
    assert "  error      1 of the reference's size, allowed 1e-05\n" in text and "matched" not in text


def test_nothing_is_folded_on_demand(different):
    names = [line.split()[0] for line in shown(different, fold=False).splitlines() if line.startswith("  blocks.")]
    assert names == ["blocks.1.up", "blocks.1.down", *[f"blocks.{i}" for i in range(1, 6)], "blocks.4.up/linear"]


def test_runs_of_which_nothing_is_known_are_not_called_equal():
    with torch.device("meta"):
        runs = [fx_debug(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)) for _ in range(2)]
    found = compare(*runs)
    assert found.compared == 0
    assert shown(found).startswith(
        "nothing to compare: no call of one run has a counterpart with numbers in the\nother"
    )


def test_names_are_text_and_never_markup():
    class Holds(nn.Module):
        def __init__(self, eps: float) -> None:
            super().__init__()
            self._modules["[red]<b>\x1b"] = nn.LayerNorm(4, eps=eps)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._modules["[red]<b>\x1b"](x)

    ramp = torch.arange(8.0).view(2, 4)
    found = compare(fx_debug(Holds(1e-5), ramp), fx_debug(Holds(0.5), ramp))
    assert "first at [red]<b>\\x1b" in shown(found)
    assert "[red]&lt;b&gt;\\x1b" in found._repr_html_() and "<b>" not in found._repr_html_()


def test_a_notebook_shows_the_same_as_html_that_is_whole(different):
    opened: list[str] = []
    text: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            opened.append(tag)
            assert tag in ("pre", "span")

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

        def handle_data(self, data: str) -> None:
            text.append(data)

    Parser().feed(different._repr_html_())
    assert opened == []
    lines = [line.rstrip() for line in "".join(text).rstrip().splitlines()]
    assert re.sub(r"(?<=\.py:)\d+", "‹line›", "\n".join(lines)) + "\n" == shown(different, width=100)


# The data behind it --------------------------------------------------------------------------------


def test_rows_stand_in_the_order_in_which_calls_returned(different):
    calls = [row.path for row in different.rows if row.op is None]
    assert calls[:5] == ["blocks.0.norm", "blocks.0.up", "blocks.0.down", "blocks.0", "blocks.1.norm"]
    assert calls[-3:] == ["final", "head", ""]
    positions = [row.position for row in different.rows]
    assert positions == sorted(positions)


def test_the_chain_leads_from_the_finding_to_the_outputs_and_not_into_calls(different):
    found = [row.path for row in different.chain()]
    assert found == ["blocks.1.norm", "blocks.1.up", "blocks.1.down", *[f"blocks.{i}" for i in range(1, 6)], "final", "head", ""]  # fmt: skip  # noqa: E501
    second = [row.path for row in different.chain(different.findings[1])]
    assert second == ["blocks.4.up", "blocks.4.down", "blocks.4", "blocks.5", "final", "head", ""]


def test_calls_around_a_finding_add_error_and_later_ones_inherit_it(different):
    verdicts = {row.path: row.verdict for row in different.rows if row.op is None}
    assert {path for path, verdict in verdicts.items() if verdict == "adds"} == {
        "", "blocks.1", "blocks.1.norm", "blocks.4", "blocks.4.up",
    }  # fmt: skip
    assert verdicts["blocks.0"] == "equal" and verdicts["blocks.3"] == "inherited"


def test_every_finding_is_among_the_rows_itself(different):
    assert len(different.findings) == 2
    assert all(any(row is found for row in different.rows) for found in different.findings)


# Exports: the contract -----------------------------------------------------------------------------


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return request.param


def test_an_export_writes_one_file_and_returns_its_path(different, equal, tmp_path, form):
    for name, comparison in (("different", different), ("equal", equal)):
        path = comparison.export(tmp_path / name / f"x{form}")
        assert path == tmp_path / name / f"x{form}"
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        assert path.stat().st_size > 100


def test_saved_runs_are_exported_to_the_same_bytes_as_live_ones(tmp_path, form):
    runs = []
    for name, eps in (("a", 1e-5), ("b", 0.1)):
        model = nn.Sequential(nn.LayerNorm(4, eps=eps))
        runs.append(fx_debug(model, torch.arange(8.0).view(2, 4), save=tmp_path / name))
    live = compare(*runs).export(tmp_path / f"live{form}")
    loaded = compare(tmp_path / "a", tmp_path / "b").export(str(tmp_path / f"LOADED{form.upper()}"))
    if form == ".pdf":  # it says when it was made
        assert loaded.read_bytes()[:5] == live.read_bytes()[:5] == b"%PDF-"
    else:
        assert loaded.read_bytes() == live.read_bytes()


def test_an_unknown_option_or_form_or_place_is_an_error_that_says_what_to_do(different, tmp_path, form):
    write = registry.exporter(form, EXPORTERS)
    known = [name for name in inspect.signature(write).parameters if name not in ("comparison", "path")]
    message = f"{form} has no option 'deepth'; it has {', '.join(known) or 'none'}"
    with pytest.raises(UsageError, match=re.escape(message)):
        different.export(tmp_path / f"x{form}", deepth=1)
    with pytest.raises(UsageError, match="nothing exports to '.docx': use " + re.escape(", ".join(EXPORTERS))):
        different.export(tmp_path / "x.docx")
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=re.escape(str(tmp_path / "file"))):
        different.export(tmp_path / "file" / f"x{form}")


def test_the_documentation_of_export_names_every_form():
    said = str(Comparison.export.__doc__)
    assert [form for form in FORMS if form not in said] == []


@pytest.mark.parametrize("kind", ["raised", "without graphs", "without data", "nothing in common"])
def test_any_two_runs_can_be_shown_and_exported(tmp_path, form, kind):
    found = odd(kind)
    assert shown(found)
    assert found.export(tmp_path / f"x{form}").stat().st_size > 50


def odd(kind: str) -> Comparison:
    """A comparison that is not as comparisons are."""
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    ones = torch.ones(1, 4)
    if kind == "raised":
        first = nn.Linear(4, 4)
        with pytest.raises(RuntimeError):
            fx_debug(nn.Sequential(first, nn.Linear(3, 3)), ones)
        failed = fxdebug.last_failed()
        assert failed is not None
        return compare(fx_debug(nn.Sequential(first, nn.Linear(4, 3)), ones), failed)
    if kind == "without graphs":
        return compare(fx_debug(plain, ones, graph=False), fx_debug(copy.deepcopy(plain), ones * 2, graph=False))
    if kind == "without data":
        meta = fx_debug(copy.deepcopy(plain).to("meta"), ones.to("meta"))
        return compare(meta, meta)
    return compare(fx_debug(plain, ones), fx_debug(nn.Embedding(3, 2), torch.tensor([1])))


# Single forms --------------------------------------------------------------------------------------


def test_the_table_has_every_row_with_named_columns(different, tmp_path):
    with different.export(tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) == len(different.rows)
    first = next(row for row in rows if row["kind"])
    assert (first["verdict"], first["path"], first["op"], first["kind"]) == ("adds", "blocks.1.norm", "layer_norm", "constant")  # fmt: skip  # noqa: E501
    assert float(first["error"]) == different.first.error
    assert float(first["b_std"]) == different.first.b.value.stats.std
    assert first["b_shape"] == "2×5×8"


def test_the_json_is_strict_and_has_everything(tmp_path):
    found = odd("raised")
    data = json.loads(found.export(tmp_path / "x.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (data["format"], data["version"], data["equal"]) == ("fxdebug comparison", 1, False)
    assert len(data["rows"]) == len(found.rows)
    assert [data["rows"][i]["kind"] for i in data["findings"]] == [row.kind for row in found.findings]
    raised = next(row for row in data["rows"] if row["kind"] == "raised")
    assert raised["path"] == "1" and raised["error"] == {"float": "inf"}


def test_the_graph_opens_what_is_guilty_and_folds_the_rest(different, tmp_path):
    text = different.export(tmp_path / "x.dot").read_text(encoding="utf-8")
    assert "constant, error 0.0" in text and "weights, error 0." in text
    assert "blocks.0" in text and "blocks.2" in text  # equal, inherited
    assert text.count("penwidth=2.4") == 2
    drawn = comparison_graph._drawn(different, True)
    assert len(drawn.steps) < 40
    everything = comparison_graph._drawn(different, False)
    assert len(everything.steps) >= len(drawn.steps)


def test_repeated_layers_with_the_same_finding_are_drawn_once():
    one = net()
    other = copy.deepcopy(one)
    for block in other.blocks:
        block.norm.eps = 0.2
    with torch.no_grad():
        found = fxdebug.compare_models(one, other, x())
    assert [row.path for row in found.findings] == [f"blocks.{i}.norm" for i in range(6)]
    drawn = comparison_graph._drawn(found, True)
    assert [box.row.name for box in drawn.root.boxes] == ["blocks.0 … blocks.5 ×6"]
    assert len(drawn.steps) < 15


def test_equal_runs_are_drawn_as_any_run_is(equal, tmp_path):
    text = equal.export(tmp_path / "x.dot").read_text(encoding="utf-8")
    assert "0 findings against a" in text
    assert len(comparison_graph._drawn(equal, True).steps) == len(drawing(equal.b).steps)
    with Image.open(equal.export(tmp_path / "x.png")) as picture:
        assert picture.width > 200


def test_a_row_says_in_a_word_where_it_is(different):
    first = different.first
    assert isinstance(first, Row) and first.where == "blocks.1.norm/layer_norm"
    assert str(first).startswith("blocks.1.norm/layer_norm: adds constant, error 0.")


def test_a_page_can_be_read_without_anything_else(different, tmp_path):
    text = different.export(tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and "<script" not in text and "src=" not in text
    assert Path(different.export(tmp_path / "x.txt", width=80)).read_text(encoding="utf-8") == f"{different}\n"
