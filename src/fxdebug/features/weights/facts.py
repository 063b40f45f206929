"""Facts about one weight of a layer, and about its change from one checkpoint to another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from fxdebug.data.measured.histograms import Histogram
from fxdebug.features.weights.record import WeightChange, WeightFacts
from fxdebug.features.weights.spectrum import spectrum
from fxdebug.stats.histogram import distribution_of, histogram
from fxdebug.stats.measure import Unmeasurable, measure

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_TABLES = (nn.Embedding, nn.EmbeddingBag)
SMALLEST, FAR_BELOW, HIGHEST = 16, 4, 64  # rows, and the rank of an adapter as a part of them, and at most
NOTHING = 1e-3  # of the largest singular value: rounding of the sum
_ROWS, _UNEVEN = 16, 4.0  # rows and their elements, and times the variance of chance
_LEAST, _ORDERED = 100, 6.0  # neighbours, and the standard errors of their correlation


def facts_of(
    names: Sequence[str], weight: Tensor, layer: nn.Module, kind: str, *, spectra: bool = True
) -> WeightFacts | None:
    """Return the facts about a weight of a layer, ``None`` for one that has no data (meta) or no arithmetic.

    ``names`` are all its names in the model, ``kind`` is ``parameter`` or ``buffer``. ``spectra=False`` leaves out the
    singular values, which take most of the time.
    """
    try:
        stats = measure(weight.detach())
    except Unmeasurable:
        return None
    name = names[0].rpartition(".")[2]
    real = weight.layout is torch.strided and weight.dtype.is_floating_point and not weight.is_quantized
    matrix = as_matrix(layer, name, weight.detach()) if real else None
    fan_in, fan_out = (None, None) if matrix is None else _fans(layer, weight)
    outputs: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    if matrix is not None and stats.zeros != stats.count and not isinstance(layer, _TABLES) and _has_units(matrix):
        outputs, inputs = _zero_rows(matrix), _zero_rows(matrix.T)
    return WeightFacts(
        names=tuple(names),
        path=names[0].rpartition(".")[0],
        type=type(layer).__name__,
        kind=kind,
        shape=tuple(weight.shape),
        dtype=str(weight.dtype)[6:],
        requires_grad=weight.requires_grad,
        stats=stats,
        histogram=histogram(weight) if real else Histogram((), ()),
        distribution=distribution_of(weight) if real else "other",
        spectrum=spectrum(matrix) if spectra and matrix is not None else None,
        fan_in=fan_in,
        fan_out=fan_out,
        zero_outputs=outputs,
        zero_inputs=inputs,
        ordered=matrix is not None and (_is_ordered(matrix) or _is_uneven(matrix)),
    )


def as_matrix(layer: nn.Module, name: str, weight: Tensor) -> Tensor | None:
    """Return a weight with a row for each output unit, ``None`` for one that is no matrix.

    Convolutions have a row for each output channel, transposed ones too; ``Conv1D`` of transformers keeps its weight
    with a column for each output. What a weight is computed of (a parametrization, norms of ``weight_norm``) is none.
    """
    if isinstance(layer, ParametrizationList) or name == "weight_g":
        return None
    if weight.ndim < 2 or not weight.numel():
        return None
    if isinstance(layer, _TRANSPOSED) and name == "weight":
        split = weight.reshape(layer.groups, weight.shape[0] // layer.groups, *weight.shape[1:])
        return split.transpose(1, 2).reshape(layer.groups * weight.shape[1], -1)
    if weight.ndim == 2 and _is_conv1d_of_transformers(layer):
        return weight.T
    if weight.ndim == 2 or isinstance(layer, _CONVOLUTIONS):
        return weight.reshape(weight.shape[0], -1)
    return None


def _is_conv1d_of_transformers(layer: nn.Module) -> bool:
    names = [(base.__module__.partition(".")[0], base.__name__) for base in type(layer).__mro__]
    return ("transformers", "Conv1D") in names


def _fans(layer: nn.Module, weight: Tensor) -> tuple[int, int]:
    """Return the connections into and out of a unit, as ``torch.nn.init`` counts them."""
    receptive = weight[0][0].numel() if weight.ndim > 2 else 1
    outputs, inputs = weight.shape[0] * receptive, weight.shape[1] * receptive
    return (outputs, inputs) if weight.ndim == 2 and _is_conv1d_of_transformers(layer) else (inputs, outputs)


def _has_units(matrix: Tensor) -> bool:
    """Do rows differ? A table that repeats one row, such as the decays of a state space model, has no units."""
    return len(matrix) < 2 or not bool((matrix == matrix[:1]).all())


def _is_uneven(matrix: Tensor) -> bool:
    """Are rows of several sizes, beyond chance, as of parts that were put together? Rows of zeros aside.

    The logarithm of the variance of n numbers varies by (kurtosis - 1) / n.
    """
    x = matrix.cpu().to(torch.float32)
    x = x[(x != 0).any(1)]
    count = x.shape[1]
    if len(x) < _ROWS or count < _ROWS or not bool(x.isfinite().all()):
        return False
    variances = x.var(1)
    if not bool((variances > 0).all()):
        return False
    standard = (x - x.mean(1, keepdim=True)) / variances.sqrt()[:, None]
    expected = (float(standard.pow(4).mean()) - 1) / count
    return float(variances.log().var()) > _UNEVEN * expected


def _is_ordered(matrix: Tensor) -> bool:
    """Do neighbours in rows or columns correlate by more than 6 standard errors, 1/√n each?"""
    x = matrix.cpu().to(torch.float32)
    x = x - x.mean()
    whole = float(x.square().sum())
    if not 0.0 < whole < math.inf:
        return False
    for before, after in ((x[:, :-1], x[:, 1:]), (x[:-1], x[1:])):
        if before.numel() >= _LEAST and abs(float((before * after).sum())) > _ORDERED * whole / math.sqrt(x.numel()):
            return True
    return False


def _zero_rows(matrix: Tensor) -> tuple[int, ...]:
    rows: list[int] = (matrix == 0).all(dim=1).nonzero().reshape(-1).tolist()
    return tuple(rows)


def change_of(name: str, a: Tensor | None, b: Tensor | None) -> WeightChange:
    """Return the difference of a weight in two checkpoints, in float64; elements that are NaN in both are equal."""
    change = WeightChange(name, _shape(a), _shape(b), _dtype(a), _dtype(b))
    if a is None or b is None or a.shape != b.shape:
        return change
    first = second = inner = squares = largest = 0.0
    differing = 0
    for part_a, part_b in zip(a.reshape(-1).split(1 << 20), b.reshape(-1).split(1 << 20)):
        x, y = part_a.cpu().to(_wide(part_a)), part_b.cpu().to(_wide(part_b))
        unequal = (x != y) & ~(x.isnan() & y.isnan())
        gap = torch.where(unequal, (y - x).abs(), 0.0)
        differing += int(unequal.sum())
        first += float((x.abs() ** 2).sum())
        second += float((y.abs() ** 2).sum())
        inner += float((x * y.conj()).real.sum() if x.is_complex() else (x * y).sum())
        squares += float((gap**2).sum())
        largest = max(largest, float(gap.max())) if gap.numel() else largest
    norms = (first * second) ** 0.5
    return WeightChange(
        name, _shape(a), _shape(b), _dtype(a), _dtype(b),
        norm=first**0.5, norm_b=second**0.5, change=squares**0.5, largest=largest,
        cosine=inner / norms if norms else None, differing=differing,
    )  # fmt: skip


def rank_of_change(a: Tensor, b: Tensor) -> int | None:
    """Return the rank of what was added to a matrix, where it is far below that of a matrix of its size; else ``None``.

    >>> one = torch.randn(32, 40, generator=torch.Generator().manual_seed(0))
    >>> rank_of_change(one, one + one[:, :3] @ one[:3]), rank_of_change(one, one * 0.5)
    (3, None)
    """
    if a.ndim != 2 or a.shape != b.shape or not a.is_floating_point() or min(a.shape) < SMALLEST:
        return None
    most = min(min(a.shape) // FAR_BELOW, HIGHEST)
    change = b.detach().double().cpu() - a.detach().double().cpu()
    probes = torch.randn(change.shape[1], most + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sizes = torch.linalg.svdvals(change @ probes) if bool(change.isfinite().all()) else change.new_zeros(1)
    rank = int((sizes > NOTHING * sizes[0]).sum())
    return rank if 0 < rank <= most else None


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _shape(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)


def _dtype(tensor: Tensor | None) -> str | None:
    return None if tensor is None else str(tensor.dtype)[6:]
