"""Sample the utilisation of an NVIDIA GPU while a model runs, by NVML (extra ``gpu``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch

INTERVAL = 0.02  # seconds between samples
WINDOW = 1.0  # seconds, the longest time over which NVML averages (1/6 s to 1 s): a sample tells of the time before it

NO_DEVICE = "no CUDA device"
NO_LIBRARY = "reading it needs the package 'nvidia-ml-py': pip install 'fxdebug[gpu]'"


class DeviceUse:
    """Samples of a device's utilisation in %, taken by a thread for the length of a block.

    Those of the first second tell of what ran before the block, and are left out. ``missing`` is the reason where there
    are none. ``read`` returns one sample; by default it asks NVML, through ``torch.cuda.utilization``.
    """

    def __init__(self, device: torch.device, read: Callable[[], float] | None = None) -> None:
        self.samples: list[float] = []
        self.missing = ""
        if read is None and device.type != "cuda":
            self.missing = NO_DEVICE
        self._read = read or (lambda: torch.cuda.utilization(device))
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> DeviceUse:
        self._began = time.perf_counter()
        if not self.missing and self._sample():
            self._thread = threading.Thread(target=self._run, name="fxdebug-device-use", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if not self.samples and not self.missing:
            took = time.perf_counter() - self._began
            self.missing = f"the repeats took {took:.2g} s, and NVML averages over up to a second: more repeats tell"

    def _run(self) -> None:
        while not self._over.wait(INTERVAL) and self._sample():
            pass

    def _sample(self) -> bool:
        """Take a sample; return whether to go on."""
        try:
            sample = float(self._read())
            if time.perf_counter() - self._began >= WINDOW:
                self.samples.append(sample)
        except ModuleNotFoundError:
            self.missing = NO_LIBRARY
        except Exception as error:  # NVML's own errors: no permission, no driver, a device that it does not know
            self.missing = self.missing or f"NVML: {error}"
        return not self.missing
