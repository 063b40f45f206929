"""Which tensors of a run are the same value: each is described, measured and kept once.

Two sightings are the same :class:`~fxdebug.trace.Value` when they are the same tensor object with
the same ``_version``. The object is held weakly: Python reuses an ``id`` after the tensor is freed,
so an entry counts only while its reference is alive. Inference tensors carry no version; they are
measured at every sighting and are the same value when nothing about them differs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from fxdebug.capture.aside import aside
from fxdebug.capture.describe import NAMES, PLAIN, is_fake, is_ordinary, local_part, looks, name_of
from fxdebug.capture.memory import Dims, Memory, dims_of
from fxdebug.capture.seen import Seen, Uid, version_of
from fxdebug.capture.staging import Measured, Staging
from fxdebug.stats import Elsewhere, Unmeasurable, is_elsewhere, is_freed, measure, measure_at_once, measure_later
from fxdebug.values import Stats, Value, quick

_quick_value = quick(Value)


class Keeper(Protocol):
    """Takes the data of each new value while it is at hand: a store of tensors or of printed text."""

    def __call__(self, value: Value, tensor: Tensor, body: Tensor | None) -> None: ...


Say = Callable[[str], None]


def silence(what: str) -> None:
    """Where notes go when the run is over and nobody reads them."""


class Values:
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
        unchanged: Callable[[Tensor], tuple[Stats | None] | None] | None = None,
        staged: bool = False,
    ) -> None:
        self.all: list[Value] = []
        self._names = names
        self._keeper = keeper
        self._keep_all = getattr(keeper, "everything", False)  # of operations too, not of calls alone
        self._say = say
        self._measuring = measuring
        self._kept: set[int] = set()
        self.objects: list[Value] = []  # by uid: what each tensor object was when it was first met
        self.by_id: dict[int, Seen] = {}  # by ``id(tensor)``: an entry counts while its reference is that tensor
        self._unchanged_weight = unchanged
        self._staging = Staging() if staged else None
        self._elsewhere: dict[Any, Elsewhere] = {}  # by device
        self._storages: dict[int, Memory] = {}
        self._storage_count = 0
        self._measured_views: dict[tuple[Any, ...], Measured] = {}  # by memory, place in it, dtype and version
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}  # shapes and strides: one object for all alike
        self._said: set[str] = set()
        self._lock = threading.RLock()  # numbers are given out in any thread

    def see(self, tensor: Tensor, keep: bool = True, weights: bool = True) -> Value:
        """The value that ``tensor`` is now; made, measured and (``keep``) stored if it is new.

        Without ``weights`` those of a large model stay unmeasured: operations read all of them, calls are given
        few. Call it inside :class:`~fxdebug.capture.aside.aside`.
        """
        entry = self.by_id.get(id(tensor))
        if (
            entry is not None
            and entry.version is not None
            and self._keeper is None
            and not (weights and entry.skipped)
            and entry() is tensor
            and entry.version == tensor._version  # type: ignore[union-attr]
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
        if entry is not None and entry.version == version:
            value = entry.value
            if version is not None or self._unchanged(value, tensor):
                if weights and entry.skipped:
                    entry.skipped = False
                    body = looks(tensor).body
                    if body is not None:
                        self._begin(body).of(value)
                if keep and self._keeper is not None and value.number not in self._kept:
                    self._keep(value, tensor, None)
                return value
        value = self._new(tensor, version, keep, weights)
        if entry is None:
            self._enter(tensor, version, value, weights)
        else:
            entry.version, entry.value, entry.skipped = version, value, self._skips(value, weights)
        return value

    def _enter(self, tensor: Tensor, version: int | None, value: Value, weights: bool) -> Seen:
        entry = Seen(tensor)
        entry.version, entry.value, entry.uid = version, value, Uid(len(self.objects))
        entry.gradient = value.requires_grad
        entry.skipped = value.name is not None and self._skips(value, weights)
        self.objects.append(value)
        self.by_id[id(tensor)] = entry
        return entry

    def _skips(self, value: Value, weights: bool) -> bool:
        return value.name is not None and not weights and value.stats is None and self._measuring

    def first(self, tensor: Tensor) -> Seen:
        """The entry of a tensor object that was not met before. Call it where nothing listens, or ``aside``."""
        with self._lock:
            version = version_of(tensor)
            return self._enter(tensor, version, self._new(tensor, version, self._keep_all, False), False)

    def seen(self, tensor: Tensor) -> Seen | None:
        """The entry of a tensor object that was met before and is still the same object."""
        entry = self.by_id.get(id(tensor))
        return entry if entry is not None and entry() is tensor else None

    def met(self, tensor: Tensor) -> Seen:
        """The entry of a tensor object that an operation is given or returns."""
        entry = self.seen(tensor)
        if entry is not None:
            return entry
        with aside():
            return self.first(tensor)

    def quiet(self) -> None:
        """Nobody takes notes any more."""
        self._say = silence

    def is_named(self, tensor: Tensor) -> bool:
        """Is it a parameter or buffer of the model?"""
        return id(tensor) in self._names

    def tensor(self, uid: Uid) -> Tensor | None:
        """The tensor object of a uid, if it still exists."""
        return next((entry() for entry in list(self.by_id.values()) if entry.uid == uid), None)

    def alive(self) -> list[tuple[Uid, Tensor]]:
        """Every tensor object that was met and still exists, with its uid."""
        found = [(entry.uid, entry()) for entry in list(self.by_id.values())]
        return [(uid, tensor) for uid, tensor in found if tensor is not None]

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of a tensor as plain data: the same object for all tensors that have it."""
        size = tensor.shape
        shape = self._tuples.get(size)
        if shape is None:
            shape = tuple(size)
            self._tuples[shape] = shape
        return shape

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

    def _new(self, tensor: Tensor, version: int | None, keep: bool, weights: bool) -> Value:
        plain = None
        if type(tensor) in PLAIN and is_ordinary(tensor):
            plain = self._ordinary(tensor, version, weights)
        value = self._special(tensor, weights) if plain is None else plain
        self.all.append(value)
        if keep and self._keeper is not None:
            self._keep(value, tensor, None if plain is None else tensor)
        return value

    def _ordinary(self, tensor: Tensor, version: int | None, weights: bool) -> Value | None:
        """The value of a dense tensor that is what it seems: nearly all are. ``None`` if its memory is not there."""
        storage, offset = tensor.untyped_storage(), tensor.storage_offset()
        if storage.nbytes() < tensor.nbytes + (offset and offset * tensor.itemsize) and is_freed(tensor):
            return None
        memory = self._storages.get(storage._cdata)
        if memory is None or memory() is None:
            memory = self._storages[storage._cdata] = self._number(storage)
        name = self._names.get(id(tensor))
        measured = None
        if self._measuring:
            measured = None if name is None else self._of_weight(tensor, weights)
            measured = measured or self._of_memory(tensor, memory, version)
        shape, stride, dtype, device = tensor.shape, tensor.stride(), tensor.dtype, tensor.device
        value = _quick_value(
            len(self.all),
            self._tuples.get(shape) or self.shape_of(tensor),
            NAMES.get(dtype) or name_of(dtype),
            NAMES.get(device) or name_of(device),
            "strided",
            self._tuples.setdefault(stride, stride),
            offset,
            type(tensor).__name__,
            tensor.requires_grad,
            memory.number,
            name,
            None if measured is None else measured.stats,
        )
        if measured is not None and measured.values is not None:
            measured.values.append(value)
        return value

    def _special(self, tensor: Tensor, weights: bool) -> Value:
        seen = looks(tensor)
        body = seen.body
        measured = self._statistics(tensor, body, weights) if self._measuring else Measured()
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
            name=self._names.get(id(tensor)),
            stats=measured.stats,
            sharding=seen.sharding,
            detail=seen.detail,
        )
        measured.of(value)
        return value

    def distrust(self, tensor: Tensor) -> None:
        """A weight was written to and its version did not tell: which numbers a value of it had is not known."""
        values = [value for value in self.all if value.name is not None and value.name == self._names.get(id(tensor))]
        for value in values:
            complete(value, stats=None)
        if values:
            self._say(f"no statistics: {values[0].name} was written to in a way that versions do not tell (.data)")

    def measure_at_once(self) -> None:
        """Somebody looks at the values while they come."""
        self.settle()
        self._staging = None

    def _of_weight(self, tensor: Tensor, weights: bool) -> Measured | None:
        if self._unchanged_weight is None or id(tensor) not in self._names:
            return None
        known = self._unchanged_weight(tensor)
        if known is None or (weights and known[0] is None):
            return None
        measured = Measured()
        measured.settle(known[0])
        return measured

    def _of_memory(self, tensor: Tensor, memory: Memory, version: int | None) -> Measured:
        """The statistics of an ordinary tensor: those of another one, if that had all of these elements."""
        count = tensor.numel()
        dims: Dims | None = ((1, count),) if tensor.is_contiguous() else dims_of(tensor.stride(), self.shape_of(tensor))
        if dims is None or version is None or tensor.is_neg() or tensor.is_conj():
            return self._begin(tensor)
        place = count if dims == ((1, count),) else dims
        address, dtype = tensor.data_ptr(), tensor.dtype
        view = memory.number, address, place, dtype, version
        known = self._measured_views.get(view)
        if known is not None:
            return known
        measured = Measured()
        if place == count and count and not is_elsewhere(tensor):
            measured.stats = measure_at_once(dtype, address, count)
        staging = self._staging
        if measured.stats is None and (staging is None or not staging.take(tensor, count, dims, measured)):
            measured = self._begin(tensor)
        self._measured_views[view] = measured
        return measured

    def _begin(self, body: Tensor) -> Measured:
        """The statistics of a tensor: at once, or, on an accelerator, when the run is over: see ``stats.elsewhere``.

        Whether an inference tensor is still what it was only its numbers tell: they are fetched each time.
        """
        measured = Measured()
        if is_elsewhere(body) and not body.is_inference():
            measured.values = []
            where = self._elsewhere.setdefault(body.device, Elsewhere())
            try:
                if measure_later(body, where, measured.settle):
                    return measured
            except Exception as error:
                self._failed(body, error)
                measured.values = None
                return measured
            measured.values = None
        measured.stats = self._measured(body)
        return measured

    def settle(self) -> None:
        """The run is over: what was not measured yet is measured now."""
        with self._lock:
            if self._staging is not None:
                self._staging.close()
            where, self._elsewhere = self._elsewhere, {}
        with aside():
            for device, tensors in where.items():
                try:
                    tensors.settle()
                except Exception as error:  # the device is lost, or full
                    self._say(f"no statistics of what is on {device}: {type(error).__name__}: {first_line(error)}")

    def _statistics(self, tensor: Tensor, body: Tensor | None, weights: bool) -> Measured:
        if body is None or body.is_meta:
            plain = local_part(tensor)
            kind = "fake" if is_fake(plain) else "freed" if type(plain) in PLAIN else type(tensor).__name__
            self._without_data("meta" if body is not None else kind)
            return Measured()
        return self._of_weight(tensor, weights) or self._begin(body)

    def _without_data(self, kind: str) -> None:
        """Said once a run: where one tensor has no data, it may be all of them."""
        if kind not in self._said:
            self._said.add(kind)
            self._say(f"no statistics: a {kind} tensor has no data")

    def _measured(self, body: Tensor) -> Stats | None:
        try:
            return measure(body)
        except Unmeasurable as error:
            self._say(f"no statistics: {error}")
        except Exception as error:  # the debugger never breaks the debugged
            self._failed(body, error)
        return None

    def _failed(self, body: Tensor, error: Exception) -> None:
        dtype = str(body.dtype)[6:]
        self._say(f"no statistics of {dtype} ({type(body).__name__}): {type(error).__name__}: {first_line(error)}")

    def _keep(self, value: Value, tensor: Tensor, body: Tensor | None) -> None:
        assert self._keeper is not None
        self._kept.add(value.number)
        try:
            self._keeper(value, tensor, looks(tensor).body if body is None else body)
        except Exception as error:
            self._say(f"value {value.number} was not saved: {type(error).__name__}: {first_line(error)}")

    def _unchanged(self, value: Value, tensor: Tensor) -> bool:
        try:
            body = looks(tensor).body
            return body is None or not self._measuring or measure(body) == value.stats
        except Exception:
            return False


def first_line(error: BaseException) -> str:
    """The first line of an exception's text; of an exception whose ``str`` raises, a word about that."""
    try:
        text = str(error)
    except Exception as second:
        return f"(its text cannot be shown: {type(second).__name__})"
    return text.splitlines()[0] if text else ""


def complete(value: Value, **facts: Any) -> None:
    """Fill in facts about a value that were not known when it was first seen (where it was saved)."""
    for name, fact in facts.items():
        object.__setattr__(value, name, fact)
