"""The data of values as safetensors, written while the model runs.

Values are copied when they are seen (the model may overwrite them) and handed to a thread that
writes them in shards. At most ``budget`` bytes wait in memory: then the model waits. Data that is
equal, to the last bit and in shape and dtype, is written once.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import LoadError, SaveError
from fxdebug.store.blanks import Blanks
from fxdebug.store.writer import NAMES, STREAMED, Copies, Safetensors, Writer, bytes_of, write_one

BATCH = 4 * 1024 * 1024  # bytes that are handed over together: two threads of Python at once slow each other
BUDGET = 256 * 1024 * 1024  # bytes that may wait to be written
AT_ONCE = 4 * 1024 * 1024  # bytes up to which a tensor is written in the time it takes to copy it for a thread
SHARD = 64 * 1024 * 1024  # bytes after which a shard is full
CHECKED = 64 * 1024 * 1024  # bytes of a value at most that are held against its digest when it is read

_FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def encoded(tensor: Tensor, copies: Copies | None = None) -> dict[str, Tensor]:
    """Copies of the dense, real, contiguous tensors that make up any tensor, by part; the part ``""`` is a plain one.

    Lazy conjugation and negation are carried out; dimensions that are only expanded are kept at
    size 1; complex numbers become pairs; packed 4-bit floats bytes.
    """
    if tensor.is_meta:
        raise ValueError("a meta tensor has no data")
    if tensor.is_quantized:
        return _quantised(tensor)
    if tensor.is_nested:
        parts = tensor.unbind()
        sizes = torch.tensor([list(part.shape) for part in parts], dtype=torch.int64)
        flat = torch.cat([part.reshape(-1) for part in parts]) if parts else torch.empty(0)
        return {".sizes": sizes, **_prefixed(".values", encoded(flat))}
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return {".indices": whole.indices().clone().cpu(), **_prefixed(".values", encoded(whole.values()))}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsc):
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        first, second = (
            (tensor.crow_indices(), tensor.col_indices()) if by_row else (tensor.ccol_indices(), tensor.row_indices())
        )
        return {
            ".compressed": first.clone().cpu(),
            ".plain": second.clone().cpu(),
            **_prefixed(".values", encoded(tensor.values())),
        }
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return {"": _plain(tensor, copies or Copies())}


def _plain(tensor: Tensor, copies: Copies) -> Tensor:
    tensor = tensor.detach()
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    tensor = _carried(tensor)
    copy = copies.of(tensor)
    if type(copy) is not Tensor and copy.numel() and copy.data_ptr() == 0:
        raise ValueError(f"a {type(copy).__name__} has no memory of its own")
    return copy.as_subclass(Tensor) if type(copy) is not Tensor else copy


def _carried(tensor: Tensor) -> Tensor:
    """The bits of a dtype that safetensors has no name for, or cannot read back, as integers of that size."""
    return tensor if tensor.dtype in NAMES else tensor.view(_CARRIERS[tensor.element_size()])


def _quantised(tensor: Tensor) -> dict[str, Tensor]:
    if "channel" in str(tensor.qscheme()):
        scale, zero = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        extra = {".axis": torch.tensor(tensor.q_per_channel_axis())}
    else:
        scale = torch.tensor(tensor.q_scale(), dtype=torch.float64)
        zero, extra = torch.tensor(tensor.q_zero_point()), {}
    whole = tensor.int_repr().contiguous().cpu().clone()
    return {".whole": whole, ".scale": scale.cpu().clone(), ".zero": zero.cpu().clone(), **extra}


def _prefixed(prefix: str, parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + part: tensor for part, tensor in parts.items()}


def decoded(value: Value, parts: dict[str, Tensor]) -> Tensor:
    """The tensor that :func:`encoded` took apart, of the value's dtype and shape."""
    dtype = getattr(torch, value.dtype)
    if ".whole" in parts:
        make = torch._make_per_channel_quantized_tensor if ".axis" in parts else torch._make_per_tensor_quantized_tensor
        scale, zero, axis = parts[".scale"], parts[".zero"], parts.get(".axis")
        if axis is not None:
            return make(parts[".whole"], scale, zero, int(axis))
        return make(parts[".whole"], float(scale), int(zero))
    if ".sizes" in parts:
        flat = _inner(value, parts)
        sizes = [tuple(row) for row in parts[".sizes"].tolist()]
        counts = [int(torch.Size(size).numel()) for size in sizes]
        pieces = [piece.view(size) for piece, size in zip(flat.split(counts), sizes)]
        return torch.nested.nested_tensor(pieces, layout=getattr(torch, value.layout))
    if ".indices" in parts:
        return torch.sparse_coo_tensor(parts[".indices"], _inner(value, parts), value.shape, check_invariants=True)
    if ".compressed" in parts:
        return torch.sparse_compressed_tensor(
            parts[".compressed"],
            parts[".plain"],
            _inner(value, parts),
            value.shape,
            layout=getattr(torch, value.layout),
            check_invariants=True,
        )
    whole = _numbers(parts[""], dtype)
    if whole.dim() > len(value.shape):  # inside torch.vmap: its shape there has no batch, its data has
        return whole
    return whole.expand(value.shape)


def _inner(value: Value, parts: dict[str, Tensor]) -> Tensor:
    return _numbers(parts[".values"], getattr(torch, value.dtype))


def _numbers(stored: Tensor, dtype: torch.dtype) -> Tensor:
    if stored.dtype is dtype:
        return stored
    return torch.view_as_complex(stored) if dtype.is_complex else stored.view(dtype)


def digest_of(value: Value, parts: dict[str, Tensor]) -> str:
    """A fingerprint of dtype, shape and every bit of the data."""
    digest = hashlib.sha256(f"{value.dtype}{value.shape}{value.layout}".encode())  # processors have it built in
    for part, tensor in parts.items():
        digest.update(part.encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()[:32]


class Shards:
    """Writes the values of one run into ``folder/tensors-0001.safetensors`` and so on.

    ``first`` is the number of the first shard. Errors of the disk do not reach the model: they are
    kept, the rest of the run is not saved, and :meth:`finish` raises the first.
    """

    def __init__(self, folder: Path, *, budget: int = BUDGET, first: int = 1) -> None:
        self.files: list[Path] = []
        self._folder = folder
        self._next = first
        self._most = min(BATCH, max(1, budget // 4))
        self._writer = Writer(max(budget - self._most, self._most))
        self._copies = Copies()
        self._batch: list[tuple[Value, dict[str, Tensor]]] = []
        self._batched = 0
        self._shard: Safetensors | None = None
        self._written: dict[str, str] = {}
        self.facts: dict[int, tuple[str, str]] = {}  # value number → (saved, digest)

    def keep(self, value: Value, body: Tensor) -> None:
        """Take a copy of the data now, to be written soon; waits while more than the budget is waiting."""
        if self._writer.error is not None:
            return
        parts = encoded(body, self._copies)
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

    def _open(self, parts: dict[str, Tensor]) -> Safetensors:
        """The shard that has room for these."""
        shard = self._shard
        if shard is not None and (shard.end >= SHARD or not shard.has_room(parts)):
            self._close()
        if self._shard is None:
            path = self._folder / f"tensors-{self._next:04d}.safetensors"
            self._shard = Safetensors(path, {"format": "fxdebug"}, min(STREAMED, self._most))
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


class Files:
    """Writes each value into a file of its own, as the reference does; the files get their names at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer = Writer(BUDGET)
        self._copies = Copies()
        self._blanks = Blanks(folder, self._writer)
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
        if data.dtype is _FLOAT4:  # safetensors has a name for that one, which the reference uses
            self._writer.put(0, save_file, {"data": data.contiguous().cpu().clone()}, self._path(number))
            return
        data = _carried(data)
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


def read(folder: Path, value: Value) -> Tensor:
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
