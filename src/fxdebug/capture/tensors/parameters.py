"""The model's parameters and buffers ("weights") before and after a run, and which of them the run changed.

A weight has changed if another object took its place, if its version moved or if its checksum did: writes through
``.data`` and batch norm's running statistics move no version. Statistics and records are kept from run to run.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.hooks.model_layout import Layout, RegisteredTensor, layout_of, registered_in, tensors_of
from fxdebug.capture.tensors.checksum import (
    Checksum,
    Reader,
    checksum_of,
    checksums_of_memory,
    checksums_without_reader,
    reader_of,
)
from fxdebug.capture.tensors.new_value import StorageNumbers
from fxdebug.capture.tensors.special_tensors import PLAIN, description_of, is_uninitialised
from fxdebug.capture.tensors.stats_queue import KnownStats
from fxdebug.capture.tensors.tensor_state import TensorLayout, TensorState, is_unmoved, state_of, version_of
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.internals import WeakTensor
from fxdebug.capture.torch_state.module_members import join
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Parameter, ParameterKind
from fxdebug.data.values import Stats, Value
from fxdebug.data.weight_sums import packed, summed_dimensions
from fxdebug.native.dispatch import natively
from fxdebug.stats.accelerator import DeviceBatch, captures_graph, is_off_cpu
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.measure import Unmeasurable, measure, measure_on_device

AFFORDABLE = 4_000_000  # elements that are measured unasked: they take a millisecond or two
_PLACE = 4  # facts of a weight's state that say where it is, and in which layout

WeightState = tuple[Any, ...]
"""(address, shape, strides, dtype, storage, (version, gradient flag)) of a weight; all but the last are ``None`` for a
weight without a shape."""


_Signature = tuple[list[Any], list[int], list[int]]
"""The names of a model's weights, their ids and those of their classes."""


class _WeightTable:
    """The weights of a model layout, each once, with the statistics of the last run. It keeps no weight alive."""

    def __init__(
        self, layout: Layout, signature: _Signature, registered: list[RegisteredTensor], held: list[Any]
    ) -> None:
        self.signature = signature
        first = dict(zip(reversed(list(map(id, held))), range(len(held) - 1, -1, -1)))
        self.places = [first[key] for key in dict.fromkeys([id(tensor) for _, _, _, tensor, _ in registered])]
        self.holds_each_once = self.places == list(range(len(held)))
        self.others = [place for place, held_at in enumerate(self.places) if type(held[held_at]) not in PLAIN]
        names: dict[int, list[str]] = {}
        kinds: dict[int, tuple[ParameterKind, bool]] = {}
        homes: dict[int, tuple[int, str]] = {}
        for position, name, is_buffer, tensor, persistent in registered:
            names.setdefault(id(tensor), []).extend([join(path, name) for path in layout.paths[position]])
            kinds.setdefault(id(tensor), ("buffer" if is_buffer else "parameter", persistent))
            homes.setdefault(id(tensor), (position, name))
        self.names = [tuple(paths) for paths in names.values()]
        self.kinds = list(kinds.values())
        self.homes = list(homes.values())  # the first module that has it, by its position, and the name there
        self.first_names = {key: paths[0] for key, paths in names.items()}
        self.position = {key: position for position, key in enumerate(names)}
        # as they were in the last run:
        self._references: list[weakref.ref[Any] | None] = []
        self._states: list[WeightState] = []
        self.storages = StorageNumbers()
        self.storage_numbers: list[int | None] = []  # of the weights that are plain
        self.readers: list[Reader | None] = []
        self.is_checked: list[bool] = []
        self.checked_elsewhere: list[int] = []  # those that are checked, and have no reader
        self.affords_all = self.affords_buffers = False
        self.checksums: list[Checksum | None] = []
        self.stats: list[Stats | None] = []
        self.sums: list[str | None] = []
        self.records: tuple[Any, tuple[Parameter, ...]] | None = None  # (facts, records that hold while those do)
        self.values: list[tuple[TensorState, Value] | None] = []  # a state of each weight, and a value of it then

    def update(self, tensors: list[Tensor], states: list[WeightState]) -> list[WeightState]:
        """Store where the weights are now; drop their statistics unless all are the same, in the same places.

        Returns these states, as the same objects as in the last run if they are equal.
        """
        is_equal = states == self._states
        same = is_equal or [state[:-1] for state in states] == [state[:-1] for state in self._states]
        if not is_equal:
            self._states = states
        if same and self.are_alive():
            return self._states
        self._references = [_reference_to(tensor) for tensor in tensors]
        self.storages = StorageNumbers()  # weights come first: their numbers, and so their records, hold for all runs
        self.storage_numbers = [
            self.storages.number_of(tensor) if type(tensor) in PLAIN and not is_uninitialised(tensor) else None
            for tensor in tensors
        ]
        self.values = [None] * len(tensors)
        self.readers = [reader_of(tensor) for tensor in tensors]
        sizes = [0 if is_uninitialised(tensor) else tensor.numel() for tensor in tensors]
        buffers = [size for size, (kind, _) in zip(sizes, self.kinds) if kind == "buffer"]
        self.affords_all, self.affords_buffers = sum(sizes) <= AFFORDABLE, sum(buffers) <= AFFORDABLE
        self.is_checked = [self.affords_all or (self.affords_buffers and kind == "buffer") for kind, _ in self.kinds]
        self.readers = [reader if checked else None for reader, checked in zip(self.readers, self.is_checked)]
        weights = enumerate(zip(self.readers, self.is_checked))
        self.checked_elsewhere = [place for place, (reader, checked) in weights if checked and reader is None]
        unknown: list[None] = [None] * len(tensors)
        self.remember([*unknown], [*unknown], [*unknown])
        return states

    def are_alive(self) -> bool:
        """Are all storages still there that the weights had when they were numbered?"""
        return not [1 for reference in self._references if reference is not None and reference() is None]

    def remember(self, checksums: list[Checksum | None], stats: list[Stats | None], sums: list[str | None]) -> None:
        """Store the statistics and the sums over slices of data with these checksums."""
        self.checksums, self.stats, self.sums, self.records = checksums, stats, sums, None


def _reference_to(tensor: Tensor) -> weakref.ref[Any] | None:
    """Return a weak reference to a tensor's storage; with one to the tensor itself ``swap_tensors`` would refuse it."""
    try:
        return WeakTensor(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None  # it has no storage of its own: only its checksum shows whether it has changed


def _table_of(layout: Layout, modules: list[nn.Module]) -> tuple[_WeightTable, list[Tensor]]:
    """Return the table of the registered weights (a new one if they differ from last time), and each weight once."""
    held, names = registered_in(modules)
    signature = names, list(map(id, held)), list(map(id, map(type, held)))
    table = layout.memo.get("tensors")
    if table is None or table.signature != signature:
        table = layout.memo["tensors"] = _WeightTable(layout, signature, tensors_of(modules), held)
    return table, held if table.holds_each_once else [held[place] for place in table.places]


@natively("weight_states", TensorLayout)
def _weight_states(tensors: list[Tensor]) -> list[WeightState]:
    """Return where each weight is, its layout, its version and its gradient flag."""
    return [_weight_state(tensor) for tensor in tensors]


def _weight_state(tensor: Tensor) -> WeightState:
    is_plain = type(tensor) in PLAIN
    if (not is_plain and is_uninitialised(tensor)) or tensor.is_nested:
        return None, None, None, None, None, (version_of(tensor), False)  # it has no shape
    address, stride, storage = -1, None, None
    if is_plain and tensor.layout is torch.strided:
        try:
            address, storage = tensor.data_ptr(), tensor.untyped_storage()._cdata
            stride = tensor.stride()
        except RuntimeError:  # a class without memory of its own
            address = -1
    return address, tensor.shape, stride, tensor.dtype, storage, (version_of(tensor), tensor.requires_grad)


def _version_in(state: WeightState) -> int | None:
    version: int | None = state[-1][0]
    return version


def _is_unmoved(tensor: Tensor, state: TensorState | None, before: WeightState) -> bool:
    """Is a weight where it was, with the same shape, strides and dtype?"""
    if state is None:
        address, *arranged = _weight_state(tensor)[:_PLACE]
        is_there = address == before[0] or is_freed(tensor)  # memory that was freed: nothing was written
        return is_there and arranged == list(before[1:_PLACE])
    layout = state.layout
    return before[:_PLACE] == (state.address, layout.shape, layout.stride, layout.torch_dtype)


class Parameters:
    """A snapshot of a model's parameters and buffers: metadata always, statistics where affordable.

    ``measuring``: ``True`` for statistics of all weights, ``False`` for none, ``None`` for those of a small model and
    of any weight that changed. Data are compared by checksums: of all weights if the model is small, else of the
    buffers if these are small. A change of any other weight shows only in its version or its place.
    """

    def __init__(self, layout: Layout, modules: list[nn.Module], measuring: bool | None = None) -> None:
        self._measuring = measuring
        with untracked(), np.errstate(all="ignore"):  # weights may be infinite
            self._table, self._tensors = table, tensors = _table_of(layout, modules)
            self._states = table.update(tensors, _weight_states(tensors))
            self._readers, self._is_checked, self._checked_elsewhere = (
                table.readers,
                table.is_checked,
                table.checked_elsewhere,
            )
            self._checksums = self._read_checksums()
            self._is_measured = table.affords_all if measuring is None else measuring
            self._before: list[Stats | None] = [None] * len(tensors)
            self._sums: list[str | None] = [None] * len(tensors)
            if self._is_measured:
                self._before, self._sums = _statistics(tensors, self._checksums, table)

    def _read_checksums(self) -> list[Checksum | None]:
        checksums = checksums_of_memory(self._readers)
        found = checksums_without_reader([self._tensors[position] for position in self._checked_elsewhere])
        for position, checksum in zip(self._checked_elsewhere, found):
            checksums[position] = checksum
        return checksums

    def names(self) -> dict[int, str]:
        """Return the first name of each weight by its ``id``; this object keeps the weights alive."""
        return self._table.first_names

    def storages(self) -> StorageNumbers:
        """Return the numbers of the weights' storages, for this run to go on with."""
        return self._table.storages.copy()

    def stats_before(self, tensor: Tensor, state: TensorState | None) -> KnownStats | None:
        """Return a weight's statistics from before the run; ``None`` if it is no weight, has moved or was written to.

        The result is ``(None,)`` for a weight of a large model, which was not measured unasked.
        """
        position = self._table.position.get(id(tensor))
        if position is None or self._tensors[position] is not tensor:
            return None
        before, version = self._states[position], version_of(tensor) if state is None else state.version
        same = version == before[-1][0] and _is_unmoved(tensor, state, before)
        return (self._before[position],) if same else None

    def earlier_value(self, tensor: Tensor) -> tuple[TensorState, Value, Stats | None] | None:
        """Return the state of a weight, a value of it from an earlier run, and its statistics from before this run.

        ``None`` if no run has had its value in that state. Only the numbers in the two values may differ.
        """
        position = self._table.position.get(id(tensor))
        known = None if position is None else self._table.values[position]
        if position is None or known is None or self._tensors[position] is not tensor:
            return None
        state, value = known
        if version_of(tensor) != state.version or tensor.requires_grad != value.requires_grad:
            return None
        return (state, value, self._before[position]) if is_unmoved(state, tensor) else None

    def remember_value(self, tensor: Tensor, state: TensorState, value: Value) -> None:
        """Remember a value of a weight for :meth:`earlier_value` in later runs."""
        position = self._table.position.get(id(tensor))
        if position is not None and self._tensors[position] is tensor and state.version is not None:
            self._table.values[position] = state, value

    def core_parts(self) -> tuple[Any, ...]:
        """Return what the native core needs to do as :meth:`stats_before` does, and to name and number a weight."""
        table = self._table
        return table.position, self._tensors, self._states, self._before, table.names, table.storage_numbers

    def registered(self, modules: list[nn.Module]) -> Iterator[tuple[Tensor, nn.Module, str]]:
        """Yield each weight from before the run, a module that had it, and its name there."""
        for tensor, (position, name) in zip(self._tensors, self._table.homes):
            yield tensor, modules[position], name

    def records_after(self, model: nn.Module, values: ValueTable) -> tuple[Parameter, ...]:
        """Return the records of all weights after the run; weights that the run made come last."""
        with untracked(), np.errstate(all="ignore"):
            layout, modules = layout_of(model)
            table, tensors = _table_of(layout, modules)
            if table is not self._table:
                return self._records_of_new_table(table, tensors, values)
            states = _weight_states(tensors)
            if states == self._states:
                checksums = self._read_checksums()
                if self._checksums == checksums:
                    return self._unchanged_records(values)
            else:
                weights = zip(tensors, self._is_checked)
                checksums = [checksum_of(t, reader_of(t)) if is_checked else None for t, is_checked in weights]
            records = self._records(checksums, values)
            if self._is_measured:
                table.remember(checksums, [record.stats for record in records], [record.sums for record in records])
            return records

    def _records(self, checksums: list[Checksum | None], values: ValueTable) -> tuple[Parameter, ...]:
        weights = enumerate(zip(self._tensors, checksums))
        return tuple([self._record(position, *weight, values) for position, weight in weights])

    def _unchanged_records(self, values: ValueTable) -> tuple[Parameter, ...]:
        """Return the records of a run that changed no weight: the last run's records, if they still hold."""
        others = [self._tensors[place] for place in self._table.others]  # the table has no numbers of theirs
        depends_on = self._states, self._before, [values.storage_number(tensor) for tensor in others]
        known = self._table.records
        if known is None or known[0] != depends_on or not self._table.are_alive():
            known = self._table.records = depends_on, self._records(self._checksums, values)
        return known[1]

    def _records_of_new_table(
        self, table: _WeightTable, tensors: list[Tensor], values: ValueTable
    ) -> tuple[Parameter, ...]:
        """Return the records of a run that registered, removed or replaced weights, or modules with weights."""
        by_name = {name: place for place, names in enumerate(table.names) for name in names}
        records = []
        for position, names in enumerate(self._table.names):
            place = by_name.get(names[0])
            tensor = self._tensors[position] if place is None else tensors[place]
            checksum = checksum_of(tensor, reader_of(tensor)) if self._is_checked[position] else None
            records.append(self._record(position, tensor, checksum, values))
        known = {name for names in self._table.names for name in names}
        for place, names in enumerate(table.names):
            if new := tuple([name for name in names if name not in known]):
                stats = None if self._measuring is False else stats_of(tensors[place])
                records.append(_record_of(new, *table.kinds[place], tensors[place], values, True, None, stats))
        return tuple(records)

    def _record(self, position: int, tensor: Tensor, checksum: Checksum | None, values: ValueTable) -> Parameter:
        """Return the record of a weight from before the run; ``checksum`` is that of its data now."""
        before = self._before[position]
        is_other = tensor is not self._tensors[position] or version_of(tensor) != _version_in(self._states[position])
        is_unmoved = _is_unmoved(tensor, state_of(tensor), self._states[position])
        is_rewritten = checksum is not None and checksum != self._checksums[position]  # ``None``: the device is lost
        changed = is_other or not is_unmoved or is_rewritten
        if changed and is_unmoved and not is_other:
            values.clear_stats_of(tensor)
        stats = stats_of(tensor) if changed and self._measuring is not False else before
        sums = None if changed or before is None else self._sums[position]
        return _record_of(
            self._table.names[position], *self._table.kinds[position], tensor, values, changed, before, stats, sums
        )


def _record_of(
    names: tuple[str, ...],
    kind: ParameterKind,
    persistent: bool,
    tensor: Tensor,
    values: ValueTable,
    changed: bool,
    before: Stats | None,
    stats: Stats | None,
    sums: str | None = None,
) -> Parameter:
    if is_uninitialised(tensor):
        device = str(tensor.device)
        return Parameter(names, kind, (), str(tensor.dtype)[6:], device, tensor.requires_grad)
    description = description_of(tensor)
    return Parameter(
        names=names,
        kind=kind,
        shape=description.shape,
        dtype=description.dtype,
        device=description.device,
        requires_grad=description.requires_grad,
        storage=None if description.body is None else values.storage_number(description.body),
        persistent=persistent,
        changed=changed,
        before=before,
        stats=stats,
        sharding=description.sharding,
        sums=sums,
    )


# Statistics --------------------------------------------------------------------------------------


def _statistics(
    tensors: list[Tensor], checksums: list[Checksum | None], table: _WeightTable
) -> tuple[list[Stats | None], list[str | None]]:
    """Return statistics of weights and, for small models, sums over slices: the last run's if the checksum is equal."""
    if checksums == table.checksums and None not in checksums:
        return table.stats, table.sums
    stats, sums = list(table.stats), list(table.sums)
    others = [
        position
        for position, checksum in enumerate(checksums)
        if checksum is None or checksum != table.checksums[position]
    ]
    for position, measured in zip(others, _all_stats_of([tensors[position] for position in others])):
        stats[position] = measured
        sums[position] = sums_of(tensors[position]) if table.affords_all else None
    table.remember(checksums, stats, sums)
    return stats, sums


def sums_of(tensor: Tensor) -> str | None:
    """Return the sums over the slices of a weight; of a vector, its elements."""
    body = None if is_uninitialised(tensor) else description_of(tensor).body
    if body is None or not body.is_floating_point() or body.layout is not torch.strided or body.is_nested:
        return None
    try:
        elements = body.cpu().to(torch.float32, copy=True).numpy()  # of a copy: see stats/cpu_sums.array_of
        whole = range(elements.ndim)
        sums = [elements.sum(axis=tuple([x for x in whole if x != d])) for d in summed_dimensions(elements.shape)]
        return packed([np.asarray(side, "<f4").tobytes() for side in sums])
    except (RuntimeError, NotImplementedError, TypeError):
        return None  # as in `stats_of`


def stats_of(tensor: Tensor) -> Stats | None:
    """Return the statistics of a weight; ``None`` for one of an unusual kind."""
    return _all_stats_of([tensor])[0]


def _all_stats_of(tensors: list[Tensor]) -> list[Stats | None]:
    """Return the statistics of weights; those on one accelerator come over together."""
    found: list[Stats | None] = [None] * len(tensors)
    batches: dict[torch.device, DeviceBatch] = {}
    for position, tensor in enumerate(tensors):
        if is_uninitialised(tensor):
            continue
        try:
            body = description_of(tensor).body
            if body is None or (is_off_cpu(body) and captures_graph()):
                continue
            if is_off_cpu(body):
                batch = batches.setdefault(body.device, DeviceBatch())
                if measure_on_device(body, batch, partial(found.__setitem__, position)):
                    continue
            found[position] = measure(body)
        except (Unmeasurable, RuntimeError, NotImplementedError):
            continue  # a weight of an unusual kind: its record has metadata only
    for batch in batches.values():
        with contextlib.suppress(RuntimeError):  # the device is full, or lost: metadata only
            batch.fetch()
    return found
