"""Operations that ran, computed again with some of them changed: a first look before whole runs are made.

A run of a model may take seconds, of which few are there. What a change makes of the first value that differs is known
after some operations.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.repair.candidates.variations.variation import Change
from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace, tensors_in
from fxdebug.repair.rerun.replayed_run import given_now


class RegionAgain:
    """Operations in the order in which they ran, and the result of one of them that is looked at.

    >>> import torch
    >>> x = torch.ones(2)
    >>> half, more = x / 2, x / 2 + 1
    >>> ran = [Ran(torch.div, (x, 2), {}, half), Ran(torch.add, (half, 1), {}, more)]
    >>> RegionAgain(ran, more).with_changes({0: lambda ran: ran.args[0] * 3}).tolist()
    [4.0, 4.0]
    """

    def __init__(self, operations: Sequence[Ran], wanted: Tensor) -> None:
        self._operations, self._wanted = operations, wanted
        self._users: dict[int, list[int]] = {}  # by the identity of what they are given
        for at, ran in enumerate(operations):
            for given in {id(x) for x in tensors_in((ran.args, dict(ran.kwargs)))}:
                self._users.setdefault(given, []).append(at)

    def with_changes(self, changes: Mapping[int, Change]) -> Tensor | None:
        """Return the wanted result with operations changed, by their numbers; ``None`` where it cannot be computed."""
        new: dict[int, Any] = {}  # by the identity of what ran: all of it is kept alive
        waiting, known = sorted(changes), set(changes)
        while waiting:
            at = heapq.heappop(waiting)
            ran, changed = self._operations[at], changes.get(at)
            again = given_now(ran, new)
            if is_inplace(ran):
                return None
            try:
                made = again.function(*again.args, **again.kwargs) if again is not ran else ran.result
                made = made if changed is None else changed(again._replace(result=made))
            except Exception:  # of torch: it does not fit
                return None
            own, results = internals.tree_leaves(ran.result), internals.tree_leaves(made)
            if len(own) != len(results):
                return None
            new |= zip(map(id, own), results)
            for user in [user for leaf in own for user in self._users.get(id(leaf), ()) if user > at]:
                if user not in known:
                    known.add(user)
                    heapq.heappush(waiting, user)
        found = new.get(id(self._wanted))
        return found if isinstance(found, torch.Tensor) else None
