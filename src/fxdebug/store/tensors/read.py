"""Read a value's data back from safetensors, held against its digest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import LoadError, SaveError
from fxdebug.store.tensors.encode import FLOAT4, carried, decoded, digest_of, encoded
from fxdebug.store.tensors.safetensors_file import write_one
from fxdebug.store.tensors.shards import AT_ONCE, BUDGET
from fxdebug.store.tensors.write_thread import Copies, PreparedFiles, Writer

Words = tuple[str, str, str, str]


class Saved:
    """Answers for the data of a saved trace. ``words``: printed statistics still known from the run itself."""

    lasting = True  # it holds nothing live, so a trace that is pickled takes it along

    def __init__(self, folder: Path, words: Mapping[int, Words] | None = None) -> None:
        self._folder = folder
        self._words = words or {}

    def lines(self, value: Value) -> list[str] | None:
        """The printed form: it is in the standard tree on disk, and is not read back."""
        return None

    def printed(self, value: Value) -> Words | None:
        """Mean, std, min and max in the reference's letters, while the process that ran it lives."""
        return self._words.get(value.number)

    def tensor(self, value: Value) -> Tensor:
        """The data of a value."""

        return read_tensor(self._folder, value)


CHECKED = 64 * 1024 * 1024  # bytes of a value at most that are held against its digest when it is read


class Files:
    """Writes each value into a file of its own, as the reference does; the files get their names at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer = Writer(BUDGET)
        self._copies = Copies()
        self._blanks = PreparedFiles(folder, self._writer)
        self._names: dict[int, str] = {}  # of the files, by the number of the value

    def keep(self, value: Value, body: Tensor) -> None:
        """Write the data into a file of its own: now, to the system's memory; of large tensors a copy, soon.

        To hand a copy to a thread takes the model no less than to hand the data to the system, and leaves it less of
        the processor: the thread has to be given its turn each time it comes back from the system.
        """
        if self._writer.error is not None:
            return
        data = body.detach()
        if type(data) is not Tensor and data.layout is torch.strided:
            data = data.to("cpu", copy=True)  # a class that only stands for its data has no memory to write
        if data.is_quantized:
            data = data.dequantize()
        if data.layout is torch.strided and not data.is_nested:
            self._put(value.number, data)
        else:
            parts = {("data" + part): tensor for part, tensor in encoded(data).items()}
            self._writer.put(0, save_file, parts, self._path(value.number))

    def _put(self, number: int, data: Tensor) -> None:
        data = data.resolve_conj().resolve_neg()
        if data.dtype in (torch.complex128, torch.complex32):
            data = torch.view_as_real(data)  # safetensors knows complex64 only
        if data.dtype is FLOAT4:  # safetensors has a name for that one, which the reference uses
            self._writer.put(0, save_file, {"data": data.contiguous().cpu().clone()}, self._path(number))
            return
        data = carried(data)
        if data.nbytes <= AT_ONCE:
            self._writer.at_once(self._write_now, number, data.contiguous().cpu())
            return
        copy = self._copies.of(data)
        self._writer.put(copy.nbytes, self._write_soon, self._path(number), copy)

    def _path(self, number: int) -> str:
        """Where a value goes that is not written into a file made ahead."""
        name = self._names[number] = f"v{number}.safetensors"
        return f"{self._folder}/{name}"

    def _write_now(self, number: int, tensor: Tensor) -> None:
        with self._blanks.take() or io.FileIO(self._path(number), "w") as file:
            write_one(file, tensor)
        self._names[number] = str(file.name).rpartition("/")[2]

    def _write_soon(self, path: str, copy: Tensor) -> None:
        with io.FileIO(path, "w") as file:
            write_one(file, copy)
        size = copy.nbytes
        self._copies.back(copy)
        self._writer.release(size)

    def name(self, value: Value) -> str | None:
        """The file in the folder that has the value, until it gets its name."""
        return self._names.get(value.number)

    def finish(self) -> None:
        """Return when all is written. Raises what the disk raised."""
        self._writer.finish()
        self._blanks.close()
        error = self._writer.error
        if error is not None:
            raise SaveError(f"the tensors could not be written to {self._folder}: {error}") from error


def read_tensor(folder: Path, value: Value) -> Tensor:
    """The data of a saved value. Raises :class:`LoadError` when it was not saved or the file is damaged.

    Data of up to 64 MiB are held against their digest: that takes as long as to read them.
    """
    if value.saved is None:
        raise LoadError(f"the data of value {value.number} ({value.label}) was not saved: run with values='tensors'")
    name, _, key = value.saved.partition("#")
    with _opened(folder / name) as file:
        parts = {name[len(key) :]: file.get_tensor(name) for name in list(file.keys()) if _is_part(name, key)}
    if not parts:
        raise LoadError(f"{folder / name} holds no {key}: it belongs to another run")
    is_checked = value.digest is not None and list(parts) == [""] and parts[""].nbytes <= CHECKED
    if is_checked and digest_of(value, parts) != value.digest:
        raise LoadError(f"{folder / name} is damaged: {key} is not what was saved")
    return decoded(value, parts)


def _is_part(name: str, key: str) -> bool:
    return name == key or name.startswith(key + ".")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.exists():
        raise LoadError(f"{path} is missing: the run was moved without its tensors, or replaced by another")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except LoadError:
        raise
    except Exception as error:
        raise LoadError(f"{path} is damaged: {error}") from error
