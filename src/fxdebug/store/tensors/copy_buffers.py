"""Memory for copies of tensors, used again."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

FREE_BYTES = 64 * 1024 * 1024  # bytes of memory that stay for the next copies
_SMALL_BYTES = 64 * 1024  # bytes up to which memory is had faster than it is looked for


class CopyBuffers:
    """Memory for copies, used again: pages that are touched for the first time cost more than the copy."""

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}
        self._kept = 0
        self._lock = threading.Lock()

    def of(self, tensor: Tensor) -> Tensor:
        """A contiguous copy in the CPU's memory."""
        size = tensor.numel() * tensor.element_size()
        if size < _SMALL_BYTES or tensor.device.type != "cpu":
            return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        with self._lock:
            free = self._free.get(size)
            memory = free.pop() if free else None
            self._kept -= 0 if memory is None else size
        if memory is None:
            with torch.inference_mode(False):  # or it could not be written to outside that mode
                memory = torch.empty(size, dtype=torch.uint8)
        copy = memory.view(tensor.dtype).view(tensor.shape)
        copy.copy_(tensor)
        return copy

    def back(self, copy: Tensor) -> None:
        """Nobody looks at a copy any more."""
        size = copy.numel() * copy.element_size()
        if size < _SMALL_BYTES or copy.untyped_storage().nbytes() != size:
            return
        with self._lock:
            if self._kept + size <= FREE_BYTES:
                self._kept += size
                self._free.setdefault(size, []).append(copy.view(-1).view(torch.uint8))
