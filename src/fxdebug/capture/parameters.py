"""The model's parameters and buffers before a run, and what the run did to them.

A tensor has changed when another object stands in its place, when its version moved or when its
data is not what it was: writes through ``.data`` and batch norm's running statistics move no version.
Statistics of weights are remembered across runs by tensor and data.
"""

from __future__ import annotations

import weakref
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.aside import aside
from fxdebug.capture.describe import PLAIN, is_fake, looks
from fxdebug.capture.layout import Layout, join, layout_of, tensors_of
from fxdebug.capture.seen import version_of
from fxdebug.capture.values import Values
from fxdebug.stats import Unmeasurable, array_of, is_freed, measure, memory_of
from fxdebug.trace import Parameter
from fxdebug.values import Stats

AFFORDABLE = 4_000_000  # elements measured without being asked: a millisecond or two

Mark = tuple[Any, ...]
Found = tuple[int, str, bool, Tensor, bool]  # see ``layout.tensors_of``


@dataclass(slots=True)
class _Known:
    """What is remembered of one parameter or buffer from run to run, for as long as it is the same memory."""

    reference: weakref.ref[Tensor]
    pointer: int
    facts: tuple[Any, ...]  # shape, dtype, requires_grad
    arrays: tuple[np.ndarray, ...] | None  # of the memory itself, on a CPU; they do not keep it alive
    mark: Mark | None = None  # of the data that was measured
    stats: Stats | None = None
    record: tuple[Any, Parameter] | None = None  # the last one, and what it depends on

    def is_of(self, tensor: Tensor) -> bool:
        if self.reference() is not tensor or self.pointer != _pointer(tensor):
            return False
        return self.facts == _facts(tensor)


_known: dict[int, _Known] = {}


@dataclass(slots=True)
class _Held:
    names: tuple[str, ...]
    kind: str
    persistent: bool
    tensor: Tensor
    version: int | None = None
    before: Stats | None = None
    mark: Mark | None = None


class Parameters:
    """A snapshot of a model's parameters and buffers: metadata always, statistics where affordable.

    ``measuring``: ``True`` for statistics of everything, ``False`` for none, ``None`` to take them
    when the model is small, and always of what changed. Whether data changed is looked at where
    parameters, or buffers, are few enough; of the others versions tell.
    """

    def __init__(self, layout: Layout, modules: list[nn.Module], measuring: bool | None = None) -> None:
        self._layout = layout
        self._measuring = measuring
        with aside(), np.errstate(all="ignore"):  # weights may be infinite
            tensors = tensors_of(modules)
            self._signature = _signature(tensors)
            self._held = _held(layout, tensors, self._signature)
            few, few_buffers = (self._total(kind) <= AFFORDABLE for kind in (None, "buffer"))
            for held in self._held.values():
                held.version = version_of(held.tensor)
                if few or (few_buffers and held.kind == "buffer"):
                    held.mark = _mark(held.tensor)
                if few if measuring is None else measuring:
                    held.before = _statistics(held.tensor, held.mark)

    def _total(self, kind: str | None = None) -> int:
        found = [held.tensor for held in self._held.values() if kind in (None, held.kind)]
        return sum([tensor.numel() for tensor in found if type(tensor) in PLAIN or not _is_uninitialised(tensor)])

    def names(self) -> dict[int, str]:
        """First names by ``id`` of the tensor; the tensors stay alive as long as this object."""
        return {key: held.names[0] for key, held in self._held.items()}

    def unchanged(self, tensor: Tensor) -> tuple[Stats | None] | None:
        """Its statistics from before the run, if it is one of ours and has the version of then; ``None`` if not.

        Those of a large model were not measured without being asked: then the statistics are ``None``.
        """
        held = self._held.get(id(tensor))
        if held is None or held.tensor is not tensor or version_of(tensor) != held.version:
            return None
        return (held.before,)

    def after(self, model: nn.Module, values: Values) -> tuple[Parameter, ...]:
        """What there was and what became of it; parameters made during the run come last."""
        with aside(), np.errstate(all="ignore"):
            layout, modules = layout_of(model)
            tensors = tensors_of(modules)
            signature = _signature(tensors)
            if layout is self._layout and signature == self._signature:
                return tuple([self._record(held, held.tensor, values) for held in self._held.values()])
            now = _held(layout, tensors, signature)
            by_name = {name: held for held in now.values() for name in held.names}
            found = []
            for held in self._held.values():
                current = by_name.get(held.names[0], held)
                found.append(self._record(held, current.tensor, values))
            known = {name for held in self._held.values() for name in held.names}
            for name, held in by_name.items():
                if name not in known:
                    made = _Held((name,), held.kind, held.persistent, held.tensor, -1)
                    found.append(self._record(made, held.tensor, values))
        return tuple(found)

    def _record(self, held: _Held, tensor: Tensor, values: Values) -> Parameter:
        mark = None if held.mark is None else _mark(tensor)
        changed = tensor is not held.tensor or version_of(tensor) != held.version or mark != held.mark
        stats = held.before
        known = None if changed else _known.get(id(tensor))
        if known is not None and known.record is not None and known.is_of(tensor):  # as it was the last time, too?
            rests_on = held.names, held.persistent, values.storage(tensor), False, stats, stats
            if known.record[0] == rests_on and rests_on[2] is not None:
                return known.record[1]
        if changed and tensor is held.tensor and version_of(tensor) == held.version:
            values.distrust(tensor)
        if changed and self._measuring is not False:
            stats = _statistics(tensor, mark)
        if _is_uninitialised(tensor):
            device = str(tensor.device)
            return Parameter(held.names, held.kind, (), str(tensor.dtype)[6:], device, tensor.requires_grad)
        known = _remembered(tensor) if type(tensor) in PLAIN else None
        storage = None if known is None else values.storage(tensor)
        rests_on = held.names, held.persistent, storage, changed, stats, held.before
        if known is not None and known.record is not None and known.record[0] == rests_on and storage is not None:
            return known.record[1]
        seen = looks(tensor)
        record = Parameter(
            names=held.names,
            kind=held.kind,
            shape=seen.shape,
            dtype=seen.dtype,
            device=seen.device,
            requires_grad=seen.requires_grad,
            storage=None if seen.body is None else values.storage(seen.body),
            persistent=held.persistent,
            changed=changed,
            before=held.before,
            stats=stats,
            sharding=seen.sharding,
        )
        if known is not None:
            known.record = rests_on, record
        return record


def _signature(tensors: list[Found]) -> list[Any]:
    """Which tensors there are, where, under which names."""
    return [
        part for position, name, _, tensor, persistent in tensors for part in (position, name, id(tensor), persistent)
    ]


def _held(layout: Layout, tensors: list[Found], signature: list[Any]) -> dict[int, _Held]:
    """All parameters and buffers by id, in the order of their modules, each with all of its names."""
    remembered = layout.memo.get("tensors")
    if remembered is not None and remembered[0] == signature:
        names: dict[int, tuple[str, ...]] = remembered[1]
    else:
        names = {}
        for position, name, _, tensor, _ in tensors:
            names[id(tensor)] = (*names.get(id(tensor), ()), join(layout.paths[position][0], name))
        layout.memo["tensors"] = signature, names
    found: dict[int, _Held] = {}
    for _, _, is_buffer, tensor, persistent in tensors:
        key = id(tensor)
        if key not in found:
            found[key] = _Held(names[key], "buffer" if is_buffer else "parameter", persistent, tensor)
    return found


def _is_uninitialised(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


# Data and its statistics -------------------------------------------------------------------------


def _facts(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.requires_grad


def _pointer(tensor: Tensor) -> int:
    try:
        return -1 if is_fake(tensor) else tensor.data_ptr()
    except RuntimeError:  # sparse, …: no memory of its own
        return -1


def _remembered(tensor: Tensor) -> _Known:
    known = _known.get(id(tensor))
    if known is None or not known.is_of(tensor):
        key = id(tensor)
        reference = weakref.ref(tensor, lambda gone: _forget(key, gone))
        known = _known[key] = _Known(reference, _pointer(tensor), _facts(tensor), _arrays(tensor))
    return known


def _forget(key: int, gone: Any) -> None:
    if key in _known and _known[key].reference is gone:
        del _known[key]


def _arrays(tensor: Tensor) -> tuple[np.ndarray, ...] | None:
    """The memory of a dense tensor in the CPU as whole numbers and, if they are that, as floats."""
    if type(tensor) not in PLAIN or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return None
    size = tensor.numel() * tensor.element_size()
    dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
    if not size or not dense or tensor.is_neg() or tensor.is_conj() or is_freed(tensor):
        return None
    memory = np.frombuffer(memory_of(tensor), np.uint8, size)
    whole = memory.view(np.uint64) if size % 8 == 0 and tensor.data_ptr() % 8 == 0 else memory
    if tensor.dtype in (torch.float32, torch.float64) and tensor.data_ptr() % 8 == 0:
        return whole, memory.view(np.float32 if tensor.dtype is torch.float32 else np.float64)
    return (whole,)


def _mark(tensor: Tensor) -> Mark | None:
    """Something that differs when the data does; ``None`` where it cannot be had.

    Sums of the elements and of their bits: a write of one element always moves the second, and one that
    leaves both alone (elements change places) leaves the statistics alone, too.
    """
    if _is_uninitialised(tensor):
        return None
    try:
        arrays = _remembered(tensor).arrays
        if arrays is not None:
            return tuple([_added(array).tobytes() for array in arrays])  # as bytes: NaN is equal to NaN
        body = tensor if type(tensor) in PLAIN else looks(tensor).body
        if body is None or body.layout is not torch.strided or body.is_meta or is_freed(body):
            return None
        if body.device.type == "cpu":
            return (zlib.crc32(array_of(body.detach().contiguous().view(-1).view(torch.uint8)).data),)
        return int(torch.hash_tensor(body)), str(float(body.sum(dtype=torch.float64)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None  # quantised, nested, …: the version must do


_added = np.add.reduce


def _statistics(tensor: Tensor, mark: Mark | None = None) -> Stats | None:
    """Statistics of a weight, remembered while it is alive and its data as marked; ``None`` if there are none."""
    if _is_uninitialised(tensor):
        return None
    known = _remembered(tensor)
    if mark is not None and known.mark == mark:
        return known.stats
    body = looks(tensor).body
    try:
        stats = None if body is None else measure(body)
    except (Unmeasurable, RuntimeError, NotImplementedError):
        stats = None  # a weight of an exotic kind: its metadata still says what it is
    known.mark, known.stats = mark, stats
    return stats
