"""A run whose process dies leaves its trace: what had begun, what had ended, and where it was."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.store.trace_json import journal
from support.begun import ran

SCRIPT = """
import os, sys, torch
from torch import nn
from fxdebug import fx_debug

class Dies(nn.Module):
    def forward(self, x):
        os._exit(9)

model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), Dies()))
fx_debug(model, torch.ones(1, 2), save=sys.argv[1])
"""


def test_a_process_that_dies_at_once_leaves_every_call_that_had_begun(tmp_path: Path) -> None:
    assert ran([sys.executable, "-c", SCRIPT, str(tmp_path)]).returncode == 9
    trace = fxdebug.load(tmp_path)
    errors = {call.path: call.error and call.error.here for call in trace.calls}
    assert errors == {"": False, "0": None, "1": False, "1.0": None, "1.1": True}
    assert trace.find("0")[0].outputs[0].shape == (1, 3)
    assert str(trace).splitlines()[-2:] == [
        "raised in 1.1: Unfinished: the process ended while this call ran",
        "note: recovered from an unfinished run: its process ended before it was complete",
    ]


@pytest.mark.parametrize("locks", [True, False])
def test_a_run_that_goes_on_is_not_called_dead_and_one_that_was_killed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:  # as on Windows: the process that the journal names is looked for
        monkeypatch.setattr("fxdebug.files.being_written.fcntl", None)
    command = [sys.executable, "-c", WAITS, str(tmp_path), "fx_debug"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        living = fxdebug.load(tmp_path)
        process.kill()
        process.wait()
    assert str(living).splitlines()[-2:] == [
        "raised in 2: Unfinished: this was read while this call ran",
        "note: the run goes on: this is what it had written when it was read",
    ]
    assert str(fxdebug.load(tmp_path)).splitlines()[-2:] == [
        "raised in 2: Unfinished: the process ended while this call ran",
        "note: recovered from an unfinished run: its process ended before it was complete",
    ]


def test_a_journal_without_a_writer_is_read_and_whose_host_is_another_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran([sys.executable, "-c", SCRIPT, str(tmp_path)])
    (path,) = tmp_path.glob(f"*/{journal.FILE}")
    lines = path.read_text().splitlines(keepends=True)
    assert lines[1].startswith('["writer",')
    path.write_text("".join([lines[0], '["writer",["elsewhere",1,0]]\n', *lines[2:]]))
    assert journal.is_written(path) is None
    assert "whether its process goes on cannot be told here" in fxdebug.load(tmp_path).notes[0].what
    path.write_text("".join([lines[0], *lines[2:]]))  # by an older version
    assert journal.is_written(path) is False
    assert [call.path for call in fxdebug.load(tmp_path).calls] == ["", "0", "1", "1.0", "1.1"]


WAITS = """
import sys, time, torch
from torch import nn
from fxdebug import fx_debug, model_addition_debugger_context

class Waits(nn.Module):
    def forward(self, x):
        print("waiting", flush=True)
        time.sleep(60)

model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), Waits())
if sys.argv[2] == "fx_debug":
    fx_debug(model, torch.ones(1, 2), save=sys.argv[1], values="tensors")
with model_addition_debugger_context(model, sys.argv[1]):
    model(torch.ones(1, 2))
"""


DIES_BETWEEN = """
import os, sys, torch
from torch import nn
from fxdebug import fx_debug

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.steps = nn.Linear(2, 2), 0
    def forward(self, x):
        self.steps += 1
        return self.layer(x) if self.steps < 3 else os._exit(9)
    def generate(self, x):
        return self(self(self(x)))
    def layers(self, x):
        self.layer(self.layer(x))
        os._exit(9)

fx_debug(Steps(), torch.ones(1, 2), save=sys.argv[1], method=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("generate", ["#0", "#1", "layer#0", "#2", "layer#1", "#3"]),
        ("layers", ["#0", "layer#0", "layer#1"]),
    ],
)
def test_calls_of_a_method_whose_process_dies_stand_below_one_root(
    method: str, calls: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DIES_BETWEEN, str(tmp_path), method]
    assert ran(command).returncode == 9
    trace = fxdebug.load(tmp_path)
    assert [call.id for call in trace.calls] == calls and trace.model == trace.root.type == "Steps"
    assert [call.parent_index for call in trace.calls if call.depth == 1] == [0] * (3 if method == "generate" else 2)
    assert str(trace).splitlines()[-1].startswith("note: recovered from an unfinished run")
    again = fxdebug.load(trace.save(tmp_path / "again"))
    assert again.calls == trace.calls and again.export(tmp_path / "run.html").exists()


def test_a_journal_of_another_version_says_what_to_do(tmp_path: Path) -> None:
    assert ran([sys.executable, "-c", SCRIPT, str(tmp_path)]).returncode == 9
    (path,) = tmp_path.glob(f"*/{journal.FILE}")
    text = path.read_text()
    for version, told in (("2", "upgrade with pip"), ("0", "trace the model again"), ('"1"', "the file is damaged")):
        path.write_text(text.replace('["run",[1,', f'["run",[{version},', 1))
        with pytest.raises(fxdebug.LoadError, match=told):
            fxdebug.load(tmp_path)


@pytest.mark.parametrize("tool", ["fx_debug", "context"])
def test_a_process_that_is_killed_leaves_what_it_had_done(tool: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITS, str(tmp_path), tool]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    trace = fxdebug.load(tmp_path)
    assert [(call.path, call.error is None) for call in trace.calls] == [
        ("", False), ("0", True), ("1", True), ("2", False),
    ]  # fmt: skip
    assert trace.calls[1].outputs is not None and trace.calls[1].outputs[0].stats.count == 3
    assert trace.model == "Sequential" and trace.calls[3].inputs[0] == trace.calls[2].outputs[0]


class Copies(nn.Module):
    """Takes the journal away as it is in the middle of the run."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.text = ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (file,) = self.folder.glob(f".fxdebug-*/{journal.FILE}")
        self.text = file.read_text("utf-8")
        return x


def test_a_journal_can_be_read_wherever_it_was_cut(tmp_path: Path) -> None:
    copies = Copies(tmp_path / "run")
    fxdebug.fx_debug(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), copies), torch.ones(1, 2), save=tmp_path / "run")
    lines = copies.text.splitlines(keepends=True)
    first = sum(len(line) for line in lines[: next(i for i, line in enumerate(lines) if '"began"' in line) + 1])
    (tmp_path / "left" / ".fxdebug-x").mkdir(parents=True)
    found = []
    for length in [*range(first, len(copies.text), 37), len(copies.text)]:
        (tmp_path / "left" / ".fxdebug-x" / journal.FILE).write_text(copies.text[:length], "utf-8")
        trace = fxdebug.load(tmp_path / "left")
        found.append(len(trace.calls))
        unfinished = [call for call in trace.calls if call.error is not None]
        assert unfinished[0] is trace.root
        assert [call for call in unfinished if call.error.here] == unfinished[-1:]
    assert found == sorted(found) and found[0] == 1 and found[-1] == 4
    (tmp_path / "left" / ".fxdebug-x" / journal.FILE).write_text(lines[0], "utf-8")
    with pytest.raises(fxdebug.LoadError, match="holds no call: the run ended before the model began"):
        fxdebug.load(tmp_path / "left")


def test_a_run_that_ended_leaves_no_journal(tmp_path: Path) -> None:
    fxdebug.fx_debug(nn.ReLU(), torch.ones(1), save=tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.name == journal.FILE or path.name.startswith(".")]
