"""Numbers per unit of an activation, gathered over batches: how large, how often 0, how far below 0 its input stays."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fxdebug.features.shared.records.units import Units
from fxdebug.stats.elements import is_dense

LARGE = 6.0  # |x| from which an element counts as large (LLM.int8, Dettmers 2022)
SATURATED = 0.01  # distance from a bound of sigmoid or tanh, as a share of the range


class UnitSums:
    """Gathers :class:`Units` over calls; tensors whose units are of another number are left out and counted."""

    def __init__(self) -> None:
        self.left_out = 0
        self._tokens = self._samples = self._elements = self._near = 0
        self._sums: dict[str, Tensor] = {}
        self._given: dict[str, Tensor] = {}
        self._given_tokens = 0

    def add(self, output: Tensor, given: Tensor | None, bounds: tuple[float, float] | None, axis: int = -1) -> None:
        """Add the result of a call and its input; ``bounds`` are those of sigmoid or tanh.

        ``axis`` is the dimension of the units. Of an image or sequence with channels first, and of an image with
        channels last, all positions together are one sample.
        """
        wide = _by_unit(output, axis)
        if wide is None or (self._sums and self._sums["abs"].numel() != wide.shape[1]):
            self.left_out += 1
            return
        size = wide.abs()
        low, high = torch.aminmax(wide, dim=0)
        self._tokens += wide.shape[0]
        together = output.dim() > 3 or (output.dim() == 3 and axis in (0, 1))
        self._samples += (1 if axis == 0 else output.shape[0]) if together else wide.shape[0]
        self._merge("abs", size.sum(0), torch.add)
        self._merge("square", wide.square().sum(0), torch.add)
        most = torch.maximum(high, -low)
        self._merge("large", (size >= LARGE).sum(0) if (most >= LARGE).any() else torch.zeros_like(most), torch.add)
        self._merge("most", most, torch.maximum)
        self._merge("max", high, torch.maximum)
        self._merge("min", low, torch.minimum)
        if bounds is not None:
            lowest, highest = bounds
            margin = SATURATED * (highest - lowest)
            self._elements += wide.numel()
            self._near += int(((wide < lowest + margin) | (wide > highest - margin)).sum())
        before = None if given is None or given.shape != output.shape else _by_unit(given, axis, exact=True)
        if before is not None:
            self._given_tokens += before.shape[0]
            for name, part in (("sum", before.sum(0)), ("square", before.square().sum(0))):
                self._given[name] = part if name not in self._given else self._given[name] + part

    def _merge(self, name: str, part: Tensor, join: object) -> None:
        known = self._sums.get(name)
        self._sums[name] = part if known is None else join(known, part)  # type: ignore[operator]

    def result(self) -> Units | None:
        """Return the numbers of all that was added; ``None`` if nothing was."""
        if not self._tokens:
            return None
        sums = {name: part.cpu().double().numpy() for name, part in self._sums.items()}
        below = None
        if self._given_tokens:
            mean = self._given["sum"].cpu().numpy() / self._given_tokens
            variance = self._given["square"].cpu().numpy() / self._given_tokens - mean**2
            below = -mean / np.sqrt(np.maximum(variance, 1e-12 * np.maximum(mean**2, 1e-300)))
        return Units(
            tokens=self._tokens,
            samples=self._samples,
            mean_abs=sums["abs"] / self._tokens,
            rms=np.sqrt(sums["square"] / self._tokens),
            absmax=sums["most"],
            range=sums["max"] - sums["min"],
            large=sums["large"] / self._tokens,
            zero=sums["most"] == 0,
            below=below,
            saturated=self._near / self._elements if self._elements else 0.0,
        )


def _by_unit(tensor: Tensor, axis: int, exact: bool = False) -> Tensor | None:
    """Return a tensor as (tokens, units) in float32, or float64 for ``exact``; ``None`` where it has no units."""
    body = tensor.detach()
    if not is_dense(body) or body.dim() < 2 or not body.is_floating_point() or not body.numel():
        return None
    body = body.movedim(axis, -1)
    wide = body.reshape(-1, body.shape[-1])
    doubles = wide.device.type in ("cpu", "cuda") and (exact or wide.dtype == torch.float64)
    wide = wide.double() if doubles else wide.float()
    return wide if wide.sum().isfinite() else wide.nan_to_num(0.0, 0.0, 0.0)
