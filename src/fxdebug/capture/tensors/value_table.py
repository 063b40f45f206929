"""Table of the values of a run: each value is described, measured and kept once.

A tensor is still the same :class:`~fxdebug.data.values.Value` if it is the same tensor object with the same
``_version`` at the same address: then nothing was written to it. The object is held weakly: Python reuses an ``id``
after the tensor is freed, so an entry counts only while its reference is alive.

Where versions tell nothing, the numbers decide: inference tensors have no version, and memory that is shared with
numpy, or is not torch's own, can be written to without a new one. Such a tensor is measured each time, and is the same
value as long as the measurement is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from fxdebug.capture.tensors.kept_data import AddNote, Keeper, KeptData
from fxdebug.capture.tensors.new_value import StorageNumbers, ValueMaker
from fxdebug.capture.tensors.special_tensors import PLAIN, description_of, shape_of
from fxdebug.capture.tensors.stats_queue import PendingStats, StatsTaker, WeightsBeforeRun
from fxdebug.capture.tensors.tensor_ref import StorageRef, TensorId, TensorRef, WeightRef
from fxdebug.capture.tensors.tensor_state import TensorLayout, TensorState, is_unmoved, state_of, version_of
from fxdebug.capture.tensors.type_names import name_of
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import is_unobserved, untracked
from fxdebug.data.values import Stats, Value
from fxdebug.native import dispatch
from fxdebug.native.records import record_constructor
from fxdebug.stats.accelerator import is_off_cpu
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.measure import measure

NO_VERSION = -1  # of an entry whose value is out of date; no tensor has this version


def ignore_value(value: Value) -> None:
    """Drop a new value: nobody waits for it."""


def ignore_note(text: str) -> None:
    """Drop a note: the run is over and its notes are read."""


class ValueTable:
    """The values of one trace, and the tensor objects they belong to.

    ``names`` maps ``id(tensor)`` of the model's parameters and buffers ("weights") to their names; the caller keeps
    those tensors alive. ``before_run`` has the statistics of weights that are as they were before the run, and
    ``storages`` has the numbers of their storages. ``may_wait``: nobody reads statistics before the run is over.
    """

    def __init__(
        self,
        names: dict[int, str],
        keeper: Keeper | None,
        note: AddNote,
        measuring: bool = True,
        before_run: WeightsBeforeRun | None = None,
        storages: StorageNumbers | None = None,
        may_wait: bool = False,
    ) -> None:
        self.all: list[Value] = []
        self.first_values: list[Value] = []  # by ``TensorId``: the first value of each tensor object
        self.refs: dict[int, TensorRef] = {}  # by ``id(tensor)``: an entry counts while it refers to that tensor
        self._names = names
        self._note = note
        may_wait = may_wait and dispatch.core() is None  # the core measures a small tensor faster than it is copied
        self._stats = StatsTaker(note, before_run, may_wait) if measuring else None
        self._before_run = before_run
        self._storages = StorageNumbers() if storages is None else storages
        self._maker = ValueMaker(names, self._storages, self._stats)
        self._awaited: dict[TensorId, Callable[[Value], None]] = {}  # see ``await_value``
        self._writes_on_device: dict[int, int] = {}  # by storage: how often a kernel may have written to it unseen
        self._after_writes: dict[int, int] = {}  # by number: after how many of these writes a value was made
        self._rewritten: set[int] = set()  # ids of tensors: statistics from before the run are out of date
        self._lock = threading.RLock()  # values are numbered in any thread
        self._kept = None if keeper is None else KeptData(keeper, note, self._lock)
        self._keep_all = self._kept is not None and self._kept.everything
        self.keeps_attention = self._kept is not None and self._kept.attention
        self.native = None if self._keep_all else self._in_core()

    def _in_core(self) -> Any:
        """Return the look-ups of plain tensors in the native core, where that is in use; else ``None``."""
        core = dispatch.core()
        parts = self.refs, self.all, self.first_values, self._names, self._rewritten, self._storages, self._stats
        if core is None:
            return None
        before_run = None if self._stats is None else self._stats.before_run
        before = () if before_run is None else before_run.core_parts()
        kinds = TensorRef, TensorId, StorageRef, TensorLayout, TensorState, record_constructor(Value)
        kept = self._kept, set() if self._kept is None else self._kept.numbers
        return core.Values(*parts, before, self._lock, *kinds, core.statistics(record_constructor(Stats)), *kept)

    # Four look-ups -------------------------------------------------------------------------------

    def value_of(self, tensor: Tensor, keep: bool = True, weights: bool = True) -> Value:
        """Return a tensor's present value; make, measure and (``keep``) store it if it is new.

        Without ``weights``, the weights of a large model stay unmeasured: its operations read all of them, while calls
        are given only few. Call it inside :class:`~fxdebug.capture.torch_state.untracked.untracked`.
        """
        if self.native is not None:
            value: Value = self.native.value_of(tensor, weights, keep)
            if value is not NotImplemented:
                return value
        ref = self._unchanged(tensor)
        if ref is not None and self._kept is None and not (weights and ref.is_unmeasured):
            return ref.value
        with self._lock:
            return self._value_of(tensor, keep, weights)

    def values_of(self, tensors: tuple[Any, ...]) -> tuple[Value, ...] | None:
        """Return the present values of plain tensors; ``None`` where that takes an ``untracked`` block, or other items.

        The arguments of most calls are plain tensors alone, and nothing has to be kept of them.
        """
        if self.native is not None:
            values: tuple[Value, ...] = self.native.values_of(tensors, True, True)
            return None if values is NotImplemented else values
        if self._kept is not None or not PLAIN.issuperset(map(type, tensors)):
            return None
        if is_unobserved():
            return tuple([self.value_of(tensor) for tensor in tensors])
        with internals.DisableTorchFunction():  # all that a look at tensors takes that are in the table
            refs = [self._unchanged(tensor) for tensor in tensors]
        found = [ref.value for ref in refs if ref is not None and not ref.is_unmeasured]
        return tuple(found) if len(found) == len(refs) else None

    def _unchanged(self, tensor: Tensor) -> TensorRef | None:
        """Return the entry of a plain tensor that is as it was; ``None`` where that is not so, or takes more to tell.

        Call it where torch's function modes are off.
        """
        ref = self.refs.get(id(tensor))
        if (
            ref is not None
            and ref.version is not None
            and ref.state is not None
            and ref() is tensor
            and ref.version == version_of(tensor)
            and ref.value.storage not in self._storages.unversioned
            and is_unmoved(ref.state, tensor)
        ):
            return ref
        return None

    def lookup(self, tensor: Tensor) -> TensorRef | None:
        """Return the entry of a tensor object; ``None`` if the table has none."""
        ref = self.refs.get(id(tensor))
        return ref if ref is not None and ref() is tensor else None

    def refs_of(self, result: Any) -> list[TensorRef]:
        """Return the entries of a tensor, or of those in a tuple, as far as the table has them."""
        tensors = [item for item in (result if isinstance(result, tuple) else (result,)) if isinstance(item, Tensor)]
        return [ref for tensor in tensors if (ref := self.lookup(tensor)) is not None]

    def ref_of(self, tensor: Tensor) -> TensorRef:
        """Return the entry of a tensor object; add one, with its value, if the table has none."""
        if self.native is not None:
            found: TensorRef = self.native.ref_of(tensor)
            if found is not NotImplemented:
                return found
        ref = self.refs.get(id(tensor))
        if ref is not None and ref() is tensor:
            return ref
        if type(tensor) in PLAIN and is_unobserved():
            return self.add(tensor)
        with untracked():
            return self.add(tensor)

    def add(self, tensor: Tensor) -> TensorRef:
        """Add a tensor object that the table does not have. Call it inside ``untracked`` or where no mode is active."""
        is_weight = self._before_run is not None and id(tensor) in self._names
        earlier = self._earlier_value(tensor) if is_weight else None
        state = state_of(tensor) if earlier is None else earlier[0]
        with self._lock:
            ref = self.lookup(tensor)  # another thread may have added it meanwhile
            if ref is not None:
                return ref
            if earlier is not None:
                value = self._maker.renumbered(earlier[1], len(self.all), earlier[2])
                self.all.append(value)
            else:
                value = self._new(tensor, state, self._keep_all, False)
                if is_weight and state is not None and self._before_run is not None:
                    self._before_run.remember_value(tensor, state, value)
            return self._add(tensor, state, value, False)

    def _earlier_value(self, tensor: Tensor) -> tuple[TensorState, Value, Stats | None] | None:
        """Return what is known of a weight from an earlier run, if nothing but its number may be another now."""
        if self._kept is not None or self._before_run is None or id(tensor) in self._rewritten:
            return None
        earlier = self._before_run.earlier_value(tensor)
        return None if earlier is None or earlier[1].storage in self._storages.unversioned else earlier

    def note_inputs(
        self,
        refs: list[TensorRef],
        layouts: dict[TensorId, tuple[tuple[int, ...], torch.dtype, bool]],
        values: dict[TensorId, Value],
    ) -> None:
        """Note the tensors of these entries as they are now: shape, dtype and gradient flag, and the value, by id."""
        if not refs or (self.native is not None and self.native.note_inputs(refs, layouts, values) is None):
            return
        if self._kept is None:
            with internals.DisableTorchFunction():
                refs = [ref for ref in refs if not self._is_noted(ref, layouts, values)]
        if not refs:
            return
        with untracked():
            for ref in refs:
                tensor = ref()
                if tensor is None:
                    continue
                ref.requires_grad = tensor.requires_grad
                if not tensor.is_nested:
                    layouts[ref.tensor_id] = shape_of(tensor), tensor.dtype, ref.requires_grad
                    values[ref.tensor_id] = self.value_of(tensor, keep=False, weights=False)

    def _is_noted(
        self,
        ref: TensorRef,
        layouts: dict[TensorId, tuple[tuple[int, ...], torch.dtype, bool]],
        values: dict[TensorId, Value],
    ) -> bool:
        """Note a tensor that is as it was, for :meth:`note_inputs`; ``False`` for any other."""
        tensor = ref()
        if tensor is None or ref.state is None or self._unchanged(tensor) is not ref:
            return False
        layout, tensor_id = ref.state.layout, ref.tensor_id
        ref.requires_grad = tensor.requires_grad
        layouts[tensor_id], values[tensor_id] = (layout.shape, layout.torch_dtype, ref.requires_grad), ref.value
        return True

    # Behind the look-ups -------------------------------------------------------------------------

    def _value_of(self, tensor: Tensor, keep: bool, weights: bool) -> Value:
        keep = keep or self._keep_all
        ref = self.lookup(tensor)
        version = None if ref is None else version_of(tensor)
        if ref is not None and ref.version == version and is_unmoved(ref.state, tensor):
            value = ref.value
            if (version is not None and value.storage not in self._storages.unversioned) or self._is_same(
                value, tensor
            ):
                if weights and ref.is_unmeasured:
                    ref.is_unmeasured = False
                    self._measure(value, tensor)
                if keep and self._kept is not None and value.number not in self._kept.numbers:
                    self._kept.keep(value, tensor, None)
                return value
        state = state_of(tensor)
        value = self._new(tensor, state, keep, weights, ref)
        if ref is None:
            self._add(tensor, state, value, weights)
        else:
            ref.state, ref.version, ref.value = state, version, value
            ref.is_unmeasured = self._is_unmeasured(value, weights)
            if self._awaited:
                self._awaited.pop(ref.tensor_id, ignore_value)(value)
        return value

    def _add(self, tensor: Tensor, state: TensorState | None, value: Value, weights: bool) -> TensorRef:
        ref = TensorRef(tensor)
        ref.state, ref.value, ref.tensor_id = state, value, TensorId(len(self.first_values))
        ref.version = version_of(tensor) if state is None else state.version
        ref.requires_grad = value.requires_grad
        ref.is_unmeasured = self._is_unmeasured(value, weights)
        self.first_values.append(value)
        self.refs[id(tensor)] = ref
        return ref

    def _is_unmeasured(self, value: Value, weights: bool) -> bool:
        return value.name is not None and not weights and value.stats is None and self._stats is not None

    def _new(
        self, tensor: Tensor, state: TensorState | None, keep: bool, weights: bool, ref: TensorRef | None = None
    ) -> Value:
        if state is None:
            value = self._maker.special(len(self.all), tensor, weights)
        else:
            base = tensor._base  # of a view: the tensor whose versions it shares
            counting = ref if base is None else self.lookup(base)
            owner = (
                len(self.first_values) if counting is None else counting.tensor_id
            )  # else an id that no other tensor has
            remeasure = id(tensor) in self._rewritten
            value = self._maker.plain(len(self.all), tensor, state, owner, weights, remeasure=remeasure)
        self.all.append(value)
        if value.storage in self._writes_on_device:
            self._after_writes[value.number] = self._writes_on_device[value.storage]
        if keep and self._kept is not None:
            self._kept.keep(value, tensor, None if state is None else tensor)
            version = version_of(tensor) if state is None else state.version
            if version is None or value.storage in self._storages.unversioned:
                self._kept.note_checksum(value, tensor)
        return value

    def _measure(self, value: Value, tensor: Tensor) -> None:
        body = description_of(tensor).body
        if body is None or self._stats is None:
            return
        stats = self._stats.measure(body)
        if isinstance(stats, PendingStats):
            stats.attach(value)
        else:
            complete(value, stats=stats)

    def _is_same(self, value: Value, tensor: Tensor) -> bool:
        """Does a tensor whose version tells nothing still have the numbers of a value?"""
        try:
            body = description_of(tensor).body
            if body is None or is_freed(body):
                return True
            if value.storage in self._writes_on_device:
                return self._after_writes.get(value.number) == self._writes_on_device[value.storage]
            if self._kept is not None:
                return self._kept.is_same(value, body)
            if self._stats is None:
                return True
            self._stats.settle()
            return measure(body) == value.stats
        except Exception:
            return False

    # Writes that versions do not count -----------------------------------------------------------

    def mark_unversioned(self, ref: TensorRef) -> None:
        """Mark a tensor's storage as writable without a version (shared with numpy, given out as ``.data``).

        On an accelerator comparing numbers would wait for the device: there what holds the memory is taken to be
        another value from now on, as a kernel is launched with an address that was just asked for. Call it inside
        ``untracked``.
        """
        tensor = ref()
        if tensor is None:
            return
        if not is_unmoved(ref.state, tensor):
            ref.version = NO_VERSION
        storage = ref.value.storage
        if storage is None:
            return
        with self._lock:
            self._storages.unversioned.add(storage)
            if is_off_cpu(tensor):
                self._writes_on_device[storage] = self._writes_on_device.get(storage, 0) + 1
            elif self._kept is not None:
                self._kept.note_checksum(ref.value, tensor)

    def mark_rewritten(self, refs: Iterable[TensorRef], tensor_ids: Sequence[Any]) -> None:
        """Mark the tensors of ``refs`` with these ids: an operation wrote to them without moving their versions."""
        for ref in refs:
            tensor = ref()
            if ref.tensor_id in tensor_ids and tensor is not None and ref.version is not None:
                ref.version = NO_VERSION
                self._rewritten.add(id(tensor))

    def mark_device_rewritten(self) -> None:
        """Mark all tensors on accelerators but the weights: a CUDA graph writes to its memory, and moves no version."""
        storages: set[int] = set()
        for ref in list(self.refs.values()):
            tensor, storage = ref(), ref.value.storage
            if tensor is not None and storage is not None and is_off_cpu(tensor) and not self.is_weight(tensor):
                storages.add(storage)
        with self._lock:
            self._storages.unversioned |= storages
            for storage in storages:
                self._writes_on_device[storage] = self._writes_on_device.get(storage, 0) + 1

    def await_value(self, ref: TensorRef, notify: Callable[[Value], None]) -> None:
        """Drop the present value of a tensor that is being written to unseen; ``notify`` gets the next one, once."""
        tensor = ref()
        if tensor is not None and ref.version is not None:
            ref.version = NO_VERSION
            self._rewritten.add(id(tensor))
            self._awaited[ref.tensor_id] = notify

    def look_at_awaited(self) -> None:
        """Take the values that are still awaited: nobody looks at their tensors any more."""
        for ref in list(self.refs.values()):
            tensor = ref() if self.is_awaited(ref) else None
            if tensor is not None:
                self.value_of(tensor, keep=False)
        self._awaited.clear()

    def is_awaited(self, ref: TensorRef) -> bool:
        """Is the next value of a tensor awaited?"""
        return ref.tensor_id in self._awaited

    def clear_stats_of(self, tensor: Tensor) -> None:
        """Drop the statistics of a weight's values: it was written to unseen, so it is not known which had which."""
        ref = self.lookup(tensor)
        if id(tensor) in self._rewritten or (ref is not None and ref.value.storage in self._storages.unversioned):
            return  # it was measured each time
        values = [value for value in self.all if value.name is not None and value.name == self._names.get(id(tensor))]
        for value in values:
            complete(value, stats=None)
        if values:
            self._note(f"no statistics: {values[0].name} was written to in a way that versions do not tell (.data)")

    # Tensor objects ------------------------------------------------------------------------------

    def forget(self, tensor: Tensor) -> None:
        """Drop the entry of a tensor object that is about to become another tensor (``swap_tensors``)."""
        self.refs.pop(id(tensor), None)

    def is_weight(self, tensor: Tensor) -> bool:
        """Is it a parameter or buffer of the model?"""
        return id(tensor) in self._names

    def tensor_with(self, tensor_id: TensorId) -> Tensor | None:
        """Return the tensor object with an id, if it still exists."""
        return next((ref() for ref in list(self.refs.values()) if ref.tensor_id == tensor_id), None)

    def live_tensors(self) -> list[tuple[TensorId, Tensor]]:
        """Return every tensor object of the table that still exists, with its id."""
        pairs = [(ref.tensor_id, ref()) for ref in list(self.refs.values())]
        return [(tensor_id, tensor) for tensor_id, tensor in pairs if tensor is not None]

    def tensors_of(self, values: Iterable[Value]) -> list[Tensor | None]:
        """Return the tensors that have these values now; ``None`` for one that is gone or has another value."""
        wanted = {value.number for value in values}
        refs = [ref for ref in list(self.refs.values()) if ref.value.number in wanted]
        found = {ref.value.number: tensor for ref in refs if (tensor := ref()) is not None}
        return [found.get(value.number) for value in values]

    def storage_number(self, tensor: Tensor) -> int | None:
        """Return the number of a tensor's storage, equal for views of one another; ``None`` if it has no single one."""
        return self._storages.number_of(tensor)

    def lies_where(self, tensor: Tensor, tensor_id: TensorId) -> bool:
        """Is it an object that the run did not see, in the very place in memory of one that it saw?

        Python makes such objects without any operation, as in ``nn.Parameter(weight)``. The memory must still be that
        of the run, and have the same layout. An object that autograd has made is another.
        """
        first, kind = self.first_values[tensor_id], type(tensor)
        if kind not in PLAIN or self.lookup(tensor) is not None or first.stride is None or first.detail is not None:
            return False
        seen: Any = self.refs.get(id(tensor))
        if type(seen) is WeightRef and seen.tensor_id == tensor_id:
            return False  # the run saw this very object, and then put another into its place
        with untracked():
            if tensor.layout is not torch.strided or not tensor.is_leaf or tensor.is_conj() or tensor.is_neg():
                return False
            place = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
            facts = name_of(tensor.dtype), name_of(tensor.device), kind.__name__, tensor.requires_grad
            then = first.dtype, first.device, first.type, first.requires_grad
            if place != (first.shape, first.stride, first.offset) or facts != then:
                return False
            return tensor.is_meta or self.storage_number(tensor) == first.storage is not None

    # The end of the run --------------------------------------------------------------------------

    def measure_at_once(self) -> None:
        """Let no statistics of tensors on the CPU wait: somebody reads them during the run."""
        if self._stats is not None:
            self._stats.may_wait = False

    def finish_stats(self) -> None:
        """Take the statistics that are still to come."""
        if self._stats is not None:
            with self._lock:
                self._stats.finish()

    def refer_by_registration(self, registered: Iterable[tuple[Tensor, nn.Module, str]]) -> None:
        """Replace the weak references to weights, which would hinder ``swap_tensors``, by module and name."""
        refs = self.refs
        for tensor, owner, name in registered:
            ref = refs.get(id(tensor))
            if ref is not None and ref() is tensor:
                refs[id(tensor)] = cast("TensorRef", WeightRef(ref, tensor, owner, name))

    def release_notes(self) -> None:
        """Let go of the recorder that takes notes: the two would refer to each other."""
        self._note = ignore_note
        if self._kept is not None:
            self._kept.note = ignore_note
        if self._stats is not None:
            self._stats.note = ignore_note


def complete(value: Value, **facts: Any) -> None:
    """Fill in facts about a value that were not known when it was made (where its data was saved)."""
    for name, fact in facts.items():
        object.__setattr__(value, name, fact)
