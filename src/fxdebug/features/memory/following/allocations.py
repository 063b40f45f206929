"""Follow the memory of a run: every storage that an operation returns, from its first sight to its end.

A ``TorchDispatchMode`` sees the result of every operation of ATen, in the forward and in the backward. A weak
reference to each storage tells when it is freed. Memory that a kernel takes and frees inside itself is not seen.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import ForwardsOnly, Guard, Sites, UserLines, internals, special_tensors
from fxdebug.data.measures import quantity
from fxdebug.features.memory.record import Allocation, CallSpan, Category, MemoryRecord, Phase, Refused

_ASKED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|B|KiB|MiB|GiB|TiB)?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


class Allocations(ForwardsOnly, internals.TorchDispatchMode):
    """Notes every storage of a run in a :class:`MemoryRecord`; also an observer of the model's modules.

    With a ``limit`` in bytes, the operation that passes it raises ``torch.OutOfMemoryError``.
    """

    supports_higher_order_operators = True  # ``torch.cond`` and the like are one operation: inside, this mode is off

    def __init__(self, sites: Sites, limit: int | None = None) -> None:
        super().__init__()
        self.record = MemoryRecord()
        self.guard = Guard(self._path)
        self.phase: Phase = "before"
        self.step = 0
        self.tensors: dict[int, deque[weakref.ref[Tensor]]] = {}  # number of an allocation → its latest tensors
        self._alive: dict[int, tuple[weakref.ref[Any], Allocation]] = {}  # id of a storage → its allocation
        self._sites = sites
        self._limit = limit
        self._in_use = 0  # bytes
        self._owner = get_ident()
        self._open: list[int] = []
        self._numbers: dict[str, int] = {}
        self._lines = UserLines()
        self._sources: dict[int, Callable[[], str | None]] = {}  # by the number of an allocation of the forward

    # Operations ----------------------------------------------------------------------------------

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Have ``torch.compile`` compile as it does without this mode, rather than skip what it would compile."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = str(func.__name__).partition(".")[0]
        try:
            result = func(*args, **(kwargs or {}))
        except RuntimeError as error:
            asked = _ASKED.search(str(error))
            if self.record.refused is None and (asked is not None or isinstance(error, torch.OutOfMemoryError)):
                size = None if asked is None else round(float(asked[1]) * _UNITS[(asked[2] or "").lower()])
                self.guard("the memory that was asked for", self._refuse, name, size, self._in_use, None)
            raise
        if isinstance(func, internals.HigherOrderOperator):
            self.guard.note(f"{name} was followed as one operation: memory inside is not seen")
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor):
                try:
                    self._see(tensor, name)
                except Exception:  # a kind of tensor that cannot be described: the model must run on
                    self.record.unseen += 1
        if self._limit is not None and self._in_use > self._limit and self.phase != "before":
            self._pass_limit(name, self._limit)
        return result

    def _pass_limit(self, op: str, limit: int) -> None:
        if self.record.refused is None:
            last = self.record.allocations[-1]
            self._refuse(op, last.bytes, self._in_use - last.bytes, limit)
        raise torch.OutOfMemoryError(f"{op} passes the limit of {quantity(limit, 'B')} that fxdebug.memory was given")

    def _refuse(self, op: str, size: int | None, in_use: int, limit: int | None) -> None:
        """Note the operation for which there was no memory."""
        source = self._lines.asking(sys._getframe(2))() if self.phase == "forward" else None
        call = self._open[-1] if self._open and self.phase == "forward" and get_ident() == self._owner else None
        self.record.refused = Refused(op, self._path(), call, self.phase, source, size, in_use, limit)

    def _see(self, tensor: Tensor, op: str) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        if self._is_known(storage):
            self.tensors[self._alive[id(storage)][1].number].append(weakref.ref(tensor))
            return
        size = storage.nbytes()
        if size:
            allocation = self._add(tensor, storage, size, "activations", op=op)
            if self.phase == "forward":
                self._sources[allocation.number] = self._lines.asking(sys._getframe(1))

    def register(self, tensors: Iterable[tuple[str, Tensor]], category: Category) -> None:
        """Note memory that was there before the run."""
        for name, tensor in tensors:
            storage = _storage(tensor)
            if storage is not None and storage.nbytes() and not self._is_known(storage):
                self._add(tensor, storage, storage.nbytes(), category, name=name)

    def _is_known(self, storage: torch.UntypedStorage | None) -> bool:
        known = self._alive.get(id(storage))
        if storage is None or known is None or known[0]() is not storage:
            return False
        assert storage is not None
        grown = storage.nbytes()
        if grown > known[1].bytes:  # resized: count it at its largest
            self._in_use += grown - known[1].bytes
            known[1].bytes = grown
        return True

    def _add(
        self, tensor: Tensor, storage: torch.UntypedStorage, size: int, category: Category, op: str = "", name: str = ""
    ) -> Allocation:
        record = self.record
        call = self._open[-1] if self._open and self.phase == "forward" and get_ident() == self._owner else None
        allocation = Allocation(
            number=len(record.allocations),
            bytes=size,
            born=record.events,
            category=category,
            phase=self.phase,
            step=self.step,
            call=call,
            path="" if call is None else record.calls[call].path,
            op=op,
            name=name,
            dtype=str(tensor.dtype)[6:],
            shape=() if tensor.is_nested else special_tensors.shape_of(tensor),
            device=str(tensor.device),
        )
        record.events += 1
        record.allocations.append(allocation)
        self._in_use += size
        self.tensors[allocation.number] = deque([weakref.ref(tensor)], maxlen=8)
        key = id(storage)

        def freed(_: object) -> None:
            allocation.freed = record.events
            record.events += 1
            self._in_use -= allocation.bytes
            self._alive.pop(key, None)

        self._alive[key] = weakref.ref(storage, freed), allocation
        return allocation

    def mark(self, label: str) -> None:
        """Label the present moment."""
        self.record.marks.append((self.record.events, label))

    def label(self, name: str) -> None:
        """Note a label of the program, at the present moment of the first step."""
        if self.step == 0 and get_ident() == self._owner:
            self.record.labels.append((self.record.events, name))
            self.mark(name)

    def of(self, tensors: Iterable[Tensor]) -> list[Allocation]:
        """Return the allocations of tensors that are alive."""
        found = []
        for tensor in tensors:
            storage = _storage(tensor)
            known = None if storage is None else self._alive.get(id(storage))
            if known is not None and known[0]() is storage:
                found.append(known[1])
        return found

    def alive(self) -> list[Allocation]:
        """Return the allocations that are alive, in the order in which they were made."""
        return sorted((allocation for _, allocation in self._alive.values()), key=lambda a: a.number)

    def finish(self) -> MemoryRecord:
        """Return the record, with source lines as text; later ends of storages are not noted."""
        for number, line in self._sources.items():
            self.record.allocations[number].source = line()
        self._alive.clear()
        self.record.notes = self.guard.texts()
        return self.record

    # Calls ---------------------------------------------------------------------------------------

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward and note its first and last event."""
        site = self._sites.of(module)
        if site is None or get_ident() != self._owner or self.phase != "forward":
            return run(*args, **kwargs)
        calls, stack = self.record.calls, self._open
        number = self._numbers[site.path] = self._numbers.get(site.path, -1) + 1
        span = CallSpan(site.path, number, stack[-1] if stack else None, self.record.events, -1, self.step)
        stack.append(len(calls))
        calls.append(span)
        try:
            output = run(*args, **kwargs)
            self.guard("a result", self._leave, output, site.path)
            return output
        finally:
            span.end = self.record.events
            stack.pop()

    def _leave(self, output: Any, path: str) -> None:
        tensors = output if isinstance(output, (tuple, list)) else (output,)
        for allocation in self.of(tensor for tensor in tensors if isinstance(tensor, Tensor)):
            allocation.left = path

    def _path(self) -> str:
        return self.record.calls[self._open[-1]].path if self._open else ""


def _storage(tensor: Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor, or ``None`` where it has none of its own (sparse, nested, fake)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
