"""256 elements spread over each tensor: enough to tell updates and gradients apart, at a thousandth of their cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fxdebug.capture.probe import special_tensors

SAMPLE = 256
ROWS, FEW = 256, 32  # examples of a batch, and elements of each


def sample(tensor: Tensor, most: int = SAMPLE) -> Tensor:
    """Return at most ``most`` elements of a tensor, evenly spread over it; a view where that is possible."""
    part = special_tensors.local_part(tensor)
    if part.layout is not torch.strided:
        part = part.detach()
        part = part.coalesce().values() if part.layout is torch.sparse_coo else part.to_dense()
    count = part.numel()
    if count > most and part.is_contiguous():  # one operation: there may be hundreds of tensors in each step
        return part.as_strided((most,), (count // most,)).detach()
    flat = part.detach().reshape(-1)
    return flat if count <= most else flat[:: count // most][:most]


def joined(samples: Sequence[Tensor]) -> Tensor:
    """Return samples as one vector, on the device of the first; complex numbers as pairs.

    It has their type, or one that holds each of their numbers as it is.

    >>> joined([torch.tensor([1.0, 2.0]), torch.tensor([3 + 4j])])
    tensor([1., 2., 3., 4.])
    """
    parts = [torch.view_as_real(one).reshape(-1) if one.is_complex() else one for one in samples]
    dtypes, device = {one.dtype for one in parts}, parts[0].device
    dtype = parts[0].dtype if len(dtypes) == 1 else torch.float64 if torch.float64 in dtypes else torch.float32
    if len(dtypes) > 1 or any(one.device != device for one in parts):
        parts = [one.to(device, dtype) for one in parts]
    return torch.cat(parts)


class Rows:
    """The rows of a matrix with a row for each of several samples, which ends in zeros where a sample is short.

    Norms and counts of all samples are then one operation each.

    >>> samples = [torch.tensor([3.0, 4.0]), torch.tensor([1.0])]
    >>> Rows(samples).of(joined(samples))
    tensor([[3., 4.],
            [1., 0.]])
    """

    def __init__(self, samples: Sequence[Tensor], width: int | None = None) -> None:
        self.counts = counts_of(samples)
        self.width = max(self.counts, default=0) if width is None else width
        whole = sum(self.counts)
        places = torch.full((len(self.counts), self.width), whole)  # of the zero behind all samples
        begin = 0
        for row, count in zip(places, self.counts):
            row[:count] = torch.arange(begin, begin + count)
            begin += count
        self._places = places.to(samples[0].device)

    def of(self, vector: Tensor) -> Tensor:
        """Return the rows of samples that :func:`joined` put together, as float32 unless they are float64."""
        padded = torch.cat([vector, vector.new_zeros(1)])[self._places]
        return padded if padded.dtype is torch.float64 else padded.float()


def counts_of(samples: Sequence[Tensor]) -> list[int]:
    """Return the number of elements of each sample; a complex one has two."""
    return [one.numel() * (2 if one.is_complex() else 1) for one in samples]


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Return eight letters that tell inputs apart."""
    found = hashlib.blake2b(digest_size=4)
    for one in tensors:
        with_data = sample(one)
        found.update(str(tuple(one.shape)).encode())
        found.update(with_data.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def rows_of(given: Tensor) -> list[int]:
    """Return numbers that tell the first examples of a batch apart, by a few of their elements.

    >>> x = torch.arange(12.0).reshape(4, 3)
    >>> rows_of(x[:2]) == rows_of(x)[:2], len(set(rows_of(x)))
    (True, 4)
    """
    if given.dim() < 2 or not given.numel():
        return []
    some = given.detach()[:ROWS].reshape(min(len(given), ROWS), -1)
    some = some[:, :: max(1, some.shape[1] // FEW)][:, :FEW].cpu().contiguous()
    return [hash(row.tobytes()) for row in some.view(torch.uint8).numpy()]


def short(number: float | None) -> float | None:
    """Return a number with four digits: lines of a training are kept short."""
    return None if number is None else float(f"{number:.4g}")
