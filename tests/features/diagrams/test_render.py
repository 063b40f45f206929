"""Pictures by Graphviz (``layout="dot"``): PNG, SVG, PDF, and what is said where that is not possible."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from PIL import Image
from torch import nn

from fxdebug import fx_debug
from fxdebug.errors import MissingExtra, SaveError, UsageError
from fxdebug.features.diagrams import render
from support.drawn import SVG, dot, svg, texts


def tips(picture: ElementTree.Element) -> str:
    """Every tooltip."""
    found = [a.attrib["{http://www.w3.org/1999/xlink}title"] for a in picture.iter(f"{SVG}a")]
    return "\n".join(found)


def test_a_png_is_a_picture_that_opens(tower, tmp_path, rankdir):
    with Image.open(tower.export(tmp_path / "g.png", layout="dot", rankdir=rankdir)) as image:
        image.load()
        assert image.format == "PNG"
        width, height = image.size
        assert (width > height) == (rankdir == "LR")
        assert 300 < min(width, height) < max(width, height) < 4000  # a person can take it in
        colors = {color for _, color in image.convert("RGB").getcolors(1 << 24)}
    assert (0xDF, 0xF0, 0xE1) in colors  # verified


def test_an_svg_shows_names_shapes_numbers_and_tooltips(tower, tmp_path):
    picture = svg(tower, tmp_path, layout="dot")
    shown = texts(picture)
    assert picture.tag == f"{SVG}svg"
    for text in ("Tower", "layers.0 … layers.11 ×12", "head", "float32 3×4", "3×8", "verified"):
        assert any(text in one for one in shown), text
    assert any(re.fullmatch(r"-?[\d.e-]+ ± [\d.e-]+", one) for one in shown)
    about = tips(picture)
    for text in (
        "layers.0#0/relu",
        "relu = relu(a)",
        "drawn.py:",
        "float32[3, 8] on cpu",
        "over 12 repetitions",
    ):
        assert text in about, text


def test_a_pdf_is_a_pdf(tower, tmp_path):
    assert tower.export(tmp_path / "g.pdf", layout="dot").read_bytes().startswith(b"%PDF-")


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
    shown = texts(svg(trace, tmp_path, layout="dot"))
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
    Image.open(trace.export(tmp_path / "g.png", layout="dot")).load()


def test_without_graphviz_the_error_names_both_remedies_and_the_dot_file(tower, tmp_path, monkeypatch):
    monkeypatch.setattr(render.shutil, "which", lambda name: None)
    monkeypatch.setattr(render.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'fxdebug\[draw\]', or install graphviz with your") as error:
        tower.export(tmp_path / "g.png", layout="dot")
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
    assert tower.export(tmp_path / "g.svg", layout="dot").read_text() == "-Tsvgdigraph Tower {\n"


def test_what_dot_complains_about_is_in_the_error(tower, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such plugin')\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SaveError, match=r"dot could not draw .*g\.svg: no such plugin"):
        tower.export(tmp_path / "g.svg", layout="dot")


def test_more_than_dot_can_lay_out_is_refused_with_what_can_be_drawn(tower, tmp_path, monkeypatch):
    monkeypatch.setattr(render, "MOST", 40)
    remedy = r"^\d+ nodes are more than dot lays out in a minute \(40\): give depth=1, or write \.dot"
    with pytest.raises(UsageError, match=remedy):
        tower.export(tmp_path / "g.svg", layout="dot", fold=False, depth=9)
    assert list(tmp_path.iterdir()) == []
    tower.export(tmp_path / "g.svg", layout="dot", depth=1, fold=False)  # the remedy works


def test_a_layout_that_takes_too_long_is_stopped(tower, tmp_path, monkeypatch):
    def slow(*args: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("dot", 180)

    monkeypatch.setattr(render.subprocess, "run", slow)
    with pytest.raises(SaveError, match=r"dot did not finish .* in 180 s: give depth=\d+, or write \.dot"):
        tower.export(tmp_path / "g.svg", layout="dot")


def test_an_unfolded_drawing_of_very_many_calls_is_refused_before_anything_is_built(tmp_path, monkeypatch):
    model = nn.Sequential(*[nn.Sequential(*[nn.ReLU() for _ in range(20)]) for _ in range(10)])
    trace = fx_debug(model, torch.ones(2), graph=False)
    monkeypatch.setattr(render, "MOST", 50)
    for name in ("drawing_of", "count_steps"):  # both need the graph of the run
        monkeypatch.delattr(render, name)
    remedy = r"^200 nodes are more than dot lays out in a minute \(50\): give depth=1, or write \.dot"
    for options in ({"depth": 2}, {"everything": True}):
        with pytest.raises(UsageError, match=remedy):
            trace.export(tmp_path / "g.svg", layout="dot", fold=False, **options)
