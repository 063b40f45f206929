"""A run on disk: equal when it comes back, needing neither model nor torch, and never half-written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import LoadError, SaveError
from support.begun import ran
from support.stored import PLAIN, SHARD, Small, contents, run
from zoo import zoo

SUMMARY, FULL = "Small_debug_tree_SUMMARY.json", "Small_debug_tree_FULL_TENSORS.json"

FILES = {
    "stats": ["trace.json", SUMMARY],
    "repr": ["trace.json", SUMMARY, FULL],
    "tensors": ["trace.json", SUMMARY, FULL, SHARD],
}


class Fails(Small):
    """Raises in the middle, in a module."""

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"no way with {tuple(x.shape)}")

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(), self.Broken())


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("values", FILES)
def test_saving_later_writes_the_files_that_saving_at_once_writes(values: str, tmp_path: Path) -> None:
    trace = run(Small(), values=values, save=tmp_path / "at once")
    assert names(tmp_path / "at once") == sorted(FILES[values])
    trace.save(tmp_path / "later")
    assert contents(tmp_path / "later") == contents(tmp_path / "at once")
    assert fxdebug.load(tmp_path / "later") == fxdebug.load(tmp_path / "at once") == trace


@pytest.mark.parametrize("kind", ["links", "no links"])
def test_values_with_several_names_replace_the_files_of_an_earlier_process(kind: str, tmp_path: Path) -> None:
    def written(x: torch.Tensor) -> dict[str, bytes]:
        model = nn.Sequential(nn.Identity(), nn.Identity())
        with fxdebug.model_addition_debugger_context(model, str(tmp_path), use_repr=False):
            model(x)
        return contents(tmp_path)

    def refused(source: str, name: str) -> None:
        raise OSError(1, "Operation not permitted")

    first = written(torch.zeros(3))
    with mock.patch("fxdebug.store.publish_run._published_runs", {}), contextlib.ExitStack() as stack:
        if kind == "no links":
            stack.enter_context(mock.patch("os.link", refused))
        second = written(torch.ones(3))
    assert sorted(second) == sorted(first)
    tensors = [name for name in first if name.endswith(".safetensors")]
    assert len(tensors) == 5
    for name in tensors:
        assert load_file(tmp_path / name)["data"].tolist() == [1.0] * 3
    assert {(tmp_path / name).stat().st_nlink for name in tensors} == {5 if kind == "links" else 1}


# Several runs in one folder ----------------------------------------------------------------------


def test_a_later_run_of_the_same_model_replaces_the_earlier_one(tmp_path: Path) -> None:
    model = Small()
    for rows in (1, 2, 3):
        trace = run(model, rows, values="tensors", save=tmp_path)
    assert fxdebug.load(tmp_path) == trace
    assert len(names(tmp_path)) == len(FILES["tensors"])


def test_runs_of_other_models_in_one_folder_get_numbers_and_stay_whole(tmp_path: Path) -> None:
    models = [Small(), Small(), Small()]
    traces = [run(model, rows, values="tensors", save=tmp_path) for rows, model in enumerate(models, 1)]
    for file, trace in zip(("trace.1.json", "trace.2.json", "trace.json"), traces):
        loaded = fxdebug.load(tmp_path / file)
        assert [call.inputs for call in loaded.calls] == [call.inputs for call in trace.calls]
        assert torch.equal(loaded.tensor(loaded.root.outputs["logits"]), trace.output["logits"])
    summaries = [name for name in names(tmp_path) if "SUMMARY" in name]
    assert summaries == [f"{SUMMARY[:-5]}{number}.json" for number in (".1", ".2", "")]


@pytest.mark.parametrize("use_repr", [True, False])
def test_each_forward_in_the_drop_ins_block_has_its_files_and_the_last_has_the_names(
    use_repr: bool, tmp_path: Path
) -> None:
    model = Small()
    with fxdebug.model_addition_debugger_context(model, str(tmp_path), use_repr=use_repr):
        for rows in (1, 2, 3):
            model(torch.ones(rows, 4))
    for rows, number in enumerate((".1", ".2", ""), 1):
        for name in (SUMMARY, FULL):
            tree = json.loads((tmp_path / f"{name[:-5]}{number}.json").read_text())
            assert tree["inputs"]["args"][0]["shape"] == f"torch.Size([{rows}, 4])"
        if not use_repr:
            stored = load_file(tmp_path / tree["inputs"]["args"][0]["value"])
            assert torch.equal(stored["data"], torch.ones(rows, 4))


# Errors ------------------------------------------------------------------------------------------

UNWRITABLE = {
    "a file": lambda folder: (folder / "file").write_text("mine") and folder / "file",
    "below a file": lambda folder: (folder / "file").write_text("mine") and folder / "file" / "run",
    "a place that takes no folders": lambda folder: Path("/proc/run"),
    **({} if os.geteuid() == 0 else {"a folder without permission": lambda folder: _without_permission(folder)}),
}


def _without_permission(folder: Path) -> Path:
    (folder / "locked").mkdir(mode=0o500)
    return folder / "locked" / "run"


@pytest.mark.parametrize("place", UNWRITABLE)
def test_a_place_that_cannot_be_written_to_is_told_before_the_model_runs(place: str, tmp_path: Path) -> None:
    model, target = Small(), UNWRITABLE[place](tmp_path)
    with pytest.raises(SaveError) as raised:
        run(model, save=target)
    assert str(raised.value).startswith(f"cannot save to {target}: ")
    with pytest.raises(SaveError), fxdebug.model_addition_debugger_context(model, str(target)):
        model(torch.ones(1, 4))
    assert model.runs == 0
    trace = run(model)
    with pytest.raises(SaveError) as raised:
        trace.save(target)
    assert str(raised.value).startswith(f"cannot save to {target}: ")
    assert {path.read_text() for path in tmp_path.glob("file")} <= {"mine"}


FULL_DISK = """
import resource, signal, sys, torch, fxdebug
from torch import nn

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model, x = nn.Sequential(nn.Linear(64, 64), *[nn.Tanh() for _ in range(20)]), torch.ones(1, 64)
fxdebug.fx_debug(model, x, save=sys.argv[1], values=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # from now on no file grows beyond 8 KiB
try:
    fxdebug.fx_debug(model, torch.ones(4096, 64), save=sys.argv[1], values=sys.argv[2])
except fxdebug.SaveError as error:
    print(error.trace.root.outputs[0].shape, str(error))
"""


def test_a_folder_that_was_made_for_a_run_that_cannot_be_saved_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "there").mkdir()
    monkeypatch.setattr(Path, "write_bytes", full)
    for folder in (tmp_path / "new" / "run", tmp_path / "there"):
        with pytest.raises(SaveError, match=f"cannot save to {folder}: No space left on device"):
            run(Small(), save=folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("values", ["tensors", "repr"])
def test_a_disk_that_is_full_in_mid_run_leaves_the_earlier_run_and_nothing_else(values: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", FULL_DISK, str(folder), values]
    done = ran(command)
    assert done.stderr == ""
    assert done.stdout.startswith("(4096, 64) ") and str(folder) in done.stdout
    assert fxdebug.load(folder).root.inputs[0].shape == (1, 64)
    assert [name for name in names(folder) if name.startswith(".")] == []


def test_a_model_that_raises_leaves_its_partial_run_with_the_failing_call_marked(tmp_path: Path) -> None:
    model = Fails()
    with pytest.raises(ValueError, match=r"no way with \(1, 4\)") as raised:
        run(model, save=tmp_path, values="tensors")
    assert type(raised.value) is ValueError
    trace = fxdebug.load(tmp_path)
    assert trace == fxdebug.last_failed()
    marks = {call.id: call.error and (call.error.type, call.error.here) for call in trace.calls}
    assert marks == {
        "#0": ("ValueError", False),
        "layer#0": None,
        "layer#1": None,
        "block#0": ("ValueError", False),
        "block.0#0": None,
        "block.1#0": ("ValueError", True),
    }
    assert trace.find("block.1")[0].error.message == "no way with (1, 4)"
    assert "raise ValueError" in trace.find("block.1")[0].error.traceback
    assert torch.equal(trace.tensor(trace.find("layer")[0].outputs[0]), model.layer(torch.arange(4.0).view(1, 4)))
    with pytest.raises(fxdebug.UsageError, match="the model raised"):
        _ = trace.output


def test_a_folder_without_a_run_and_a_path_that_does_not_exist_say_so(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"holds no trace\.json: it is not a run saved by fxdebug"):
        fxdebug.load(tmp_path)
    with pytest.raises(LoadError, match="nothing here does not exist"):
        fxdebug.load(tmp_path / "nothing here")


def test_tensors_that_are_missing_damaged_or_of_another_run_say_so(saved: Path, tmp_path: Path) -> None:
    trace = fxdebug.load(saved)
    value, shard = trace.values[0], saved / SHARD
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LoadError, match=rf"{SHARD} is damaged"):
        trace.tensor(value)
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # one bit, which no format notices
    with pytest.raises(LoadError, match=rf"{SHARD} is damaged: v\d+ is not what was saved"):
        for each in trace.values:
            if each.saved is not None:
                trace.tensor(each)
    torch_file = fx_debug(nn.Identity(), torch.ones(1), values="tensors", save=tmp_path / "other").folder / SHARD
    shard.write_bytes(torch_file.read_bytes())
    with pytest.raises(LoadError, match="belongs to another run"):
        trace.tensor(trace.values[-1])
    shard.unlink()
    with pytest.raises(LoadError, match=rf"{SHARD} is missing"):
        trace.tensor(value)


def test_a_tensor_whose_header_has_another_shape_or_dtype_is_damaged(saved: Path) -> None:
    trace = fxdebug.load(saved)
    value = next(value for value in trace.values if value.saved and value.shape == (1, 4) and value.digest)
    assert value.saved is not None
    key = value.saved.partition("#")[2]
    whole = (saved / SHARD).read_bytes()
    size = int.from_bytes(whole[:8], "little")
    for field, other in (("shape", [4, 1]), ("dtype", "I32")):
        header = json.loads(whole[8 : 8 + size])
        header[key][field] = other
        text = json.dumps(header).encode()
        (saved / SHARD).write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])
        try:
            read = trace.tensor(value)
        except LoadError as error:
            assert f"{SHARD} is damaged: {key} " in str(error)
        else:
            assert (tuple(read.shape), str(read.dtype)[6:]) == (value.shape, value.dtype)


def test_a_name_that_tries_to_leave_the_folder_is_not_followed(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.safetensors").write_bytes((saved / SHARD).read_bytes())
    text = (saved / "trace.json").read_text()
    assert f'"{SHARD}#' in text
    (saved / "trace.json").write_text(text.replace(f'"{SHARD}#', '"../secret.safetensors#'))
    with pytest.raises(LoadError, match=r"secret\.safetensors#v0', not where a value can lie"):
        fxdebug.load(saved)


def test_the_zoo_has_what_these_tests_take_from_it() -> None:
    assert len(PLAIN) > 100 and len(list(zoo.zoo())) > len(PLAIN)
