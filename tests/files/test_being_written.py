"""Whether a file is still being written is told by a lock, or by what its writer said of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxdebug.files import being_written
from fxdebug.files.being_written import is_being_written, mark_as_written, take_folder, this_writer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have other locks")
HOLD = """
import sys, time
from pathlib import Path
from fxdebug.files.being_written import mark_as_written, take_folder
folder = Path(sys.argv[1])
file = (folder / "file").open("wb", buffering=0)
mark_as_written(file)
print(take_folder(folder / "taken"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes a file and holds a folder."""
    started = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None and started.stdout.readline() == "True\n"
    yield started
    started.kill()
    started.communicate()


def test_a_file_is_being_written_until_its_writer_ends(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    assert is_being_written(tmp_path / "file") is True
    writer.kill()
    writer.wait()
    assert is_being_written(tmp_path / "file") is False


def test_a_folder_is_one_process_s_until_that_ends(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    assert take_folder(tmp_path / "taken") is False and take_folder(tmp_path / "free" / "inside") is True
    writer.kill()
    writer.wait()
    assert take_folder(tmp_path / "taken") is True


def test_a_child_that_is_forked_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from fxdebug.files.being_written import is_being_written, mark_as_written, take_folder
folder = Path(sys.argv[1])
file = (folder / "file").open("wb", buffering=0)
mark_as_written(file)
take_folder(folder / "taken")
ready, go = os.pipe(), os.pipe()
if not os.fork():
    os.write(ready[1], b"x")
    os.read(go[0], 1)
    os._exit(0)
os.read(ready[0], 1)
before = is_being_written(folder / "file")
file.close()
print(before, is_being_written(folder / "file"), flush=True)
os.write(go[1], b"x")
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_where_there_are_no_locks_the_process_that_wrote_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(being_written, "fcntl", None)
    file, own = tmp_path / "file", this_writer()
    file.write_bytes(b"")
    with file.open("wb", buffering=0) as open_file:
        mark_as_written(open_file)
    assert is_being_written(file) is None
    assert is_being_written(file, own) is True and is_being_written(file, own._replace(began=0)) is True
    assert is_being_written(file, own._replace(began=own.began + 1)) is False
    assert is_being_written(file, own._replace(host="another")) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_being_written(file, own._replace(process=ended.pid, began=0)) is False
    assert take_folder(tmp_path / "new") is True and take_folder(tmp_path / "new") is False


def test_a_lock_of_this_host_counts_more_than_what_a_writer_said(tmp_path: Path) -> None:
    file, own = tmp_path / "file", this_writer()
    file.write_bytes(b"")
    assert is_being_written(file, own) is False  # nobody holds it, whoever runs
    assert is_being_written(file, own._replace(host="another")) is None
    assert is_being_written(tmp_path / "nothing") is None
    assert own.process == os.getpid() and own.began > 0
