"""A file per value: prepared files, errors of the disk."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import torch

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.one_file_each import PREPARED_FILES, OneFileEach, PreparedFiles
from fxdebug.store.tensors.write_thread import WriteThread


def test_each_prepared_file_is_taken_once_and_none_stays_open(tmp_path: Path) -> None:
    writer = WriteThread(budget=10)
    prepared = PreparedFiles(tmp_path, writer)
    taken: list[io.FileIO] = []
    while len(taken) < 3 * PREPARED_FILES:  # more than are created in a row
        file = prepared.take()
        if file is None:
            time.sleep(0.001)  # the thread has not created the next ones yet
        else:
            taken.append(file)
    writer.finish()
    left = [*prepared._ready]
    prepared.close()
    assert len({file.name for file in taken}) == len(taken)
    assert not any(file.closed for file in taken) and all(file.closed for file in left)
    assert {str(path) for path in tmp_path.iterdir()} == {file.name for file in (*taken, *left)}
    for file in taken:
        file.close()


def test_where_no_file_can_be_prepared_finishing_raises(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    files = OneFileEach(folder)
    value = Value(0, (2,), "float32", "cpu", "strided", (1,), 0, "Tensor", False)
    files.add(value, torch.ones(2))
    with pytest.raises(SaveError, match=r"could not be written to .*gone.*No such file"):
        files.finish()
    assert isinstance(files._thread.error, FileNotFoundError)
