"""Other threads, processes and working directories, and a model with an unusual ``__getattr__``."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from support.begun import ran


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())).eval()


def meanwhile(run: Callable[[], object], here: Callable[[], object], times: int) -> list[BaseException]:
    """Repeat a call in another thread while one is repeated here, until both ran so often; what the other raised."""
    raised: list[BaseException] = []
    over, counts = threading.Event(), [0, 0]

    def again() -> None:
        while not over.is_set():
            try:
                run()
            except BaseException as error:
                raised.append(error)
            counts[0] += 1

    thread = threading.Thread(target=again)
    thread.start()
    try:
        while min(counts) < times and not raised:
            here()
            counts[1] += 1
    finally:
        over.set()
        thread.join()
    return raised


@pytest.fixture
def quickly_changing():
    """Set a very short switch interval for threads."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_model_that_is_not_traced_runs_undisturbed_in_another_thread(quickly_changing: None) -> None:
    traced, other, x = model(), model(), torch.ones(2, 4)
    assert meanwhile(lambda: other(x), lambda: fx_debug(traced, x), 100) == []
    assert not [name for name in vars(torch.nn.modules.module) if "fxdebug" in name]


def test_bodies_re_executed_in_another_thread_are_no_part_of_a_run(quickly_changing: None) -> None:
    shared, x = model(), torch.ones(2, 4)
    found = set()

    def here() -> None:
        found.add(tuple([call.id for call in fx_debug(shared, x, graph=False).calls]))

    assert meanwhile(lambda: [call.status for call in fx_debug(shared, x).calls], here, 100) == []
    assert found == {("#0", "0#0", "1#0", "1.0#0", "1.1#0")}


class Goes(nn.Module):
    """Changes the working directory."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os.chdir(self.place)
        return x * 2


@pytest.mark.parametrize("values", ["stats", "tensors", "repr", "samples"])
def test_a_relative_path_keeps_its_meaning_when_the_working_directory_changes(
    values: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    trace = fx_debug(Goes(tmp_path / "elsewhere"), torch.ones(3), save="run", values=values)
    assert fxdebug.load(tmp_path / "run").calls == trace.calls
    assert not list((tmp_path / "elsewhere").iterdir())
    if values == "tensors":
        assert torch.equal(trace.tensor(trace.root.outputs[0]), torch.full((3,), 2.0))
        os.chdir(tmp_path)
        loaded = fxdebug.load("run")
        os.chdir(tmp_path / "elsewhere")
        assert torch.equal(loaded.tensor(loaded.root.outputs[0]), torch.full((3,), 2.0))


def test_a_context_writes_to_its_folder_when_the_working_directory_changes(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    goes = Goes(tmp_path / "elsewhere")
    with fxdebug.model_addition_debugger_context(goes, debug_path="run"):
        goes(torch.ones(3))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "Goes_debug_tree_FULL_TENSORS.json", "Goes_debug_tree_SUMMARY.json",
    ]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("leaves", ["sys.exit(0)", "del trace; gc.collect(); os._exit(0)"])
def test_a_forked_child_does_not_remove_the_tensors_of_its_parent(leaves: str) -> None:
    code = f"""
import gc, os, sys, torch, fxdebug
trace = fxdebug.fx_debug(torch.nn.ReLU(), torch.ones(3), values="tensors")
child = os.fork()
if not child:
    {leaves}
os.waitpid(child, 0)
print(trace.tensor(trace.root.outputs[0]).tolist())
"""
    done = ran([sys.executable, "-c", code], check=True)
    assert done.stdout == "[1.0, 1.0, 1.0]\n", done.stderr


def test_a_model_that_raises_an_unusual_error_for_a_missing_attribute_is_traced() -> None:
    class Strict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.asked: list[str] = []

        def __getattr__(self, name: str) -> Any:
            if name in ("inner",):
                return self._modules[name]
            raise KeyError(name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    trace = fx_debug(Strict(), torch.ones(1, 2))
    assert [call.path for call in trace.calls] == ["", "inner"]
