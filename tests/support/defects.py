"""What the tests of the reference's defects run: odd values, branches in threads, outlines of what was written."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from support.trees import Does, calls, files, linear, named, nodes, ones, returns, saved, theirs, tree


def adds(number: float) -> Does:
    """A leaf whose result tells which one it was."""
    return Does(lambda self, x: x + number)


def outlines(model: nn.Module, folder: Path, inputs: Any = None) -> tuple[list[str], list[str]]:
    """The calls of one run, as the loaded trace and as the drop-in's tree have them."""
    trace = saved(model, ones() if inputs is None else inputs, folder / "trace")
    with drop_in(model, folder / "drop_in", do_prune_layers=False):
        model(ones() if inputs is None else inputs)
    assert len(files(folder / "drop_in", "*SUMMARY*")) == 1
    return calls(trace), nodes(tree(folder / "drop_in", "SUMMARY"))


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Run functions at once, each in a thread of its own."""
    results: list[Any] = [None] * len(work)

    def run(index: int) -> None:
        results[index] = work[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def branching(run: Callable[..., list[Any]], count: int = 3) -> Does:
    """A model of branches that run in threads, each of which runs its own parts in threads."""
    barrier = threading.Barrier(count)

    def branch(self: Any, x: torch.Tensor) -> torch.Tensor:
        if run is in_threads:
            barrier.wait(10)  # all branches are open at once
        return sum(run(lambda: self.left(x), lambda: self.right(x)))

    def root(self: Any, x: torch.Tensor) -> torch.Tensor:
        return sum(run(*[functools.partial(part, x) for part in self._modules.values()]))

    pair = nn.Sequential(linear(), nn.ReLU())
    parts = {f"branch{i}": Does(branch, left=linear(), right=pair) for i in range(count)}
    return Does(root, **parts)


def state(model: nn.Module) -> list[dict[str, Any]]:
    """Everything that stands in the modules themselves."""
    return [dict(vars(module)) for module in model.modules()]


def odd(value: Any, folder: Path, reference_stops: tuple[bool, ...]) -> tuple[fxdebug.Trace, Any, Any]:
    """A run in which a module returns ``value``: the loaded trace, and what the drop-in's tree has of it.

    ``reference_stops``: with which ``use_repr`` the reference cannot run it.
    """
    model = Does(lambda self, x: self.emit(x), emit=returns(value))
    shown = []
    for use_repr in (True, False):
        for name, context in (("ours", drop_in), ("theirs", theirs)):
            stops = name == "theirs" and use_repr in reference_stops
            expected = pytest.raises(BaseException) if stops else contextlib.nullcontext()
            with expected, context(model, folder / f"{name}-{use_repr}", use_repr=use_repr):
                assert model(ones()) is value
        shown.append(tree(folder / f"ours-{use_repr}")["children"][0]["outputs"])
        assert sorted(named(tree(folder / f"ours-{use_repr}"))) == files(folder / f"ours-{use_repr}", "*.safetensors")
    trace = fx_debug(model, ones(), save=folder / "trace", values="tensors")
    assert trace.output is value
    loaded = fxdebug.load(folder / "trace")
    assert loaded == trace and calls(loaded) == ["Does", "  emit"]
    return loaded, shown[0], shown[1]


BOTH, FILES = (True, False), (False,)
