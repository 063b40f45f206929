"""Values written as safetensors while the model runs, in shards of bounded size."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.copy_buffers import CopyBuffers
from fxdebug.store.tensors.encode import digest_of, encode_tensor
from fxdebug.store.tensors.safetensors_file import STREAM_FROM_BYTES, SafetensorsWriter
from fxdebug.store.tensors.write_thread import WriteThread

BATCH_BYTES = 4 * 1024 * 1024  # bytes that are handed over together: two threads of Python at once slow each other
WAITING_BYTES = 256 * 1024 * 1024  # bytes that may wait to be written
WRITE_NOW_BYTES = 4 * 1024 * 1024  # bytes up to which a tensor is written in the time it takes to copy it for a thread
SHARD_BYTES = 64 * 1024 * 1024  # bytes after which a shard is full


class ShardWriter:
    """Writes the values of one run into ``folder/tensors-0001.safetensors`` and so on.

    ``first`` is the number of the first shard. Errors of the disk do not reach the model: they are
    kept, the rest of the run is not saved, and :meth:`finish` raises the first.
    """

    def __init__(self, folder: Path, *, budget: int = WAITING_BYTES, first: int = 1) -> None:
        self.files: list[Path] = []
        self._folder = folder
        self._next = first
        self._most = min(BATCH_BYTES, max(1, budget // 4))
        self._writer = WriteThread(max(budget - self._most, self._most))
        self._copies = CopyBuffers()
        self._batch: list[tuple[Value, dict[str, Tensor]]] = []
        self._batched = 0
        self._shard: SafetensorsWriter | None = None
        self._written: dict[str, str] = {}
        self.facts: dict[int, tuple[str, str]] = {}  # value number → (saved, digest)

    def keep(self, value: Value, body: Tensor) -> None:
        """Take a copy of the data now, to be written soon; waits while more than the budget is waiting."""
        if self._writer.error is not None:
            return
        parts = encode_tensor(body, self._copies)
        self._batch.append((value, parts))
        self._batched += _size(parts)
        if self._batched >= self._most:
            self._hand_over()

    def _hand_over(self) -> None:
        batch, size, self._batch, self._batched = self._batch, self._batched, [], 0
        self._writer.put(size, self._add_all, batch)

    def stop(self) -> None:
        """Nothing more will come, and nobody waits for what is to be done yet."""
        self._writer.stop()

    def finish(self) -> dict[int, tuple[str, str]]:
        """Write what is left; return where each value is, and its digest. Raises what the disk raised."""
        self._hand_over()
        self._writer.put(0, self._close)
        self._writer.finish()
        error = self._writer.error
        if error is not None:
            if self._shard is not None:
                self._shard.abandon()
            raise SaveError(f"the tensors could not be written to {self._folder}: {error}") from error
        return self.facts

    def _add_all(self, batch: list[tuple[Value, dict[str, Tensor]]]) -> None:
        for value, parts in batch:
            self._add(value, parts)
            if self._shard is not None and self._shard.waiting > self._most:  # or all would wait for its end
                self._close()

    def _add(self, value: Value, parts: dict[str, Tensor]) -> None:
        digest = digest_of(value, parts)
        saved = self._written.get(digest)
        if saved is None:
            parts = {f"v{value.number}{part}": tensor for part, tensor in parts.items()}
            shard = self._open(parts)
            saved = self._written[digest] = f"{shard.path.name}#v{value.number}"
            for name, tensor in parts.items():
                self._release(shard.add(name, tensor))
        else:
            self._release(parts.values())
        self.facts[value.number] = (saved, digest)

    def _open(self, parts: dict[str, Tensor]) -> SafetensorsWriter:
        """The shard that has room for these."""
        shard = self._shard
        if shard is not None and (shard.end >= SHARD_BYTES or not shard.has_room(parts)):
            self._close()
        if self._shard is None:
            path = self._folder / f"tensors-{self._next:04d}.safetensors"
            self._shard = SafetensorsWriter(path, {"format": "fxdebug"}, min(STREAM_FROM_BYTES, self._most))
            self.files.append(path)
            self._next += 1
        return self._shard

    def _close(self) -> None:
        if self._shard is not None:
            self._release(self._shard.close())
            self._shard = None

    def _release(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            size = tensor.nbytes
            self._copies.back(tensor)
            self._writer.release(size)


def _size(parts: dict[str, Tensor]) -> int:
    return sum([part.nbytes for part in parts.values()])
