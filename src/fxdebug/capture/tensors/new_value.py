"""Make a new :class:`~fxdebug.data.values.Value` of a tensor: its description, name, storage and statistics."""

from __future__ import annotations

import threading
from typing import Any

from torch import Tensor

from fxdebug.capture.tensors.special_tensors import description_of
from fxdebug.capture.tensors.stats_queue import PendingStats, StatsTaker
from fxdebug.capture.tensors.tensor_ref import StorageRef
from fxdebug.capture.tensors.tensor_state import TensorState
from fxdebug.data.values import Stats, Value, fast_constructor

quick_value, quick_stats = fast_constructor(Value), fast_constructor(Stats)


class StorageNumbers:
    """Numbers the storages of one run, equal for tensors that share memory; it keeps none of them alive.

    ``unversioned`` has the numbers of storages that can be written to without a tensor's version moving: memory that is
    shared with numpy, a file or another process, or was given out as ``.data``.
    """

    def __init__(self) -> None:
        self.unversioned: set[int] = set()
        self.refs: dict[int, StorageRef] = {}  # by the address of torch's object, which may be reused
        self.count = 0
        self._lock = threading.Lock()

    def copy(self) -> StorageNumbers:
        """Return these numbers for another run, which goes on numbering where they end."""
        numbers = StorageNumbers()
        numbers.refs, numbers.count = self.refs.copy(), self.count
        return numbers

    def number_of(self, tensor: Tensor) -> int | None:
        """Return the number of a tensor's storage; ``None`` for sparse, nested and freed ones, which have none."""
        try:
            storage = tensor.untyped_storage()
            if storage.device.type != "meta" and storage.data_ptr() == 0:
                return None
        except (NotImplementedError, RuntimeError):
            return None  # sparse, nested, opaque: no single storage
        number = self.known(storage._cdata)
        return self.add(storage) if number is None else number

    def known(self, address: int) -> int | None:
        """Return the number of the storage whose torch object is at an address, if it was numbered before."""
        ref = self.refs.get(address)
        return None if ref is None or ref() is None else ref.number

    def add(self, storage: Any) -> int:
        """Number a storage; another thread may have done so meanwhile."""
        with self._lock:
            number = self.known(storage._cdata)
            if number is None:
                ref = self.refs[storage._cdata] = StorageRef(storage)
                number = ref.number = self.count
                self.count += 1
            return number


class ValueMaker:
    """Makes the values of one run. ``names`` maps ``id(tensor)`` of weights to their names."""

    def __init__(self, names: dict[int, str], storages: StorageNumbers, stats: StatsTaker | None) -> None:
        self._names = names
        self._storages = storages
        self._stats = stats

    def plain(
        self, number: int, tensor: Tensor, state: TensorState, owner: int, weights: bool, *, remeasure: bool
    ) -> Value:
        """Make the value of a plain dense tensor, as nearly all are.

        ``owner`` is the id of the tensor that counts its versions. ``remeasure``: ignore earlier statistics, since it
        was written to without its version moving.
        """
        layout, address, _, _ = state
        name = self._names.get(id(tensor))
        storage = self._storages.known(address)
        if storage is None:
            memory = tensor.untyped_storage()
            storage = self._storages.add(memory)
            if (
                name is None and not layout.is_off_cpu and not memory.resizable()
            ):  # numpy's, a file's, another process's
                self._storages.unversioned.add(storage)
        stats: Stats | PendingStats | None = None
        if self._stats is not None:
            if remeasure or storage in self._storages.unversioned:
                stats = self._stats.measure(tensor)
            else:
                stats = self._stats.plain_stats(tensor, state, owner, storage, name is not None, weights)
        value = quick_value(
            number,
            layout.shape,
            layout.dtype,
            layout.device,
            "strided",
            layout.stride,
            layout.offset,
            type(tensor).__name__,
            tensor.requires_grad,
            storage,
            name,
            None if isinstance(stats, PendingStats) else stats,
        )
        if isinstance(stats, PendingStats):
            stats.attach(value)
        return value

    def renumbered(self, value: Value, number: int, stats: Stats | None) -> Value:
        """Return the value of a weight that is unchanged since an earlier run; ``stats``: what was measured since."""
        return quick_value(
            number,
            value.shape,
            value.dtype,
            value.device,
            "strided",
            value.stride,
            value.offset,
            value.type,
            value.requires_grad,
            value.storage,
            value.name,
            None if self._stats is None else stats,
        )

    def special(self, number: int, tensor: Tensor, weights: bool) -> Value:
        """Make the value of any other tensor: a subclass, sparse, nested, quantised, fake, sharded, inside vmap."""
        description = description_of(tensor)
        body, name = description.body, self._names.get(id(tensor))
        stats: Stats | PendingStats | None = None
        if self._stats is not None:
            stats = self._stats.special_stats(tensor, body, name is not None, weights)
        value = Value(
            number=number,
            shape=description.shape,
            dtype=description.dtype,
            device=description.device,
            layout=description.layout,
            stride=description.stride,
            offset=description.offset,
            type=description.type,
            requires_grad=description.requires_grad,
            storage=None if body is None else self._storages.number_of(body),
            name=name,
            stats=None if isinstance(stats, PendingStats) else stats,
            sharding=description.sharding,
            detail=description.detail,
        )
        if isinstance(stats, PendingStats):
            stats.attach(value)
        return value
