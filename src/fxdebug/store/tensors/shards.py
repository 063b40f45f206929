"""Values written as safetensors while the model runs, in shards of bounded size (``tensors-0001.safetensors``).

Each value is copied when it is recorded, since the model may overwrite it, and a thread writes the copies. At most
``budget`` bytes wait in memory; beyond that the model waits. A tensor larger than the budget is not copied: the model
waits until it is written, piece by piece. Data that is equal to the last bit, in shape and dtype, is written once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import SaveError
from fxdebug.store.tensors.copy_buffers import CopyBuffers
from fxdebug.store.tensors.encode import Pieces, digest_of, encode_tensor
from fxdebug.store.tensors.safetensors_file import STREAM_FROM_BYTES, SafetensorsWriter
from fxdebug.store.tensors.write_thread import WriteThread

BATCH_BYTES = 4 * 1024 * 1024  # handed over together: two Python threads that run at once slow each other down
WAITING_BYTES = 256 * 1024 * 1024  # the most that may wait to be written
WRITE_NOW_BYTES = 4 * 1024 * 1024  # up to this size writing takes no longer than copying for a thread
SMALLEST_PIECE = 64 * 1024  # of a tensor that is written piece by piece
SHARD_BYTES = 64 * 1024 * 1024  # a shard is full beyond this


class ShardWriter:
    """Write the values of one run into ``folder/tensors-0001.safetensors`` and so on.

    ``first`` is the number of the first shard. An error of the disk does not reach the model: the rest of the run is
    not saved, and :meth:`finish` raises the first error.
    """

    def __init__(self, folder: Path, *, budget: int = WAITING_BYTES, first: int = 1) -> None:
        self.files: list[Path] = []
        self.locations: dict[int, tuple[str, str]] = {}  # value number → (``Value.saved``, digest)
        self._folder = folder
        self._next = first
        self._budget = budget
        self._batch_limit = min(BATCH_BYTES, max(1, budget // 4))
        self._thread = WriteThread(max(budget - self._batch_limit, self._batch_limit))
        self._buffers = CopyBuffers()
        self._batch: list[tuple[Value, dict[str, Tensor]]] = []
        self._batch_bytes = 0
        self._shard: SafetensorsWriter | None = None
        self._saved_by_digest: dict[str, str] = {}

    def add(self, value: Value, tensor: Tensor) -> None:
        """Copy a value's data now, to be written soon; block while more than the budget is waiting."""
        if self._thread.error is not None:
            return
        if Pieces.can_hold(tensor) and tensor.nbytes > max(self._budget, SMALLEST_PIECE):  # others may have no size
            self._submit_batch()
            self._thread.wait()
            self._thread.run_now(self._write_large, value, Pieces(tensor, max(self._batch_limit, SMALLEST_PIECE)))
            return
        parts = encode_tensor(tensor, self._buffers)
        self._batch.append((value, parts))
        self._batch_bytes += _size(parts)
        if self._batch_bytes >= self._batch_limit:
            self._submit_batch()

    def _submit_batch(self) -> None:
        batch, size, self._batch, self._batch_bytes = self._batch, self._batch_bytes, [], 0
        self._thread.submit(size, self._write_batch, batch)

    def stop(self) -> None:
        """End the thread without waiting for it: no more values will come."""
        self._thread.stop()

    def finish(self) -> dict[int, tuple[str, str]]:
        """Write the rest; return where each value lies and its digest. Raises :class:`SaveError`."""
        self._submit_batch()
        self._thread.submit(0, self._close_shard)
        self._thread.finish()
        error = self._thread.error
        if error is not None:
            if self._shard is not None:
                self._shard.abandon()
            raise SaveError(f"the tensors could not be written to {self._folder}: {error}") from error
        return self.locations

    def _write_large(self, value: Value, pieces: Pieces) -> None:
        """Write a value into a shard of its own. The thread has nothing to do meanwhile."""
        digest = digest_of(value, {"": pieces})
        saved = self._saved_by_digest.get(digest)
        if saved is None:
            self._close_shard()
            shard = self._new_shard()
            shard.add_pieces(f"v{value.number}", pieces.dtype, pieces.shape, pieces)
            self._close_shard()
            saved = self._saved_by_digest[digest] = f"{shard.path.name}#v{value.number}"
        self.locations[value.number] = (saved, digest)

    # In the thread -------------------------------------------------------------------------------

    def _write_batch(self, batch: list[tuple[Value, dict[str, Tensor]]]) -> None:
        for value, parts in batch:
            self._write(value, parts)
            if self._shard is not None and self._shard.waiting > self._batch_limit:
                self._close_shard()  # else unaligned tensors, written last, would fill the budget

    def _write(self, value: Value, parts: dict[str, Tensor]) -> None:
        digest = digest_of(value, parts)
        saved = self._saved_by_digest.get(digest)
        if saved is None:
            parts = {f"v{value.number}{part}": tensor for part, tensor in parts.items()}
            shard = self._shard_with_room(parts)
            saved = self._saved_by_digest[digest] = f"{shard.path.name}#v{value.number}"
            for name, tensor in parts.items():
                self._release(shard.add(name, tensor))
        else:
            self._release(parts.values())
        self.locations[value.number] = (saved, digest)

    def _shard_with_room(self, parts: dict[str, Tensor]) -> SafetensorsWriter:
        shard = self._shard
        if shard is not None and (shard.end >= SHARD_BYTES or not shard.has_room(parts)):
            self._close_shard()
        return self._new_shard() if self._shard is None else self._shard

    def _new_shard(self) -> SafetensorsWriter:
        path = self._folder / f"tensors-{self._next:04d}.safetensors"
        self._shard = SafetensorsWriter(path, {"format": "fxdebug"}, min(STREAM_FROM_BYTES, self._batch_limit))
        self.files.append(path)
        self._next += 1
        return self._shard

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._release(self._shard.close())
            self._shard = None

    def _release(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            size = tensor.nbytes
            self._buffers.give_back(tensor)
            self._thread.release(size)


def _size(parts: dict[str, Tensor]) -> int:
    return sum([part.nbytes for part in parts.values()])
