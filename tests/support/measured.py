"""Tensors of every dtype and layout, and their statistics by exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from fxdebug.data.values import Stats

FLOATS = [
    getattr(torch, name)
    for name in (
        "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
        "float8_e5m2fnuz", "float8_e8m0fnu",
    )
    if hasattr(torch, name)  # float8_e8m0fnu: from torch 2.7 on
]  # fmt: skip
INTEGERS = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64,
]  # fmt: skip
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]


# The exact answer --------------------------------------------------------------------------------


def exact(elements: list[Any]) -> Stats:
    """The statistics of numbers that Python knows exactly, rounded once at the end."""
    finite = [x for x in elements if not (isinstance(x, float) and not math.isfinite(x))]
    nan = sum(1 for x in elements if x != x)
    counts = (nan, elements.count(math.inf), elements.count(-math.inf), sum(1 for x in elements if x == 0))
    if not finite:
        return Stats(len(elements), None, None, None, None, None, *counts)
    numbers = [Fraction(x) for x in finite]
    mean = sum(numbers) / len(numbers)
    squares = sum((x - mean) ** 2 for x in numbers)
    std = root(squares / (len(numbers) - 1)) if len(numbers) > 1 else 0.0
    low, high = min(finite), max(finite)
    return Stats(len(elements), as_float(mean), std, low, high, max(abs(low), abs(high)), *counts)


def as_float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.copysign(math.inf, x)


def root(x: Fraction) -> float:
    """The square root of a fraction whose value may lie outside float64's range."""
    if x == 0:
        return 0.0
    shift = (x.numerator.bit_length() - x.denominator.bit_length()) // 2
    scale = Fraction(2) ** shift
    return as_float(Fraction(math.sqrt(x / scale**2)) * scale)


TINIEST = math.ulp(0.0)  # between this and zero there is nothing: half of it may be either


def assert_close(ours: Stats, true: Stats, eps: float) -> None:
    """``eps`` is the precision that sums are made in: float32's for narrow floats, float64's else.

    - Counts and extremes are exact.
    - A sum of n numbers made in blocks, each summed pairwise, is off by at most log2(n) eps times the sum of
      magnitudes; 16 covers the blocks in use.
    - Squares are added up by a dot product, in some 64 running sums of 1024 numbers: 512 eps where every
      addition rounds the same way, half of that in the root. The shift taken off where the mean is large is a
      number of that precision, so that a spread far below one unit in the last place (a single element that
      differs) keeps fewer digits: a 16th of a unit.
    """
    for name in ("count", "min", "max", "absmax", "nan", "posinf", "neginf", "zeros"):
        assert getattr(ours, name) == getattr(true, name), name
        assert isinstance(getattr(ours, name), type(getattr(true, name))), name
    if true.mean is None:
        assert ours.mean is ours.std is None
        return
    assert abs(ours.mean - true.mean) <= 16 * eps * true.absmax, (ours.mean, true.mean)
    assert float(ours.min) <= ours.mean <= float(ours.max)
    if math.isinf(true.std):
        assert ours.std > 1e308  # the deviation of numbers near the end of float64 is beyond it
    else:
        assert abs(ours.std - true.std) <= 256 * eps * true.std + eps * true.absmax / 16 + TINIEST, (ours.std, true.std)


def precision(dtype: torch.dtype) -> float:
    return 2.0**-52 if dtype not in FLOATS or dtype is torch.float64 else 2.0**-23


# Any dtype, any layout ---------------------------------------------------------------------------

ODD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    5.0,
    5.001,
    1e30,
    -1e30,
    1e-30,
    1e-42,
    3e38,
    65504.0,
    448.0,
    1e-8,
    math.nan,
    math.inf,
    -math.inf,
]


def elements_of(dtype: torch.dtype) -> st.SearchStrategy[Any]:
    if dtype is torch.bool:
        return st.booleans()
    if dtype in INTEGERS:
        info = torch.iinfo(dtype)
        edge = [info.min, info.min + 1, info.max, info.max - 1, 0]
        return st.one_of(st.integers(info.min, info.max), st.integers(0, 9), st.sampled_from(edge))
    if dtype is torch.float64:
        return st.one_of(st.floats(), st.sampled_from([*ODD, 1e200, -1e200, 1e-200, 5e-324, 1.7e308]))
    return st.one_of(st.floats(width=32), st.floats(-10, 10, width=32), st.sampled_from(ODD))


@st.composite
def tensors(draw: st.DrawFn, dtypes: list[torch.dtype]) -> torch.Tensor:
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    count = math.prod(shape)
    one = elements_of(dtype)
    kind = draw(st.sampled_from(["any", "alike"]))
    elements = draw(st.lists(one, min_size=count, max_size=count)) if kind == "any" else [draw(one)] * count
    wide = torch.tensor(elements, dtype=torch.float64 if dtype in FLOATS else dtype)
    return draw(st.sampled_from(LAYOUTS))(wide.to(dtype).reshape(shape))


def every_other(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[::2] if tensor.dim() else tensor


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.unsqueeze(0).expand(4, *tensor.shape)


def expanded_inside(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.unsqueeze(-1).expand(*tensor.shape, 3).transpose(0, -1)


def overlapping(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return flat.as_strided((len(flat) - 1, 2), (1, 1)) if len(flat) > 1 else flat


def permuted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.permute(tuple(reversed(range(tensor.dim()))))


def inside_a_larger_storage(tensor: torch.Tensor) -> torch.Tensor:
    outer = tensor.new_zeros((3, *tensor.shape))
    outer[1] = tensor
    return outer[1]


LAYOUTS = [
    lambda t: t, permuted, every_other, expanded, expanded_inside, overlapping, inside_a_larger_storage,
    lambda t: expanded(every_other(permuted(t))),
]  # fmt: skip


def listed(tensor: torch.Tensor) -> list[Any]:
    """The elements as Python numbers; float64 holds those of every float dtype exactly."""
    return (tensor.to(torch.float64) if tensor.dtype in FLOATS else tensor).flatten().tolist()


SHAPES_OF_DATA = {
    "standard normal": lambda r, n: r.standard_normal(n),
    "N(5, 1e-3)": lambda r, n: 5 + 1e-3 * r.standard_normal(n),
    "N(-3000, 1)": lambda r, n: -3000 + r.standard_normal(n),
    "1e30": lambda r, n: 1e30 * r.standard_normal(n),
    "1e-30": lambda r, n: 1e-30 * r.standard_normal(n),
    "1e-30 with a mean": lambda r, n: 1e-30 * (4 + 1e-2 * r.standard_normal(n)),
    "1e-17 ± 1e-22": lambda r, n: 1e-17 + 1e-22 * r.standard_normal(n),
    "1e19 ± 1e15": lambda r, n: 1e19 + 1e15 * r.standard_normal(n),
    "all alike": lambda r, n: np.full(n, 0.1),
    "one larger than all": lambda r, n: np.where(np.arange(n) == n // 2, 1e6, r.random(n)),
    "ReLU": lambda r, n: np.maximum(r.standard_normal(n), 0),
    "sorted": lambda r, n: np.sort(r.standard_normal(n)),
}
