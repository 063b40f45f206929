"""Which tensors of a run are the same value: each is described, measured and kept once.

Two sightings are the same :class:`~fxdebug.data.values.Value` when they are the same tensor object with
the same ``_version`` in the same place. The object is held weakly: Python reuses an ``id`` after the
tensor is freed, so an entry counts only while its reference is alive. Inference tensors carry no version,
and what shares memory with numpy, or lies in memory that is not torch's own, can be written to without one: they
are measured at every sighting and are the same value when nothing about them differs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast

from torch import Tensor, nn

from fxdebug.capture.tensors.checksum import Checksum, checksum_of
from fxdebug.capture.tensors.describe import description_of
from fxdebug.capture.tensors.special_tensors import PLAIN
from fxdebug.capture.tensors.stats_queue import PendingStats, StatsTaker, Unchanged
from fxdebug.capture.tensors.tensor_ref import Memory, TensorId, TensorRef, WeightRef, version_of
from fxdebug.capture.tensors.tensor_state import TensorState, is_in_place, state_of
from fxdebug.capture.torch_state.untracked import is_quiet, untracked
from fxdebug.data.values import Value, fast_constructor
from fxdebug.errors import first_line
from fxdebug.stats.accelerator import is_elsewhere
from fxdebug.stats.cpu_sums import is_freed
from fxdebug.stats.measure import measure

_quick_value = fast_constructor(Value)


class Keeper(Protocol):
    """Takes the data of each new value while it is at hand: a store of tensors or of printed text."""

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None: ...


Say = Callable[[str], None]


def silence(what: str) -> None:
    """Where notes go when the run is over and nobody reads them."""


class ValueTable:
    """The values of one trace, by sighting.

    ``names`` maps ``id(tensor)`` of the model's parameters and buffers to their names; the caller
    keeps those tensors alive. ``say`` takes what must become a note on the current call. ``unchanged``
    has the statistics of weights that are as they were before the run. ``staged``: those of small tensors
    are there after :meth:`settle` only.
    """

    def __init__(
        self,
        names: dict[int, str],
        keeper: Keeper | None,
        say: Say,
        measuring: bool = True,
        unchanged: Unchanged | None = None,
        staged: bool = False,
    ) -> None:
        self.all: list[Value] = []
        self._names = names
        self._keeper = keeper
        self._keep_all = getattr(keeper, "everything", False)  # of operations too, not of calls alone
        self._say = say
        self._numbers = StatsTaker(say, unchanged, staged) if measuring else None
        self._kept: set[int] = set()
        self._marks: dict[
            int, Checksum | None
        ] = {}  # by number, of those that are kept and may change without a version
        self.objects: list[Value] = []  # by uid: what each tensor object was when it was first met
        self.by_id: dict[int, TensorRef] = {}  # by ``id(tensor)``: an entry counts while it refers to that tensor
        self._storages: dict[int, Memory] = {}
        self._storage_count = 0
        self._escaped: set[int] = set()  # numbers of memory that may be written to without a version telling
        self._rewritten: set[int] = set()  # ids of tensors: of weights, what is known from before the run is no more
        self._lock = threading.RLock()  # numbers are given out in any thread

    def see(self, tensor: Tensor, keep: bool = True, weights: bool = True) -> Value:
        """The value that ``tensor`` is now; made, measured and (``keep``) stored if it is new.

        Without ``weights`` those of a large model stay unmeasured: operations read all of them, calls are given
        few. Call it inside :class:`~fxdebug.capture.torch_state.untracked.untracked`.
        """
        entry = self.by_id.get(id(tensor))
        if (
            entry is not None
            and entry.version is not None
            and self._keeper is None
            and not (weights and entry.skipped)
            and entry() is tensor
            and entry.version == version_of(tensor)
            and entry.value.storage not in self._escaped
            and is_in_place(entry.sight, tensor)
        ):
            return entry.value  # met before, and nothing to do about it
        with self._lock:
            return self._see(tensor, keep, weights)

    def _see(self, tensor: Tensor, keep: bool, weights: bool) -> Value:
        keep = keep or self._keep_all
        entry = self.by_id.get(id(tensor))
        version = version_of(tensor)
        if entry is not None and entry() is not tensor:
            entry = None  # another object had this id
        if entry is not None and entry.version == version and is_in_place(entry.sight, tensor):
            value = entry.value
            if (version is not None and value.storage not in self._escaped) or self._unchanged(value, tensor):
                if weights and entry.skipped:
                    entry.skipped = False
                    body = description_of(tensor).body
                    if body is not None and self._numbers is not None:
                        self._numbers.begun(body).of(value)
                if keep and self._keeper is not None and value.number not in self._kept:
                    self._keep(value, tensor, None)
                return value
        sight = state_of(tensor)
        value = self._new(tensor, sight, keep, weights, entry)
        if entry is None:
            self._enter(tensor, sight, version, value, weights)
        else:
            entry.sight, entry.version, entry.value = sight, version, value
            entry.skipped = self._skips(value, weights)
        return value

    def _enter(
        self, tensor: Tensor, sight: TensorState | None, version: int | None, value: Value, weights: bool
    ) -> TensorRef:
        entry = TensorRef(tensor)
        entry.sight, entry.version, entry.value, entry.uid = sight, version, value, TensorId(len(self.objects))
        entry.gradient = value.requires_grad
        entry.skipped = value.name is not None and self._skips(value, weights)
        self.objects.append(value)
        self.by_id[id(tensor)] = entry
        return entry

    def _skips(self, value: Value, weights: bool) -> bool:
        return value.name is not None and not weights and value.stats is None and self._numbers is not None

    def first(self, tensor: Tensor) -> TensorRef:
        """The entry of a tensor object that was not met before. Call it where nothing listens, or ``aside``."""
        sight = state_of(tensor)
        with self._lock:
            entry = self.seen(tensor)  # another thread may have met it meanwhile
            if entry is not None:
                return entry
            version = version_of(tensor) if sight is None else sight.version
            return self._enter(tensor, sight, version, self._new(tensor, sight, self._keep_all, False), False)

    def escapes(self, entry: TensorRef) -> None:
        """The memory of a tensor may be written to from now on without a version telling, or is another one.

        Where values cannot be looked at without waiting for them, on an accelerator, only the latter is found out.
        Call it ``aside``.
        """
        tensor = entry()
        if tensor is None:
            return
        if not is_in_place(entry.sight, tensor):
            entry.version = -1  # that of no tensor: whoever sees it next makes a new value
        if entry.value.storage is not None and not is_elsewhere(tensor):
            with self._lock:
                self.measure_at_once()  # what waits to be measured is what it was
                self._escaped.add(entry.value.storage)
                if entry.value.number in self._kept and entry.value.number not in self._marks:
                    self._marks[entry.value.number] = checksum_of(tensor, None)

    def rewritten(self, entries: Iterable[TensorRef], uids: Sequence[Any]) -> None:
        """An operation has written to these of them, and their versions do not tell: whoever sees one makes a value."""
        for entry in entries:
            tensor = entry()
            if entry.uid in uids and tensor is not None and entry.version is not None:
                entry.version = -1
                self._rewritten.add(id(tensor))

    def seen(self, tensor: Tensor) -> TensorRef | None:
        """The entry of a tensor object that was met before and is still the same object."""
        entry = self.by_id.get(id(tensor))
        return entry if entry is not None and entry() is tensor else None

    def met(self, tensor: Tensor) -> TensorRef:
        """The entry of a tensor object that an operation is given or returns."""
        entry = self.by_id.get(id(tensor))
        if entry is not None and entry() is tensor:
            return entry
        if type(tensor) in PLAIN and is_quiet():
            return self.first(tensor)
        with untracked():
            return self.first(tensor)

    def forget(self, tensor: Tensor) -> None:
        """It is about to become another tensor in the same object."""
        self.by_id.pop(id(tensor), None)

    def let_go_of_weights(self, registered: Iterable[tuple[Tensor, nn.Module, str]]) -> None:
        """The run is over: from now on these are known by where they are registered."""
        for tensor, owner, name in registered:
            entry = self.seen(tensor)
            if entry is not None:
                self.by_id[id(tensor)] = cast("TensorRef", WeightRef(entry, tensor, owner, name))

    def quiet(self) -> None:
        """Nobody takes notes any more."""
        self._say = silence
        if self._numbers is not None:
            self._numbers.say = silence

    def is_named(self, tensor: Tensor) -> bool:
        """Is it a parameter or buffer of the model?"""
        return id(tensor) in self._names

    def tensor(self, uid: TensorId) -> Tensor | None:
        """The tensor object of a uid, if it still exists."""
        return next((entry() for entry in list(self.by_id.values()) if entry.uid == uid), None)

    def alive(self) -> list[tuple[TensorId, Tensor]]:
        """Every tensor object that was met and still exists, with its uid."""
        found = [(entry.uid, entry()) for entry in list(self.by_id.values())]
        return [(uid, tensor) for uid, tensor in found if tensor is not None]

    def storage(self, tensor: Tensor) -> int | None:
        """A number for the memory behind a tensor, equal for views of one another."""
        try:
            storage = tensor.untyped_storage()
            if storage.device.type != "meta" and storage.data_ptr() == 0:
                return None
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested, opaque: no single storage
        return self._memory(storage).number

    def _memory(self, storage: Any) -> Memory:
        memory = self._storages.get(storage._cdata)
        if memory is None or memory() is None:
            with self._lock:
                memory = self._storages[storage._cdata] = self._number(storage)
        return memory

    def _number(self, storage: Any) -> Memory:
        memory = Memory(storage)
        memory.number = self._storage_count
        self._storage_count += 1
        return memory

    def _new(
        self, tensor: Tensor, sight: TensorState | None, keep: bool, weights: bool, entry: TensorRef | None = None
    ) -> Value:
        value = self._special(tensor, weights) if sight is None else self._ordinary(tensor, sight, weights, entry)
        self.all.append(value)
        if keep and self._keeper is not None:
            self._keep(value, tensor, None if sight is None else tensor)
            if (version_of(tensor) if sight is None else sight.version) is None or value.storage in self._escaped:
                self._marks[value.number] = checksum_of(tensor, None)
        return value

    def _ordinary(self, tensor: Tensor, sight: TensorState, weights: bool, entry: TensorRef | None) -> Value:
        """The value of a dense tensor that is what it seems: nearly all are."""
        form, storage, _, _ = sight
        name = self._names.get(id(tensor))
        memory = self._storages.get(storage)
        if memory is None or memory() is None:
            held = tensor.untyped_storage()
            memory = self._storages[storage] = self._number(held)
            if name is None and not form.elsewhere and not held.resizable():  # an array's, a file's, another process's
                self._escaped.add(memory.number)
        stats = measured = None
        if self._numbers is not None:
            base = tensor._base  # of a view: the tensor whose versions it shares
            whole = entry if base is None else self.seen(base)
            owner = len(self.objects) if whole is None else whole.uid  # a number that no other tensor has
            if memory.number in self._escaped or id(tensor) in self._rewritten:
                stats, measured = None, self._numbers.begun(tensor)
            else:
                stats, measured = self._numbers.of_plain(tensor, sight, owner, memory.number, name is not None, weights)
        value = _quick_value(
            len(self.all),
            form.shape,
            form.dtype,
            form.device,
            "strided",
            form.stride,
            form.offset,
            type(tensor).__name__,
            tensor.requires_grad,
            memory.number,
            name,
            stats,
        )
        if measured is not None:
            measured.of(value)
        return value

    def _special(self, tensor: Tensor, weights: bool) -> Value:
        seen = description_of(tensor)
        body = seen.body
        name, measured = self._names.get(id(tensor)), PendingStats()
        if self._numbers is not None:
            measured = self._numbers.of_other(tensor, body, name is not None, weights)
        value = Value(
            number=len(self.all),
            shape=seen.shape,
            dtype=seen.dtype,
            device=seen.device,
            layout=seen.layout,
            stride=seen.stride,
            offset=seen.offset,
            type=seen.type,
            requires_grad=seen.requires_grad,
            storage=None if body is None else self.storage(body),
            name=name,
            stats=measured.stats,
            sharding=seen.sharding,
            detail=seen.detail,
        )
        measured.of(value)
        return value

    def distrust(self, tensor: Tensor) -> None:
        """A weight was written to and its version did not tell: which numbers a value of it had is not known."""
        entry = self.seen(tensor)
        if id(tensor) in self._rewritten or (entry is not None and entry.value.storage in self._escaped):
            return  # it was looked at anew whenever it was met
        values = [value for value in self.all if value.name is not None and value.name == self._names.get(id(tensor))]
        for value in values:
            complete(value, stats=None)
        if values:
            self._say(f"no statistics: {values[0].name} was written to in a way that versions do not tell (.data)")

    def measure_at_once(self) -> None:
        """Somebody looks at the values while they come."""
        if self._numbers is not None:
            with self._lock:
                self._numbers.at_once()

    def settle(self) -> None:
        """The run is over: what was not measured yet is measured now."""
        if self._numbers is not None:
            with self._lock:
                self._numbers.settle()

    def _keep(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        assert self._keeper is not None
        self._kept.add(value.number)
        try:
            self._keeper(value, tensor, description_of(tensor).body if body is None else body)
        except Exception as error:
            self._say(f"value {value.number} was not saved: {type(error).__name__}: {first_line(error)}")

    def _unchanged(self, value: Value, tensor: Tensor) -> bool:
        try:
            body = description_of(tensor).body
            if body is None or is_freed(body):
                return True
            if self._keeper is not None:  # its data are kept: elements that changed places leave the statistics alone
                mark = self._marks.get(value.number)
                return mark is not None and mark == checksum_of(body, None)
            return self._numbers is None or measure(body) == value.stats
        except Exception:
            return False


def complete(value: Value, **facts: Any) -> None:
    """Fill in facts about a value that were not known when it was first seen (where it was saved)."""
    for name, fact in facts.items():
        object.__setattr__(value, name, fact)
