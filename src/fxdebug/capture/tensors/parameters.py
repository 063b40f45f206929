"""The model's parameters and buffers before a run, and what the run did to them.

A tensor has changed when another object stands in its place, when its version moved or when its
data is not what it was: writes through ``.data`` and batch norm's running statistics move no version.
Statistics of weights and their records are remembered from run to run.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fxdebug.capture.hooks.model_layout import Layout, RegisteredTensor, join, layout_of, tensors_of
from fxdebug.capture.tensors.checksum import Checksum, Reader, checksum_of, is_uninitialised, reader_of
from fxdebug.capture.tensors.describe import PLAIN, description_of
from fxdebug.capture.tensors.tensor_ref import version_of
from fxdebug.capture.tensors.tensor_state import TensorState, state_of
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.internals import WeakTensor
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.calls import Parameter, ParameterKind
from fxdebug.data.values import Stats
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.measure import Unmeasurable, measure

AFFORDABLE = 4_000_000  # elements measured without being asked: a millisecond or two

Look = tuple[Any, ...]  # what a tensor looks like and where it lies; its version and gradient flag come last


class _WeightTable:
    """The parameters and buffers of a layout, each once, and what is remembered of them. It keeps none alive."""

    def __init__(self, layout: Layout, signature: list[Any], found: list[RegisteredTensor]) -> None:
        self.signature = signature
        names: dict[int, list[str]] = {}
        kinds: dict[int, tuple[ParameterKind, bool]] = {}
        homes: dict[int, tuple[int, str]] = {}
        for position, name, is_buffer, tensor, persistent in found:
            names.setdefault(id(tensor), []).append(join(layout.paths[position][0], name))
            kinds.setdefault(id(tensor), ("buffer" if is_buffer else "parameter", persistent))
            homes.setdefault(id(tensor), (position, name))
        self.names = [tuple(given) for given in names.values()]
        self.kinds = list(kinds.values())
        self.homes = list(homes.values())  # the module where each was found first, by its position, and the name there
        self.first = {key: given[0] for key, given in names.items()}
        self.position = {key: position for position, key in enumerate(names)}
        # as they were the last time:
        self._references: list[weakref.ref[Any] | None] = []
        self._looks: list[Look] = []
        self.readers: list[Reader | None] = []
        self.few = self.few_buffers = False
        self.marks: list[Checksum | None] = []
        self.stats: list[Stats | None] = []
        self.records: tuple[Any, tuple[Parameter, ...]] | None = None  # and what they rest on

    def look(self, tensors: list[Tensor], looks: list[Look]) -> None:
        """Where they lie is known afterwards, and of the same ones in the same places what was known before."""
        alive = [reference is None or reference() is not None for reference in self._references]
        same = looks == self._looks or [look[:-1] for look in looks] == [look[:-1] for look in self._looks]
        self._looks = looks
        if same and all(alive):
            return
        self._references = [_reference_to(tensor) for tensor in tensors]
        self.readers = [reader_of(tensor) for tensor in tensors]
        sizes = [0 if is_uninitialised(tensor) else tensor.numel() for tensor in tensors]
        buffers = [size for size, (kind, _) in zip(sizes, self.kinds) if kind == "buffer"]
        self.few, self.few_buffers = sum(sizes) <= AFFORDABLE, sum(buffers) <= AFFORDABLE
        self.remember([None] * len(tensors), [None] * len(tensors))

    def remember(self, marks: list[Checksum | None], stats: list[Stats | None]) -> None:
        """These are the statistics of data with these marks."""
        self.marks, self.stats, self.records = marks, stats, None


def _reference_to(tensor: Tensor) -> weakref.ref[Any] | None:
    """To its memory: torch does not exchange what two tensors are (``swap_tensors``) if one is referred to weakly."""
    try:
        return WeakTensor(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None  # it has none of its own: only its mark can tell that it is as it was


def _roll_of(layout: Layout, found: list[RegisteredTensor]) -> tuple[_WeightTable, list[Tensor]]:
    """What is registered, each tensor once, and what is remembered of that."""
    signature: list[Any] = []  # which tensors there are, where, under which names
    for position, name, _, tensor, persistent in found:
        signature += position, name, id(tensor), persistent
    roll = layout.memo.get("tensors")
    if roll is None or roll.signature != signature:
        roll = layout.memo["tensors"] = _WeightTable(layout, signature, found)
    return roll, list({id(tensor): tensor for _, _, _, tensor, _ in found}.values())


def _look_of(tensor: Tensor) -> Look:
    """What a tensor looks like and where it lies."""
    if is_uninitialised(tensor) or tensor.is_nested:
        return (None, (version_of(tensor), False))  # of no shape
    address = -1
    if type(tensor) in PLAIN and tensor.layout is torch.strided:
        with contextlib.suppress(RuntimeError):  # a kind that has no memory of its own
            address = tensor.data_ptr()
    place = address, tensor.shape, tensor.stride() if address >= 0 else None, tensor.dtype
    return *place, (version_of(tensor), tensor.requires_grad)


def _version_in(look: Look) -> int | None:
    version: int | None = look[-1][0]
    return version


def _is_in_place(tensor: Tensor, sight: TensorState | None, before: Look) -> bool:
    """Does a tensor lie where what looked like this lay, and as it did?"""
    if sight is None:
        place, *arranged = _look_of(tensor)[:-1]
        return arranged == list(before[1:-1]) and (place == before[0] or is_freed(tensor))  # given back: as it was
    return before[:-1] == (sight.address, sight.form.shape, sight.form.stride, sight.form.kind)


class Parameters:
    """A snapshot of a model's parameters and buffers: metadata always, statistics where affordable.

    ``measuring``: ``True`` for statistics of everything, ``False`` for none, ``None`` to take them
    when the model is small, and always of what changed. Whether data changed is looked at where
    parameters, or buffers, are few enough; of the others versions tell.
    """

    def __init__(self, layout: Layout, modules: list[nn.Module], measuring: bool | None = None) -> None:
        self._measuring = measuring
        with untracked(), np.errstate(all="ignore"):  # weights may be infinite
            self._roll, self._tensors = roll, tensors = _roll_of(layout, tensors_of(modules))
            self._looks = [_look_of(tensor) for tensor in tensors]
            roll.look(tensors, self._looks)
            self._readers = roll.readers
            self._is_marked = [roll.few or (roll.few_buffers and kind == "buffer") for kind, _ in roll.kinds]
            self._marks = self._marked()
            self._is_measured = roll.few if measuring is None else measuring
            self._before = _statistics(tensors, self._marks, roll) if self._is_measured else [None] * len(tensors)

    def _marked(self) -> list[Checksum | None]:
        looked_at = zip(self._tensors, self._readers, self._is_marked)
        return [checksum_of(tensor, reader) if marked else None for tensor, reader, marked in looked_at]

    def names(self) -> dict[int, str]:
        """First names by ``id`` of the tensor; the tensors stay alive as long as this object."""
        return self._roll.first

    def unchanged(self, tensor: Tensor, sight: TensorState | None) -> tuple[Stats | None] | None:
        """Its statistics from before the run, if it is one of ours, as and where it was then; ``None`` if not.

        Those of a large model were not measured without being asked: then the statistics are ``None``.
        """
        position = self._roll.position.get(id(tensor))
        if position is None or self._tensors[position] is not tensor:
            return None
        look, version = self._looks[position], version_of(tensor) if sight is None else sight.version
        same = version == _version_in(look) and _is_in_place(tensor, sight, look)
        return (self._before[position],) if same else None

    def registered(self, modules: list[nn.Module]) -> Iterator[tuple[Tensor, nn.Module, str]]:
        """What there was before the run, the module that had it, and its name there."""
        for tensor, (position, name) in zip(self._tensors, self._roll.homes):
            yield tensor, modules[position], name

    def after(self, model: nn.Module, values: ValueTable) -> tuple[Parameter, ...]:
        """What there was and what became of it; parameters made during the run come last."""
        with untracked(), np.errstate(all="ignore"):
            layout, modules = layout_of(model)
            roll, tensors = _roll_of(layout, tensors_of(modules))
            if roll is not self._roll:
                return self._exchanged(roll, tensors, values)
            looks = [_look_of(tensor) for tensor in tensors]
            if looks == self._looks:
                marks = self._marked()
                if self._marks == marks:
                    return self._as_before(values)
            else:
                marks = [
                    checksum_of(t, reader_of(t)) if marked else None for t, marked in zip(tensors, self._is_marked)
                ]
            records = self._records(marks, values)
            if self._is_measured:
                roll.remember(marks, [record.stats for record in records])
            return records

    def _records(self, marks: list[Checksum | None], values: ValueTable) -> tuple[Parameter, ...]:
        return tuple([self._record(position, *now, values) for position, now in enumerate(zip(self._tensors, marks))])

    def _as_before(self, values: ValueTable) -> tuple[Parameter, ...]:
        """The records of tensors that nothing happened to."""
        rests_on = self._looks, self._before, [values.storage(tensor) for tensor in self._tensors]
        known = self._roll.records
        if known is None or known[0] != rests_on:
            known = self._roll.records = rests_on, self._records(self._marks, values)
        return known[1]

    def _exchanged(self, roll: _WeightTable, tensors: list[Tensor], values: ValueTable) -> tuple[Parameter, ...]:
        """The records where tensors, or modules with tensors, were registered, removed or replaced."""
        by_name = {name: place for place, names in enumerate(roll.names) for name in names}
        found = []
        for position, names in enumerate(self._roll.names):
            place = by_name.get(names[0])
            tensor = self._tensors[position] if place is None else tensors[place]
            mark = checksum_of(tensor, reader_of(tensor)) if self._is_marked[position] else None
            found.append(self._record(position, tensor, mark, values))
        known = {name for names in self._roll.names for name in names}
        for name, place in by_name.items():
            if name not in known:
                stats = None if self._measuring is False else _measured(tensors[place])
                found.append(_made((name,), *roll.kinds[place], tensors[place], values, True, None, stats))
        return tuple(found)

    def _record(self, position: int, tensor: Tensor, mark: Checksum | None, values: ValueTable) -> Parameter:
        """What became of one that was there before the run; ``mark``: of the data it has now."""
        before = self._before[position]
        moved = tensor is not self._tensors[position] or version_of(tensor) != _version_in(self._looks[position])
        is_in_place = _is_in_place(tensor, state_of(tensor), self._looks[position])
        changed = moved or not is_in_place or mark != self._marks[position]
        if changed and is_in_place and not moved:
            values.distrust(tensor)
        stats = _measured(tensor) if changed and self._measuring is not False else before
        return _made(self._roll.names[position], *self._roll.kinds[position], tensor, values, changed, before, stats)


def _made(
    names: tuple[str, ...],
    kind: ParameterKind,
    persistent: bool,
    tensor: Tensor,
    values: ValueTable,
    changed: bool,
    before: Stats | None,
    stats: Stats | None,
) -> Parameter:
    if is_uninitialised(tensor):
        device = str(tensor.device)
        return Parameter(names, kind, (), str(tensor.dtype)[6:], device, tensor.requires_grad)
    seen = description_of(tensor)
    return Parameter(
        names=names,
        kind=kind,
        shape=seen.shape,
        dtype=seen.dtype,
        device=seen.device,
        requires_grad=seen.requires_grad,
        storage=None if seen.body is None else values.storage(seen.body),
        persistent=persistent,
        changed=changed,
        before=before,
        stats=stats,
        sharding=seen.sharding,
    )


# Statistics --------------------------------------------------------------------------------------


def _statistics(tensors: list[Tensor], marks: list[Checksum | None], roll: _WeightTable) -> list[Stats | None]:
    """Statistics of weights: the ones remembered where the data is still as marked."""
    if marks == roll.marks and None not in marks:
        return roll.stats
    known = zip(tensors, marks, roll.marks, roll.stats)
    stats = [had if mark is not None and mark == old else _measured(tensor) for tensor, mark, old, had in known]
    roll.remember(marks, stats)
    return stats


def _measured(tensor: Tensor) -> Stats | None:
    if is_uninitialised(tensor):
        return None
    body = description_of(tensor).body
    try:
        return None if body is None else measure(body)
    except (Unmeasurable, RuntimeError, NotImplementedError):
        return None  # a weight of an exotic kind: its metadata still says what it is
