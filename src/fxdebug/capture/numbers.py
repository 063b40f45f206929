"""The statistics of the tensors of one run: which are known already, which are taken now, and which later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fxdebug.capture.aside import aside
from fxdebug.capture.describe import PLAIN, local_part
from fxdebug.capture.sight import Form, Sight
from fxdebug.capture.staging import Measured, Staging
from fxdebug.capture.torch_state import internals
from fxdebug.data.values import Stats
from fxdebug.errors import first_line
from fxdebug.stats import Elsewhere, Unmeasurable, is_elsewhere, measure, measure_at_once, measure_later

Known = tuple[Stats | None]  # of a weight: none where they were not taken as nobody asked for them
Unchanged = Callable[[Tensor, Sight | None], Known | None]  # of a weight that is where and what it was before the run


class Numbers:
    """Takes statistics, of the same elements once. For one thread at a time: its owner sees to that.

    ``unchanged`` has those of weights. ``staged``: those of small tensors may wait until :meth:`settle`.
    """

    def __init__(self, say: Callable[[str], None], unchanged: Unchanged | None, staged: bool) -> None:
        self.say = say
        self._unchanged = unchanged
        self._staging = Staging() if staged else None
        self._elsewhere: dict[Any, Elsewhere] = {}  # by device
        self._taken: dict[tuple[Any, ...], Stats | Measured] = {}  # by whose versions, memory, place in it, …
        self._said: set[str] = set()

    def of_plain(
        self, tensor: Tensor, sight: Sight, owner: int, memory: int, is_named: bool, weights: bool
    ) -> tuple[Stats | None, Measured | None]:
        """Those of an ordinary tensor in the memory of that number, or what will know them.

        They are those of another tensor, if that had all of these elements. ``owner``: the uid of the tensor whose
        versions these are; those of two tensors say nothing of one another, be it the same memory. With ``weights``
        those of a weight are taken now if they were not before.
        """
        form, _, address, version = sight
        if is_named:
            known = self._of_weight(tensor, sight, weights)
            if known is not None:
                return known[0], None
        if form.dims is None or version is None:
            return None, self.begun(tensor)
        place = owner, memory, address, form.dims, form.kind, version
        found = self._taken.get(place)
        if found is None:
            found = self._taken[place] = self._of_memory(tensor, form, address)
        return (found, None) if isinstance(found, Stats) else (None, found)

    def of_other(self, tensor: Tensor, body: Tensor | None, is_named: bool, weights: bool) -> Measured:
        """Those of any other tensor; ``body``: the ordinary one that holds its data."""
        if body is None or body.is_meta:
            plain = local_part(tensor)
            kind = "fake" if internals.is_fake(plain) else "freed" if type(plain) in PLAIN else type(tensor).__name__
            self._without_data("meta" if body is not None else kind)
            return Measured()
        known = self._of_weight(tensor, None, weights) if is_named else None
        if known is None:
            return self.begun(body)
        measured = Measured()
        measured.settle(known[0])
        return measured

    def _of_weight(self, tensor: Tensor, sight: Sight | None, weights: bool) -> Known | None:
        known = None if self._unchanged is None else self._unchanged(tensor, sight)
        return None if known is None or (weights and known[0] is None) else known

    def _of_memory(self, tensor: Tensor, form: Form, address: int) -> Stats | Measured:
        if form.count and form.dims is not None and not form.elsewhere:
            stats = measure_at_once(form.kind, address, form.dims)
            if stats is not None:
                return stats
        measured = Measured()
        staging = self._staging
        if staging is not None and form.dims is not None and staging.take(tensor, form.count, form.dims, measured):
            return measured
        return self.begun(tensor)

    def begun(self, body: Tensor) -> Measured:
        """Those of a tensor: at once, or, on an accelerator, when the run is over: see ``stats.elsewhere``.

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
        measured.stats = self._now(body)
        return measured

    def at_once(self) -> None:
        """None is to wait any more: somebody looks at the values while they come."""
        self.settle()
        self._staging = None

    def settle(self) -> None:
        """The run is over: what was not measured yet is measured now."""
        if self._staging is not None:
            self._staging.close()
        where, self._elsewhere = self._elsewhere, {}
        if not where:
            return
        with aside():
            for device, tensors in where.items():
                try:
                    tensors.settle()
                except Exception as error:  # the device is lost, or full
                    self.say(f"no statistics of what is on {device}: {type(error).__name__}: {first_line(error)}")

    def _without_data(self, kind: str) -> None:
        """Said once a run: where one tensor has no data, it may be all of them."""
        if kind not in self._said:
            self._said.add(kind)
            self.say(f"no statistics: a {kind} tensor has no data")

    def _now(self, body: Tensor) -> Stats | None:
        try:
            return measure(body)
        except Unmeasurable as error:
            self.say(f"no statistics: {error}")
        except Exception as error:  # the debugger never breaks the debugged
            self._failed(body, error)
        return None

    def _failed(self, body: Tensor, error: Exception) -> None:
        dtype = str(body.dtype)[6:]
        self.say(f"no statistics of {dtype} ({type(body).__name__}): {type(error).__name__}: {first_line(error)}")
