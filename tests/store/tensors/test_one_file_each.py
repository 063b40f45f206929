"""A file per value: prepared files, errors of the disk."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.one_file_each import PREPARED_FILES, WRITE_NOW_BYTES, OneFileEach, PreparedFiles
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


SPARSE = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
KINDS: dict[str, tuple[torch.Tensor, dict[str, object]]] = {
    "dense": (torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T, {"data": [[1.0, 3.0], [2.0, 4.0]]}),
    "large": (torch.arange(float(WRITE_NOW_BYTES)), {"data": [float(i) for i in range(WRITE_NOW_BYTES)]}),
    "conjugated": (torch.tensor([1 + 2j]).conj(), {"data": [1 - 2j]}),
    "complex of double width": (torch.tensor([1 + 2j], dtype=torch.complex128), {"data": [[1.0, 2.0]]}),
    "sparse": (SPARSE.to_sparse(), {"data.indices": [[0], [1]], "data.values": [2.0]}),
    "a parameter": (torch.nn.Parameter(torch.ones(2)), {"data": [1.0, 1.0]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_has_the_numbers_of_its_value(kind: str, tmp_path: Path) -> None:
    tensor, expected = KINDS[kind]
    files = OneFileEach(tmp_path)
    files.add(Value(7, tuple(tensor.shape), "float32", "cpu", "strided", None, 0, "Tensor", False), tensor)
    files.finish()
    (path,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    assert {name: part.tolist() for name, part in load_file(path).items()} == expected
