"""A few elements of every value at fixed positions: too few to be large, enough to notice that they were rearranged.

Statistics are the same for a tensor and its transpose; elements at given places are not. They are kept exactly as
the dtype has them, and written in the fewest digits that lead back to the same number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxdebug.data.values import Value, sample_positions, settled
from fxdebug.errors import LoadError
from fxdebug.store.tensors.saved_values import Saved, Words
from fxdebug.store.transformers.printed_statistics import MEASURED, rounded

if TYPE_CHECKING:
    from torch import Tensor

Rows = Mapping[int, Sequence[float]]  # by the number of the value

DENSE = 1 << 20  # elements up to which a sparse tensor is written out to be sampled


class Samples:
    """Takes elements of each new value of a run while it is at hand, of values inside bodies too."""

    lasting = True  # it holds nothing live, so a trace that is pickled takes it along
    everything = True

    def __init__(self) -> None:
        self.samples: dict[int, Sequence[float]] = {}

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        found = None if body is None else sampled(body)
        if found is not None:
            self.samples[value.number] = found

    def sample(self, value: Value) -> Sequence[float] | None:
        """The elements of a value at :func:`fxdebug.data.values.sample_positions`."""
        return self.samples.get(value.number)

    def lines(self, value: Value) -> list[str] | None:
        """Nothing was printed."""
        return None

    def printed(self, value: Value) -> Words | None:
        """Nothing was printed."""
        return None

    def tensor(self, value: Value) -> Tensor:
        """The rest of the data was not kept."""
        raise LoadError(f"only samples of value {value.number} ({value.label}) were kept: run with values='tensors'")


class SavedSamples(Saved):
    """A saved run with samples."""

    def __init__(self, folder: Path, samples: Rows) -> None:
        super().__init__(folder)
        self.samples = samples

    def sample(self, value: Value) -> Sequence[float] | None:
        """The elements of a value at :func:`fxdebug.data.values.sample_positions`."""
        return self.samples.get(value.number)


# Taking them -------------------------------------------------------------------------------------


def sampled(tensor: Tensor) -> list[float] | None:
    """Elements of a tensor at fixed positions in its own order, as Python numbers; of complex ones the magnitude.

    ``None`` for what has no elements to point at: meta, nested, packed 4-bit floats, large sparse tensors.

    >>> import torch
    >>> sampled(torch.arange(3.0)), sampled(torch.eye(2).bool())
    ([0.0, 1.0, 2.0], [1, 0, 0, 1])
    """
    import torch

    if tensor.is_meta or tensor.is_nested or tensor.dtype is getattr(torch, "float4_e2m1fn_x2", None):
        return None
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        if tensor.numel() > DENSE:
            return None
        tensor = tensor.to_dense()
    places = _places(tuple(tensor.shape))
    if tensor.numel() and tensor.dim():
        tensor = tensor[tuple([torch.tensor(place, device=tensor.device) for place in places])]
    return _numbers(tensor.reshape(-1))


@functools.lru_cache(maxsize=4096)
def _places(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The positions as one index for each dimension."""
    found = []
    for position in sample_positions(math.prod(shape)):
        index = []
        for size in reversed(shape):
            position, rest = divmod(position, size)
            index.append(rest)
        found.append(tuple(reversed(index)))
    return tuple(zip(*found))


def _numbers(picked: Tensor) -> list[float]:
    import torch

    if picked.dtype.is_complex:
        picked = picked.to(torch.complex128).abs()
    if picked.dtype is torch.bool:
        picked = picked.to(torch.uint8)
    if not picked.dtype.is_floating_point:
        return list(picked.tolist())
    return list(map(settled, picked.to(torch.float32 if picked.element_size() < 4 else torch.float64).tolist()))


# Writing them ------------------------------------------------------------------------------------


def shortest(number: float, dtype: str) -> float:
    """The number with the fewest digits that is the same one in ``dtype``.

    >>> shortest(0.10000000149011612, "float32"), shortest(0.10009765625, "bfloat16")
    (0.1, 0.1)
    """
    if dtype not in MEASURED or not math.isfinite(number):
        return number
    for digits in range(2 if dtype == "bfloat16" else 4, 9):
        short = float(f"{number:.{digits}g}")
        if rounded(short, dtype) == number:
            return short
    return float(f"{number:.9g}") if rounded(float(f"{number:.9g}"), dtype) == number else number


def to_json(numbers: Sequence[float], dtype: str) -> list[Any]:
    """Numbers as JSON has them; NaN and infinities as text."""
    short = [shortest(number, dtype) for number in numbers]
    return [number if math.isfinite(number) else repr(number) for number in short]


def from_json(coded: Sequence[Any], dtype: str) -> list[float]:
    """The same numbers again."""
    found: list[float] = []
    for number in coded:
        if isinstance(number, str):
            found.append(settled(float(number)))
        else:
            found.append(rounded(number, dtype) if dtype in MEASURED else number)
    return found
