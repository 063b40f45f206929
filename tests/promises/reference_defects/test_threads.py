"""Threads and recursion, which scramble the tree of transformers' debugger."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from support.defects import adds, branching, in_threads, outlines
from support.trees import Does, calls, linear, nodes, ones, theirs, tree


def test_two_threads_may_trace_models_of_one_class_to_one_folder(tmp_path: Path) -> None:
    """The same, at once: every trace that is left finds its own tensors."""
    models = [Does(lambda self, x: self.add(x), add=adds(number)) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda model: fx_debug(model, ones(), save=tmp_path, values="tensors"), models))
    traces = [fxdebug.load(path) for path in tmp_path.glob("trace*.json")]
    found = sorted(trace.tensor(trace.root.outputs[0])[0, 0].item() for trace in traces)
    assert found == [1.0, 2.0, 3.0, 4.0]


def test_top_level_recursion_lost(tmp_path: Path) -> None:
    """A root that calls itself: every inner call hangs where it was made, with all that it called."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        if len(x) > 1:
            x = torch.cat([self(half) for half in x.chunk(2)])
        return self.after(x)

    model = Does(forward, before=adds(1), after=adds(2))
    leaf = ["    Does", "      before", "      after"]
    expected = ["Does", "  before", *[line[2:] for line in leaf * 2], "  after"]
    for outline in outlines(model, tmp_path, ones(2)):
        assert outline == expected
    with theirs(model, tmp_path / "theirs"):
        model(ones(2))
    assert nodes(tree(tmp_path / "theirs")) != expected


def in_pool(*work: Callable[[], Any]) -> list[Any]:
    """The same in a pool with a single thread, which is used again and again."""
    with ThreadPoolExecutor(1) as pool:
        return [future.result() for future in [pool.submit(function) for function in work]]


def _branch(lines: list[str], name: str) -> list[str]:
    """The lines of one branch of an outline, sorted: its threads begin in any order."""
    start = lines.index(f"  {name}")
    return [lines[start], *sorted(itertools.takewhile(lambda line: line.startswith("    "), lines[start + 1 :]))]


@pytest.mark.parametrize("run", [in_threads, in_pool])
def test_threads_scramble_the_tree(tmp_path: Path, run: Callable[..., list[Any]]) -> None:
    """What runs in threads, and in threads of threads, hangs below the call that started them, complete."""
    for outline in outlines(branching(run), tmp_path):
        assert len(outline) == 1 + 3 * 5
        for i in range(3):
            inside = [f"      branch0.right.{part}" for part in range(2)]  # the name of a shared part is its first
            inside = sorted([*inside, "    branch0.right", f"    branch{i}.left"])
            assert _branch(outline, f"branch{i}") == [f"  branch{i}", *inside]


def test_two_threads_in_one_context_have_a_tree_each(tmp_path: Path) -> None:
    """Forwards of one model at once, each with threads of its own: two whole trees."""
    model, barrier = branching(in_threads, 1), threading.Barrier(2)
    model.branch0.left = Does(lambda self, x: (barrier.wait(10), x)[1])
    with drop_in(model, tmp_path, do_prune_layers=False):
        in_threads(lambda: model(ones()), lambda: model(ones(2)))
    shapes = []
    for number in (1, None):
        node = tree(tmp_path, "SUMMARY", number)
        assert len(nodes(node)) == 6
        shapes.append({value["shape"] for value in _values(node)})
    assert sorted(map(sorted, shapes)) == [["torch.Size([1, 4])"], ["torch.Size([2, 4])"]]


def _values(node: Any) -> list[dict[str, Any]]:
    """Every tensor's entry below a node of a standard tree."""
    if isinstance(node, dict) and "dtype" in node:
        return [node]
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [value for part in inside for value in _values(part)]


def test_two_threads_tracing_one_model_do_not_see_each_other() -> None:
    """``fx_debug`` of one model in two threads at once: each trace has the calls of its own run."""
    barrier = threading.Barrier(2)
    model = nn.Sequential(linear(), Does(lambda self, x: (barrier.wait(10), x)[1]), nn.Sequential(linear()))
    traces = in_threads(lambda: fx_debug(model, ones()), lambda: fx_debug(model, ones(2)))
    for rows, trace in enumerate(traces, 1):
        assert calls(trace) == ["Sequential", "  0", "  1", "  2", "    2.0"]
        assert {value.shape[0] for value in trace.root.inputs} == {rows}
        assert [call.number for call in trace.calls] == [0] * 5
