"""The page of a comparison: two graphs in step, the first difference marked, and its way onward lit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.api import Comparison
from support.browser import wait_until

Page = Any
Open = Callable[..., Page]


class Block(nn.Module):
    """Attention as one operation, or written out; the written one may forget its scale."""

    def __init__(self, fused: bool, forgets: bool = False) -> None:
        super().__init__()
        self.fused, self.forgets = fused, forgets
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        if self.fused:
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2)
            mixed = torch.softmax(scores if self.forgets else scores / 8**0.5, -1) @ v
        return x + self.out(mixed)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    """A port that forgets the scale of attention in the third of four blocks."""
    torch.manual_seed(0)
    a = nn.Sequential(*[Block(True) for _ in range(4)]).eval()
    b = nn.Sequential(*[Block(False, i == 2) for i in range(4)]).eval()
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        comparison = fxdebug.compare(fxdebug.fx_debug(a, x), fxdebug.fx_debug(b, x))
    return comparison, comparison.export(tmp_path_factory.mktemp("diff") / "diff.html")


@pytest.fixture
def page(written: tuple[Comparison, Path], open_page: Open) -> Page:
    opened = open_page(written[1], width=1400)
    opened.evaluate("fxdebug.settle()")
    return opened


def drawn(page: Page, side: int) -> list[dict[str, Any]]:
    page.evaluate("fxdebug.settle()")
    return page.evaluate("side => fxdebug.visible(side)", side)


def test_the_first_difference_is_chosen_marked_and_in_sight_in_both_runs(page: Page) -> None:
    guilty = [[one for one in drawn(page, side) if one["onward"] == "guilty"] for side in (0, 1)]
    assert [[one["label"] for one in side] for side in guilty] == [["scaled_dot_product_attention"], ["matmul"]]
    assert [[one["selected"] for one in side] for side in guilty] == [[True], [True]]
    assert [side[0]["path"] for side in guilty] == ["2", "2"]
    assert guilty[0][0]["y"] == pytest.approx(guilty[1][0]["y"], abs=1), "both stand at the same height"


def test_what_carries_the_error_on_is_lit_and_what_came_before_is_not(page: Page) -> None:
    page.evaluate("fxdebug.set({open: Array.from({length: fxdebug.payload.run.callCount}, (_, call) => call)})")
    page.evaluate("fxdebug.fit()")
    inside = [one for one in drawn(page, 1) if one["path"] == "2" and one["item"] >= 0]
    labels = [one["label"] for one in inside if one["onward"]]
    assert "add" in labels
    assert "chunk" not in labels
    lit = page.evaluate("['1', '2', '3'].map(path => fxdebug.where(path, 1).onward)")
    assert lit == ["", "onward", "onward"]


class Fused(nn.Module):
    """One linear layer for what :class:`Apart` has three for."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.mT, -1) @ v


class Apart(nn.Module):
    """Three linear layers."""

    def __init__(self, fused: Fused) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        for i, part in enumerate((self.q, self.k, self.v)):
            part.weight.data = fused.qkv.weight.data[8 * i : 8 * i + 8].clone()
            part.bias.data = fused.qkv.bias.data[8 * i : 8 * i + 8].clone()

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.q(x) @ self.k(x).mT, -1) @ self.v(x)


def test_what_one_operation_does_is_marked_in_all_operations_of_the_other_run(open_page: Open, tmp_path: Path) -> None:
    torch.manual_seed(0)
    fused = Fused()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        comparison = fxdebug.compare(fxdebug.fx_debug(fused, x), fxdebug.fx_debug(Apart(fused), x))
    page = open_page(comparison.export(tmp_path / "fused.html"), width=1400)
    page.evaluate("fxdebug.set({compareSide: 0})")
    chunk = next(one for one in drawn(page, 0) if one["label"] == "chunk")
    page.evaluate("place => fxdebug.set({selected: place})", {"call": chunk["call"], "item": chunk["item"]})
    marked = [one["path"] for one in drawn(page, 1) if one["selected"]]
    assert sorted(marked) == ["k", "q", "v"]


def test_boxes_open_in_both_runs_at_once(page: Page) -> None:
    page.evaluate("fxdebug.set({selected: null, open: [0]})")
    closed = [[one["path"] for one in drawn(page, side) if one["open"]] for side in (0, 1)]
    page.evaluate("fxdebug.open('1')")
    opened = [page.evaluate("side => fxdebug.where('1', side).open", side) for side in (0, 1)]
    assert closed == [[], []]
    assert opened == [True, True]


def test_both_runs_move_together(page: Page) -> None:
    before = [page.evaluate("side => fxdebug.layout(side).camera", side) for side in (0, 1)]
    canvas = page.locator(".graph canvas").first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.wheel(0, 60)
    wait_until(page, "y => Math.abs(fxdebug.layout(0).camera.y - y) > 59", before[0]["y"])
    page.evaluate("fxdebug.settle()")
    after = [page.evaluate("side => fxdebug.layout(side).camera", side) for side in (0, 1)]
    assert [round(b["y"] - a["y"]) for a, b in zip(after, before, strict=True)] == [60, 60]


def test_the_error_of_every_pair_is_an_overlay_and_its_numbers_are_those_of_the_comparison(
    page: Page, written: tuple[Comparison, Path]
) -> None:
    page.evaluate("fxdebug.set({overlay: 'error'})")
    read = {path: page.evaluate("path => fxdebug.reading(path).value", path) for path in ("1", "2", "3")}
    errors = {row.path: row.error for row in written[0].rows if row.op is None}
    assert read == pytest.approx({path: errors[path] for path in read}, rel=1e-5)
    assert read["1"] < 1e-5 < read["2"]


def test_choosing_in_one_run_chooses_its_partner(page: Page) -> None:
    page.evaluate("fxdebug.set({compareSide: 1, selected: {call: fxdebug.payload.runs[1].callOf('3.out'), item: -1}})")
    chosen = [next(one["path"] for one in drawn(page, side) if one["selected"]) for side in (0, 1)]
    assert chosen == ["3.out", "3.out"]


class Masked(nn.Module):
    """Two inputs and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.linear(x) * mask


def test_other_inputs_stand_under_the_inputs_and_are_no_error_of_the_model(open_page: Open, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Masked(), torch.randn(4, 3)
    runs = [fxdebug.fx_debug(model, (x, torch.full((4, 3), mask))) for mask in (1.0, 0.25)]
    comparison = fxdebug.compare(*runs)
    page = open_page(comparison.export(tmp_path / "inputs.html"), width=1400)
    page.evaluate("fxdebug.set({selected: {call: 0, item: -1}})")
    tensors = {
        one.locator(".slot").inner_text(): one.locator(".stat-number").all_inner_texts()
        for one in page.locator(".panel .tensor").all()[:3]
    }
    assert tensors["args[1]"][:4] == ["b", "a", "0.25", "1"]  # its mean: of b, of a
    assert tensors["result"][2:4] == [digits(next(iter(run.root.outputs)).stats.mean) for run in reversed(runs)]
    assert tensors["args[0]"][0] == digits(next(iter(runs[1].root.inputs)).stats.mean, 4)  # the same: no other side
    assert page.locator(".pair .chip").all_inner_texts() == ["input", "inherited"]
    assert page.locator(".banner").inner_text().split("\n") == [
        "different: first at Masked", "the runs were given different inputs: args[1]",
    ]  # fmt: skip


def digits(number: float, count: int = 3) -> str:
    return f"{number:.{count}g}".replace("-", "\u2212")


@pytest.mark.parametrize(("factor", "tone", "shown"), [(1 + 1e-3, "bad", True), (1 + 4e-6, "good", False)])
def test_numbers_have_the_digits_in_which_they_differ_and_are_red_beyond_the_tolerance(
    open_page: Open, tmp_path: Path, factor: float, tone: str, shown: bool
) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 3), torch.randn(4, 3)
    a = fxdebug.fx_debug(model, x)
    with torch.no_grad():
        model.weight.mul_(factor)
    page = open_page(fxdebug.compare(a, fxdebug.fx_debug(model, x)).export(tmp_path / "digits.html"), width=1400)
    page.evaluate("fxdebug.set({selected: {call: 0, item: -1}})")
    result = page.locator(".panel .tensor").first
    pairs = [one.locator(".stat-number").all_inner_texts() for one in result.locator(".stat:not(.sides-named)").all()]
    assert len(pairs) == 4 and all((b != a) == shown for b, a in pairs)
    assert result.locator(".differs").count() == (4 if shown else 0)
    assert page.locator(f".banner.is-{tone}").count() == 1
