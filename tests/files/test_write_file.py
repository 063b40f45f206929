"""Exports and golden files: whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fxdebug
from fxdebug import save_golden
from fxdebug.exports.registry import suffixes
from fxdebug.files.write_file import replace_file, write_text
from support.begun import ran
from support.stored import Small, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX")
PICTURES = {".svg", ".png", ".pdf"}


@pytest.fixture
def full_disk() -> object:
    """No file may grow beyond 40 bytes, as on a disk that is nearly full."""

    class Full:
        limit = 40

        def __enter__(self) -> None:
            self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limits[1]))

        def __exit__(self, *_: object) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
            signal.signal(signal.SIGXFSZ, self.handler)

    return Full()


@pytest.mark.parametrize("kind", ["trace", "comparison"])
def test_a_full_disk_leaves_the_old_export_or_none(kind: str, tmp_path: Path, full_disk: object) -> None:
    trace = run(Small())
    thing = trace if kind == "trace" else fxdebug.compare(trace, trace)
    for suffix in suffixes(kind):  # type: ignore[arg-type]
        if suffix in PICTURES and shutil.which("dot") is None:
            continue
        (tmp_path / f"old{suffix}").write_text("the old one")
        for name in ("old", "new"):
            with full_disk, pytest.raises(fxdebug.SaveError):  # type: ignore[attr-defined]
                thing.export(tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"old{suffix}").read_text() == "the old one"
        assert [path.name for path in tmp_path.iterdir()] == [f"old{suffix}"]
        assert thing.export(tmp_path / f"old{suffix}").stat().st_size > 20
        (tmp_path / f"old{suffix}").unlink()


@pytest.mark.parametrize("program", ["model-explorer", "tensorboard"])
def test_a_disk_that_is_full_at_a_later_file_of_an_export_leaves_none(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program == "tensorboard":
        pytest.importorskip("tensorboard", reason="the extra tensorboard")
    trace, count, replace = run(Small()), 0, os.replace
    before = [path.read_bytes() for path in sorted(trace.export(tmp_path / "old", to=program).iterdir())]

    def full(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count % 2 == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    for name in ("old", "new"):
        with pytest.raises(fxdebug.SaveError, match=f"cannot write {tmp_path / name}: No space left"):
            trace.export(tmp_path / name, to=program)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert [path.read_bytes() for path in sorted((tmp_path / "old").iterdir())] == before


@pytest.mark.parametrize("limit", [40, 5_000, 9_000])
def test_a_disk_that_is_full_in_the_midst_of_a_pdf_is_a_save_error(
    limit: int, tmp_path: Path, full_disk: object
) -> None:
    pytest.importorskip("matplotlib", reason="pictures of reports need the extra plot")
    report = fxdebug.flops(run(Small()))
    report.export(tmp_path / "flops.pdf").unlink()
    full_disk.limit = limit  # type: ignore[attr-defined]
    with full_disk, pytest.raises(fxdebug.SaveError, match="cannot write"):  # type: ignore[attr-defined]
        report.export(tmp_path / "flops.pdf")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_golden_file(tmp_path: Path, full_disk: object) -> None:
    trace = run(Small())
    before = save_golden(trace, tmp_path / "golden.json").read_bytes()
    with full_disk, pytest.raises(fxdebug.SaveError):  # type: ignore[attr-defined]
        save_golden(trace, tmp_path / "golden.json")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"golden.json": before}


def test_permissions_and_links_stay_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", str(tmp_path / "pipe")], stdout=subprocess.PIPE, text=True) as reader:
        write_text(tmp_path / "pipe", "through")
        assert reader.communicate(timeout=100)[0] == "through"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


# Runs -------------------------------------------------------------------------------------------

NO_HANDLES = """
import os, resource, sys, torch, fxdebug
from fxdebug.store.staging_folder import StagingFolder
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
fxdebug.fx_debug(model, torch.ones(1, 2), save=sys.argv[1] + "/first")
def leave(count):
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for handle in held[len(held) - count:]:
            os.close(handle)
    return held[: len(held) - count]
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
for count in range(8):
    held = leave(count)
    try:
        fxdebug.fx_debug(model, torch.ones(1, 2), save=sys.argv[1] + "/run", values="tensors")
    except fxdebug.SaveError as error:
        print("SaveError", "Too many open files" in str(error))
    for handle in held:
        os.close(handle)
    print([name for name in os.listdir(sys.argv[1] + "/run") if name.startswith(".fxdebug")])
"""


def test_no_working_folder_is_left_when_no_further_file_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = ran([sys.executable, "-c", NO_HANDLES, str(tmp_path)])
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in lines if line.startswith("[")] == ["[]"] * 8
    assert {line for line in lines if line.startswith("S")} == {"SaveError True"}


def test_the_drop_in_leaves_no_working_folder_where_its_journal_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def full(self: Path, *arguments: object, **options: object) -> object:
        if self.name == "journal.jsonl":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(self, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    folder = tmp_path / "debug"
    told = f"cannot write to {folder}: Too many open files: close some, or raise the limit with ulimit -n"
    with (
        pytest.raises(fxdebug.SaveError, match=re.escape(told)),
        fxdebug.model_addition_debugger_context(model := Small(), str(folder)),
    ):
        model(torch.ones(1, 4))
    with pytest.raises(fxdebug.SaveError, match=re.escape(told)):
        run(Small(), save=folder)
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, torch, fxdebug
torch.manual_seed(int(sys.argv[2]))
for _ in range(6):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    fxdebug.fx_debug(model, torch.randn(1, 4), save=sys.argv[1], values="tensors")
"""


def test_two_processes_that_save_to_one_folder_leave_one_whole_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "run")]
    writers = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE, text=True) for seed in range(2)]
    assert [writer.communicate()[1] for writer in writers] == ["", ""]
    trace = fxdebug.load(tmp_path / "run")
    assert all(trace.tensor(value).shape == value.shape for value in trace.values if value.saved)
    assert not list((tmp_path / "run").glob(".fxdebug*"))


def test_a_clock_that_jumps_changes_no_duration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1e9, 2e9, 0.0, -5.0] * 1000)
    monkeypatch.setattr("time.time", lambda: next(times))
    trace = run(Small(), save=tmp_path / "run")
    assert all(0 <= call.duration < 60 for call in trace.calls) and 0 <= trace.duration < 60
    assert fxdebug.load(tmp_path / "run") == trace


def test_a_file_that_is_mapped_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where such a file can be renamed, and neither replaced nor removed."""
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    replace, unlink = os.replace, Path.unlink

    def refuses(source: str, path: str) -> None:
        if Path(path).exists():
            raise PermissionError(13, "The requested operation cannot be performed on a file that is mapped", path)
        replace(source, path)

    def keeps(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith(".fxdebug-old-"):
            raise PermissionError(13, "mapped", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "replace", refuses)
    monkeypatch.setattr(Path, "unlink", keeps)
    with (tmp_path / "old").open() as mapped:
        replace_file(tmp_path / "new", tmp_path / "old")
        assert mapped.read() == "old"
    assert (tmp_path / "old").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 2  # the old one stays under another name


def test_a_folder_that_may_not_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError(13, "denied")

    (tmp_path / "old").write_text("old")
    monkeypatch.setattr(os, "replace", refuses)
    monkeypatch.setattr(Path, "rename", refuses)
    with pytest.raises(PermissionError, match="denied"):
        replace_file(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
