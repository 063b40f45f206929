"""Files of others: only regular ones of bounded size are read, and none outside the folder."""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import pytest

import fxdebug
from fxdebug.errors import LoadError
from fxdebug.files import read_file
from fxdebug.files.read_file import first_bytes, is_regular_inside, read_bytes, read_text, require_inside
from support.stored import SHARD

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such pipes and devices")


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to("pipe")
    (tmp_path / "itself").symlink_to("itself")
    (tmp_path / "dead").symlink_to("nothing")
    for name, told in (
        ("pipe", "is a pipe, not a file"),
        ("to pipe", "is a pipe, not a file"),
        ("itself", "cannot be read"),
        ("dead", "cannot be read"),
        (".", "is a folder, not a file"),
        ("/dev/zero", "is a device, not a file"),
        ("nothing\0", "cannot be read"),
    ):
        with pytest.raises(LoadError, match=told):
            read_bytes(tmp_path / name)
        if name != ".":
            with pytest.raises(LoadError):
                fxdebug.load(tmp_path / name)


@pytest.mark.parametrize("byte", [b" ", b"[", b"\0"])
def test_what_unpacks_to_much_or_has_holes_is_refused_in_little_memory(byte: bytes, tmp_path: Path) -> None:
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b'{"format": "fxdebug-trace"' + byte * (64 << 20), 1))
    with (tmp_path / "holes.json").open("wb") as file:
        file.write(b'{"format": "fxdebug-trace", "')
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        for name in ("bomb.json.gz", "holes.json"):
            with pytest.raises(LoadError, match=name.replace(".", r"\.")):
                fxdebug.load(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_gzipped_file_is_unpacked_whole_and_one_without_its_end_is_damaged(tmp_path: Path) -> None:
    data = b"".join(b"%d\n" % number for number in range(400_000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    assert read_bytes(tmp_path / "a.gz") == data
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-9])
    with pytest.raises(LoadError, match="its end is missing"):
        read_bytes(tmp_path / "a.gz")


@pytest.mark.parametrize("name", ["trace.json", SHARD])
def test_a_link_out_of_the_folder_is_not_followed_one_inside_is(name: str, saved: Path, tmp_path: Path) -> None:
    (saved / name).rename(saved / "moved")
    (saved / name).symlink_to("moved")
    trace = fxdebug.load(saved)
    assert trace.tensor(trace.root.outputs[0]) is not None
    shutil.move(saved / "moved", tmp_path / "outside")
    (saved / name).unlink()
    (saved / name).symlink_to("../outside")
    with pytest.raises(LoadError, match=r"is a link out of its folder"):
        trace = fxdebug.load(saved)
        trace.tensor(trace.root.outputs[0])
    with pytest.raises(fxdebug.SaveError if name == SHARD else LoadError, match=r"is a link out of its folder"):
        fxdebug.load(saved).save(tmp_path / "copy")
    require_inside(saved / "Small_debug_tree_SUMMARY.json", saved)


def test_a_rank_and_an_unfinished_run_are_not_read_through_links(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "rank-0").symlink_to(saved)
    (tmp_path / "left").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "journal.jsonl").write_text("[]")
    (tmp_path / "left" / ".fxdebug-x").symlink_to(tmp_path / "elsewhere")
    for load in (lambda: fxdebug.load(tmp_path / "ranks", rank=0), lambda: fxdebug.load(tmp_path / "left")):
        with pytest.raises(LoadError, match="is a link out of its folder"):
            load()


def test_the_beginning_of_a_file_and_whether_it_is_one_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"abcdef")
    (tmp_path / "in" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_bytes(b"")
    assert first_bytes(tmp_path / "in" / "file", 3) == b"abc" and first_bytes(tmp_path / "other", 3) == b""
    names = ("file", "out", "nothing", ".")
    assert [is_regular_inside(tmp_path / "in" / name, tmp_path / "in") for name in names] == [True, False, False, False]


def test_a_gzipped_file_may_hold_a_little_more_than_its_limit_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(read_file, "EXPANDED_BYTES", 1000)
    monkeypatch.setattr(read_file, "EXPANDED_TIMES", 1)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 1000))
    assert read_bytes(tmp_path / "a.gz") == b"x" * 1000
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 1001))
    with pytest.raises(LoadError, match="unpacks to more than 1 times its size"):
        read_bytes(tmp_path / "a.gz")


def test_a_file_of_the_largest_size_is_read_and_none_above(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(read_file, "MOST_BYTES", 4)
    (tmp_path / "file").write_bytes(b"abcd")
    assert read_text(tmp_path / "file", "a file") == "abcd"
    (tmp_path / "file").write_bytes(b"abcde")
    with pytest.raises(LoadError, match="has 5 bytes: more than 4 are not read"):
        read_bytes(tmp_path / "file")
    (tmp_path / "file.gz").write_bytes(gzip.compress(b"abcde"))
    with pytest.raises(LoadError, match="bytes"):
        read_bytes(tmp_path / "file.gz")
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(LoadError, match="is not a golden file: it is not text"):
        read_text(tmp_path / "file", "a golden file")
