"""A run of a model played again from what its operations were given: those behind an edit alone are computed anew.

A run of the model itself takes its Python code and the recording of it. Most edits repair nothing, and that is known
after some operations; what seems to repair is made in a run of the model.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fxdebug.capture.torch_state import internals
from fxdebug.operators.names import NORMS, PICKING, RANDOM, TRANSPARENT, UNINITIALISED, canonical
from fxdebug.repair.rerun.replaced_operations import Place, Ran, is_inplace, name_of, tensors_in

MOST_BYTES = 1 << 30  # of the results that are kept
_NOT_COUNTED = TRANSPARENT | PICKING  # among the operations behind an edit


class Replayed(NamedTuple):
    """Result of a run with edits; ``tensors`` is ``None`` where it raises. ``made`` are the places of the edits.

    ``sure``: a run of the model itself would return the same; not if it writes to what it computed, draws numbers, or
    asks for sizes or numbers that are others then.
    """

    tensors: list[Tensor] | None
    made: set[Place]
    sure: bool


class KeptOperations:
    """The operations of a run as they ran, in order, with the place of each, if it has one.

    >>> x = torch.ones(2)
    >>> half = x / 2
    >>> kept = KeptOperations()
    >>> kept.keep((0, "div"), Ran(torch.div, (x, 2), {}, half))
    >>> kept.keep((0, "add"), Ran(torch.add, (half, 1), {}, half + 1))
    >>> kept.end(kept.operations[-1][1].result)
    >>> kept.with_edits({(0, "div"): lambda ran: ran.args[0] * 3})
    Replayed(tensors=[tensor([4., 4.])], made={(0, 'div')}, sure=True)
    """

    def __init__(self) -> None:
        self.operations: list[tuple[Place | None, Ran]] = []
        self.returned: list[Tensor] = []
        self.too_large = False
        self._bytes = 0
        self._written: dict[int, int] = {}  # by the address of memory: the last operation that wrote to it
        self._users: dict[int, list[int]] | None = None
        self._numbers: dict[Place, list[int]] | None = None

    def keep(self, place: Place | None, ran: Ran) -> None:
        """Keep an operation that ran; none of a run that has become too large."""
        if self.too_large:
            return
        self._bytes += sum(x.nbytes for x in tensors_in(ran.result) if x.layout == torch.strided)
        self.too_large = self._bytes > MOST_BYTES
        if writes(ran):
            for tensor in tensors_in((ran.args[:1], ran.kwargs.get("out"))):
                self._written[_memory(tensor)] = len(self.operations)
        self.operations.append((place, ran))
        if self.too_large:
            self.operations.clear()

    @property
    def places(self) -> set[Place]:
        """The places of all operations that have one."""
        return {place for place, _ in self.operations if place is not None}

    def users(self, tensor: Any) -> Sequence[int]:
        """Return the numbers of the operations that are given a tensor."""
        if self._users is None:
            self._users = {}
            for number, (_, ran) in enumerate(self.operations):
                for given in {id(x) for x in tensors_in((ran.args, dict(ran.kwargs)))}:
                    self._users.setdefault(given, []).append(number)
        return self._users.get(id(tensor), ())

    def numbers_at(self, places: Iterable[Place]) -> list[int]:
        """Return the numbers of the operations at some places."""
        if self._numbers is None:
            self._numbers = {}
            for number, (place, _) in enumerate(self.operations):
                if place is not None:
                    self._numbers.setdefault(place, []).append(number)
        return [number for place in places for number in self._numbers.get(place, ())]

    def end(self, returned: Any) -> None:
        """Keep the tensors that the run returns."""
        self.returned = tensors_in(returned)

    def with_edits(self, edits: Mapping[Place, Callable[[Ran], Any]]) -> Replayed:
        """Return what the run returns with the results of operations replaced."""
        player = _Player(self, edits)
        for _ in player.changed():
            pass
        if player.stopped:
            return Replayed(None, player.made | edits.keys(), player.sure)
        return Replayed([player.new.get(id(tensor), tensor) for tensor in self.returned], player.made, player.sure)

    def behind(self, edits: Mapping[Place, Callable[[Ran], Any]]) -> KeptOperations | None:
        """Return the operations as they run with the results of some replaced; ``None`` where that raises."""
        player = _Player(self, edits)
        for _ in player.changed():
            pass
        if player.stopped:
            return None
        found, new = KeptOperations(), player.new
        found._written = self._written
        for place, ran in self.operations:
            result = internals.tree_map(lambda leaf: new.get(id(leaf), leaf), ran.result)
            found.operations.append((place, given_now(ran, new)._replace(result=result)))
        found.returned = [new.get(id(tensor), tensor) for tensor in self.returned]
        return found

    def changed_by(self, edits: Mapping[Place, Callable[[Ran], Any]], most: int) -> Iterator[tuple[Ran, list[Tensor]]]:
        """Yield the first operations that edits change, each with the tensors that it returns; views do not count."""
        for ran, changed in _Player(self, edits).changed():
            yield ran, changed
            most -= canonical(name_of(ran)) not in _NOT_COUNTED
            if most <= 0:
                return

    def is_overwritten(self, ran: Ran, new: Mapping[int, Any], number: int) -> bool:
        """Was something else that an operation is given written to after it?"""
        known = self._written
        given = tensors_in((ran.args, dict(ran.kwargs))) if known else ()
        return any(id(x) not in new and known.get(_memory(x), -1) > number for x in given)


class _Player:
    """Plays operations with edits. ``new``: what stands for a tensor now, by its identity: all of these are kept alive.

    ``stopped``: something raised, or cannot be computed anew.
    """

    def __init__(self, kept: KeptOperations, edits: Mapping[Place, Callable[[Ran], Any]]) -> None:
        self._kept, self._edits = kept, edits
        self.new: dict[int, Any] = {}
        self.made: set[Place] = set()
        self.sure, self.stopped = True, False

    def changed(self) -> Iterator[tuple[Ran, list[Tensor]]]:
        """Yield the operations that are computed anew, each with its new results."""
        waiting = sorted(self._kept.numbers_at(self._edits))  # the numbers of what an edit or a new value reaches
        known = set(waiting)
        while waiting:
            number = heapq.heappop(waiting)
            place, ran = self._kept.operations[number]
            edit = None if place is None else self._edits.get(place)
            again = ran if not self.new else given_now(ran, self.new)
            if edit is None and (again is ran or canonical(name_of(ran)) in UNINITIALISED):
                continue  # memory that is not written to yet is none of the values of what says how much of it
            try:
                if again is not ran:
                    overwritten = self._kept.is_overwritten(ran, self.new, number)
                    self.sure = self.sure and not (writes(ran) or _draws(ran) or overwritten)
                    again = again._replace(result=_computed(again))
                if edit is not None and place is not None:
                    again = again._replace(result=edit(again))
                    self.made.add(place)
            except Exception:  # of torch: it does not fit, or sizes in the code are those of the run
                self.stopped, self.sure = True, self.sure and not _has_other_sizes(self.new, ran)
                return
            if again.result is ran.result:
                continue
            before = ran.args[0] if ran.result is None and ran.args else ran.result  # an item that was set
            own, results = internals.tree_leaves(before), internals.tree_leaves(again.result)
            if len(own) != len(results):
                self.stopped, self.sure = True, False
                return
            for old, changed in zip(own, results):
                if isinstance(old, Tensor) and isinstance(changed, Tensor):
                    self.new[id(old)] = changed
                    self.sure = self.sure and (edit is not None or old.dtype == changed.dtype)
                    for user in self._kept.users(old):
                        if user > number and user not in known:
                            known.add(user)
                            heapq.heappush(waiting, user)
                elif old is not changed:  # a number that the code has asked for
                    self.sure = False
            yield ran, [each for each in results if isinstance(each, Tensor)]


def writes(ran: Ran) -> bool:
    """Does an operation write to what it is given?"""
    name = name_of(ran)
    sets = name in ("__setitem__", "setitem") or ran.kwargs.get("out") is not None
    adds = name.startswith("__i") and name not in ("__invert__", "__iter__", "__index__", "__int__")
    return is_inplace(ran) or sets or adds


def _draws(ran: Ran) -> bool:
    name = canonical(name_of(ran))
    training = ran.kwargs.get("training", ran.args[2] if len(ran.args) > 2 else True)
    return name in RANDOM | UNINITIALISED and not ("dropout" in name and training is False)


def _computed(ran: Ran) -> Any:
    """Compute an operation; what it writes to is a copy, and so are the running statistics of a norm."""
    name = canonical(name_of(ran))
    if _draws(ran) or ran.kwargs.get("out") is not None:
        raise ValueError(name)
    args, kwargs = ran.args, ran.kwargs
    if writes(ran):
        args = internals.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, args[:1]) + tuple(args[1:])
    elif name in NORMS:
        args, kwargs = internals.tree_map(
            lambda x: x.clone() if isinstance(x, Tensor) and x.ndim == 1 else x, (args, dict(kwargs))
        )
    result = ran.function(*args, **kwargs)
    return args[0] if result is None else result


def given_now(ran: Ran, new: Mapping[int, Any]) -> Ran:
    """Return an operation with what it is given now; itself where that is the same."""
    if not any(id(leaf) in new for leaf in internals.tree_leaves((ran.args, dict(ran.kwargs)))):
        return ran
    args, kwargs = internals.tree_map(lambda leaf: new.get(id(leaf), leaf), (ran.args, dict(ran.kwargs)))
    return ran._replace(args=tuple(args), kwargs=kwargs)


def _has_other_sizes(new: Mapping[int, Any], ran: Ran) -> bool:
    """Has something that an operation is given other sizes than it had?"""
    return any(
        isinstance(new.get(id(x)), Tensor) and new[id(x)].shape != x.shape
        for x in tensors_in((ran.args, dict(ran.kwargs)))
    )


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)
