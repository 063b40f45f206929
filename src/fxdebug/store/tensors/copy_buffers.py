"""Memory for copies of tensors, used again: a page touched for the first time costs more than the copy."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

FREE_BYTES = 64 * 1024 * 1024  # bytes of memory that stay allocated for the next copies
_SMALL_BYTES = 64 * 1024  # up to this size allocating is faster than looking for free memory


class CopyBuffers:
    """Copies of tensors in the CPU's memory, and the memory of those that are no longer needed."""

    def __init__(self) -> None:
        self._free: dict[int, list[Tensor]] = {}  # by size in bytes
        self._free_bytes = 0
        self._lock = threading.Lock()

    def copy(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy in the CPU's memory."""
        size = tensor.numel() * tensor.element_size()
        if size < _SMALL_BYTES or tensor.device.type != "cpu":
            return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
        with self._lock:
            free = self._free.get(size)
            memory = free.pop() if free else None
            self._free_bytes -= 0 if memory is None else size
        if memory is None:
            with torch.inference_mode(False):  # a tensor made in inference mode cannot be written to outside it
                memory = torch.empty(size, dtype=torch.uint8)
        copy = memory.view(tensor.dtype).view(tensor.shape)
        copy.copy_(tensor)
        return copy

    def give_back(self, copy: Tensor) -> None:
        """Take back the memory of a copy that nothing reads any more."""
        size = copy.numel() * copy.element_size()
        if size < _SMALL_BYTES or copy.untyped_storage().nbytes() != size:
            return
        with self._lock:
            if self._free_bytes + size <= FREE_BYTES:
                self._free_bytes += size
                self._free.setdefault(size, []).append(copy.view(-1).view(torch.uint8))
