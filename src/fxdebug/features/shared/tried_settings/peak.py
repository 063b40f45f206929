"""Measure the most memory that a step takes: on a GPU as its allocator tells, on the CPU by the storages of results."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import internals


class PeakOfStorages(internals.TorchDispatchMode):
    """Adds up the storages that operations of ATen return while they live; ``most`` is the largest sum so far.

    Memory that a kernel takes and frees in itself is not seen.

    >>> import torch
    >>> with PeakOfStorages() as seen:
    ...     result = torch.ones(4) + torch.ones(4)
    >>> seen.most
    48
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.most = self._alive = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._know(args)
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                self._see(tensor, counts=True)
        return result

    def _know(self, args: tuple[Any, ...]) -> None:
        """Note what was there before: its memory is not the step's."""
        for tensor in args:
            if isinstance(tensor, Tensor):
                self._see(tensor, counts=False)

    def _see(self, tensor: Tensor, *, counts: bool) -> None:
        try:
            storage = tensor.untyped_storage()
            size = storage.nbytes() if counts else 0
        except (NotImplementedError, RuntimeError):  # it has none of its own (sparse, nested, fake)
            return
        key = id(storage)
        known = self._known.get(key)
        if known is not None and known() is storage:
            return

        def freed(_: object) -> None:
            self._alive -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, freed)
        self._alive += size
        self.most = max(self.most, self._alive)
