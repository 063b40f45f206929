"""Statistics of tensors on an accelerator, without a synchronisation before the end of the run.

Fetching one number makes the host wait until the device has finished all its queued work. With a wait for every
tensor, no kernel could be queued ahead, and launching kernels would set the speed of the model. So copies of tensors
are gathered on the device. Those of equal length become the rows of a matrix, and a dozen reductions along the rows
measure all of them. The results stay on the device and come over in one copy at the end.

No step may branch on a number, so every tensor is treated as the worst case: elements that are not finite are masked,
the rest is scaled to ±1 and centred twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fxdebug.data.values import Stats, pooled
from fxdebug.stats.cpu_sums import REAL
from fxdebug.stats.doubles import widest_on

ROW = 1 << 20  # the most elements in a row: a larger tensor has several rows
ROOM = 1 << 22  # elements that may wait, or are measured together, on any device: 16 MB of float32
SHARE = 1 << 11  # bytes of a device's memory for each such element; measuring takes six times their own four bytes

COLUMNS = 11  # numbers in a row of results
OnStats = Callable[[Stats], None]
"""Receive the statistics of one tensor."""
OnElements = Callable[[Tensor, int], None]
"""Receive the elements of one tensor on the host, and how often each occurs in it."""


def is_off_cpu(tensor: Tensor) -> bool:
    """Is the tensor's memory on another device than the CPU?"""
    return not tensor.is_cpu


def captures_graph() -> bool:
    """Is a CUDA graph made of what this thread launches in its current stream?

    Work of ours would be done again at each replay, and fetching a number ends the capture with an error.
    """
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def room_on(device: torch.device) -> int:
    """Return how many elements may wait on a device: more on a larger one, where fewer launches measure all.

    >>> room_on(torch.device("cpu")) == ROOM
    True
    """
    if device.type != "cuda":
        return ROOM
    return max(ROOM, torch.cuda.get_device_properties(device).total_memory // SHARE)


class DeviceBatch:
    """The tensors of one run on one device: copies that wait to be measured, and rows of results.

    Not thread-safe: the owner holds a lock.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, torch.dtype, Any], list[tuple[Tensor, _Piece]]] = {}
        self._used = 0
        self._room: int | None = None
        self._rows: list[tuple[Tensor, list[_Piece], Any]] = []
        self._unmeasured: list[tuple[Tensor, int, OnElements]] = []

    def add(self, flat: Tensor, repeats: int, on_stats: OnStats) -> None:
        """Add flat real floating-point elements; :meth:`fetch` calls ``on_stats`` with their statistics.

        ``repeats`` is how often each element occurs in the tensor. The elements are copied, so later writes of the
        program do not matter.
        """
        if self._room is None:
            self._room = room_on(flat.device)
        tensor = _PendingTensor(repeats, on_stats)
        count, room = flat.numel(), self._room
        stream = _stream(flat.device)
        dtype = flat.dtype if flat.dtype in REAL else torch.float32
        together = room - room % ROW
        measured = count - count % together  # at once: what fills the room needs no copy
        for start in range(0, measured, together):
            rows = flat[start : start + together].to(dtype).view(-1, ROW)
            self._rows.append((row_sums(rows), [_Piece(tensor, ROW) for _ in rows], stream))
        for start in range(measured, count, ROW):
            piece = flat[start : start + ROW]
            waiting = self._waiting.setdefault((piece.numel(), dtype, stream), [])
            waiting.append((piece.to(dtype, copy=True), _Piece(tensor, piece.numel())))
        self._used += count - measured
        if self._used > room:
            self._measure_waiting()

    def add_unmeasured(self, flat: Tensor, repeats: int, on_elements: OnElements) -> None:
        """Add elements of another dtype. They are few in most models, so a copy of the elements is fetched."""
        self._unmeasured.append((flat.clone(), repeats, on_elements))

    def fetch(self) -> None:
        """Fetch all results in one copy, and call back for each tensor."""
        self._measure_waiting()
        rows, unmeasured, self._rows, self._unmeasured = self._rows, self._unmeasured, [], []
        for _, _, stream in rows:
            if stream is not None:  # results computed in that stream are read in this one
                torch.cuda.current_stream(stream.device).wait_stream(stream)
        tables = [torch.cat([results for results, _, _ in rows])] if rows else []
        sent = [*tables, *[copy for copy, _, _ in unmeasured]]
        if not sent:
            return
        fetched = torch.cat([_bytes(each) for each in sent]).cpu().split([each.nbytes for each in sent])
        host = [_from_bytes(data, each.dtype) for data, each in zip(fetched, sent)]
        if tables:
            self._report([piece for _, pieces, _ in rows for piece in pieces], host.pop(0).view(-1, COLUMNS).tolist())
        for flat, (_, repeats, on_elements) in zip(host, unmeasured):
            on_elements(flat, repeats)

    def _report(self, pieces: list[_Piece], table: list[list[float]]) -> None:
        for piece, row in zip(pieces, table):
            piece.tensor.stats.append(_stats(piece.count, row))
        for tensor in {id(piece.tensor): piece.tensor for piece in pieces}.values():
            tensor.report()

    def _measure_waiting(self) -> None:
        waiting, self._waiting, self._used = self._waiting, {}, 0
        for (_, _, stream), entries in waiting.items():
            with torch.cuda.stream(stream):  # does nothing for ``None``
                rows = row_sums(torch.stack([copy for copy, _ in entries]))
            self._rows.append((rows, [piece for _, piece in entries], stream))


class _PendingTensor:
    """A tensor whose pieces are being measured."""

    __slots__ = ("_on_stats", "_repeats", "stats")

    def __init__(self, repeats: int, on_stats: OnStats) -> None:
        self._repeats = repeats
        self._on_stats = on_stats
        self.stats: list[Stats] = []

    def report(self) -> None:
        stats = self.stats[0] if len(self.stats) == 1 else pooled(self.stats)
        self._on_stats(_repeated(stats, self._repeats))


class _Piece:
    """A piece of a tensor: one row of results."""

    __slots__ = ("count", "tensor")

    def __init__(self, tensor: _PendingTensor, count: int) -> None:
        self.tensor = tensor
        self.count = count


def _bytes(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.as_strided((real.numel(),), (1,)).view(torch.uint8)  # a single element may have any stride


def _from_bytes(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Return bytes as a tensor of a dtype again."""
    data = data.clone()  # a view as a dtype needs an offset that is a multiple of its element size
    return torch.view_as_complex(data.view(dtype.to_real()).view(-1, 2)) if dtype.is_complex else data.view(dtype)


def measure_now(flat: Tensor, repeats: int = 1) -> Stats:
    """Return the statistics of flat elements, and wait for the device."""
    stats: list[Stats] = []
    batch = DeviceBatch()
    batch.add(flat, repeats, stats.append)
    batch.fetch()
    return stats[0]


def _stream(device: torch.device) -> Any:
    """Return this thread's CUDA stream; ``None`` for devices with a single queue."""
    return torch.cuda.current_stream(device) if device.type == "cuda" else None


# Arithmetic --------------------------------------------------------------------------------------


def row_sums(matrix: Tensor, wide: torch.dtype | None = None) -> Tensor:
    """Return eleven numbers for each row of float32 or float64, from which :func:`_stats` makes its statistics.

    The dtype of the numbers is ``wide``: float64, or float32 on a device that may have none. Elements are scaled
    and centred before they are squared, so nothing overflows or cancels.
    """
    wide = wide or widest_on(matrix.device)
    ok = torch.isfinite(matrix)
    low = torch.where(ok, matrix, math.inf).amin(1)
    high = torch.where(ok, matrix, -math.inf).amax(1)
    middle = low / 2 + high / 2
    scale = torch.maximum(high - middle, middle - low)
    unit = torch.where(scale > 0, scale, 1).unsqueeze(1)
    scaled = torch.where(ok, (matrix - middle.unsqueeze(1)) / unit, 0)
    first = (_sum(scaled, wide) / ok.sum(1)).to(matrix.dtype)
    centred = torch.where(ok, scaled - first.unsqueeze(1), 0)
    columns = [low, high, middle, scale, first, _sum(centred, wide), _sum(centred * centred, wide)]
    columns += [(matrix != matrix).sum(1), (matrix == math.inf).sum(1), (matrix == -math.inf).sum(1)]
    columns.append((matrix == 0).sum(1))
    return torch.stack([numbers.to(wide) for numbers in columns], 1)


def _sum(matrix: Tensor, wide: torch.dtype) -> Tensor:
    """Return the sums of rows; in float32, long rows are summed in groups of 1024, which lose fewer digits."""
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
    """Return the statistics of a tensor in which each element occurs ``repeats`` times."""
    if repeats == 1:
        return stats
    std, many = stats.std, stats.finite * repeats
    if std is not None:
        std = 0.0 if many < 2 else std * math.sqrt((stats.finite - 1) * repeats / (many - 1))
    counts = [number * repeats for number in (stats.nan, stats.posinf, stats.neginf, stats.zeros)]
    return Stats(stats.count * repeats, stats.mean, std, stats.min, stats.max, stats.absmax, *counts)
