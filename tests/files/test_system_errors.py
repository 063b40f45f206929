"""What the system refuses while a file is read is told as that, with what to do, and never as damage."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import fxdebug
from fxdebug.api.files import save_measures
from fxdebug.errors import LoadError
from fxdebug.features.training.saved import training_file
from fxdebug.store import report_file
from fxdebug.store.tensors.checkpoints import read_checkpoint
from fxdebug.store.trace_json import journal
from support.begun import ran
from support.stored import SHARD, Small, run

TOLD = {
    errno.ENOMEM: "there is too little memory for it: free some, ",
    errno.EMFILE: "Too many open files: close some, or raise the limit with ulimit -n",
    errno.EACCES: "Permission denied",
    errno.EIO: "Input/output error",
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with a file of every kind that is read."""
    trace = run(Small(), values="tensors", save=tmp_path / "run")
    save_measures(trace.with_measures(fxdebug.flops(trace)))
    fxdebug.flops(trace).json(tmp_path / "report.json")
    file = training_file.TrainingFile(tmp_path, "Small", 1, None)
    file.close()
    events = (["run", [1, "Small"]], ["began", [0, "", "Small", 1, None, 0, [[], {}]]])
    (tmp_path / journal.FILE).write_text("".join(json.dumps(event) + "\n" for event in events))
    save_file({"weight": torch.ones(3)}, tmp_path / "w.safetensors")
    torch.save({"weight": torch.ones(3)}, tmp_path / "w.pt")
    return tmp_path


READERS: dict[str, Callable[[Path], Any]] = {
    "run/measures.json": lambda folder: fxdebug.load(folder / "run"),
    "run/trace.json": lambda folder: fxdebug.load(folder / "run" / "trace.json"),
    "run/Small_debug_tree_SUMMARY.json": lambda folder: fxdebug.load(folder / "run" / "Small_debug_tree_SUMMARY.json"),
    "report.json": lambda folder: report_file.read(folder / "report.json"),
    "training.jsonl": lambda folder: training_file.read_training(folder),
    "journal.jsonl": lambda folder: journal.recover_trace(folder),
    "w.safetensors": lambda folder: read_checkpoint(folder / "w.safetensors")["weight"](),
    "w.pt": lambda folder: read_checkpoint(folder / "w.pt")["weight"](),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("number", TOLD, ids=errno.errorcode.get)
def test_a_file_that_the_system_does_not_open_is_not_called_damaged(
    name: str, number: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _refused(number, name, monkeypatch), pytest.raises(LoadError) as raised:
        READERS[name](files)
    assert str(raised.value).startswith(f"{files / name} cannot be read: {TOLD[number]}")
    READERS[name](files)


@contextmanager
def _refused(number: int, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse to open one file, whoever asks: our readers by ``os.open``, torch's by ``open``."""
    end, opened, real = Path(name).name, os.open, open

    def refuse(path: Any) -> None:
        if isinstance(path, (str, Path)) and Path(path).name == end:
            raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda path, *args, **kwargs: (refuse(path), opened(path, *args, **kwargs))[1])
        patch.setattr("builtins.open", lambda path, *args, **kwargs: (refuse(path), real(path, *args, **kwargs))[1])
        yield


@pytest.mark.parametrize(
    "name", ["run/trace.json", "run/Small_debug_tree_SUMMARY.json", "report.json", "training.jsonl"]
)
def test_memory_that_runs_out_while_a_text_is_parsed_is_told(
    name: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*args: Any, **kwargs: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(LoadError) as raised:
        patch.setattr(json, "loads", too_much)
        READERS[name](files)
    assert str(raised.value) == (
        f"{files / name} cannot be read: there is too little memory for it: free some, or read it where there is more"
    )


_SHORT_OF_MEMORY = """
import resource, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
import fxdebug
from fxdebug.store.tensors.checkpoints import read_checkpoint
folder = sys.argv[1]
trace = fxdebug.load(folder + "/run")
value = next(value for value in trace.values if value.saved)
trace.tensor(trace.values[value.number])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), used + (32 << 20)))
for read in (
    lambda: trace.tensor(max(trace.values, key=lambda value: value.numel)),
    lambda: read_checkpoint(Path(folder) / "w.safetensors")["weight"](),
    lambda: read_checkpoint(Path(folder) / "w.pt")["weight"](),
):
    try:
        read()
        print("read")
    except fxdebug.LoadError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited and measured as on Linux")
def test_tensors_and_weights_larger_than_the_memory_are_not_called_damaged(tmp_path: Path) -> None:
    many = torch.zeros(64 << 20)
    fxdebug.fx_debug(torch.nn.ReLU(), many, values="tensors", save=tmp_path / "run")
    save_file({"weight": many}, tmp_path / "w.safetensors")
    torch.save({"weight": many}, tmp_path / "w.pt")
    done = ran([sys.executable, "-c", _SHORT_OF_MEMORY, str(tmp_path)])
    begin = "cannot be read: there is too little memory for it: free some, "
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'run' / SHARD} {begin}drop tensors that were read before, and read fewer at once",
        f"{tmp_path / 'w.safetensors'} {begin}or read it where there is more",
        f"{tmp_path / 'w.pt'} {begin}or save the weights as .safetensors, which are read one at a time",
    ], done.stderr


def test_a_process_without_file_handles_reads_again_when_it_has_some(files: Path) -> None:
    resource = pytest.importorskip("resource")
    trace = fxdebug.load(files / "run")
    value = next(value for value in trace.values if value.saved)
    trace.tensor(value)  # what is imported for it is there
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(LoadError) as raised:
            trace.tensor(value)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert str(raised.value) == f"{files / 'run' / SHARD} cannot be read: {TOLD[errno.EMFILE]}"
    assert trace.tensor(value) is not None
