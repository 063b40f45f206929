"""Any tensor as dense tensors that safetensors can hold, and back: sparse, nested, quantised, complex, float4."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fxdebug.data.values import Value
from fxdebug.errors import with_article
from fxdebug.store.tensors.copy_buffers import CopyBuffers
from fxdebug.store.tensors.safetensors_file import DTYPE_NAMES, bytes_of

FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def encode_tensor(tensor: Tensor, buffers: CopyBuffers | None = None) -> dict[str, Tensor]:
    """Return copies of the dense, real, contiguous tensors that make up a tensor, by the name of the part.

    A dense tensor has one part, ``""``. Lazy conjugation and negation are carried out; expanded dimensions (stride 0)
    are kept at size 1; complex numbers become pairs, packed 4-bit floats bytes. Raises :class:`ValueError` for a
    tensor without data.
    """
    if tensor.is_meta:
        raise ValueError("a meta tensor has no data")
    if tensor.is_quantized:
        return _encode_quantised(tensor)
    if tensor.is_nested:
        parts = tensor.unbind()
        sizes = torch.tensor([list(part.shape) for part in parts], dtype=torch.int64)
        flat = torch.cat([part.reshape(-1) for part in parts]) if parts else torch.empty(0)
        return {".sizes": sizes, **_prefixed(".values", encode_tensor(flat))}
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return {".indices": whole.indices().clone().cpu(), **_prefixed(".values", encode_tensor(whole.values()))}
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr, torch.sparse_csc, torch.sparse_bsc):
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        first, second = (
            (tensor.crow_indices(), tensor.col_indices()) if by_row else (tensor.ccol_indices(), tensor.row_indices())
        )
        return {
            ".compressed": first.clone().cpu(),
            ".plain": second.clone().cpu(),
            **_prefixed(".values", encode_tensor(tensor.values())),
        }
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return {"": _encode_dense(tensor, buffers or CopyBuffers())}


def _encode_dense(tensor: Tensor, buffers: CopyBuffers) -> Tensor:
    tensor = _without_expanded(tensor.detach())
    conjugate = tensor.is_conj() and not tensor.is_neg()  # carried out in the copy: torch would make another one
    copy = buffers.copy(_storable(tensor.conj() if conjugate else tensor))
    if conjugate:
        copy[..., 1].neg_()
    if type(copy) is not Tensor and copy.numel() and copy.data_ptr() == 0:
        raise ValueError(f"{with_article(type(copy).__name__)} has no memory of its own")
    return copy.as_subclass(Tensor) if type(copy) is not Tensor else copy


def _without_expanded(tensor: Tensor) -> Tensor:
    """Return a view in which expanded dimensions (stride 0) have size 1."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _storable(tensor: Tensor) -> Tensor:
    tensor = tensor.resolve_conj().resolve_neg()
    return view_as_storable(torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor)


class Pieces:
    """A large dense tensor, encoded piece by piece in the order of its elements: it is never copied whole.

    ``dtype`` and ``shape`` are those of the tensor that the pieces make up together.
    """

    def __init__(self, tensor: Tensor, most: int) -> None:
        self._tensor = _without_expanded(tensor.detach())
        self._most = most  # bytes
        empty = _storable(self._tensor.narrow(0, 0, 0))
        self.dtype = empty.dtype
        self.shape = (*self._tensor.shape, *empty.shape[self._tensor.dim() :])

    @classmethod
    def can_hold(cls, tensor: Tensor) -> bool:
        """Is it a tensor that can be encoded so: dense and plain, with a dimension to cut it along?"""
        return is_plain(tensor) and tensor.dim() > 0

    def __iter__(self) -> Iterator[Tensor]:
        for piece in _cut(self._tensor, self._most):
            yield _storable(piece).cpu().contiguous()  # of a contiguous CPU tensor this is a view


def is_plain(tensor: Tensor) -> bool:
    """Is a tensor dense, with data, and of no class but torch's own?"""
    is_dense = tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested)
    return type(tensor) in (Tensor, torch.nn.Parameter) and is_dense


def _cut(tensor: Tensor, most: int) -> Iterator[Tensor]:
    """Yield parts of at most ``most`` bytes, in the order of the elements."""
    if tensor.nbytes <= most or not tensor.dim():
        yield tensor
        return
    rows = max(1, most * tensor.shape[0] // tensor.nbytes)
    for part in tensor.split(rows):
        yield from (part,) if rows > 1 else _cut(part[0], most)


def view_as_storable(tensor: Tensor) -> Tensor:
    """Return a view as integers of the same size if safetensors has no name for the dtype or cannot read it."""
    return tensor if tensor.dtype in DTYPE_NAMES else tensor.view(_INTEGER_OF_SIZE[tensor.element_size()])


def _encode_quantised(tensor: Tensor) -> dict[str, Tensor]:
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


def as_read_back(value: Value, tensor: Tensor) -> Tensor:
    """Return a copy of a value's tensor, as it is read back where it was saved."""
    return decode_tensor(value, encode_tensor(tensor))


def decode_tensor(value: Value, parts: dict[str, Tensor]) -> Tensor:
    """Return the tensor that :func:`encode_tensor` took apart, with the value's dtype and shape."""
    dtype = getattr(torch, value.dtype)
    if ".whole" in parts:
        make = torch._make_per_channel_quantized_tensor if ".axis" in parts else torch._make_per_tensor_quantized_tensor
        scale, zero, axis = parts[".scale"], parts[".zero"], parts.get(".axis")
        if axis is not None:
            return make(parts[".whole"], scale, zero, int(axis))
        return make(parts[".whole"], float(scale), int(zero))
    if ".sizes" in parts:
        flat = _decode_values(value, parts)
        sizes = [tuple(row) for row in parts[".sizes"].tolist()]
        counts = [int(torch.Size(size).numel()) for size in sizes]
        pieces = [piece.view(size) for piece, size in zip(flat.split(counts), sizes)]
        return torch.nested.nested_tensor(pieces, layout=getattr(torch, value.layout))
    if ".indices" in parts:
        return torch.sparse_coo_tensor(
            parts[".indices"], _decode_values(value, parts), value.shape, check_invariants=True
        )
    if ".compressed" in parts:
        return torch.sparse_compressed_tensor(
            parts[".compressed"],
            parts[".plain"],
            _decode_values(value, parts),
            value.shape,
            layout=getattr(torch, value.layout),
            check_invariants=True,
        )
    whole = _view_as_dtype(parts[""], dtype)
    if whole.dim() > len(value.shape):  # recorded inside torch.vmap: its shape has no batch dimension, its data has
        return whole
    return whole.expand(value.shape)


def _decode_values(value: Value, parts: dict[str, Tensor]) -> Tensor:
    return _view_as_dtype(parts[".values"], getattr(torch, value.dtype))


def _view_as_dtype(stored: Tensor, dtype: torch.dtype) -> Tensor:
    if stored.dtype is dtype:
        return stored
    return torch.view_as_complex(stored) if dtype.is_complex else stored.view(dtype)


def digest_of(value: Value, parts: Mapping[str, Tensor | Pieces]) -> str:
    """Return a digest of dtype, shape, layout and every bit of the data: 32 hexadecimal digits."""
    digest = hashlib.sha256(f"{value.dtype}{value.shape}{value.layout}".encode())  # processors have instructions for it
    for part, data in parts.items():
        digest.update(part.encode())
        for piece in data if isinstance(data, Pieces) else (data,):
            digest.update(bytes_of(piece))
    return digest.hexdigest()[:32]
