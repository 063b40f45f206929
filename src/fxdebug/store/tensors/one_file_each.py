"""One safetensors file per value, as transformers' debugger writes them (``use_repr=False``)."""

from __future__ import annotations

import io
from collections import deque
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.copy_buffers import CopyBuffers
from fxdebug.store.tensors.encode import FLOAT4, encode_tensor, view_as_storable
from fxdebug.store.tensors.safetensors_file import write_single_tensor
from fxdebug.store.tensors.shards import WAITING_BYTES, WRITE_NOW_BYTES
from fxdebug.store.tensors.write_thread import WriteThread

PREPARED_FILES = 8  # empty files made in a row; unused ones are removed with the staging folder


class OneFileEach:
    """Write each value into a separate file; the files get transformers' names when the run is published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = WriteThread(WAITING_BYTES)
        self._buffers = CopyBuffers()
        self._prepared = PreparedFiles(folder, self._thread)
        self._names: dict[int, str] = {}  # value number → file name in the folder

    def add(self, value: Value, tensor: Tensor) -> None:
        """Write a value's data: a small tensor now, in the calling thread; a copy of a large one soon, in the other.

        For a small tensor, a copy for the thread costs the model as much as writing into the system's cache, and more
        processor time: the thread takes a turn of the interpreter after each system call.
        """
        if self._thread.error is not None:
            return
        data = tensor.detach()
        if type(data) is not Tensor and data.layout is torch.strided:
            data = data.to("cpu", copy=True)  # a wrapper subclass has no memory of its own to write
        if data.is_quantized:
            data = data.dequantize()
        if data.layout is torch.strided and not data.is_nested:
            self._add_dense(value.number, data)
        else:
            parts = {("data" + part): tensor for part, tensor in encode_tensor(data).items()}
            self._thread.submit(0, save_file, parts, self._path(value.number))

    def _add_dense(self, number: int, data: Tensor) -> None:
        data = data.resolve_conj().resolve_neg()
        if data.is_complex() and data.dtype is not torch.complex64:
            data = torch.view_as_real(data)  # safetensors knows complex64 only
        if data.dtype is FLOAT4:  # safetensors has a name for this dtype, and transformers' debugger uses it
            copy = data.view(torch.uint8).contiguous().cpu().clone()  # torch 2.8 cannot copy a float4
            self._thread.submit(0, save_file, {"data": copy.view(data.dtype)}, self._path(number))
            return
        data = view_as_storable(data)
        if data.nbytes <= WRITE_NOW_BYTES or data.nbytes > WAITING_BYTES:  # no copy of what would fill the memory
            self._thread.run_now(self._write_prepared, number, data.contiguous().cpu())
            return
        copy = self._buffers.copy(data)
        self._thread.submit(copy.nbytes, self._write_copy, self._path(number), copy)

    def _path(self, number: int) -> str:
        """Name a new file for a value that does not go into a prepared one."""
        name = self._names[number] = f"v{number}.safetensors"
        return f"{self._folder}/{name}"

    def _write_prepared(self, number: int, tensor: Tensor) -> None:
        with self._prepared.take() or io.FileIO(self._path(number), "w") as file:
            write_single_tensor(file, tensor)
        self._names[number] = str(file.name).rpartition("/")[2]

    def _write_copy(self, path: str, copy: Tensor) -> None:
        with io.FileIO(path, "w") as file:
            write_single_tensor(file, copy)
        size = copy.nbytes
        self._buffers.give_back(copy)
        self._thread.release(size)

    def name(self, value: Value) -> str | None:
        """Return the file that holds a value, by its name in the staging folder; ``None`` if it was not written."""
        return self._names.get(value.number)

    def finish(self) -> None:
        """Return when every value is written. Raises :class:`SaveError` for the first error of the disk."""
        self._thread.finish()
        self._prepared.close()
        error = self._thread.error
        if error is not None:
            raise SaveError(f"the tensors could not be written to {self._folder}: {error}") from error


class PreparedFiles:
    """Empty files of one folder, created by a write thread before they are needed.

    Only one thread at a time may take files.

    Creating a file takes the system 0.02 to 0.7 ms, depending on the state of the disk; writing a megabyte into an open
    file takes less. With ``use_repr=False`` the debug tree needs a file per tensor. Files that are created while the
    model computes cost the model nothing.
    """

    def __init__(self, folder: Path, thread: WriteThread) -> None:
        self._folder = folder
        self._thread = thread
        self._ready: deque[io.FileIO] = deque()
        self._created = 0
        self._is_creating = False
        self._order()

    def take(self) -> io.FileIO | None:
        """Return an empty file, open for writing; ``None`` if none is ready."""
        file = self._ready.popleft() if self._ready else None
        if len(self._ready) < PREPARED_FILES // 2 and not self._is_creating:
            self._order()
        return file

    def close(self) -> None:
        """Close the files that were not taken. Call it after the write thread has finished."""
        while self._ready:
            self._ready.popleft().close()

    def _order(self) -> None:
        self._is_creating = True
        self._thread.submit(0, self._create)

    def _create(self) -> None:
        try:
            for _ in range(PREPARED_FILES):
                self._ready.append(io.FileIO(f"{self._folder}/blank-{self._created}.safetensors", "x"))
                self._created += 1
        except OSError:  # a full disk: reported by the write that needs a file and gets none
            return
        self._is_creating = False
