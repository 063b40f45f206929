"""The data of values as safetensors, written while the model runs.

Values are copied when they are seen (the model may overwrite them) and handed to a thread that
writes them in shards. At most ``budget`` bytes wait in memory: then the model waits. Data that is
equal, to the last bit and in shape and dtype, is written once.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from fxdebug.errors import LoadError, SaveError
from fxdebug.values import Value

BUDGET = 256 * 1024 * 1024  # bytes that may wait to be written
SHARD = 64 * 1024 * 1024  # bytes after which a shard is written

_FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_STORED = frozenset(
    (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
        torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
    )
)  # fmt: skip


def encoded(tensor: Tensor) -> dict[str, Tensor]:
    """The dense, real, contiguous tensors that make up any tensor, by part; the part ``""`` is a plain one.

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
    return {"": _plain(tensor)}


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    tensor = _carried(tensor)
    copy = tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
    return copy.as_subclass(Tensor) if type(copy) is not Tensor else copy


def _carried(tensor: Tensor) -> Tensor:
    """The bits of a dtype that safetensors has no name for, or cannot read back, as integers of that size."""
    return tensor if tensor.dtype in _STORED else tensor.view(_CARRIERS[tensor.element_size()])


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
    return _numbers(parts[""], dtype).expand(value.shape)


def _inner(value: Value, parts: dict[str, Tensor]) -> Tensor:
    return _numbers(parts[".values"], getattr(torch, value.dtype))


def _numbers(stored: Tensor, dtype: torch.dtype) -> Tensor:
    if stored.dtype is dtype:
        return stored
    return torch.view_as_complex(stored) if dtype.is_complex else stored.view(dtype)


def digest_of(value: Value, parts: dict[str, Tensor]) -> str:
    """A fingerprint of dtype, shape and every bit of the data."""
    digest = hashlib.blake2b(f"{value.dtype}{value.shape}{value.layout}".encode(), digest_size=16)
    for part, tensor in parts.items():
        digest.update(part.encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


class Shards:
    """Writes the values of one run into ``folder/tensors-0001.safetensors`` and so on.

    ``first`` is the number of the first shard. Errors of the disk do not reach the model: they are
    kept, the rest of the run is not saved, and :meth:`finish` raises the first.
    """

    def __init__(self, folder: Path, *, budget: int = BUDGET, first: int = 1) -> None:
        self.files: list[Path] = []
        self._folder = folder
        self._next = first
        self._budget = budget
        self._shard = min(SHARD, max(1, budget // 4))
        self._waiting = 0
        self._room = threading.Condition()
        self._queue: queue.Queue[tuple[Value, dict[str, Tensor]] | None] = queue.Queue()
        self._buffer: dict[str, Tensor] = {}
        self._buffered = 0
        self._written: dict[str, str] = {}
        self._error: BaseException | None = None
        self.facts: dict[int, tuple[str, str]] = {}  # value number → (saved, digest)
        self._thread = threading.Thread(target=self._work, name="fxdebug-writer", daemon=True)
        self._thread.start()

    def keep(self, value: Value, body: Tensor) -> None:
        """Take a copy of the data now, to be written soon; waits while more than the budget is waiting."""
        if self._error is not None:
            return
        parts = encoded(body)
        with self._room:
            self._waiting += _size(parts)
        self._queue.put((value, parts))
        with self._room:
            while self._waiting > self._budget and self._error is None:
                self._room.wait()

    def finish(self) -> dict[int, tuple[str, str]]:
        """Write what is left; return where each value is, and its digest. Raises what the disk raised."""
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise SaveError(f"the tensors could not be written to {self._folder}: {self._error}") from self._error
        return self.facts

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            self._guarded(self._add, *entry)
        self._guarded(self._flush)

    def _guarded(self, step: Callable[..., None], *args: Any) -> None:
        """Nothing the disk does may reach the model: the first error is kept, and nobody waits any more."""
        try:
            if self._error is None:
                step(*args)
        except BaseException as error:
            self._error = error
            self._release(0)

    def _add(self, value: Value, parts: dict[str, Tensor]) -> None:
        digest = digest_of(value, parts)
        saved = self._written.get(digest)
        if saved is None:
            saved = self._written[digest] = f"tensors-{self._next:04d}.safetensors#v{value.number}"
            self._buffer.update({f"v{value.number}{part}": tensor for part, tensor in parts.items()})
            self._buffered += _size(parts)
        else:
            self._release(_size(parts))
        self.facts[value.number] = (saved, digest)
        if self._buffered >= self._shard:
            self._flush()

    def _flush(self) -> None:
        if self._buffer:
            path = self._folder / f"tensors-{self._next:04d}.safetensors"
            save_file(self._buffer, path, metadata={"format": "fxdebug"})
            self.files.append(path)
            self._next += 1
            self._buffer = {}
            self._release(self._buffered)
            self._buffered = 0

    def _release(self, size: int) -> None:
        with self._room:
            self._waiting -= size
            self._room.notify_all()


def _size(parts: dict[str, Tensor]) -> int:
    return sum(part.nbytes for part in parts.values())


class Files:
    """Writes each value into a file of its own, as the reference does; the files get their names at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._error: BaseException | None = None

    def keep(self, value: Value, body: Tensor) -> None:
        """Write the value now, under its number."""
        if self._error is not None:
            return
        data = body.detach()
        if type(data) is not Tensor and data.layout is torch.strided:
            data = data.to("cpu", copy=True)  # a class that only stands for its data has no memory to write
        if data.is_quantized:
            data = data.dequantize()
        if data.layout is not torch.strided or data.is_nested:
            parts = {("data" + part): tensor for part, tensor in encoded(data).items()}
        else:
            data = data.resolve_conj().resolve_neg()
            if data.dtype in (torch.complex128, torch.complex32):
                data = torch.view_as_real(data)  # safetensors knows complex64 only
            if data.dtype is not _FLOAT4:  # safetensors has a name for that one, which the reference uses
                data = _carried(data)
            parts = {"data": data.contiguous().cpu()}
        try:
            save_file(parts, self.path(value))
        except OSError as error:
            self._error = error

    def path(self, value: Value) -> Path:
        """Where the value lies until it gets its name."""
        return self._folder / f"v{value.number}.safetensors"

    def finish(self) -> None:
        """Raises what the disk raised."""
        if self._error is not None:
            raise SaveError(f"the tensors could not be written to {self._folder}: {self._error}") from self._error


def read(folder: Path, value: Value) -> Tensor:
    """The data of a saved value. Raises :class:`LoadError` when it was not saved or the file is damaged."""
    if value.saved is None:
        raise LoadError(f"the data of value {value.number} ({value.label}) was not saved: run with values='tensors'")
    name, _, key = value.saved.partition("#")
    with _opened(folder / name) as file:
        parts = {name[len(key) :]: file.get_tensor(name) for name in list(file.keys()) if _is_part(name, key)}
    if not parts:
        raise LoadError(f"{folder / name} holds no {key}: it belongs to another run")
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
