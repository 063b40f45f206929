"""Files written while a model runs: the very bytes of safetensors, and data that stays what it was."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file, save_file

from fxdebug.store.tensors import safetensors_file
from fxdebug.store.tensors.safetensors_file import DTYPE_NAMES, SafetensorsWriter, write_single_tensor


@pytest.mark.parametrize("dtype", DTYPE_NAMES)
def test_a_file_of_one_tensor_is_byte_for_byte_that_of_safetensors(dtype: torch.dtype, tmp_path: Path) -> None:
    if dtype not in safetensors.torch._SIZE:
        pytest.skip(f"safetensors {safetensors.__version__} does not know {dtype}")
    for shape in ((), (3,), (0, 4), (2, 5, 7), (200, 200, 3)):
        tensor = torch.randint(0, 2, shape).to(torch.float32).to(dtype)
        save_file({"data": tensor}, tmp_path / "theirs")
        with io.FileIO(tmp_path / "ours", "w") as file:
            write_single_tensor(file, tensor)
        assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("most", [1, 7, 10, 11, 100])
def test_what_the_system_takes_in_pieces_is_written_whole(
    gathers: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bytes] = []

    class File:
        def fileno(self) -> int:
            return 0

        def write(self, view: memoryview) -> int:
            return gather(0, [view])

    def gather(number: int, views: list[memoryview]) -> int:
        piece = b"".join(views)[:most]
        taken.append(piece)
        return len(piece)

    monkeypatch.setattr(safetensors_file, "_writev", gather if gathers else None)
    safetensors_file._write(File(), b"0123456", b"", memoryview(b"789"), b"abc")
    assert b"".join(taken) == b"0123456789abc"
    assert all(taken)


@pytest.mark.parametrize("streamed", [1, 5_000, safetensors_file.STREAM_FROM_BYTES])
def test_tensors_of_odd_sizes_are_read_back_from_a_file_that_was_written_as_they_came(
    streamed: int, tmp_path: Path
) -> None:
    file = SafetensorsWriter(tmp_path / "file.safetensors", {"format": "fxdebug"}, streamed)
    given: dict[str, torch.Tensor] = {}
    written: list[int] = []
    for number in range(120):
        for dtype in (torch.float32, torch.uint8, torch.float16, torch.float64, torch.bool, torch.int64):
            tensor = (torch.rand(number % 5, 7) * 9).to(dtype)
            if file.has_room({f"{number}/{dtype}": tensor}):
                given[f"{number}/{dtype}"] = tensor
                written += map(id, file.add(f"{number}/{dtype}", tensor))
    assert len(given) > 100
    assert (len(written) > 0) == (streamed < safetensors_file.STREAM_FROM_BYTES)
    written += map(id, file.close())
    assert sorted(written) == sorted(map(id, given.values()))  # each is given back once
    read = load_file(tmp_path / "file.safetensors")
    assert {name: (t.dtype, t.tolist()) for name, t in read.items()} == {
        name: (t.dtype, t.tolist()) for name, t in given.items()
    }
