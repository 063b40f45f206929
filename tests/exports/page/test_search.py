"""Search on the page: conditions mean what they mean in Python, words and patterns find calls and operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug import Trace, UsageError
from fxdebug.data.measures import UNITS
from support.browser import wait_until

# Lines that Python takes; each is asked on the page and of trace.find and trace.ops.
LINES = (
    "absmax > 1",
    "absmax>1 or nan > 0",
    "not absmax > 1",
    "0 < absmax < 1",
    "0.5 < std <= 1e1 and mean != 0",
    "input.nan > 0",
    "input.absmax > 2 * output.absmax",
    "parameter.absmax > 0.3",
    "parameter.numel == 12 and output.ndim >= 2",
    "inf + nan > 0",
    "zeros / count > 0.1",
    "-min > max",
    "- 2 ** 2 < mean",
    "(-absmax) ** 0.5 > 0.5",
    "std / 0 > 0",
    "2 ** -1 < absmax",
    "absmax ** 2 ** 0.5 > 1",
    "bytes >= 96B",
    "bytes > 0.09KiB and bytes < 1 MB",
    "duration >= 0s",
    "duration > -1ms",
    "duration < 1e9us and params > 0",
    "params == trainable",
    "absmax",
    "not nan",
    "requires_grad == True",
    "(absmax > 1) + (nan > 0) == 1",
    "finite < count",
    "ndim == 2 and numel > 0x10",
    "numel > 1_0",
    "absmax > .5e0  # a remark",
    "mean == mean",
    "posinf >= 1 or neginf >= 1",
)
REFUSED = (
    "absmx > 1",
    "absmax >",
    "absmax > 1 2",
    "duration > 1B",
    "absmax > 1ms",
    "absmax & 1 > 0",
    "'a' > 1",
    "f(absmax) > 1",
    "input.duration > 1s",
    "absmax = 1",
    "(absmax > 1",
    "absmax > 1 if nan else 2",
    "+absmax > 1",
    "absmax is 1 > 0",
    "1j > 0",
    "absmax > 012",
    "> 1",
    "absmax > 1 " + "+ 1" * 800,
    "(" * 120 + "absmax" + ")" * 120 + " > -" + "-" * 120 + "1",
)


class Block(nn.Module):
    """Two linear layers, a NaN on the way, a tuple that is taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(3, 4)
        self.down = nn.Linear(4, 3)
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.chunk(torch.relu(self.up(x)), 2, dim=-1)
        joined = torch.cat([second * 3, first], -1)
        return self.down(joined) * self.scale + x.sum()


class Net(nn.Module):
    """Blocks in a list, then a division by zero."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.norm(x) / torch.clamp(x - x, min=0)


@pytest.fixture(scope="module")
def trace() -> Trace:
    torch.manual_seed(1)
    with torch.no_grad():
        return fxdebug.fx_debug(Net(), torch.randn(2, 3), weights=True)


def in_python(trace: Trace, line: str) -> dict[str, list[str]]:
    """Return what Python finds: a line about a measure that operations lack is about calls only."""
    found = {"calls": [call.id for call in trace.find(where=line)]}
    try:
        nodes = trace.ops(where=line)
    except UsageError:
        nodes = []
    return found | {"operations": [node.id.replace(f"{trace.model}#", "#") for node in nodes]}


def on_page(page: Any, query: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("query => window.fxdebug.search(query)", query)
    return {name: found[name] for name in ("calls", "operations", "error")}


def test_conditions_find_the_same_on_the_page_and_in_python(trace: Trace, open_page: Callable[..., Any]) -> None:
    page = open_page(trace)
    wrong = []
    for line in LINES:
        found, wanted = on_page(page, f"where {line}"), in_python(trace, line)
        if found["error"] or any(sorted(found[kind]) != sorted(wanted[kind]) for kind in wanted):
            wrong.append((line, found, wanted))
    assert not wrong


def test_most_conditions_of_the_table_tell_calls_apart(trace: Trace) -> None:
    every = len(trace.calls)
    assert sum(0 < len(in_python(trace, line)["calls"]) < every for line in LINES) >= 15


def test_what_python_refuses_the_page_refuses_with_a_reason(trace: Trace, open_page: Callable[..., Any]) -> None:
    page = open_page(trace)
    for line in REFUSED:
        with pytest.raises(UsageError):
            trace.find(where=line)
        found = on_page(page, f"where {line}")
        assert found["error"], line
        assert not found["calls"], line


def test_a_misspelt_measure_is_answered_with_the_nearest(trace: Trace, open_page: Callable[..., Any]) -> None:
    assert on_page(open_page(trace), "absmx > 1")["error"] == "this run has no measure absmx; did you mean absmax?"


def test_units_on_the_page_are_those_of_python(trace: Trace, open_page: Callable[..., Any]) -> None:
    page = open_page(trace)
    for name, (factor, unit) in UNITS.items():
        if unit in ("s", "B"):
            measure = "duration" if unit == "s" else "bytes"
            found = on_page(
                page, f"{measure} == {measure} and 2 {name} > {factor * 1.5!r} and 2 {name} < {factor * 2.5!r}"
            )
            assert not found["error"], name
            assert found["calls"], name


def test_words_patterns_and_fields_find_calls_and_operations(trace: Trace, open_page: Callable[..., Any]) -> None:
    page = open_page(trace)
    assert on_page(page, "down")["calls"] == [f"blocks.{i}.down#0" for i in range(3)]
    assert on_page(page, "blocks.1 linear")["calls"] == ["blocks.1.up#0", "blocks.1.down#0"]
    assert on_page(page, "blocks.*.up")["calls"] == [call.id for call in trace.find("blocks.*.up")]
    assert on_page(page, "type:Linear")["calls"] == [call.id for call in trace.find(type="Linear")]
    assert on_page(page, "op:cat")["operations"] == [node.id for node in trace.ops("cat")]
    assert on_page(page, "op:cat")["calls"] == []
    assert on_page(page, "shape:2,4")["calls"] == [call.id for call in trace.find(shape="2,4")]
    assert on_page(page, "type:Block std > 0")["calls"] == [
        call.id for call in trace.find(type="Block", where="std > 0")
    ]
    assert on_page(page, "CAT blocks.2")["operations"] == ["blocks.2#0/cat"]
    assert on_page(page, "nowhere") == {"calls": [], "operations": [], "error": ""}


def test_the_search_field_lists_what_it_found_and_chooses_it_by_keys(
    trace: Trace, open_page: Callable[..., Any]
) -> None:
    page = open_page(trace)
    page.keyboard.press("/")
    box = page.get_by_role("combobox", name="Search calls and operations")
    assert box.evaluate("box => box === document.activeElement")
    page.keyboard.type("blocks.1 type:Linear")
    listed = page.get_by_role("listbox", name="Found")
    found = listed.get_by_role("option")
    assert [row.inner_text().split()[0] for row in found.all()] == ["up", "linear", "down", "linear"]
    wait_until(page, "window.fxdebug.state().query === 'blocks.1 type:Linear'")  # the keys pause
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert (
        page.get_by_role("listbox", name="Found").get_by_role("option", selected=True).inner_text().startswith("down")
    )
    page.keyboard.press("Enter")
    assert page.evaluate("window.fxdebug.selected()") == "blocks.1.down"
    assert page.get_by_role("heading", level=2).inner_text().startswith("down")
