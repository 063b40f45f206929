"""Statistics of tensors on an accelerator: no number crosses to the host before somebody wants them all.

A number fetched from a device waits until the device has done all it was given before, and a model whose
every tensor is waited for runs at the speed of its launches. So tensors are gathered on the device, those of
a size in the rows of a matrix; a dozen reductions along the rows do for all of them; the results stay there
too, and come over in one copy at the end. Nothing on the way may depend on a number, so that every tensor is
treated as the worst one: what is not finite is masked, the rest scaled to ±1 and centred twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxdebug.data.values import Stats, pooled
from fxdebug.stats.cpu_sums import REAL

ROW = 1 << 20  # elements of one row at most: a larger tensor has several
ROOM = 1 << 22  # elements that wait to be measured at most, and that are measured at once: 16 MB of float32

COLUMNS = 11  # numbers of a row of results
Done = Callable[[Stats], None]
Other = Callable[[Tensor, int], None]


def is_elsewhere(tensor: Tensor) -> bool:
    """Does the tensor's memory belong to another device than the CPU?"""
    return not tensor.is_cpu


class DeviceBatch:
    """The tensors of one run that lie on one device: they wait as copies, their results as rows of numbers.

    Not for several threads at once: its owner sees to that.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, torch.dtype, Any], list[tuple[Tensor, _Part]]] = {}
        self._used = 0
        self._rows: list[tuple[Tensor, list[_Part], Any]] = []
        self._others: list[tuple[Tensor, int, Other]] = []

    def take(self, flat: Tensor, repeats: int, done: Done) -> None:
        """Take real floating-point elements; ``done`` is told their statistics when :meth:`settle` has them.

        ``repeats``: how often each of them occurs in the tensor. What the program does to it later is not seen.
        """
        whole = _Whole(repeats, done)
        count = flat.numel()
        stream = _stream(flat.device)
        dtype = flat.dtype if flat.dtype in REAL else torch.float32
        for start in range(0, count - ROW + 1, ROOM):
            rows = flat[start : min(start + ROOM, count - count % ROW)].to(dtype).view(-1, ROW)
            self._rows.append((measured_rows(rows), [_Part(whole, ROW) for _ in rows], stream))
        rest = count % ROW
        if rest:
            waiting = self._waiting.setdefault((rest, dtype, stream), [])
            waiting.append((flat[count - rest :].to(dtype, copy=True), _Part(whole, rest)))
            self._used += rest
            if self._used > ROOM:
                self._measure()

    def take_other(self, flat: Tensor, repeats: int, done: Other) -> None:
        """Take elements of another dtype: they are few in most models, and come over themselves, as a copy."""
        self._others.append((flat.clone(), repeats, done))

    def settle(self) -> None:
        """Fetch all results in one copy, and tell them."""
        self._measure()
        rows, others, self._rows, self._others = self._rows, self._others, [], []
        for _, _, stream in rows:
            if stream is not None:  # what was computed there is read here
                torch.cuda.current_stream(stream.device).wait_stream(stream)
        tables = [torch.cat([found for found, _, _ in rows])] if rows else []
        pieces = [*tables, *[copy for copy, _, _ in others]]
        if not pieces:
            return
        fetched = torch.cat([_bytes(piece) for piece in pieces]).cpu().split([piece.nbytes for piece in pieces])
        host = [_numbers(data, piece.dtype) for data, piece in zip(fetched, pieces)]
        if tables:
            self._tell([part for _, those, _ in rows for part in those], host.pop(0).view(-1, COLUMNS).tolist())
        for flat, (_, repeats, other) in zip(host, others):
            other(flat, repeats)

    def _tell(self, parts: list[_Part], table: list[list[float]]) -> None:
        for part, row in zip(parts, table):
            part.whole.found.append(_stats(part.count, row))
        for whole in {id(part.whole): part.whole for part in parts}.values():
            whole.tell()

    def _measure(self) -> None:
        waiting, self._waiting, self._used = self._waiting, {}, 0
        for (_, _, stream), entries in waiting.items():
            with torch.cuda.stream(stream):  # of ``None`` nothing comes
                rows = measured_rows(torch.stack([copy for copy, _ in entries]))
            self._rows.append((rows, [part for _, part in entries], stream))


class _Whole:
    """One tensor, of which parts are measured."""

    __slots__ = ("_done", "_repeats", "found")

    def __init__(self, repeats: int, done: Done) -> None:
        self._repeats = repeats
        self._done = done
        self.found: list[Stats] = []

    def tell(self) -> None:
        stats = self.found[0] if len(self.found) == 1 else pooled(self.found)
        self._done(_repeated(stats, self._repeats))


class _Part:
    """So many elements of a tensor."""

    __slots__ = ("count", "whole")

    def __init__(self, whole: _Whole, count: int) -> None:
        self.whole = whole
        self.count = count


def _bytes(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.as_strided((real.numel(),), (1,)).view(torch.uint8)  # a single one may have any stride


def _numbers(data: Tensor, dtype: torch.dtype) -> Tensor:
    """The bytes as numbers again; where they were among the others suits not every dtype."""
    data = data.clone()
    return torch.view_as_complex(data.view(dtype.to_real()).view(-1, 2)) if dtype.is_complex else data.view(dtype)


def measured(flat: Tensor, repeats: int = 1) -> Stats:
    """The statistics of flat elements at once, waiting for them."""
    found: list[Stats] = []
    one = DeviceBatch()
    one.take(flat, repeats, found.append)
    one.settle()
    return found[0]


def _stream(device: torch.device) -> Any:
    """The queue in which the device works off what this thread gives it; ``None`` where there is but one."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


# Arithmetic --------------------------------------------------------------------------------------


def measured_rows(matrix: Tensor, wide: torch.dtype | None = None) -> Tensor:
    """For each row of float32 or float64: eleven numbers from which :func:`_stats` makes its statistics.

    They are ``wide``: float64, or float32 on a device without it (MPS): the elements are scaled and centred before they
    are squared, so that there is nothing that could overflow or cancel.
    """
    wide = wide or (torch.float64 if matrix.device.type != "mps" else torch.float32)
    ok = torch.isfinite(matrix)
    low = torch.where(ok, matrix, math.inf).amin(1)
    high = torch.where(ok, matrix, -math.inf).amax(1)
    middle = low / 2 + high / 2
    scale = torch.maximum(high - middle, middle - low)
    unit = torch.where(scale > 0, scale, 1).unsqueeze(1)
    scaled = torch.where(ok, (matrix - middle.unsqueeze(1)) / unit, 0)
    first = (_sum(scaled, wide) / ok.sum(1)).to(matrix.dtype)
    centred = torch.where(ok, scaled - first.unsqueeze(1), 0)
    found = [low, high, middle, scale, first, _sum(centred, wide), _sum(centred * centred, wide)]
    found += [(matrix != matrix).sum(1), (matrix == math.inf).sum(1), (matrix == -math.inf).sum(1)]
    found.append((matrix == 0).sum(1))
    return torch.stack([numbers.to(wide) for numbers in found], 1)


def _sum(matrix: Tensor, wide: torch.dtype) -> Tensor:
    """The sums of rows; in float32, of so few numbers at a time that all its digits count."""
    count = matrix.shape[1]
    if wide is torch.float64 or count <= 1024:
        return matrix.sum(1, dtype=wide)
    most = count - count % 1024
    parts = [matrix[:, :most].reshape(len(matrix), -1, 1024).sum(2).sum(1)]
    return sum(parts, matrix[:, most:].sum(1))


def _stats(count: int, row: list[float]) -> Stats:
    low, high, middle, scale, first, drift, squares = row[:7]
    nan, posinf, neginf, zeros = map(int, row[7:])
    finite = count - nan - posinf - neginf
    if not finite:
        return Stats(count, None, None, None, None, None, nan, posinf, neginf, 0)
    mean = min(max(middle + scale * (first + drift / finite), low), high)
    deviation = max(squares - drift * drift / finite, 0.0)
    std = math.sqrt(deviation / (finite - 1)) * scale if finite > 1 else 0.0
    return Stats(count, mean, std, low, high, max(0.0, -low, high), nan, posinf, neginf, zeros)


def _repeated(stats: Stats, repeats: int) -> Stats:
    """The statistics where each element occurs so often."""
    if repeats == 1:
        return stats
    std, many = stats.std, stats.finite * repeats
    if std is not None:
        std = 0.0 if many < 2 else std * math.sqrt((stats.finite - 1) * repeats / (many - 1))
    counts = [number * repeats for number in (stats.nan, stats.posinf, stats.neginf, stats.zeros)]
    return Stats(stats.count * repeats, stats.mean, std, stats.min, stats.max, stats.absmax, *counts)
