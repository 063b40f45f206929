"""The picture of a run: what is drawn, what it says, and that a real program draws it whatever things are called."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn
from support.trees import Does, linear, ones

import fxdebug
from fxdebug import MissingExtra, SaveError, Trace, UsageError, fx_debug
from fxdebug.exports import pictures, pygraphviz_dot
from fxdebug.exports.drawn import Drawing, drawing

SVG = "{http://www.w3.org/2000/svg}"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.b(torch.relu(self.a(self.norm(x))).view(-1, 8))


class Tower(nn.Module):
    """Twelve layers alike, one after the other."""

    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Halves(nn.Module):
    """Numbers that are the same on every machine."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(2, 2, bias=False)
        self.twice.weight = nn.Parameter(torch.tensor([[1.0, -1.0], [0.5, 0.0]]))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = self.twice(x).transpose(0, 1).unsqueeze(0)
        return y.masked_fill(mask, -1.0)


@pytest.fixture(scope="module")
def tower() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Tower(), ones(3))


def dot(trace: Trace, tmp_path: Path, **options: object) -> str:
    return trace.export(tmp_path / "g.dot", **options).read_text(encoding="utf-8")


def svg(trace: Trace, tmp_path: Path, **options: object) -> ElementTree.Element:
    return ElementTree.parse(trace.export(tmp_path / "g.svg", **options)).getroot()


def texts(picture: ElementTree.Element) -> list[str]:
    """Every piece of text that can be read in a picture."""
    return [text for element in picture.iter(f"{SVG}text") if (text := "".join(element.itertext()).strip())]


def tips(picture: ElementTree.Element) -> str:
    """Every tooltip."""
    found = [a.attrib["{http://www.w3.org/1999/xlink}title"] for a in picture.iter(f"{SVG}a")]
    return "\n".join(found)


def titles(drawn: Drawing, kind: str) -> list[str]:
    found = [step for step in drawn.steps.values() if step.kind == kind]
    return [step.title for step in sorted(found, key=lambda step: step.node.position)]


# The text ----------------------------------------------------------------------------------------


def test_the_dot_text_of_a_small_model(tmp_path, golden):
    trace = fx_debug(Halves(), (torch.tensor([[2.0, 1.0]]), torch.tensor([True, False]).view(2, 1)))
    golden("drawing.dot", re.sub(r"(?<=\\n)/[^\"\\]*/(\w+\.py):\d+", r"\1:…", dot(trace, tmp_path)))


def test_a_loaded_trace_is_drawn_as_the_one_that_ran(tmp_path):
    trace = fx_debug(Tower(), ones(), save=tmp_path / "run")
    assert dot(fxdebug.load(tmp_path / "run"), tmp_path) == dot(trace, tmp_path)


# Drawn by a program ------------------------------------------------------------------------------


@pytest.fixture(params=["TB", "LR"])
def rankdir(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_png_is_a_picture_that_opens(tower, tmp_path, rankdir):
    with Image.open(tower.export(tmp_path / "g.png", rankdir=rankdir)) as image:
        image.load()
        assert image.format == "PNG"
        width, height = image.size
        assert (width > height) == (rankdir == "LR")
        assert 300 < min(width, height) < max(width, height) < 4000  # a person can take it in
        colors = {color for _, color in image.convert("RGB").getcolors(1 << 24)}
    assert (0xDF, 0xF0, 0xE1) in colors  # verified


def test_an_svg_shows_names_shapes_numbers_and_tooltips(tower, tmp_path):
    picture = svg(tower, tmp_path)
    shown = texts(picture)
    assert picture.tag == f"{SVG}svg"
    for text in ("Tower", "layers.0 … layers.11 ×12", "head", "float32 3×4", "3×8", "verified"):
        assert any(text in one for one in shown), text
    assert any(re.fullmatch(r"-?[\d.e-]+ ± [\d.e-]+", one) for one in shown)
    about = tips(picture)
    for text in (
        "layers.0#0/relu",
        "relu = relu(a)",
        "test_drawing.py:",
        "float32[3, 8] on cpu",
        "over 12 repetitions",
    ):
        assert text in about, text


def test_a_pdf_is_a_pdf(tower, tmp_path):
    assert tower.export(tmp_path / "g.pdf").read_bytes().startswith(b"%PDF-")


# What is drawn -----------------------------------------------------------------------------------


def test_repeated_layers_are_one_box(tower):
    drawn = drawing(tower)
    assert [(box.row.name, box.row.repeats) for box in drawn.root.boxes] == [("layers.0 … layers.11 ×12", 12)]
    assert titles(drawn, "call") == ["norm", "a", "b", "head"]
    assert titles(drawn, "op") == ["relu", "add"]
    assert titles(drawn, "input") == ["x"] and titles(drawn, "output") == ["output"]


def test_what_is_said_of_a_repeated_layer_is_over_all_its_repetitions(tower):
    (relu,) = [step for step in drawing(tower).steps.values() if step.title == "relu"]
    assert len(relu.values) == 12 and relu.stats.count == 12 * 3 * 8
    assert relu.stats.max == max(node.stats.max for node in tower.ops("relu"))


def test_without_folding_every_layer_has_a_box(tower):
    drawn = drawing(tower, fold=False, depth=9)
    assert [box.row.name for box in drawn.root.boxes] == [f"layers.{i}" for i in range(12)]
    assert titles(drawn, "op").count("relu") == 12


def test_depth_closes_calls_and_what_is_closed_says_how_often_it_repeats(tower, tmp_path):
    assert titles(drawing(tower, depth=1), "call") == ["layers.0 … layers.11 ×12", "head"]
    closed = drawing(tower, depth=0)
    assert [(arrow.source, arrow.target) for arrow in closed.arrows] == [
        ("Tower#0/x", "Tower#0"),
        ("Tower#0", "Tower#0→"),
    ]
    assert "calls 1 levels down are closed" in dot(tower, tmp_path, depth=1)
    assert texts(svg(tower, tmp_path, depth=0))[0] == "Tower"


def test_an_unasked_depth_is_one_that_can_be_read():
    class Wide(nn.Module):
        def __init__(self, level: int) -> None:
            super().__init__()
            parts = [nn.Linear(4, 4, bias=i % 2 == 0) if level == 0 else Wide(level - 1) for i in range(6)]
            self.parts = nn.ModuleList(parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, part in enumerate(self.parts):
                x = part(x) * i if i % 2 else part(x) + torch.ones(4)  # no two neighbours do the same
            return x

    trace = fx_debug(Wide(2), ones(), weights=False)
    assert len(trace.calls) == 6**3 + 6**2 + 6 + 1
    assert len(drawing(trace).steps) < 100 < len(drawing(trace, depth=9, fold=False).steps)


def test_a_row_of_rearrangements_is_one_step_and_none_of_it_is_lost_with_everything():
    trace = fx_debug(Does(lambda self, x: x.view(2, 2).transpose(0, 1).contiguous() + 1), ones())
    assert titles(drawing(trace), "arranging") == ["view · transpose · contiguous"]
    whole = drawing(trace, everything=True)
    assert titles(whole, "op") == ["view", "transpose", "contiguous", "add"]


def test_everything_draws_parameters_and_the_inside_of_leaves():
    trace = fx_debug(nn.Sequential(linear()), ones())
    assert titles(drawing(trace), "op") == []
    assert titles(drawing(trace, leaves=True), "op") == ["linear"]
    whole = drawing(trace, everything=True)
    assert titles(whole, "op") == ["get_attr", "get_attr", "linear"]
    assert titles(whole, "input") == ["input"] and titles(whole, "output") == ["output"]


def test_x_plus_x_is_drawn_with_its_shape_once_an_arrow():
    drawn = drawing(fx_debug(Does(lambda self, x: x + x), ones()))
    assert [(arrow.source, arrow.target, arrow.kind) for arrow in drawn.arrows] == [
        ("Does#0/arg0", "Does#0/add", "data"),
        ("Does#0/add", "Does#0→", "data"),
    ]


def test_every_drawn_step_but_an_unused_one_has_an_arrow(tower):
    drawn = drawing(tower)
    ends = {end for arrow in drawn.arrows for end in (arrow.source, arrow.target)}
    assert ends == set(drawn.steps)


# Colours -----------------------------------------------------------------------------------------


def fills(text: str) -> dict[str, str]:
    """Title → fill colour of the nodes of a DOT text."""
    return dict(re.findall(r'label=<<B>([\w ]+)</B>[^\n]*fillcolor="(#\w+)"', text))


def test_nan_is_red_from_where_it_began_and_folding_stops_there(tmp_path):
    model = Tower()
    with torch.no_grad():
        model.layers[7].b.weight[0, 0] = math.nan
    trace = fx_debug(model, ones())
    drawn = drawing(trace)
    assert [box.row.name for box in drawn.root.boxes] == [
        "layers.0 … layers.6 ×7",
        "layers.7",
        "layers.8 … layers.11 ×4",
    ]
    bad = [step for step in drawn.steps.values() if step.stats.nan]
    assert min(bad, key=lambda step: step.node.position).id == "layers.7.b#0"
    text = dot(trace, tmp_path)
    assert (fills(text)["a"], fills(text)["head"]) == ("#f7c6c5", "#f7c6c5")  # the a of the last box
    drawn_red = text.count('color="#c62828"')  # the frame; the output is not filled
    assert drawn_red == len(bad) == 10  # b and add; norm, a, relu, b, add and the view; head, output
    assert "NaN or Inf" in text and "1 NaN" in text


def test_nodes_are_coloured_by_status_or_by_a_statistic(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        trace = fx_debug(nn.Sequential(nn.Linear(8, 8), layer), torch.ones(1, 3, 8))
    text = dot(trace, tmp_path)
    assert fills(text) | {"input": "", "output": ""} == {"input": "", "0": "#dff0e1", "1": "#d5d6de", "output": ""}
    assert "opaque: nothing inside can be seen" in text and "recorded:" not in text
    by_number = dot(trace, tmp_path, color="absmax")
    assert fills(by_number)["0"] != fills(by_number)["1"]
    assert "absmax from " in by_number and "opaque: nothing" not in by_number
    assert set(fills(dot(trace, tmp_path, color="none")).values()) == {"#ffffff"}


def test_a_statistic_that_colours_is_written_too_and_token_ids_take_no_part(tmp_path):
    trace = fx_debug(nn.Sequential(nn.Embedding(1000, 2), nn.Linear(2, 2)), torch.tensor([[999, 5]]))
    loudest = max(call.outputs[0].stats.absmax for call in trace.calls)
    text = dot(trace, tmp_path, color="absmax")
    assert text.count("<BR/>absmax ") == 2
    assert f"to {loudest:.3g}</FONT>" in text
    assert "<BR/>std " not in dot(trace, tmp_path, color="std")  # it stands behind the ± already


def test_a_call_that_raised_is_red_and_named(tmp_path):
    with pytest.raises(RuntimeError):
        fx_debug(nn.Sequential(linear(), nn.Linear(3, 3)), ones())
    trace = fxdebug.last_failed()
    assert texts(svg(trace, tmp_path)).count("raised RuntimeError") == 2  # the box of the model, and the call
    assert fills(dot(trace, tmp_path)) == {"input": "#ffffff", "0": "#dff0e1", "1": "#f7c6c5"}


# Names -------------------------------------------------------------------------------------------

NAMES = [
    "a:b",
    "a<b>&c",
    'quo"te',
    "back\\slash",
    "\\n",
    "ünï→码",
    "line\nbreak",
    "bell\x07",
    "\ud800",
    "{|}",
    "%s",
    "&amp;",
    "x" * 300,
    " ",
]


def test_whatever_modules_are_called_the_picture_says_it(tmp_path):
    model = nn.Sequential()
    for i, name in enumerate(NAMES):
        model.add_module(name, nn.Linear(i + 1, i + 2))  # different shapes: nothing is folded
    trace = fx_debug(model, torch.ones(1, 1), weights=False)
    shown = texts(svg(trace, tmp_path))
    for name in (
        "a:b",
        "a<b>&c",
        'quo"te',
        "back\\slash",
        "\\n",
        "ünï→码",
        "line\\nbreak",
        "bell\\x07",
        "{|}",
        "&amp;",
        "%s",
    ):
        assert name in shown, name
    assert max(map(len, shown)) < 80  # long names are cut in the middle
    Image.open(trace.export(tmp_path / "g.png")).load()


# What cannot be drawn ----------------------------------------------------------------------------


def test_without_graphviz_the_error_names_both_remedies_and_the_dot_file(tower, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures.shutil, "which", lambda name: None)
    monkeypatch.setattr(pygraphviz_dot.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'fxdebug\[draw\]', or install graphviz with your") as error:
        tower.export(tmp_path / "g.png")
    assert str(tmp_path / "g.dot") in str(error.value)
    assert (tmp_path / "g.dot").read_text(encoding="utf-8") == dot(tower, tmp_path)
    assert not (tmp_path / "g.png").exists()


def test_a_dot_on_the_path_is_used_first(tower, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen(sys.argv[3], 'w').write(sys.argv[1] + sys.stdin.readline())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tower.export(tmp_path / "g.svg").read_text() == "-Tsvgdigraph Tower {\n"


def test_what_dot_complains_about_is_in_the_error(tower, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such plugin')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SaveError, match=r"dot could not draw .*g\.svg: no such plugin"):
        tower.export(tmp_path / "g.svg")


def test_more_than_dot_can_lay_out_is_refused_with_what_can_be_drawn(tower, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST", 40)
    remedy = r"^\d+ nodes are more than dot lays out in a minute \(40\): give depth=1, or write \.dot"
    with pytest.raises(UsageError, match=remedy):
        tower.export(tmp_path / "g.svg", fold=False, depth=9)
    assert list(tmp_path.iterdir()) == []
    tower.export(tmp_path / "g.svg", depth=1, fold=False)  # the remedy works


def test_a_layout_that_takes_too_long_is_stopped(tower, tmp_path, monkeypatch):
    def slow(*args: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("dot", 180)

    monkeypatch.setattr(pictures.subprocess, "run", slow)
    with pytest.raises(SaveError, match=r"dot did not finish .* in 180 s: give depth=\d+, or write \.dot"):
        tower.export(tmp_path / "g.svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"color": "meen"}, "color='meen': use one of status, mean, .* Did you mean 'mean'"),
        ({"rankdir": "UP"}, r"rankdir='UP': use TB \(downwards\) or LR"),
        ({"deep": 2}, "has no option 'deep'; it has depth, fold"),
    ],
)
def test_an_option_that_cannot_be_meant_is_an_error(tower, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        tower.export(tmp_path / "g.svg", **options)


def test_a_graph_of_thousands_of_nodes_is_drawn_at_the_depth_that_is_asked(tmp_path):
    trace = fx_debug(Tower(400), ones(), weights=False)
    assert len(trace.graph) > 8_000
    text = dot(trace, tmp_path, depth=1, fold=False)
    assert text.count("Block<BR/>") == 400
    assert titles(drawing(trace), "call") == ["norm", "a", "b", "head"]  # folded, the whole of it
