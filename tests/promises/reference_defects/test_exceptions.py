"""Where a model raises, stops or runs elsewhere, transformers' debugger loses its trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug import model_addition_debugger_context as drop_in
from support.begun import ran
from support.defects import BOTH, odd, outlines
from support.trees import Does, calls, files, linear, nodes, ones, theirs, tree


class Mute:
    """Cannot be shown, compared, hashed, counted or asked for an attribute."""

    def __repr__(self) -> str:
        raise ValueError("no repr")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no attribute")

    __eq__ = __hash__ = __len__ = __bool__ = __str__ = __repr__  # type: ignore[assignment]


class NotText:
    def __repr__(self) -> str:
        return 5  # type: ignore[return-value]


def test_repr_raises(tmp_path: Path) -> None:
    """An object that cannot be shown is recorded as one that cannot be, with a note."""
    trace, printed, _ = odd(Mute(), tmp_path / "mute", BOTH)
    assert printed == "<Mute object whose repr raised ValueError: no repr>"
    assert trace.find("emit")[0].outputs.item.type == "Mute"
    assert any("the repr of a Mute raised ValueError" in note.what for note in trace.find("emit")[0].notes)
    _, printed, _ = odd([NotText(), torch.ones(1)], tmp_path / "not text", BOTH)
    assert printed[0].startswith("<NotText object whose repr raised TypeError")


def _raises(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("here")


@pytest.mark.parametrize("error", [ValueError("here"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_exception_loses_the_trace(tmp_path: Path, error: BaseException) -> None:
    """What was recorded up to an exception is written, with the failing call marked."""

    def fails(self: Any, x: torch.Tensor) -> torch.Tensor:
        raise error

    model = Does(lambda self, x: self.after(self.block(self.before(x))), before=linear(), after=linear())
    model.block = nn.Sequential(nn.ReLU(), Does(fails))
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    expected = ["Does", "  before", "  block", "    block.0", "    block.1"]
    with pytest.raises(type(error)) as caught, drop_in(model, tmp_path / "ours"):
        model(ones())
    assert caught.value is error
    node = tree(tmp_path / "ours")
    assert nodes(node) == expected and node["error"] == message
    assert [child.get("error") for child in node["children"]] == [None, message]
    with pytest.raises(type(error)) as caught:
        fx_debug(model, ones(), save=tmp_path / "trace")
    assert caught.value is error
    for trace in (fxdebug.load(tmp_path / "trace"), fxdebug.last_failed()):
        assert calls(trace) == expected
        assert [call.path for call in trace.calls if call.error and call.error.here] == ["block.1"]
        assert str(trace.error) == message
    if isinstance(error, ValueError):
        with pytest.raises(ValueError), theirs(model, tmp_path / "theirs"):
            model(ones())
        assert files(tmp_path / "theirs") == []


def _refuses_once() -> Does:
    """A model whose second layer fails in the first forward, and not afterwards."""
    failed: list[bool] = []

    def once(self: Any, x: torch.Tensor) -> torch.Tensor:
        failed.append(True)
        return _raises(self, x) if len(failed) == 1 else x

    return Does(lambda self, x: self.b(self.a(x)), a=linear(), b=Does(once))


def test_exception_corrupts_the_next_forward(tmp_path: Path) -> None:
    """The forward after one that raised has a whole tree of its own; so has the failed one."""
    model = _refuses_once()
    with drop_in(model, tmp_path):
        with pytest.raises(ValueError):
            model(ones())
        model(ones())
    assert nodes(tree(tmp_path)) == ["Does", "  a", "  b"] and "error" not in tree(tmp_path)
    failed = tree(tmp_path, number=1)
    assert nodes(failed) == ["Does", "  a", "  b"] and failed["error"] == "ValueError: here"
    model = _refuses_once()
    with pytest.raises(ValueError):
        fx_debug(model, ones())
    trace = fx_debug(model, ones())
    assert calls(trace) == ["Does", "  a", "  b"] and trace.error is None


def test_caught_exception_corrupts_the_tree(tmp_path: Path) -> None:
    """After an exception that the model handles itself, calls hang where they belong."""

    def tries(self: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.first(x)
        except ValueError:
            return self.second(x)

    first = Does(lambda self, x: self.deep(x), deep=Does(_raises))
    model = Does(
        lambda self, x: self.after(self.tries(x)), tries=Does(tries, first=first, second=linear()), after=linear()
    )
    expected = ["Does", "  tries", "    tries.first", "      tries.first.deep", "    tries.second", "  after"]
    for outline in outlines(model, tmp_path):
        assert outline == expected
    trace = fxdebug.load(tmp_path / "trace")
    assert {call.path: call.error.here for call in trace.calls if call.error} == {
        "tries.first": False,
        "tries.first.deep": True,
    }
    assert trace.error is None
    with theirs(model, tmp_path / "theirs", do_prune_layers=False):
        model(ones())
    assert nodes(tree(tmp_path / "theirs")) != expected


_DIES = """
import os, sys, torch
from torch import nn
from fxdebug import fx_debug, model_addition_debugger_context

class Dies(nn.Module):
    def forward(self, x):
        os._exit(9)

model = nn.Sequential(nn.Linear(4, 4), Dies())
if os.fork() == 0:
    fx_debug(model, torch.ones(1, 4), save=sys.argv[1] + "/trace", values="tensors")
os.wait()
if os.fork() == 0:
    with model_addition_debugger_context(model, sys.argv[1] + "/drop_in"):
        model(torch.ones(1, 4))
os.wait()
"""


def test_nothing_until_the_end(tmp_path: Path) -> None:
    """What a run has seen is on disk while it runs: a process that dies leaves it, and memory does not grow with it."""
    ran([sys.executable, "-c", _DIES, str(tmp_path)], check=True)
    for name in ("trace", "drop_in"):
        trace = fxdebug.load(tmp_path / name)
        assert calls(trace) == ["Sequential", "  0", "  1"]
        assert trace.find("0")[0].outputs[0].stats.count == 4
        assert [call.error.here for call in trace.calls if call.error] == [False, True]
    assert len(list((tmp_path / "trace").glob("*"))) == 1  # the working folder: nothing is there under a final name


def test_other_methods_of_the_root(tmp_path: Path) -> None:
    """A method other than forward: one trace with the method as its root; the drop-in keeps every call that is made."""

    class Coder(Does):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

        def generate(self, x: torch.Tensor) -> torch.Tensor:
            return self(self(self.encode(x)))

    model = Coder(lambda self, x: self.a(x), a=linear(), b=linear())
    forward = ["  Coder", "    a"]
    for run in (lambda: fx_debug(model, ones(), method="generate"), lambda: fx_debug(model.generate, ones())):
        trace = run()
        assert calls(trace) == ["Coder", "  a", "  b", *forward, *forward]
        assert trace.root.method == "generate" and trace.root.outputs[0].shape == (1, 4)
    assert calls(fx_debug(model.encode, ones(), save=tmp_path / "trace")) == ["Coder", "  a", "  b"]
    assert fxdebug.load(tmp_path / "trace").root.method == "encode"
    with drop_in(model, tmp_path / "encode"):
        model.encode(ones())
    assert nodes(tree(tmp_path / "encode")) == ["Coder", "  a", "  b"]
    with drop_in(model, tmp_path / "both"):
        model(ones())
        model.encode(ones())
    assert nodes(tree(tmp_path / "both")) == ["Coder", "  a"]  # the forward keeps its name
    assert nodes(tree(tmp_path / "both", number=1)) == ["Coder", "  a", "  b"]
    with drop_in(model, tmp_path / "generate"):
        model.generate(ones())
    assert [nodes(tree(tmp_path / "generate", number=number)) for number in (1, 2, None)] == [
        ["Coder", "  a", "  b"],
        ["Coder", "  a"],
        ["Coder", "  a"],
    ]
    with theirs(model, tmp_path / "theirs"):
        model.encode(ones())
    assert files(tmp_path / "theirs") == []


def test_other_ranks_lose_everything(tmp_path: Path) -> None:
    """``fx_debug`` records on every rank; the drop-in on rank 0 only, as it promises, but without gradients on all."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    model = nn.Sequential(linear(), nn.ReLU())
    for rank in range(2):
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        try:
            fx_debug(model, ones(), save=tmp_path / "traces")
            with drop_in(model, tmp_path / f"drop_in-{rank}"):
                assert not model(ones()).requires_grad
            with theirs(model, tmp_path / f"theirs-{rank}"):
                model(ones())
        finally:
            torch.distributed.destroy_process_group()
    for rank in range(2):
        trace = fxdebug.load(tmp_path / "traces", rank=rank)
        assert calls(trace) == ["Sequential", "  0", "  1"] and trace.settings["rank"] == rank
    assert [len(files(tmp_path / f"drop_in-{rank}")) for rank in range(2)] == [2, 0]
    assert [len(files(tmp_path / f"theirs-{rank}")) for rank in range(2)] == [2, 0]
