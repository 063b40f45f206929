"""What the command line does where its output cannot go, and with numbers that make no sense."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fxdebug import fx_debug
from fxdebug.apps.cli import main


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    fx_debug(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2), save=tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no file that is always full")
@pytest.mark.parametrize("command", ["show", "check"])
def test_a_full_disk_is_one_line_and_status_2(saved: Path, command: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "fxdebug", command, saved], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["fxdebug: [Errno 28] No space left on device"]


def test_a_closed_output_is_no_error(saved: Path) -> None:
    code = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'fxdebug', *sys.argv[1:]])"
    done = subprocess.run([sys.executable, "-c", code, "find", saved], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_picture_is_not_written_over_a_folder(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved.parent / "x.svg"
    folder.mkdir()
    assert main.main(["graph", str(saved), "-o", str(folder)]) == 2
    assert capsys.readouterr().err == f"fxdebug: {folder} cannot be written: it is a folder\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--width", "0"], "argument --width: '0' is not a whole number of at least 20"),
        (["--depth", "-1"], "argument --depth: '-1' is not a whole number of at least 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    saved: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main.main(["show", str(saved), *arguments])
    assert left.value.code == 2 and message in capsys.readouterr().err
