"""Pictures of a run in the layout of its page: what they show, their colours, and what is said where there is none."""

from __future__ import annotations

import builtins
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.errors import MissingExtra, UsageError
from fxdebug.exports.drawing.colors import SCALE
from fxdebug.exports.picture import write
from support.drawn import SVG, Tower, svg, texts
from support.trees import linear, ones


@pytest.fixture(scope="module")
def tower() -> Trace:
    torch.manual_seed(0)
    return fx_debug(Tower(), ones(3))


def tips(picture: ElementTree.Element) -> str:
    """Every tooltip."""
    return "\n".join(title.text or "" for title in picture.iter(f"{SVG}title"))


@pytest.mark.skipif(sys.platform == "win32", reason="limits of addresses are POSIX")
def test_a_process_with_few_addresses_is_told_so_and_does_not_end(tower, tmp_path, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (8 << 30, resource.RLIM_INFINITY))
    with pytest.raises(UsageError, match="is limited to 8 GiB: lift the limit with ulimit -v"):
        tower.export(tmp_path / "run.svg")
    assert list(tmp_path.iterdir()) == []


def test_repeated_layers_are_drawn_once_with_their_inside_and_tooltips(tower, tmp_path):
    picture = svg(tower, tmp_path)
    assert texts(picture) == [
        "Tower", "layers.0…11", "Block", "×12", "norm", "LayerNorm", "a", "Linear", "relu", "view", "b", "Linear",
        "add", "3×8", "3×4", "head", "Linear", "3×2", "x", "3×4",
        "linear, convolution, product", "normalisation", "activation", "other operation", "rearranges",
        "×: equal ones, drawn once", "skips layers",
    ]  # fmt: skip
    for text in ("layers.0#0/relu", "relu = relu(a)", "drawn.py:", "float32[3, 8] on cpu", "over 12 repetitions"):
        assert text in tips(picture), text


class Parts(nn.Module):
    """Takes a dictionary and a pair, and returns a dictionary."""

    def forward(self, batch: dict[str, torch.Tensor], pair: tuple[torch.Tensor, torch.Tensor], *, scale: torch.Tensor):
        h = batch["image"] * scale + batch["text"] + pair[0] - pair[1]
        return {"logits": h.relu(), "features": h}


def test_inputs_and_outputs_stand_outside_by_the_names_of_the_forward(tmp_path):
    x = [torch.randn(2, 3) for _ in range(5)]
    inputs = {"batch": {"image": x[0], "text": x[1]}, "pair": (x[2], x[3]), "scale": x[4]}
    found = texts(svg(fx_debug(Parts(), inputs), tmp_path))
    names = {"batch.image", "batch.text", "pair[0]", "pair[1]", "scale", "logits", "features"}
    assert [text for text in found if text in names] and names <= set(found)
    assert found.count("2×3") >= 5


def test_of_many_outputs_the_first_are_named_and_the_others_counted(tmp_path):
    class Many(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple((x + i).relu() for i in range(9))

    found = texts(svg(fx_debug(Many(), torch.randn(2, 3)), tmp_path))
    assert sorted(text for text in found if text.startswith("[")) == ["[0]", "[1]", "[2]", "[3]", "[4]", "[5]"]
    assert "and 3 more" in found


class Flat(nn.Module):
    """Layers of which no two are alike, in a row: nothing can be folded."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8 + i, 9 + i) for i in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("count", [1, 8, 30, 120])
def test_a_row_of_different_layers_stands_in_columns_in_order(tmp_path, count):
    picture = svg(fx_debug(Flat(count), torch.randn(1, 8), weights=False), tmp_path)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    assert height < 960 or height < 2.1 * width
    found = [text for text in texts(picture) if text.startswith("layers.")]
    assert found == [f"layers.{i}" for i in range(count)]


def test_what_is_closed_to_fit_a_page_is_said(tmp_path):
    class Deep(nn.Module):
        def __init__(self, depth: int) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4) if depth == 0 else Deep(depth - 1)
            self.b = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.LayerNorm(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x).relu())

    trace = fx_debug(Deep(14), torch.randn(1, 4))
    said = [text for text in texts(svg(trace, tmp_path)) if "calls drawn of" in text]
    assert len(said) == 1 and said[0].endswith(f" of {len(trace.calls)}, as many as fit a page: depth= opens more")
    assert not [text for text in texts(svg(trace, tmp_path, depth=99, leaves=True)) if "calls drawn of" in text]


@pytest.mark.parametrize(
    ("options", "shown", "hidden"),
    [
        ({"depth": 1}, ["layers.0…11", "×12", "head"], ["relu"]),
        ({"depth": 0}, ["Tower"], ["head"]),
        ({"fold": False}, ["layers.0", "layers.11"], ["×12"]),
        ({"leaves": True, "depth": 9}, ["linear", "layer_norm"], []),
    ],
)
def test_options_say_what_is_open(tower, tmp_path, options, shown, hidden):
    found = texts(svg(tower, tmp_path, **options))
    assert [text for text in shown if text not in found] == []
    assert [text for text in hidden if text in found] == []


def test_a_measure_colours_the_items_and_stands_in_them(tmp_path):
    torch.manual_seed(0)  # of equal rows the first norm returns 0, and its layer would stand out
    picture = svg(fx_debug(Tower(), torch.randn(3, 4)), tmp_path, color="absmax", measures="flops")
    found = texts(picture)
    assert sum(text.startswith("absmax ") for text in found) == 6 + 1  # the items that compute, and the legend
    assert [text for text in found if text.startswith("flops 2")] == ["flops 2.3 kFLOP"] * 2  # 12 × 3 × 4 × 8 × 2: a, b
    assert any(text.startswith("absmax from ") for text in found)
    fills = {rect.get("fill") for rect in picture.iter(f"{SVG}rect")}
    assert {"#f7fbff", "#6daed5"} <= fills  # the least and the largest


def test_status_is_a_colour_only_where_it_is_asked_for(tower, tmp_path):
    assert "#dff0e1" not in ElementTree.tostring(svg(tower, tmp_path), "unicode")
    picture = svg(tower, tmp_path, color="status")
    assert "#dff0e1" in ElementTree.tostring(picture, "unicode")
    assert "verified" in texts(picture)


class Finite(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(x).tanh()


class Layers(nn.Module):
    """Six equal layers, of which one is spoiled; what comes out of each is finite again."""

    def __init__(self, spoil: Callable[[nn.Linear], object]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), Finite()) for _ in range(6))
        with torch.no_grad():
            for layer in self.layers:
                layer[0].weight.copy_(torch.eye(3))
            spoil(self.layers[3][0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def not_a_number(layer: nn.Linear) -> None:
    layer.bias[0] = float("nan")


def infinite(layer: nn.Linear) -> None:
    layer.bias[0] = float("inf")


def misfit(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(torch.zeros(3, 5))


def large(layer: nn.Linear) -> None:
    layer.bias[0] = 1000


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    ("spoil", "color", "apart"),
    [
        (not_a_number, "kind", True), (infinite, "kind", True), (misfit, "kind", True), (large, "absmax", True),
        (large, "kind", False), (lambda layer: None, "absmax", False),
    ],
)  # fmt: skip
def test_a_layer_that_fares_otherwise_than_its_like_is_drawn_apart(tmp_path, spoil, color, apart, graph):
    torch.manual_seed(0)
    try:
        trace = fx_debug(Layers(spoil), torch.ones(2, 3), graph=graph)
    except RuntimeError:
        trace = fxdebug.last_failed()
    found = texts(svg(trace, tmp_path, color=color))
    assert ("layers.3" in found) == apart
    assert ("×6" in found) != apart
    assert apart or "layers.0…5" in found


def test_what_raised_and_what_is_not_finite_is_named_and_red(tmp_path):
    class Spoiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = linear(), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x) / 0 * 0)

    with pytest.raises(RuntimeError):
        fx_debug(Spoiled(), ones())
    trace = fxdebug.last_failed()
    assert trace is not None
    picture = svg(trace, tmp_path)
    found = texts(picture)
    assert found.count("raised RuntimeError") == 2  # the box of the model, and the call
    assert {"Inf", "NaN", "NaN or Inf", "raised"} <= set(found)
    assert "recorded: the operations as they ran" in found


NAMES = [
    "</script>", "<!--", "a<b>&c", 'quo"te', "back\\slash", "ünï→码", "line\nbreak", "bell\x07", "\ud800",
    "\u2028", "\u202egnp", "x" * 10_000, " ",
]  # fmt: skip


class Mends(nn.Module):
    """A block that makes a NaN, and returns none."""

    def __init__(self, spoiled: bool) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)
        if spoiled:
            with torch.no_grad():
                self.up.weight[0, 0] = torch.nan

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.up(x).nan_to_num()


@pytest.mark.parametrize("options", [{"depth": 1}, {"depth": 1, "color": "absmax"}, {"depth": 1, "layout": "dot"}])
def test_a_closed_call_says_that_a_nan_was_made_inside(tmp_path, options):
    for spoiled in (True, False):
        trace = fx_debug(nn.Sequential(nn.Linear(4, 4), Mends(spoiled), nn.Linear(4, 2)), torch.ones(2, 4))
        assert ("NaN inside" in texts(svg(trace, tmp_path, **options))) == spoiled


def test_a_number_that_is_not_known_is_not_left_out_and_no_zero(tmp_path):
    part = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    found = texts(
        svg(fx_debug(nn.Sequential(nn.Linear(4, 4), part, nn.ReLU()), torch.ones(2, 4)), tmp_path, color="flops")
    )
    assert found.count("flops n/a") == 2, "in the box, and in the legend"
    assert "flops 0 FLOP" in found and "flops 64 FLOP" in found


def test_a_scale_stands_in_one_row(tmp_path):
    layers = [layer for _ in range(3) for layer in (nn.Linear(4, 4), nn.ReLU())]
    picture = svg(fx_debug(nn.Sequential(*layers), torch.ones(2, 4)), tmp_path, color="flops")
    (low,) = [one for one in picture.iter(f"{SVG}text") if (one.text or "").startswith("flops from")]
    (high,) = [one for one in picture.iter(f"{SVG}text") if (one.text or "").startswith("to ")]
    swatches = [one for one in picture.iter(f"{SVG}rect") if one.get("fill") in SCALE and one.get("height") == "12"]
    assert low.get("y") == high.get("y")
    assert len(swatches) == len(SCALE) and len({one.get("y") for one in swatches}) == 1


def test_whatever_modules_are_called_the_picture_is_well_formed_and_says_it(tmp_path):
    model = nn.Sequential()
    for i, name in enumerate(NAMES):
        model.add_module(name, nn.Linear(i + 1, i + 2))  # different shapes: nothing is folded
    trace = fx_debug(model, torch.ones(1, 1), weights=False)
    picture = svg(trace, tmp_path)
    found = texts(picture)
    assert [
        name for name in ("</script>", "<!--", "a<b>&c", 'quo"te', "ünï→码", "line\\nbreak") if name not in found
    ] == []
    assert max(map(len, found)) < 80  # long names are cut in the middle
    with Image.open(trace.export(tmp_path / "g.png")) as image:
        image.load()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_png_has_two_pixels_for_one_and_the_paper_of_its_theme(tower, tmp_path, theme):
    picture = svg(tower, tmp_path, theme=theme)
    with Image.open(tower.export(tmp_path / "g.png", theme=theme)) as image:
        assert image.size == (2 * int(picture.attrib["width"]), 2 * int(picture.attrib["height"]))
        assert image.convert("RGB").getpixel((1, 1)) == {"light": (247, 248, 250), "dark": (18, 21, 26)}[theme]


def test_a_pdf_is_one_page_of_letters_and_lines(tower, tmp_path):
    written = tower.export(tmp_path / "g.pdf").read_bytes()
    assert written.startswith(b"%PDF-")
    assert b"/Type /Font" in written
    assert b"/Subtype /Image" not in written


def test_a_run_without_graphs_shows_its_calls(tmp_path):
    trace = fx_debug(Tower(), ones(3), graph=False)
    found = texts(svg(trace, tmp_path))
    assert {"layers.0…11", "norm", "head"} <= set(found)
    leaf = fx_debug(nn.ReLU(), ones(3), graph=False)
    assert "ReLU" in texts(svg(leaf, tmp_path))


def test_more_items_than_a_picture_can_show_are_refused_with_what_can_be_drawn(tower, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "MOST", 40)
    remedy = (
        r"^\d+ items are more than a picture can show \(40\): give depth=1 or leave repeated layers folded, or export"
    )
    with pytest.raises(UsageError, match=remedy):
        tower.export(tmp_path / "g.svg", fold=False, depth=9)
    assert list(tmp_path.iterdir()) == []
    tower.export(tmp_path / "g.svg", fold=False, depth=1)  # the remedies work
    tower.export(tmp_path / "g.svg", depth=9)


@pytest.mark.parametrize(
    ("library", "suffix", "message"),
    [
        (
            "py_mini_racer",
            ".svg",
            r"drawing a run needs the extra draw: pip install 'fxdebug\[draw\]'; with layout='dot'",
        ),
        (
            "vl_convert",
            ".png",
            r"PNG and PDF need the extra draw: pip install 'fxdebug\[draw\]'; \.svg needs no vl-convert",
        ),
    ],
)
def test_without_a_library_the_error_names_the_extra(tower, tmp_path, monkeypatch, library, suffix, message):
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=message):
        tower.export(tmp_path / f"g{suffix}")
    assert list(tmp_path.iterdir()) == []


WEB = Path(__file__).parents[3] / "web"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules").is_dir(),
    reason="needs node and the packages that `make page` installs",
)


@needs_node
def test_the_files_in_the_package_are_what_the_sources_build():
    done = subprocess.run(["node", "build.mjs", "--check"], cwd=WEB, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_node
def test_the_tests_of_the_pages_code_pass_in_node():
    subprocess.run(["node", "build.mjs", "--tests"], cwd=WEB, check=True)
    done = subprocess.run(["node", "--test", ".tests/"], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
