"""The screen of a comparison, and every form it can be exported to."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison
from fxdebug.errors import SaveError, UsageError
from fxdebug.exports import registry
from support.contrast import unreadable
from support.planted import Net, net, odd, planted, x

FORMS = sorted(registry.suffixes("comparison"))


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


def on_screen(comparison: Comparison, **options: object) -> str:
    from fxdebug.exports.comparison.text import screen

    return screen(comparison, **{"width": 80, "color": False, **options}) + "\n"


def shown(comparison: Comparison, **options: object) -> str:
    """The screen with line numbers left out: those of the tests' files change."""
    return re.sub(r"(?<=\.py:)\d+", "‹line›", on_screen(comparison, **options))


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
        assert max(map(len, on_screen(different, width=width).splitlines())) <= width
    assert "h = F.gelu(self.up(self.norm(x)))" in shown(different, width=120)


def test_rounding_that_adds_up_is_not_called_equal_above_and_different_below():
    torch.manual_seed(0)
    deep = nn.Sequential(*[nn.Linear(8, 8) for _ in range(60)])
    x = torch.randn(4, 8)
    with torch.no_grad():
        for layer in deep:
            layer.weight.copy_(torch.eye(8) * 1.5)
        a = fx_debug(deep, x)
        for layer in deep:
            layer.weight.mul_(1 + 3e-6)
        comparison = compare(a, fx_debug(deep, x))
    text = str(comparison)
    assert comparison.verdict == "equal"
    assert text.startswith("no operation adds a difference: 61 calls")
    assert "\nwhat was returned differs by " in text
    assert "equal" not in text
    assert "  differs" in text


def test_printing_shows_the_screen(different):
    assert re.sub(r"(?<=\.py:)\d+", "‹line›", str(different)) + "\n" == shown(different)


def test_a_run_that_raised_is_shown_without_numbers():
    text = shown(odd("raised"))
    assert "  raised     RuntimeError: mat1 and mat2 shapes cannot be multiplied" in text
    assert "error  " not in text and "statistics only" not in text


def test_other_inputs_are_shown_before_anything_else():
    text = shown(odd("without graphs"))
    assert "  input      the runs were given different inputs: args[0]\n" in text
    assert "  error      1 of the reference's size, allowed 1e-05\n" in text and "matched" not in text


def test_nothing_is_folded_on_demand(different):
    names = [line.split()[0] for line in shown(different, fold=False).splitlines() if line.startswith("  blocks.")]
    assert names == ["blocks.1.up", "blocks.1.down", *[f"blocks.{i}" for i in range(1, 6)], "blocks.4.up/linear"]


def test_runs_without_any_numbers_are_not_called_equal():
    with torch.device("meta"):
        runs = [fx_debug(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2)) for _ in range(2)]
    found = compare(*runs)
    assert found.compared == 0
    assert (found.verdict, found.equal, bool(found)) == ("could not compare", False, False)
    assert shown(found).startswith("could not compare: no call of one run has a counterpart with numbers in the\nother")


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
    write = registry.exporter("comparison", form)
    known = registry.option_names(write)
    message = f"{form} has no option 'deepth'; it has {', '.join(known) or 'none'}"
    with pytest.raises(UsageError, match=re.escape(message)):
        different.export(tmp_path / f"x{form}", deepth=1)
    with pytest.raises(
        UsageError, match="nothing exports to '.docx': use " + re.escape(", ".join(registry.suffixes("comparison")))
    ):
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


def test_a_page_has_the_text_for_readers_without_scripts(different, tmp_path):
    text = different.export(tmp_path / "x.html").read_text(encoding="utf-8")
    inside = text.partition("<noscript>")[2].partition("</noscript>")[0]
    assert different._repr_html_() == inside and "<script" not in inside
    assert Path(different.export(tmp_path / "x.txt", width=80)).read_text(encoding="utf-8") == f"{different}\n"


def test_a_notebook_shows_at_most_64_kib_the_most_important_first(different, monkeypatch):
    from fxdebug.exports.comparison import text

    whole = different._repr_html_()
    monkeypatch.setattr(text, "LARGEST", len(whole.encode()) - 1)
    cut = different._repr_html_()
    assert len(cut.encode()) < len(whole.encode())
    assert "different" in cut and "comparison.show() has all of it" in cut and cut.endswith("</pre>")


def test_colours_can_be_read_on_a_light_and_on_a_dark_page(different: Comparison, equal: Comparison) -> None:
    shown = different._repr_html_()
    assert len(set(re.findall("color: (#[0-9a-f]{6})", shown))) >= 3
    assert [unreadable(each) for each in (shown, equal._repr_html_())] == [set(), set()]


def test_further_findings_of_one_cause_are_one_line():
    class Layer(nn.Module):
        def __init__(self, slope: float) -> None:
            super().__init__()
            self.slope, self.up = slope, nn.Linear(8, 8)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return given + F.leaky_relu(self.up(given), self.slope)

    def net(slope: float) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*[Layer(slope) for _ in range(5)])

    found = compare_models(net(0.1), net(0.2), torch.randn(3, 8), budget=0)
    assert len(found.findings) == 5
    (line,) = [line for line in on_screen(found).splitlines() if "leaky_relu" in line and "×4" in line]
    assert line.split() == "1/leaky_relu ×4 constant negative_slope=0.1 in a, negative_slope=0.2 in b".split()
    assert "2/leaky_relu" in on_screen(found, fold=False)
