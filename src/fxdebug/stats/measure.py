"""Measure a tensor: from its elements to :class:`~fxdebug.data.values.Stats`.

Call :func:`measure` with autograd and torch's modes switched off (``capture.torch_state.untracked`` does that).
Sums are accumulated in float64, over blocks summed in at least float32. Where the mean is large against the spread
they are taken relative to a shift: a sum of squares alone would give std 0 for N(5, 1e-3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fxdebug.data.values import Stats, fast_constructor
from fxdebug.native.dispatch import core, natively
from fxdebug.stats import accelerator
from fxdebug.stats.cpu_sums import (
    BLOCK,
    REAL,
    Sums,
    array_of,
    blocks,
    centred,
    fine_squares,
    is_freed,
    squares_of,
    sums_of,
    sums_of_piece,
)

_INTEGER = frozenset(
    (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint16, torch.uint32, torch.uint64,
    )
)  # fmt: skip


# The sixteen values of a 4-bit float (1 sign, 2 exponent, 1 mantissa bit), OCP Microscaling Formats 1.0, table 5.
_FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)

_quick_stats = fast_constructor(Stats)


class Unmeasurable(Exception):
    """No statistics can be taken of this tensor; the message says why."""


@natively("statistics", _quick_stats)
def measure(tensor: Tensor) -> Stats:
    """Count, mean, std, min, max, absmax and the numbers of NaN, ±Inf and zeros of any tensor.

    Dtypes: every real, integer, boolean and complex one, 8- and 4-bit floats, quantised. Layouts:
    strided, sparse (implicit zeros count as zeros) and nested (over the elements there are).
    Raises :class:`Unmeasurable` for tensors without data (meta, fake, freed) or of an unknown kind.

    The native core (where it is in use) measures plain dense tensors on the CPU in one pass, with sums in float64.
    Counts and extremes are equal both ways; means differ by at most 16 units in the last place of float32 of the mean
    magnitude, and standard deviations by a relative 5e-5, both from the sums that Python takes in float32.

    >>> measure(torch.tensor([1.0, 2.0, float("nan"), 0.0]))
    Stats(count=4, mean=1.0, std=1.0, min=0.0, max=2.0, absmax=2.0, nan=1, posinf=0, neginf=0, zeros=1)
    """
    if tensor.is_meta:
        raise Unmeasurable("a meta tensor has no data")
    if tensor.is_quantized or tensor.is_nested:
        tensor = elements_of(tensor)
    if tensor.layout is not torch.strided:
        return _sparse(tensor)
    if is_freed(tensor):
        raise Unmeasurable("its memory was given back")
    dtype = tensor.dtype
    if dtype in REAL:
        return _dense(tensor)
    if dtype in _INTEGER:
        return _integers(tensor)
    if dtype.is_complex:
        return _complex(tensor)
    if dtype.is_floating_point:
        return _dense(tensor)
    raise Unmeasurable(f"{dtype} has no arithmetic")


def elements_of(tensor: Tensor) -> Tensor:
    """Return the elements there are as a plain tensor: of a sparse one the written ones, of a nested one a single row.

    >>> elements_of(torch.eye(2).to_sparse()).tolist()
    [1.0, 1.0]
    """
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_nested:
        parts = [part.reshape(-1) for part in tensor.unbind()]
        return torch.cat(parts) if parts else tensor.values()
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def measure_piece(tensor: Tensor, address: int) -> Stats:
    """Measure a plain contiguous tensor at an address, for which ``is_one_piece`` holds; as :func:`measure` does."""
    return stats_of_sums(tensor, 1, sums_of_piece(tensor, address))


def measure_on_device(tensor: Tensor, batch: accelerator.DeviceBatch, on_stats: accelerator.OnStats) -> bool:
    """Add a dense tensor to its device's batch; ``on_stats`` is called when the batch is fetched.

    Returns ``False``, and adds nothing, for a tensor that is not dense and for dtypes without arithmetic.
    """
    dtype = tensor.dtype
    if tensor.is_quantized or tensor.is_nested or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if dtype.is_floating_point and tensor.numel():
        batch.add(*flat_of(tensor), on_stats)
        return True
    if dtype not in _INTEGER and not dtype.is_complex:
        return False
    flat, repeats = flat_of(tensor.resolve_conj())
    batch.add_unmeasured(
        flat, repeats, lambda host, many: on_stats(measure(host.expand(many, -1) if many > 1 else host))
    )
    return True


# Dense real tensors ------------------------------------------------------------------------------


def _dense(tensor: Tensor) -> Stats:
    flat, repeats = flat_of(tensor)
    if flat.numel() == 0:
        return Stats(0, None, None, None, None, None)
    if accelerator.is_off_cpu(flat):
        return accelerator.measure_now(flat, repeats)
    return stats_of_sums(flat, repeats, sums_of(flat))


def stats_of_sums(flat: Tensor, repeats: int, sums: Sums) -> Stats:
    """Return the statistics of contiguous elements from their sums; read them again where sums do not suffice."""
    plain = _finite(flat, sums)
    return _with_nonfinite(flat, repeats) if plain is None else _stats(flat.numel(), repeats, *plain)


def flat_of(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the elements in one dimension, in any order, and how often each occurs (as in expanded dimensions)."""
    repeats = 1
    if tensor.requires_grad:
        tensor = tensor.detach()
    if not tensor.is_contiguous() or tensor.is_neg():
        tensor, repeats = _gathered(tensor)
    flat = tensor if tensor.dim() == 1 and type(tensor) is Tensor else tensor.view(-1)
    if flat.dtype is getattr(torch, "float4_e2m1fn_x2", None):
        codes = flat.view(torch.uint8)
        codes = torch.stack([codes & 15, codes >> 4]).long()
        flat = torch.tensor(_FLOAT4, device=flat.device)[codes].view(-1)
    return flat, repeats


def _gathered(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a contiguous tensor of the elements in memory, in any order, and how often each occurs in the tensor."""
    repeats = 1
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if stride == 0 and size > 1:
            repeats *= size
            tensor = tensor.narrow(dim, 0, 1)
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_contiguous():
        return tensor, repeats
    if torch.ops.aten.is_non_overlapping_and_dense(tensor):
        return tensor.as_strided((tensor.numel(),), (1,)), repeats
    if tensor.element_size() == 1:  # torch 2.8 cannot copy a float4
        return tensor.view(torch.uint8).contiguous().view(tensor.dtype), repeats
    return tensor.contiguous(), repeats


_Plain = tuple[float, float, float, float, float, int]


def _finite(flat: Tensor, sums: Sums) -> _Plain | None:
    """Return (mean, root of the squared deviations, its unit, min, max, zeros); ``None`` if an element is not finite.

    Where the spread is much smaller than the mean, the sums are taken again relative to a shift. Where squares would
    leave float32's range, they are taken again in float64.
    """
    count = flat.numel()
    total, squares, low, high, zeros = sums
    if not (-math.inf < low and high < math.inf):  # false for NaN as well
        return None
    if not (-math.inf < total < math.inf and squares < math.inf) or (0.0 < max(-low, high) < 1e-18):
        return _wide(flat.view(-1), low, high, zeros)
    deviation = squares - total * total / count
    if deviation < 0.2 * squares:  # cancellation would eat the digits float32 has
        if not 1e-11 < max(-low, high) < 1e18:  # the square of a spread 1e-7 as large may be no float32
            return _wide(flat.view(-1), low, high, zeros)
        shift = total / count
        if flat.dtype is not torch.float64:
            shift = float(np.float32(shift))  # the shift that ``centred`` subtracts from float32
        drift, squares = centred(flat.view(-1), shift)
        deviation = max(squares - drift * drift / count, 0.0)
        total = shift * count + drift
    return total / count, math.sqrt(deviation), 1.0, low, high, zeros


def _wide(flat: Tensor, low: float, high: float, zeros: int) -> _Plain:
    """Take the sums in float64, scaled by the largest magnitude: right for 1e30 and 1e-30."""
    scale = max(-low, high)
    count = flat.numel()
    mean = sum([float((block.to(torch.float64) / scale).sum()) for block in blocks(flat)]) / count
    drift = squares = 0.0
    for block in blocks(flat):
        distances = block.to(torch.float64) / scale - mean
        drift += float(distances.sum())
        squares += float(torch.dot(distances, distances))
    deviation = max(squares - drift * drift / count, 0.0)
    return (mean + drift / count) * scale, math.sqrt(deviation), scale, low, high, zeros


def _with_nonfinite(flat: Tensor, repeats: int) -> Stats:
    """Count NaN and infinities, and measure the rest as if they were not there."""
    if flat.dtype not in REAL:
        flat = flat.to(torch.float32)
    finite = flat[torch.isfinite(flat)]
    nan = int(torch.isnan(flat).sum())
    posinf = int((flat == math.inf).sum())
    neginf = int((flat == -math.inf).sum())
    counts = nan * repeats, posinf * repeats, neginf * repeats
    plain = _finite(finite, sums_of(finite)) if len(finite) else None
    if plain is None:
        return Stats(flat.numel() * repeats, None, None, None, None, None, *counts)
    rest = _stats(len(finite), repeats, *plain)
    return replace(rest, count=flat.numel() * repeats, nan=counts[0], posinf=counts[1], neginf=counts[2])


def _stats(
    count: int, repeats: int, mean: float, root: float, unit: float, low: float, high: float, zeros: int
) -> Stats:
    mean = min(max(mean, low), high)  # rounding must not push the mean of equal elements away from them
    many = count * repeats
    std = root / math.sqrt((many - 1) / repeats) * unit if many > 1 else 0.0  # no squares: those of 1e200 are infinite
    absmax = max(0.0, -low, high)  # in this order: the negative of a zero minimum is -0.0
    return _quick_stats(many, mean, std, low, high, absmax, 0, 0, 0, zeros * repeats)


def sums_are_wide() -> bool:
    """Are the sums of a plain dense tensor of floats taken in float64, by the native core?"""
    return core() is not None


def fine_std(tensor: Tensor, known: Stats) -> float | None:
    """Return the std of a float32 CPU tensor, right to five digits; ``known`` are its statistics, all finite.

    ``None`` where the last digits depend on the method: with a mean larger than the spread, and with magnitudes whose
    square is no float32.

    >>> x = torch.tensor([-1.0, 1.0])
    >>> fine_std(x, measure(x))
    1.4142135623730951
    """
    flat, repeats = flat_of(tensor)
    count = flat.numel()
    if count < 2 or repeats != 1 or not isinstance(known.mean, float):
        return None
    squares = fine_squares(flat)
    deviation = squares - known.mean * known.mean * count
    if not 1e-30 < squares / count < 1e30 or not deviation > 0.5 * squares:
        return None
    return math.sqrt(deviation / (count - 1))


# The other kinds ---------------------------------------------------------------------------------


def _integers(tensor: Tensor) -> Stats:
    flat, repeats = flat_of(tensor)
    count = flat.numel()
    if count == 0:
        return Stats(0, None, None, None, None, None)
    if count <= _FEW:
        return _few_integers(list(map(int, flat.tolist())), repeats)
    array = array_of(flat.cpu() if accelerator.is_off_cpu(flat) else flat)
    low, high = int(array.min()), int(array.max())
    zeros = count - int(np.count_nonzero(array))
    base = low if max(-low, high) > 2**53 else 0  # float64 would round them: distances from the least are exact
    if base:
        array = array.astype(np.uint64) - np.uint64(base % 2**64)
    total = _sum(array, high - base if base else max(-low, high))
    mean = (base * count + total) / count
    distances = array.astype(np.float64)
    distances -= total / count
    deviation = squares_of(distances)
    many = count * repeats
    std = math.sqrt(deviation * repeats / (many - 1)) if many > 1 else 0.0
    return Stats(many, mean, std, low, high, max(-low, high, 0), 0, 0, 0, zeros * repeats)


_FEW = 64  # up to this many integers Python is faster than numpy


def _few_integers(numbers: list[int], repeats: int) -> Stats:
    """Measure with Python's integers: all is exact but the deviations."""
    count, total = len(numbers), sum(numbers)
    low, high, many = min(numbers), max(numbers), count * repeats
    deviations = [(number * count - total) / count for number in numbers]
    deviation = sum([each * each for each in deviations])
    std = math.sqrt(deviation * repeats / (many - 1)) if many > 1 else 0.0
    zeros = numbers.count(0) * repeats
    return _quick_stats(many, total / count, std, low, high, max(-low, high, 0), 0, 0, 0, zeros)


def _sum(array: np.ndarray, largest: int) -> int:
    """Return the exact sum of integers up to ``largest`` in size, by two halves where 64 bits could overflow."""
    if largest < 2**62 // len(array):
        return int(array.sum(dtype=np.int64))
    half, lower = array.dtype.type(32), array.dtype.type(2**32 - 1)
    return (int((array >> half).sum()) << 32) + int((array & lower).sum())


def _complex(tensor: Tensor) -> Stats:
    """Measure block by block: the wide numbers of a whole tensor would take several times its memory."""
    if tensor.is_conj():
        stats = _complex(tensor.conj())  # of the numbers in memory
        return stats if stats.mean is None else replace(stats, mean=complex(stats.mean).conjugate())
    flat, repeats = flat_of(tensor)
    if accelerator.is_off_cpu(flat):
        flat = flat.cpu()
    nan = infinite = zeros = 0
    absmax = 0.0
    for block in flat.split(BLOCK):
        wide = block.to(torch.complex128)
        is_nan = torch.isnan(wide)
        is_infinite = torch.isinf(wide) & ~is_nan
        nan, infinite, zeros = (
            nan + int(is_nan.sum()),
            infinite + int(is_infinite.sum()),
            zeros + int((wide == 0).sum()),
        )
        finite = wide[~(is_nan | is_infinite)]
        absmax = max(absmax, float(finite.abs().max())) if finite.numel() else absmax
    many, count = flat.numel() * repeats, flat.numel() - nan - infinite
    if count == 0:
        return Stats(many, None, None, None, None, None, nan * repeats, infinite * repeats)
    is_extreme = 0.0 < absmax < 1e-100 or 1e100 < absmax < math.inf  # its square is no float64
    scale = absmax if is_extreme else 1.0
    mean = sum([complex(block.sum()) for block in _finite_blocks(flat, scale)], 0j) / count
    squares = math.fsum([float(((block - mean).abs() ** 2).sum()) for block in _finite_blocks(flat, scale)])
    std = math.sqrt(squares) * scale * math.sqrt(repeats / (count * repeats - 1)) if count * repeats > 1 else 0.0
    return Stats(
        many, mean * scale, std, None, None, absmax, nan * repeats, infinite * repeats, 0, zeros * repeats
    )  # fmt: skip


def _finite_blocks(flat: Tensor, scale: float) -> Iterator[Tensor]:
    """Yield the finite numbers of a complex tensor in double precision, divided by ``scale``."""
    for block in flat.split(BLOCK):
        wide = block.to(torch.complex128)
        if scale != 1.0:
            wide = torch.view_as_complex(torch.view_as_real(wide) / scale)
        finite = torch.isfinite(wide)
        yield wide if bool(finite.all()) else wide[finite]


def _sparse(tensor: Tensor) -> Stats:
    if tensor.layout is torch.sparse_coo:
        stored = tensor.coalesce().values()
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        stored = tensor.values()
    else:
        return measure(tensor.to_dense())
    stats = measure(stored)
    return _with_zeros(stats, math.prod(tensor.shape) - stats.count)


def _with_zeros(stats: Stats, implicit: int) -> Stats:
    """Return the statistics after adding ``implicit`` zeros (Chan's update of mean and deviation)."""
    if implicit <= 0:
        return stats
    finite = stats.finite
    if finite == 0:
        return Stats(stats.count + implicit, 0.0, 0.0, 0.0, 0.0, 0.0, stats.nan, stats.posinf, stats.neginf, implicit)
    assert stats.mean is not None and stats.std is not None and stats.absmax is not None
    total = finite + implicit
    mean = stats.mean * (finite / total)
    spread = stats.std * math.sqrt(finite - 1), abs(stats.mean) * math.sqrt(finite * implicit / total)
    low = None if stats.min is None else min(stats.min, type(stats.min)(0))
    high = None if stats.max is None else max(stats.max, type(stats.max)(0))
    return Stats(
        stats.count + implicit,
        mean,
        math.hypot(*spread) / math.sqrt(total - 1),
        low,
        high,
        stats.absmax,
        stats.nan,
        stats.posinf,
        stats.neginf,
        stats.zeros + implicit,
    )
