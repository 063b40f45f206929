"""``trace.json``: equal when it comes back, an error where it is damaged."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import LoadError
from support.stored import PLAIN, Small, contents, run


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says what is in beta
@pytest.mark.parametrize("build", [build for _, build in PLAIN], ids=[name for name, _ in PLAIN])
def test_a_loaded_run_is_equal_to_the_run(build: Any, tmp_path: Path) -> None:
    model, inputs = build()
    trace = fx_debug(model, inputs)
    assert fxdebug.load(trace.save(tmp_path / "run")) == trace
    assert str(fxdebug.load(tmp_path / "run")) == str(trace)


def test_saving_a_loaded_run_writes_the_files_again(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path / "first")
    again = fxdebug.load(fxdebug.load(tmp_path / "first").save(tmp_path / "second"))
    assert contents(tmp_path / "second") == contents(tmp_path / "first")
    assert again == trace
    assert all(torch.equal(again.tensor(value), trace.tensor(value)) for value in trace.values if value.saved)


@pytest.mark.parametrize("again", [lambda trace: pickle.loads(pickle.dumps(trace)), copy.deepcopy, copy.copy])
def test_a_trace_can_be_pickled_and_copied_without_its_live_objects(again: Any, tmp_path: Path) -> None:
    model: nn.Module = nn.Linear(4, 4)
    for _ in range(60):
        model = nn.Sequential(model)
    for trace in (fx_debug(model, torch.ones(1, 4)), fx_debug(model, torch.ones(1, 4), values="repr")):
        other = again(trace)
        assert other == trace and str(other) == str(trace)
        assert [call.parent and call.parent.id for call in other.calls] == [None, *[c.id for c in trace.calls[:-1]]]
        assert all(call.parent is None or call.parent in other.calls for call in other.calls)
        assert [call.status for call in other.calls] == ["verified"] * 61
        with pytest.raises(fxdebug.UsageError, match="holds no output"):
            _ = other.output
        assert torch.equal(trace.calls[-1].fx(torch.ones(1, 4)), trace.output)  # the original has kept all of it
    saved = fx_debug(model, torch.ones(1, 4), values="tensors", save=tmp_path)
    assert torch.equal(again(saved).tensor(saved.root.outputs[0]), saved.output)


def test_what_differs_in_two_runs_makes_them_unequal() -> None:
    one, two = run(Small()), run(Small(), rows=2)
    assert one == one
    assert one != two
    assert one != "a trace"


WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "safetensors", "transformers"}:
            raise ImportError(f"{name} is not to be imported here")

sys.meta_path.insert(0, Blocked())
import fxdebug

trace = fxdebug.load(sys.argv[1])
print(trace)
print(len(trace.graph), [call.id for call in trace.find(type="Linear")], len(trace._repr_html_()))
trace.export(sys.argv[2] + ".html")
trace.export(sys.argv[2] + ".graphml")
print(fxdebug.load(trace.save(sys.argv[2])) == trace)
"""


def test_a_run_is_loaded_shown_asked_and_saved_without_torch_and_without_the_model(tmp_path: Path) -> None:
    trace = run(Small(), values="tensors", save=tmp_path / "run")
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "run"), str(tmp_path / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found = [call.id for call in trace.find(type="Linear")]
    assert done.stdout == f"{trace}\n{len(trace.graph)} {found} {len(trace._repr_html_())}\nTrue\n"
    assert contents(tmp_path / "copy") == contents(tmp_path / "run")


def test_a_trace_that_is_cut_short_is_an_error_wherever_it_is_cut(saved: Path) -> None:
    whole = (saved / "trace.json").read_bytes().rstrip()
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        (saved / "trace.json").write_bytes(whole[:length])
        with pytest.raises(LoadError, match=r"trace\.json"):
            fxdebug.load(saved)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x80\x04\x95\xff", "it is not text"),
        (b"[1, 2]", 'it has no "format": "fxdebug-trace"'),
        (b'{"format": "another"}', 'it has no "format": "fxdebug-trace"'),
        (b'{"format": "fxdebug-trace", "version": 999}', "has format version 999, this fxdebug reads version 1"),
        (b'{"format": "fxdebug-trace", "version": 999}', "the file is newer than this fxdebug, upgrade"),
        (b'{"format": "fxdebug-trace", "version": 0}', "the file is older than this fxdebug, trace the model again"),
        (b'{"format": "fxdebug-trace", "version": "1"}', "the file is damaged"),
        (b'{"format": "fxdebug-trace", "version": 1}', "is damaged: values is missing"),
        (b"import os", "is not a trace"),
    ],
)
def test_a_file_that_is_not_ours_or_newer_says_so(saved: Path, content: bytes, told: str) -> None:
    (saved / "trace.json").write_bytes(content)
    with pytest.raises(LoadError) as raised:
        fxdebug.load(saved)
    assert str(saved / "trace.json") in str(raised.value) and told in str(raised.value)


def test_a_field_of_the_wrong_kind_is_damage_and_not_a_strange_trace(saved: Path) -> None:
    content = json.loads((saved / "trace.json").read_text())
    for table in ("calls", "values", "parameters"):
        broken = json.loads(json.dumps(content))
        broken[table]["rows"][0] = broken[table]["rows"][0][:-1]
        (saved / "trace.json").write_text(json.dumps(broken))
        with pytest.raises(LoadError, match=f"a row of {table} has"):
            fxdebug.load(saved)
    broken = json.loads(json.dumps(content))
    broken["calls"]["rows"][-1][broken["calls"]["columns"].index("parent_index")] = 10_000
    (saved / "trace.json").write_text(json.dumps(broken))
    with pytest.raises(LoadError, match="damaged"):
        fxdebug.load(saved)
