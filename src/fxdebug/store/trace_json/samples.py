"""Samples: a few elements of every value at fixed positions, enough to notice that elements were rearranged.

Statistics are the same for a tensor and its transpose; elements at fixed positions are not. They are kept exactly as
the dtype has them, and written in the fewest digits that are read as the same number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug.data.values import Value, canonical_nan, sample_positions
from fxdebug.errors import LoadError
from fxdebug.files.schema import Where, damage
from fxdebug.store.tensors.saved_data import SavedData
from fxdebug.store.transformers.printed_statistics import DTYPES_WITH_STATISTICS, PrintedStats, round_to_dtype

if TYPE_CHECKING:
    from torch import Tensor

Rows = Mapping[int, Sequence[float]]  # by the number of the value

DENSIFY_ELEMENTS = 1 << 20  # a sparse tensor with more elements is not sampled, as that needs a dense copy


class Samples:
    """The data of a run with ``values="samples"``: take samples of each new value, also inside calls."""

    lasting = True  # it holds nothing live, so a pickled trace takes it along
    everything = True

    def __init__(self) -> None:
        self.samples: dict[int, Sequence[float]] = {}

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        sample = None if body is None else sample_tensor(body)
        if sample is not None:
            self.samples[value.number] = sample

    def sample(self, value: Value) -> Sequence[float] | None:
        """Return the elements of a value at :func:`fxdebug.data.values.sample_positions`."""
        return self.samples.get(value.number)

    def lines(self, value: Value) -> list[str] | None:
        """Return ``None``: nothing was printed."""
        return None

    def printed(self, value: Value) -> PrintedStats | None:
        """Return ``None``: nothing was printed."""
        return None

    def tensor(self, value: Value) -> Tensor:
        """Raise :class:`LoadError`: whole tensors were not kept."""
        raise LoadError(f"only samples of value {value.number} ({value.label}) were kept: run with values='tensors'")


class SavedSamples(SavedData):
    """The data of a saved run with samples."""

    def __init__(self, folder: Path, samples: Rows) -> None:
        super().__init__(folder)
        self.samples = samples

    def sample(self, value: Value) -> Sequence[float] | None:
        """Return the elements of a value at :func:`fxdebug.data.values.sample_positions`."""
        return self.samples.get(value.number)


# Taking samples ----------------------------------------------------------------------------------


def sample_tensor(tensor: Tensor) -> list[float] | None:
    """Return elements of a tensor at fixed positions in its logical order, as Python numbers.

    A complex element is given by its magnitude. ``None`` for meta tensors, nested ones, packed 4-bit floats and large
    sparse ones.

    >>> import torch
    >>> sample_tensor(torch.arange(3.0)), sample_tensor(torch.eye(2).bool())
    ([0.0, 1.0, 2.0], [1, 0, 0, 1])
    """
    import torch

    if tensor.is_meta or tensor.is_nested or tensor.dtype is getattr(torch, "float4_e2m1fn_x2", None):
        return None
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        if tensor.numel() > DENSIFY_ELEMENTS:
            return None
        tensor = tensor.to_dense()
    places = _sample_indices(tuple(tensor.shape))
    if tensor.numel() and tensor.dim():
        dtype = tensor.dtype
        if dtype.is_floating_point and tensor.element_size() == 1:  # torch 2.8 cannot index floats of 8 bits
            tensor = tensor.view(torch.uint8)
        tensor = tensor[tuple([torch.tensor(indices_of_dim, device=tensor.device) for indices_of_dim in places])]
        tensor = tensor.view(dtype)
    return _to_numbers(tensor.reshape(-1))


@functools.lru_cache(maxsize=4096)
def _sample_indices(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the sample positions of a shape, as a tuple of indices for each dimension."""
    indices = []
    for position in sample_positions(math.prod(shape)):
        index = []
        for size in reversed(shape):
            position, rest = divmod(position, size)
            index.append(rest)
        indices.append(tuple(reversed(index)))
    return tuple(zip(*indices))


def _to_numbers(elements: Tensor) -> list[float]:
    import torch

    if elements.dtype.is_complex:
        elements = elements.to(torch.complex128).abs()
    if elements.dtype is torch.bool:
        elements = elements.to(torch.uint8)
    if not elements.dtype.is_floating_point:
        return list(elements.tolist())
    return list(
        map(canonical_nan, elements.cpu().to(torch.float32 if elements.element_size() < 4 else torch.float64).tolist())
    )


# Samples as JSON ---------------------------------------------------------------------------------


def shortest_decimal(number: float, dtype: str) -> float:
    """Return the decimal number with the fewest digits that rounds to ``number`` in ``dtype``.

    >>> shortest_decimal(0.10000000149011612, "float32"), shortest_decimal(0.10009765625, "bfloat16")
    (0.1, 0.1)
    """
    if dtype not in DTYPES_WITH_STATISTICS or not math.isfinite(number):
        return number
    for digits in range(2 if dtype == "bfloat16" else 4, 9):
        short = float(f"{number:.{digits}g}")
        if round_to_dtype(short, dtype) == number:
            return short
    return float(f"{number:.9g}") if round_to_dtype(float(f"{number:.9g}"), dtype) == number else number


def to_json(numbers: Sequence[float], dtype: str) -> list[Any]:
    """Return samples as JSON; NaN and infinities as text."""
    short = [shortest_decimal(number, dtype) for number in numbers]
    return [number if math.isfinite(number) else repr(number) for number in short]


def elements(cells: Sequence[Any], where: Where) -> Sequence[Any]:
    """Read the elements of samples, each a number or the text of one that JSON has no number for."""
    for place, cell in enumerate(cells):
        if type(cell) is str:
            if cell not in ("nan", "inf", "-inf"):
                raise damage(where(place), cell, "a number")
        elif type(cell) not in (int, float) or not -_LARGEST <= cell <= _LARGEST:
            raise damage(where(place), cell, "a number")
    return cells


_LARGEST = 1.7976931348623157e308


def from_json(coded: Sequence[Any], dtype: str) -> list[float]:
    """Return the samples from the JSON of :func:`to_json`."""
    numbers: list[float] = []
    for number in coded:
        if isinstance(number, str):
            numbers.append(canonical_nan(float(number)))
        else:
            numbers.append(round_to_dtype(number, dtype) if dtype in DTYPES_WITH_STATISTICS else number)
    return numbers
