"""Statistics of the tensors of one run: the same elements are measured only once, and on an accelerator in batches.

A tensor in the CPU's memory is measured when it appears. Small ones may wait for each other in a
:class:`~fxdebug.stats.host_batch.HostBatch`, where nobody reads statistics during the run. A number fetched from an
accelerator would make the host wait for the device, so tensors there are copied to a
:class:`~fxdebug.stats.accelerator.DeviceBatch`. What waits is measured when the run is over; until then the values hold
``stats=None`` and a :class:`PendingStats` knows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from fxdebug.capture.tensors.special_tensors import PLAIN, local_part
from fxdebug.capture.tensors.tensor_state import TensorLayout, TensorState
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.values import Stats, Value
from fxdebug.errors import first_line
from fxdebug.stats.accelerator import DeviceBatch, captures_graph, is_off_cpu
from fxdebug.stats.host_batch import HostBatch
from fxdebug.stats.measure import Unmeasurable, measure, measure_on_device, measure_piece, sums_are_wide

KnownStats = tuple[Stats | None]
"""The statistics of a weight from before the run; ``(None,)`` if a large model's were not measured then."""


class WeightsBeforeRun(Protocol):
    """The weights as they were before the run: their statistics, and their values in earlier runs."""

    def stats_before(self, tensor: Tensor, state: TensorState | None) -> KnownStats | None:
        """Return those of a weight; ``None`` if it is another tensor now, has moved or was written to."""

    def earlier_value(self, tensor: Tensor) -> tuple[TensorState, Value, Stats | None] | None:
        """Return the state of a weight, a value of it from an earlier run, and its statistics from before this run."""

    def remember_value(self, tensor: Tensor, state: TensorState, value: Value) -> None:
        """Remember a value of a weight for later runs."""

    def core_parts(self) -> tuple[Any, ...]:
        """Return what the native core needs to look them up, too."""


class PendingStats:
    """Statistics that are still to come, and the values that wait for them."""

    __slots__ = ("_stats", "_values")

    def __init__(self) -> None:
        self._stats: Stats | None = None
        self._values: list[Value] | None = []  # ``None`` once the statistics are there

    def attach(self, value: Value) -> None:
        """Give the statistics to a value, now or when they are there."""
        if self._values is None:
            object.__setattr__(value, "stats", self._stats)
        else:
            self._values.append(value)

    def resolve(self, stats: Stats) -> None:
        """Give the statistics to all values that wait for them."""
        values, self._values, self._stats = self._values or (), None, stats
        for value in values:
            object.__setattr__(value, "stats", stats)


_MISSING = object()


class StatsTaker:
    """Takes the statistics of tensors, once for the same elements. Not thread-safe: the owner holds a lock.

    ``note`` takes the text of each note on the current call; ``before_run`` looks up the statistics of weights.
    ``may_wait``: nobody reads statistics before the run is over, so small tensors are measured together.
    """

    def __init__(
        self, note: Callable[[str], None], before_run: WeightsBeforeRun | None, may_wait: bool = False
    ) -> None:
        self.note = note
        self.may_wait = may_wait
        self.before_run = before_run
        self._batches: dict[Any, DeviceBatch] = {}  # by device
        self._small = HostBatch()
        self.taken: dict[tuple[Any, ...], Stats | PendingStats | None] = {}  # by owner, storage, address, …, version
        self._noted: set[str] = set()

    def plain_stats(
        self, tensor: Tensor, state: TensorState, owner: int, storage: int, is_weight: bool, weights: bool
    ) -> Stats | PendingStats | None:
        """Return the statistics of a plain tensor; ``None`` where there are none.

        Tensors that cover the same elements in another shape share them. ``owner`` is the id of the tensor that counts
        the versions, the base of a view: versions of different tensors are not comparable, even on one storage.
        ``weights``: measure a weight now if it was not measured before the run.
        """
        layout, _, address, version = state
        if is_weight:
            known = self._known(tensor, state, weights)
            if known is not None:
                return known[0]
        if layout.dims is None or version is None:
            return self.measure(tensor)
        key = owner, storage, address, layout.dims, layout.torch_dtype, version
        stats: Any = self.taken.get(key, _MISSING)
        if stats is _MISSING:
            if self.may_wait and layout.is_small and not is_weight:
                stats = self._waiting(layout, address)
            elif layout.is_one_piece and not sums_are_wide():
                stats = self._measured_piece(tensor, address)
            else:
                stats = self.measure(tensor)
            self.taken[key] = stats
        result: Stats | PendingStats | None = stats
        return result

    def special_stats(
        self, tensor: Tensor, body: Tensor | None, is_weight: bool, weights: bool
    ) -> Stats | PendingStats | None:
        """Return the statistics of any other tensor; ``body`` is the ordinary tensor that holds its data, if any."""
        if body is None or body.is_meta:
            inner = local_part(tensor)
            kind = "fake" if internals.is_fake(inner) else "freed" if type(inner) in PLAIN else type(tensor).__name__
            kind = "meta" if body is not None else kind
            self._note_once(f"no statistics: a {kind} tensor has no data")
            return None
        known = self._known(tensor, None, weights) if is_weight else None
        return self.measure(body) if known is None else known[0]

    def measure(self, body: Tensor) -> Stats | PendingStats | None:
        """Measure a tensor: now if it is on the CPU, with its device's batch if it is on an accelerator.

        Inference tensors are measured now on any device: without versions only their numbers tell whether they are
        still the same value.
        """
        if is_off_cpu(body) and captures_graph():
            self._note_once("no statistics while a CUDA graph is captured")
            return None
        if is_off_cpu(body) and not body.is_inference():
            pending = PendingStats()
            try:
                if measure_on_device(body, self._batches.setdefault(body.device, DeviceBatch()), pending.resolve):
                    return pending
            except Exception as error:
                self._note_failure(body, error)
                return None
        try:
            return measure(body)
        except Unmeasurable as error:
            self.note(f"no statistics: {error}")
        except Exception as error:  # the debugger never breaks the debugged
            self._note_failure(body, error)
        return None

    def _measured_piece(self, tensor: Tensor, address: int) -> Stats | None:
        try:
            return measure_piece(tensor, address)
        except Exception as error:  # the debugger never breaks the debugged
            self._note_failure(tensor, error)
            return None

    def _waiting(self, layout: TensorLayout, address: int) -> PendingStats:
        """Let a small tensor wait for others; if it is one too many, all that wait are measured."""
        pending = PendingStats()
        try:
            self._small.add(address, layout.torch_dtype, layout.count, pending.resolve)
        except Exception as error:  # no memory
            self._note_small(error)
        return pending

    def settle(self) -> None:
        """Measure the small tensors that wait."""
        with untracked():
            try:
                self._small.measure()
            except Exception as error:
                self._note_small(error)

    def finish(self) -> None:
        """Take all statistics that are still to come; called when the run is over."""
        self.settle()
        batches, self._batches = self._batches, {}
        if not batches:
            return
        with untracked():
            for device, batch in batches.items():
                try:
                    batch.fetch()
                except Exception as error:  # the device is lost, or full
                    self.note(f"no statistics of what is on {device}: {type(error).__name__}: {first_line(error)}")

    def _known(self, tensor: Tensor, state: TensorState | None, weights: bool) -> KnownStats | None:
        known = None if self.before_run is None else self.before_run.stats_before(tensor, state)
        return None if known is None or (weights and known[0] is None) else known

    def _note_once(self, text: str) -> None:
        """Note something once per run: there may be many such tensors."""
        if text not in self._noted:
            self._noted.add(text)
            self.note(text)

    def _note_small(self, error: Exception) -> None:
        self.note(f"no statistics of small tensors: {type(error).__name__}: {first_line(error)}")

    def _note_failure(self, body: Tensor, error: Exception) -> None:
        dtype = str(body.dtype)[6:]
        self.note(f"no statistics of {dtype} ({type(body).__name__}): {type(error).__name__}: {first_line(error)}")
