"""The thread that writes: copies, files made ahead, errors."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import torch

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.one_file_each import Files
from fxdebug.store.tensors.write_thread import AHEAD, Copies, PreparedFiles, Writer


def test_a_copy_is_not_used_again_before_it_is_given_back() -> None:
    copies = Copies()
    first, second = copies.of(torch.zeros(1 << 15)), copies.of(torch.ones(1 << 15))
    place = first.data_ptr()
    assert place != second.data_ptr()
    copies.back(first)
    third = copies.of(torch.full((2, 1 << 13), 2, dtype=torch.int64))
    assert third.data_ptr() == place and third.tolist() == [[2] * (1 << 13)] * 2
    assert second.tolist() == [1.0] * (1 << 15)


def test_memory_that_was_first_used_in_inference_mode_can_be_used_outside_it() -> None:
    copies = Copies()
    with torch.inference_mode():
        copies.back(copies.of(torch.zeros(1 << 15)))
    assert copies.of(torch.ones(1 << 15)).sum() == 1 << 15


def test_after_an_error_nothing_more_is_written_and_nobody_waits() -> None:
    done: list[int] = []

    def fails() -> None:
        raise OSError(28, "No space left on device")

    one = Writer(budget=10)
    one.put(4, done.append, 1)
    one.put(8, fails)  # 12 bytes wait, and nobody releases any
    one.put(8, done.append, 2)
    one.finish()
    assert done == [1]
    assert isinstance(one.error, OSError)


def test_each_file_made_ahead_is_given_out_once_and_none_stays_open(tmp_path: Path) -> None:
    one = Writer(budget=10)
    blanks = PreparedFiles(tmp_path, one)
    taken: list[io.FileIO] = []
    while len(taken) < 3 * AHEAD:  # more than are made in a row
        file = blanks.take()
        if file is None:
            time.sleep(0.001)  # the thread that makes them is at it
        else:
            taken.append(file)
    one.finish()
    left = [*blanks._ready]
    blanks.close()
    assert len({file.name for file in taken}) == len(taken)
    assert not any(file.closed for file in taken) and all(file.closed for file in left)
    assert {str(path) for path in tmp_path.iterdir()} == {file.name for file in (*taken, *left)}
    for file in taken:
        file.close()


def test_where_no_file_can_be_made_ahead_whoever_needs_one_hears_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    files = Files(folder)
    value = Value(0, (2,), "float32", "cpu", "strided", (1,), 0, "Tensor", False)
    files.keep(value, torch.ones(2))
    with pytest.raises(SaveError, match=r"could not be written to .*gone.*No such file"):
        files.finish()
    assert isinstance(files._writer.error, FileNotFoundError)
