"""Agents ask about a folder of runs, through the client of the package ``mcp``."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.features.mcp.paging import CHARACTERS, error_of, page_of

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the package mcp is not installed")


class Scaled(nn.Module):
    """Overflows if ``scale`` is large."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*[nn.Linear(4, 4) for _ in range(30)])
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(self.layers[0](x) * self.scale) + self.layers(x)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    x = torch.ones(2, 4)
    fxdebug.fx_debug(Scaled(1), x, save=root / "a")
    fxdebug.fx_debug(Scaled(1e4), x, save=root / "deep" / "b")
    with pytest.raises(RuntimeError):
        fxdebug.fx_debug(Scaled(1), torch.ones(2, 3), save=root / "crashed")
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with fxdebug.watch(model, save=root / "train"):
        for _ in range(3):
            model(torch.ones(4, 2)).mean().backward()
            optimizer.step()
    (root / "damaged").mkdir()
    (root / "damaged" / "trace.json").write_text("{")
    return root


def ask(folder: Path, *questions: tuple[str, Mapping[str, Any]]) -> list[tuple[bool, str]]:
    """Return whether each answer is an error, and its text."""
    from mcp import Client

    from fxdebug.features.mcp.mcp_server import server_of

    async def answers() -> list[tuple[bool, str]]:
        async with Client(server_of(folder)) as client:
            results = [await client.call_tool(name, dict(asked)) for name, asked in questions]
        return [(bool(result.is_error), result.content[0].text) for result in results]

    return asyncio.run(answers())


def test_runs_are_listed_with_what_ended_them(folder: Path) -> None:
    ((failed, text),) = ask(folder, ("runs", {}))
    assert not failed
    lines = text.splitlines()
    assert lines[0] == "a: Scaled, 33 calls, 95 values"
    assert lines[1].startswith("crashed: Scaled, 2 calls, ") and "raised RuntimeError: mat1 and mat2" in lines[1]
    assert lines[2].startswith("damaged: cannot be read: ") and lines[3].startswith("deep/b: Scaled")
    (training,) = lines[4:]
    assert training.startswith("train: a watched training, finished: ") and training.endswith("; `training` reports it")


def test_an_agent_finds_the_producer_of_an_infinity(folder: Path) -> None:
    (_, found), (_, told), (_, compared), (_, listed) = ask(
        folder,
        ("check", {"run": "deep/b"}),
        ("explain", {"run": "deep/b", "place": "Scaled#0/exp"}),
        ("compare", {"a": "a", "b": "deep/b"}),
        ("find", {"run": "deep/b", "operations": "*", "where": "inf > 0"}),
    )
    assert "#0/exp" in found and "exp" in found.splitlines()[0] + found.splitlines()[1]
    assert (
        told.splitlines()[0].startswith("Scaled#0/exp  exp in Scaled #0, at ")
        and "reads:\n  Scaled#0/mul mul at " in told
    )
    assert "read by:\n  Scaled#0/add add at " in told
    assert compared.startswith("verdict: different")
    assert [line.split()[0] for line in listed.splitlines()] == ["Scaled#0/exp", "Scaled#0/add"]


def test_calls_trees_measures_and_trainings_are_told(folder: Path) -> None:
    (_, call), (_, tree), (_, measures), (_, training), (_, checked) = ask(
        folder,
        ("explain", {"run": "a", "place": "layers.3"}),
        ("tree", {"run": "a", "columns": "params,flops"}),
        ("measures", {"run": "a"}),
        ("training", {"run": "train"}),
        ("check", {"run": "train"}),
    )
    assert call.startswith("layers.3#0  Linear · verified") and "def forward(self" in call
    assert "0 … 29 ×30 Linear" in tree and "FLOP" in tree
    assert "flops " in measures and "loss" in training
    assert checked.startswith("cannot tell yet (3 of 20 steps)") and "Checked: training." in checked


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("tree", {"run": "aa"}, "no run 'aa': `runs` lists them. Did you mean 'a'?"),
        ("tree", {"run": "../outside"}, "no run '../outside'"),
        ("tree", {"run": "damaged"}, "damaged"),
        ("explain", {"run": "a", "place": "layer.3"}, "Did you mean"),
        ("find", {"run": "a", "where": "no_such > 0"}, "no_such"),
        ("training", {"run": "a"}, "a is a run, not a training"),
        ("tree", {"run": "a", "page": 9}, "page=9: there are pages 1 to"),
        ("tree", {"run": "a", "tokens": 5}, "tokens=5: at least 200"),
    ],
)
def test_an_error_says_what_to_do(folder: Path, name: str, asked: dict[str, Any], message: str) -> None:
    ((failed, text),) = ask(folder, (name, asked))
    assert failed and message in text


def test_links_that_lead_out_of_the_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "a")
    ((_, listed), (failed, _)) = ask(tmp_path, ("runs", {}), ("tree", {"run": "link"}))
    assert listed == "There is no saved run in this folder." and failed


def test_answers_fit_a_context_and_tell_how_to_ask_for_more(folder: Path) -> None:
    every = ("find", {"run": "a", "operations": "*"})
    ((_, first),) = ask(folder, every)
    assert len(first) <= 2000 * CHARACTERS
    pages = [text for _, text in ask(folder, *((every[0], {**every[1], "tokens": 400, "page": n}) for n in (1, 2, 3)))]
    assert all(len(page) <= 400 * CHARACTERS for page in pages)
    assert "page=2 has the next ones" in pages[0] and "give a narrower where=" in pages[0]
    (whole,) = (text for _, text in ask(folder, (every[0], {**every[1], "tokens": 50_000})))
    shown = [line for page in pages for line in page.splitlines()[:-1]]
    assert shown == whole.splitlines()[: len(shown)] and len(whole.splitlines()) == 34


def test_hostile_lines_change_no_page() -> None:
    text = page_of(["a\x1b[31m" + "x" * 10_000, "b\u202e"], 1, 200, "ask less")
    assert len(text) < 200 * CHARACTERS and "\x1b" not in text and "…" in text


def test_the_command_serves_standard_input_and_output(folder: Path) -> None:
    from mcp import Client, StdioServerParameters

    async def names() -> tuple[list[str], str]:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "fxdebug", "mcp", str(folder)], env=dict(os.environ)
        )
        async with Client(command) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            return tools, (await client.call_tool("runs", {})).content[0].text

    tools, text = asyncio.run(names())
    assert tools == ["runs", "tree", "find", "explain", "check", "compare", "training", "measures"]
    assert text.startswith("a: Scaled, 33 calls")


def test_an_error_fits_the_tokens_that_were_asked_for(folder: Path) -> None:
    long = "x\x1b[31m" * 50_000
    (is_error, told), (_, of_many) = ask(
        folder, ("tree", {"run": long}), ("compare", {"a": "a", "b": long, "tokens": 300})
    )
    assert is_error and len(told) <= 2000 * CHARACTERS and len(of_many) <= 300 * CHARACTERS and "\x1b" not in told
    lines = error_of("\n".join(f"line {i}" for i in range(1000)), 200)
    assert lines.startswith("line 0\n") and len(lines) <= 200 * CHARACTERS and "page=2" not in lines
    assert error_of("short", 10) == "short"
