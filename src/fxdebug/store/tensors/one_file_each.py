"""A safetensors file for each value, as the transformers debugger writes them."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.encode import FLOAT4, carried, encoded
from fxdebug.store.tensors.safetensors_file import write_one
from fxdebug.store.tensors.shards import AT_ONCE, BUDGET
from fxdebug.store.tensors.write_thread import Copies, PreparedFiles, Writer


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
