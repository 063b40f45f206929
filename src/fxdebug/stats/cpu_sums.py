"""Sums and extremes of a tensor in the CPU's memory, near the speed of reading it.

Blocks stay in the cache while each number is taken by whoever is fastest at it: numpy's dot product
and extremes, torch's sum. Only the first of them waits for memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

BLOCK = 262144  # elements: 1 MiB of float32, which stays in the second-level cache (or third) between passes
REAL = (torch.float32, torch.float64)
_DOT = 65536  # elements whose squares are added up in float32
_FINE_DOT = 8192  # ... where five digits must be right: 128 of them in each running sum
_WIDE_DOT = 8192  # in float64: for more of them numpy's library starts threads of its own, and waits for them
_FEW = 8192  # elements up to which numpy's sum is done before torch's has begun; beyond, torch's takes a third

Code = TypeVar("Code")
Sums = tuple[float, float, float, float, int]  # of the elements, of their squares; least, greatest; zeros
_Memory = ctypes.c_char * (1 << 62)  # from some address on: of a type for each size there would be no end
_least, _greatest, _added = np.minimum.reduce, np.maximum.reduce, np.add.reduce


def sums_of(flat: Tensor) -> Sums:
    """The sums of flat elements of any real floating-point dtype; what is not finite shows in the extremes."""
    loop = loop_of(flat.dtype)
    if loop is not None and type(flat) is Tensor and flat.is_contiguous():
        in_one_pass = loop(flat.data_ptr(), flat.numel())
        if not has_two_zeros(in_one_pass):
            return in_one_pass
    sums = _sums(flat)
    return sums[0] if len(sums) == 1 else merged(sums)


def has_two_zeros(sums: Sums) -> bool:
    """May an extreme be 0.0 and -0.0 alike? Loops put these in order; torch, whose word is to be ours, takes either."""
    _, _, low, high, zeros = sums
    return zeros > 1 and ((low == 0.0 and math.copysign(1.0, low) < 0.0) or high == 0.0)


@functools.cache
def loop_of(dtype: torch.dtype) -> Callable[[int, int], Sums] | None:
    """Sums of so many elements from an address on, in one pass; ``None`` where nothing makes such code."""
    from fxdebug.stats import llvm_sums

    return _if_possible(llvm_sums.loop, dtype)


@functools.cache
def marking_of(dtype: torch.dtype) -> Callable[[int, int], bytes] | None:
    """Sums of elements and of their codes, to see whether data changed; ``None`` where nothing makes such code."""
    from fxdebug.stats import llvm_checksum

    return _if_possible(llvm_checksum.marking, dtype)


def _if_possible(make: Callable[[torch.dtype], Code | None], dtype: torch.dtype) -> Code | None:
    try:
        return make(dtype)
    except (
        Exception
    ):  # without the extra ``fast``; a system that lets nobody make code, a processor unknown to llvmlite
        return None


def array_of(flat: Tensor) -> np.ndarray:
    """The memory of a flat tensor on a CPU.

    Not by ``numpy()``: it would forbid the program to resize its own tensor from then on, as sharded modules do.
    """
    if type(flat) is not Tensor or not flat.is_contiguous():  # a subclass may have no memory, or be on its way
        copied: np.ndarray = flat.clone(memory_format=torch.contiguous_format).numpy()
        return copied
    count = flat.numel()
    if count == 0:
        return np.empty(0, str(flat.dtype)[6:])
    memory = memory_of(flat)
    memory.tensor = flat  # it lives as long as the array
    return np.frombuffer(memory, _kind(flat.dtype), count)


def is_freed(tensor: Tensor) -> bool:
    """Has the program given back the memory of a strided tensor, or a part of it? To read it would end the process.

    Sharded modules do so with weights between their calls; only what there is of shape and strides is left.
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
    """What ``numpy.frombuffer`` reads a tensor on a CPU from, as long as somebody keeps it alive; it has no end."""
    return _Memory.from_address(tensor.data_ptr())


@functools.cache
def _kind(dtype: torch.dtype) -> np.dtype:
    return np.dtype(str(dtype)[6:])


# Blocks ------------------------------------------------------------------------------------------


def blocks(flat: Tensor) -> Iterator[Tensor]:
    """Pieces that stay in the cache between passes, as float32 or float64; the next one takes the last one's place."""
    count = flat.numel()
    real = flat.dtype in REAL
    if real and count <= BLOCK:
        yield flat
        return
    for block in flat.split(BLOCK):
        yield block if real else room.floats(block.numel()).copy_(block)


class _Room(threading.local):
    """Memory for one block, used over and over: fresh pages cost more than the arithmetic."""

    def __init__(self) -> None:
        self._floats: Tensor | None = None
        self._flags = bytearray()
        self._is_zero: np.ndarray = np.empty(0, np.bool_)

    def floats(self, count: int) -> Tensor:
        """Uninitialised float32."""
        if self._floats is None or count > self._floats.numel():
            with torch.inference_mode(False):  # or nothing could be written into it outside that mode
                self._floats = torch.empty(BLOCK if count > _FEW else _FEW, dtype=torch.float32)
        return self._floats[:count]

    def zeros(self, array: np.ndarray) -> int:
        """How many elements are zero. Most tensors have none, and that a search for a byte tells fastest."""
        count = len(array)
        if count > len(self._flags):
            self._flags = bytearray(BLOCK if count > _FEW else _FEW)
            self._is_zero = np.frombuffer(self._flags, np.bool_)
        flags = self._is_zero[:count]
        np.equal(array, 0, out=flags)
        first = self._flags.find(1, 0, count)
        return 0 if first < 0 else int(np.count_nonzero(flags[first:]))


room = _Room()


# Sums --------------------------------------------------------------------------------------------


@np.errstate(all="ignore")  # a sum that overflows is taken again, in float64: nobody need be warned
def _sums(flat: Tensor) -> list[Sums]:
    """The first to read a block waits for memory most of the time.

    Where that is not the conversion, it is torch's ``aminmax``, which gets two numbers in this time; of what is in
    the cache numpy has both as soon.
    """
    count = flat.numel()
    if count > _FEW and flat.dtype in _HALVES:
        return _of_halves(flat)
    cold = count > _FEW and flat.dtype in REAL
    found: list[Sums] = []
    for block in blocks(flat):
        array = array_of(block)
        if cold:
            least, greatest = torch.aminmax(block)
            low, high = float(least), float(greatest)
        else:
            low, high = float(_least(array)), float(_greatest(array))
        squares, total = squares_of(array), total_of(block, array)
        found.append((total, squares, low, high, room.zeros(array) if low <= 0.0 <= high else 0))
    return found


def total_of(block: Tensor, array: np.ndarray) -> float:
    """The sum of a block, which is also given as the array of its memory."""
    return float(block.sum()) if len(array) > _FEW else float(_added(array))


def squares_of(array: np.ndarray) -> float:
    """A dot product adds up in some 64 running sums: of few enough numbers that float32 holds them."""
    count = len(array)
    most = _DOT if array.itemsize == 4 else _WIDE_DOT
    if count <= most:
        return float(array.dot(array))
    squares = 0.0
    for start in range(0, count, most):
        part = array[start : start + most]
        squares += float(part.dot(part))
    return squares


_HALVES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_MINUS_ZERO = 0x8000


def _of_halves(flat: Tensor) -> list[Sums]:
    """Extremes and zeros of 16-bit floats are found among their codes, in a third of the time."""
    found: list[Sums] = []
    for codes, block in zip(flat.view(torch.int16).split(BLOCK), blocks(flat)):
        array = array_of(block)
        whole = array_of(codes)
        least, greatest = map(int, torch.aminmax(codes))
        low, high = _extremes(whole.view(np.uint16), greatest, flat.dtype)
        zeros = 0
        if low <= 0.0 <= high:
            zeros = room.zeros(whole if least != -_MINUS_ZERO else array)
        found.append((total_of(block, array), squares_of(array), low, high, zeros))
    return found


def _extremes(codes: np.ndarray, greatest: int, dtype: torch.dtype) -> tuple[float, float]:
    """Least and greatest by their bits: sign first, then magnitude; that of a NaN is beyond infinity.

    ``greatest``: the greatest code as a signed number, which is the greatest of those that are not negative.
    """
    largest = int(_greatest(codes))  # the negative of the largest magnitude, where there is a negative one
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
    """The sums of the distances from ``shift`` and of their squares."""
    drifts, squares = [], 0.0
    for block in blocks(flat):
        if block.dtype is torch.float32:
            distances = torch.sub(block, shift, out=room.floats(block.numel()))
        else:
            distances = block - shift
        drifts.append(float(distances.sum()))
        squares += squares_of(array_of(distances))
    return math.fsum(drifts), squares


@np.errstate(all="ignore")
def fine_squares(flat: Tensor) -> float:
    """The sum of the squares of flat float32 elements, to five digits."""
    array, squares = array_of(flat), 0.0
    for start in range(0, len(array), _FINE_DOT):
        part = array[start : start + _FINE_DOT]
        squares += float(part.dot(part))
    return squares


def merged(sums: list[Sums]) -> Sums:
    """The sums of several parts together."""
    totals, squares, lows, highs, zeros = zip(*sums)
    total = math.fsum(totals) if all(map(math.isfinite, totals)) else math.nan
    nan = next((extreme for extreme in (*lows, *highs) if extreme != extreme), None)
    return total, sum(squares), min(lows) if nan is None else nan, max(highs) if nan is None else nan, sum(zeros)
