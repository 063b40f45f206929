"""Sums and extremes of a tensor in the CPU's memory, in blocks by numpy and torch.

Each number has its fastest function: numpy's dot product and extremes, torch's sum. A block stays in the cache while
they read it one after the other, so only the first of them waits for memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 262144  # elements: 1 MiB of float32, which stays in the second- or third-level cache between passes
REAL = (torch.float32, torch.float64)
_DOT = 65536  # elements in one dot product in float32
_FINE_DOT = 8192  # the same where five digits must be right: 128 elements in each running sum
_WIDE_DOT = 8192  # the same in float64: for more elements numpy's BLAS starts threads, and waits for them
FEW = 8192  # up to this many elements numpy's sum is faster than torch's; above, torch's takes a third of the time

Sums = tuple[float, float, float, float, int]
"""Sum of the elements, sum of their squares, least, greatest, number of zeros."""
_Memory = ctypes.c_char * (1 << 62)  # one type for all sizes: ctypes never frees a type
_least, _greatest, _added = np.minimum.reduce, np.maximum.reduce, np.add.reduce


def sums_of(flat: Tensor) -> Sums:
    """Return the sums of flat elements of any real float dtype; if an element is not finite, an extreme is not."""
    parts = _sums(flat)
    return parts[0] if len(parts) == 1 else merged(parts)


def array_of(flat: Tensor) -> np.ndarray:
    """Return the memory of a flat CPU tensor as an array.

    It does not call ``numpy()``: after that the program could not resize its own tensor, as sharded modules do.
    """
    if type(flat) is not Tensor or not flat.is_contiguous():  # a subclass may have no memory, or no data yet
        copied: np.ndarray = flat.clone(memory_format=torch.contiguous_format).numpy()
        return copied
    count = flat.numel()
    if count == 0:
        return np.empty(0, str(flat.dtype)[6:])
    memory = memory_of(flat)
    memory.tensor = flat  # keeps it alive as long as the array
    return np.frombuffer(memory, _kind(flat.dtype), count)


def shaped_array_of(tensor: Tensor) -> np.ndarray:
    """Return the data of a dense tensor as an array of its shape; of one on the CPU it is the same memory."""
    host = tensor.detach().cpu()
    return array_of(host.reshape(-1)).reshape(host.shape)


def is_freed(tensor: Tensor) -> bool:
    """Has the program freed the memory of a strided tensor, or a part of it? Reading it would end the process.

    Sharded modules free weights between their calls; shape and strides remain.
    """
    try:
        whole = tensor.untyped_storage().nbytes()
        there = whole - tensor.storage_offset() * tensor.element_size()
        if there >= tensor.nbytes or not tensor.numel():
            is_plain = type(tensor) in (Tensor, torch.nn.Parameter) and bool(tensor.numel()) and not tensor.is_meta
            return is_plain and tensor.data_ptr() == 0  # a functional tensor: the memory is in another one
    except (RuntimeError, NotImplementedError):  # no memory of the usual kind
        return False
    if tensor.is_quantized:  # several elements may be packed into one byte
        return whole == 0
    span = 1 + sum([(size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())])  # expanded: less
    return there < span * tensor.element_size()


def memory_of(tensor: Tensor) -> Any:
    """Return a buffer for ``numpy.frombuffer`` that begins at a CPU tensor and has no end; keep the tensor alive."""
    return memory_at(tensor.data_ptr())


def memory_at(address: int) -> Any:
    """Return a buffer for ``numpy.frombuffer`` that begins at an address and has no end."""
    return _Memory.from_address(address)


@functools.cache
def _kind(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype)[6:])


# One piece ---------------------------------------------------------------------------------------


def is_one_piece(dtype: torch.dtype, count: int) -> bool:
    """May elements that lie together in the CPU's memory be given to :func:`sums_of_piece`?"""
    return FEW < count <= BLOCK and dtype in REAL


def sums_of_piece(tensor: Tensor, address: int) -> Sums:
    """Return the sums of a contiguous tensor at an address, as :func:`sums_of` does.

    The model has pushed our code and numpy's out of the caches: this is the least code that takes the sums.
    """
    least, greatest = torch.aminmax(tensor)
    low, high = float(least), float(greatest)
    array = np.frombuffer(memory_at(address), _kind(tensor.dtype), tensor.numel())
    return float(tensor.sum()), squares_of(array), low, high, scratch.zeros(array) if low <= 0.0 <= high else 0


# Blocks ------------------------------------------------------------------------------------------


def blocks(flat: Tensor) -> Iterator[Tensor]:
    """Yield pieces that stay in the cache between passes, as float32 or float64; each may overwrite the one before."""
    count = flat.numel()
    real = flat.dtype in REAL
    if real and count <= BLOCK:
        yield flat
        return
    for block in flat.split(BLOCK):
        yield block if real else scratch.floats(block.numel()).copy_(block)


class _Scratch(threading.local):
    """Memory for one block, used again and again: fresh pages cost more than the arithmetic."""

    def __init__(self) -> None:
        self._floats: Tensor | None = None
        self._flags = bytearray()
        self._is_zero: np.ndarray = np.empty(0, np.bool_)

    def floats(self, count: int) -> Tensor:
        """Return uninitialised float32."""
        if self._floats is None or count > self._floats.numel():
            with torch.inference_mode(False):  # else it could not be written to outside of inference mode
                self._floats = torch.empty(BLOCK if count > FEW else FEW, dtype=torch.float32)
        return self._floats[:count]

    def zeros(self, array: np.ndarray) -> int:
        """Count the zeros. Most tensors have none, and searching bytes is the fastest way to find that out."""
        count = len(array)
        if count > len(self._flags):
            self._flags = bytearray(BLOCK if count > FEW else FEW)
            self._is_zero = np.frombuffer(self._flags, np.bool_)
        flags = self._is_zero[:count]
        np.equal(array, 0, out=flags)
        first = self._flags.find(1, 0, count)
        return 0 if first < 0 else int(np.count_nonzero(flags[first:]))


scratch = _Scratch()


# Sums --------------------------------------------------------------------------------------------


@np.errstate(all="ignore")  # a sum that overflows is computed again in float64: no warning is needed
def _sums(flat: Tensor) -> list[Sums]:
    """Return the sums of each block.

    The first function that reads a block mostly waits for memory. Where no conversion to float32 comes first, that
    function is torch's ``aminmax``, which finds two numbers in that time. On a block in the cache numpy is as fast.
    """
    count = flat.numel()
    if count > FEW and flat.dtype in _HALVES:
        return _of_halves(flat)
    cold = count > FEW and flat.dtype in REAL
    parts: list[Sums] = []
    for block in blocks(flat):
        array = array_of(block)
        if cold:
            least, greatest = torch.aminmax(block)
            low, high = float(least), float(greatest)
        else:
            low, high = float(_least(array)), float(_greatest(array))
        squares, total = squares_of(array), total_of(block, array)
        parts.append((total, squares, low, high, scratch.zeros(array) if low <= 0.0 <= high else 0))
    return parts


@np.errstate(all="ignore")
def sums_of_rows(matrix: np.ndarray) -> list[Sums]:
    """Return the sums of each row of up to ``FEW`` floats, as :func:`sums_of` gives them for that row alone."""
    totals, lows, highs = (kind(matrix, axis=1).tolist() for kind in (_added, _least, _greatest))
    squares = [squares_of(row) for row in matrix]
    may_be_zero = any(low <= 0.0 <= high for low, high in zip(lows, highs))
    zeros = (matrix.shape[1] - np.count_nonzero(matrix, axis=1)).tolist() if may_be_zero else [0] * len(matrix)
    return list(zip(totals, squares, lows, highs, zeros))


def total_of(block: Tensor, array: np.ndarray) -> float:
    """Return the sum of a block; ``array`` is its memory."""
    return float(block.sum()) if len(array) > FEW else float(_added(array))


def squares_of(array: np.ndarray) -> float:
    """Return the sum of squares, by dot products so short that each of their 64 running sums stays exact enough.

    Where squares overflow, ``array.dot`` warns as numpy's settings say; ``vdot`` computes the same and is silent.
    """
    count = len(array)
    most = _DOT if array.itemsize == 4 else _WIDE_DOT
    if count <= most:
        return float(np.vdot(array, array))
    squares = 0.0
    for start in range(0, count, most):
        part = array[start : start + most]
        squares += float(np.vdot(part, part))
    return squares


_HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_MINUS_ZERO = 0x8000


def _of_halves(flat: Tensor) -> list[Sums]:
    """Return the sums of blocks of 16-bit floats.

    Extremes and zeros are found by the elements' codes (their bits as integers), in a third of the time.
    """
    parts: list[Sums] = []
    for codes, block in zip(flat.view(torch.int16).split(BLOCK), blocks(flat)):
        array = array_of(block)
        code_array = array_of(codes)
        least, greatest = map(int, torch.aminmax(codes))
        low, high = _extremes(code_array.view(np.uint16), greatest, flat.dtype)
        zeros = 0
        if low <= 0.0 <= high:
            zeros = scratch.zeros(code_array if least != -_MINUS_ZERO else array)
        parts.append((total_of(block, array), squares_of(array), low, high, zeros))
    return parts


def _extremes(codes: np.ndarray, greatest: int, dtype: torch.dtype) -> tuple[float, float]:
    """Return the least and the greatest number, found by their codes; both are NaN if an element is.

    A code has the sign in its first bit and then the magnitude, where a NaN is beyond infinity. ``greatest`` is the
    greatest code as a signed integer: the code of the greatest number, unless all numbers are negative.
    """
    largest = int(_greatest(codes))  # the code of the least number, if any number is negative
    smallest = 0
    if greatest < 0 or largest < _MINUS_ZERO:  # all of one sign
        smallest = int(_least(codes))
    low = largest if largest >= _MINUS_ZERO else smallest
    high = greatest if greatest >= 0 else smallest
    least, most = _decoded(low, dtype), _decoded(high, dtype)
    return (least, most) if least == least and most == most else (math.nan, math.nan)


def _decoded(code: int, dtype: torch.dtype) -> float:
    number: float
    if dtype is torch.bfloat16:
        (number,) = struct.unpack("f", struct.pack("I", code << 16))
    else:
        (number,) = struct.unpack("e", struct.pack("H", code))
    return number


def centred(flat: Tensor, shift: float) -> tuple[float, float]:
    """Return the sum of the distances from ``shift``, and the sum of their squares."""
    drifts, squares = [], 0.0
    for block in blocks(flat):
        if block.dtype is torch.float32:
            distances = torch.sub(block, shift, out=scratch.floats(block.numel()))
        else:
            distances = block - shift
        drifts.append(float(distances.sum()))
        squares += squares_of(array_of(distances))
    return math.fsum(drifts), squares


@np.errstate(all="ignore")
def fine_squares(flat: Tensor) -> float:
    """Return the sum of the squares of flat float32 elements, right to five digits."""
    array, squares = array_of(flat), 0.0
    for start in range(0, len(array), _FINE_DOT):
        part = array[start : start + _FINE_DOT]
        squares += float(part.dot(part))
    return squares


def merged(sums: list[Sums]) -> Sums:
    """Return the sums of several parts together."""
    totals, squares, lows, highs, zeros = zip(*sums)
    total = math.fsum(totals) if all(map(math.isfinite, totals)) else math.nan
    nan = next((extreme for extreme in (*lows, *highs) if extreme != extreme), None)
    return total, sum(squares), min(lows) if nan is None else nan, max(highs) if nan is None else nan, sum(zeros)
