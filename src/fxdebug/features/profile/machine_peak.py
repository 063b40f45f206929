"""Measure the peak of the machine: operations per second of a large matrix product, bytes per second of a large copy.

A device's data sheet says what it could reach at best; these are the rates that torch reaches on it now, with the
dtype and the number of threads of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from fxdebug.capture.probe import untracked
from fxdebug.data.measured.timings import MachinePeak

SIDE, SIDE_ON_DEVICE = 512, 4096  # of the square matrices: large enough for the peak, short enough to be undisturbed
COPIED, COPIED_ON_DEVICE = 64 * 2**20, 256 * 2**20  # bytes: larger than the caches
REPEATS = 12  # the fastest one counts

_known: dict[tuple[str, str, int], MachinePeak] = {}


def machine_peak(device: torch.device, dtype: torch.dtype) -> MachinePeak:
    """Return the peak of a device for a dtype; measured once for each number of threads, in about 0.2 s.

    Random generators are not used.
    """
    threads = torch.get_num_threads()
    key = str(device), str(dtype), threads
    if key not in _known:
        side, size = (SIDE, COPIED) if device.type == "cpu" else (SIDE_ON_DEVICE, COPIED_ON_DEVICE)
        with untracked(), torch.no_grad():
            a = torch.full((side, side), 0.5, device=device).to(dtype)
            source = torch.zeros(size, dtype=torch.uint8, device=device)
            target = torch.empty_like(source)
            flops = 2 * side**3 / _fastest(lambda: a @ a, device)
            copied = 2 * size / _fastest(lambda: target.copy_(source), device)
        _known[key] = MachinePeak(flops, copied, str(dtype)[6:], str(device), threads)
    return _known[key]


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    for _ in range(REPEATS + 1):  # the first one warms up
        _wait(device)
        begin = time.perf_counter()
        work()
        _wait(device)
        best = min(best, time.perf_counter() - begin)
    return best


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
