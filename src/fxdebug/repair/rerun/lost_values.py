"""The values of a that b has not, whatever was paired with what: an edit behind which b has one of them is progress.

And the other way round: where values of b that a has not begin, and lead to none that a has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fxdebug.comparison.tolerance import tolerance_of
from fxdebug.operators.names import TRANSPARENT, canonical
from fxdebug.repair.rerun.replaced_operations import Place, Ran, name_of, tensors_in
from fxdebug.repair.rerun.replayed_run import KeptOperations, writes

HIDDEN = 1e6  # and more, up to infinity, is what a mask hides: it would outweigh all others
LEAST = 8  # elements: fewer may agree by chance
MOST_STARTS = 4  # of what a has not: queries and keys, or parts that are joined
MOST_AFTER = 32  # operations from there on
NEXT = 8  # of these, the next ones: what a table that a has not is added to
MOST_STEPS = 24  # and before
MOST_DIMS = 5  # that may be in another order
PROBES = 16  # elements that are looked at first
LOOSE = 4  # times the rounding of one operation: of several, one after the other


@dataclass(frozen=True)
class Known:
    """A tensor, its mean, that of its sizes, and the root of its mean square, whatever the order of its elements."""

    tensor: Tensor
    mean: float
    size: float
    absolute: float

    def is_alike(self, other: Known, tolerance: float) -> bool:
        """May both have the same elements, in whatever order?"""
        least = tolerance * self.size
        alike = abs(self.size - other.size) <= least and abs(self.mean - other.mean) <= least
        return alike and abs(self.absolute - other.absolute) <= least

    def is_among(self, others: Sequence[Known]) -> bool:
        """Has one of others the same elements, in whatever order?"""
        tolerance = tolerance_in(self.tensor)
        alike = (other for other in others if self.is_alike(other, tolerance))
        return any(_have_same_elements(other, self, tolerance) for other in alike)


class LostValues:
    """Looks up tensors among the values of a that b has not. Elements in another order are no other value.

    >>> from fxdebug.repair.rerun.replaced_operations import Ran, tensors_in
    >>> x = torch.arange(8.0)
    >>> a, b = KeptOperations(), KeptOperations()
    >>> a.keep((0, "mul"), Ran(torch.mul, (x, x), {}, x * x))
    >>> b.keep((0, "neg"), Ran(torch.neg, (x,), {}, -x))
    >>> lost = LostValues(a, b)
    >>> lost.has(x * x), lost.has(x)
    (True, False)
    """

    def __init__(self, a: KeptOperations, b: KeptOperations) -> None:
        of_b, self._of_a = _by_size(b), _by_size(a)
        self._lost: dict[int, list[Known]] = {}
        for size, values in self._of_a.items():
            for each in values:
                if not each.is_among(of_b.get(size, ())):
                    self._lost.setdefault(size, []).append(each)

    def has(self, tensor: Tensor) -> bool:
        """Is it one of them?"""
        lost = self._lost.get(tensor.numel(), ())
        value = known(tensor) if lost else None
        if value is None:
            return False
        tolerance = tolerance_in(tensor)
        return any(other.is_alike(value, tolerance) and is_laid_out_as(other, value, tolerance) for other in lost)

    def made_by(self, change: Callable[[Tensor], Tensor], tensor: Tensor) -> bool:
        """Does a change of a tensor make one of them, in whatever order of its elements?"""
        value = known(change(tensor)) if tensor.numel() in self._lost else None
        return value is not None and value.is_among(self._lost.get(value.tensor.numel(), ()))

    def factors(self, tensor: Tensor) -> list[float]:
        """Return the numbers by which a tensor has to be multiplied to be one of them."""
        return _unlike(number for number in self._linear(tensor, with_term=False) if number != 1.0)

    def terms(self, tensor: Tensor) -> list[float]:
        """Return the numbers that have to be added to a tensor for it to be one of them."""
        return _unlike(number for number in self._linear(tensor, with_term=True) if number != 0.0)

    def _linear(self, tensor: Tensor, *, with_term: bool) -> Iterator[float]:
        lost = self._lost.get(tensor.numel(), ())
        own = known(tensor) if lost else None
        for other in lost:
            if own is None:
                return
            for sign in (1.0,) if with_term else (1.0, -1.0):
                by = other.mean - own.mean if with_term else sign * other.size / own.size
                if abs(by) > 1e-6 * other.size:
                    new = known(own.tensor + by if with_term else own.tensor * by)
                    if new is not None and new.is_among([other]):
                        yield by

    def begins(self, kept: KeptOperations) -> list[int]:
        """Return the numbers of the operations of b that may be at fault: where what a has not begins, and around it.

        A value of b that leads to one of a is only written another way. What computes the first that leads to none,
        since values that a has, and some operations behind it, with what makes their masks.
        """
        operations = kept.operations
        parents = parents_of(operations)
        of_a = [self.are_of_a(ran) for _, ran in operations]
        says = [any(known(x) is not None for x in tensors_in(ran.result)) for _, ran in operations]
        before, behind = dict[int, None](), set[int]()
        for start in starts_of(parents, of_a, says)[:MOST_STARTS]:
            after, pending, own = {start}, [start], dict[int, None]()
            for at in range(start + 1, len(operations)):
                if len(after) < MOST_AFTER and parents[at] & after:
                    after.add(at)
            while pending and len(own) < MOST_STEPS:
                at = pending.pop(0)
                own[at] = None
                is_view = canonical(name_of(operations[at][1])) in TRANSPARENT
                goes_on = not of_a[at] or is_view or self._are_in_another_order(operations[at][1])
                pending += [each for each in sorted(parents[at], reverse=True) if each not in own and goes_on]
            near = sorted(after)[:NEXT]
            before |= dict.fromkeys((*sorted(own, reverse=True), *near, *_masks(near, parents, says)))
            behind |= after
        found = before | dict.fromkeys(sorted(behind))
        return list(found)

    def are_of_a(self, ran: Ran) -> bool:
        """Has a what an operation returns, in whatever order of its elements?"""
        values = [known(x) for x in tensors_in(ran.result)]
        return any(each is not None and each.is_among(self._of_a.get(each.tensor.numel(), ())) for each in values)

    def _are_in_another_order(self, ran: Ran) -> bool:
        """Are results in an order that is none of a's, whatever the order of the dimensions?"""
        values = [each for x in tensors_in(ran.result) if (each := known(x)) is not None]
        return any(not self._is_laid_out_as_in_a(each) for each in values)

    def _is_laid_out_as_in_a(self, value: Known) -> bool:
        tolerance = tolerance_in(value.tensor)
        alike = [x for x in self._of_a.get(value.tensor.numel(), ()) if x.is_alike(value, tolerance)]
        return any(is_laid_out_as(other, value, tolerance) for other in alike)


def _unlike(numbers: Iterator[float]) -> list[float]:
    """Return numbers without those that another one stands for."""
    found: list[float] = []
    for number in numbers:
        if not any(abs(number - other) <= 1e-5 * abs(other) for other in found):
            found.append(number)
    return found


def _masks(steps: Sequence[int], parents: Sequence[set[int]], says: Sequence[bool]) -> list[int]:
    """Return what makes the masks, indices and constants that operations are given: nothing of their values is lost."""
    pending, found = [*steps], dict[int, None]()
    while pending and len(found) < NEXT:
        silent = [
            each for each in sorted(parents[pending.pop(0)], reverse=True) if not says[each] and each not in found
        ]
        found |= dict.fromkeys(silent)
        pending += silent
    return [*found]


def starts_of(
    parents: Sequence[Set[int]], of_a: Sequence[bool], says: Sequence[bool], constants: Set[int] = frozenset()
) -> list[int]:
    """Return the first operations whose values lead to none that the other run has, too, made of values that do.

    ``of_a`` tells which values the other run has, ``says`` which say anything; ``constants`` are none of these.

    >>> starts_of([set(), {0}, {1}, {2}], [True, False, False, False], [True] * 4)
    [1]
    """
    leads = list(of_a)
    for at in reversed(range(len(leads))):
        for parent in parents[at] if leads[at] else ():
            leads[parent] = True
    return [
        at
        for at, own in enumerate(parents)
        if says[at] and not leads[at] and at not in constants
        if all(leads[each] or not says[each] or each in constants for each in own)
    ]


def parents_of(operations: Sequence[tuple[Place | None, Ran]]) -> list[set[int]]:
    """Return for each operation which ones made what it is given; what is written to is made anew."""
    made: dict[int, int] = {}
    found = []
    for at, (_, ran) in enumerate(operations):
        found.append({made[id(x)] for x in tensors_in((ran.args, dict(ran.kwargs))) if id(x) in made})
        made |= {id(x): at for x in tensors_in((ran.result, ran.args[:1] if writes(ran) else ()))}
    return found


def _by_size(kept: KeptOperations) -> dict[int, list[Known]]:
    found: dict[int, list[Known]] = {}
    for each in _values(kept):
        found.setdefault(each.tensor.numel(), []).append(each)
    return found


def _values(kept: KeptOperations) -> Iterator[Known]:
    seen: set[int] = set()
    for _, ran in kept.operations:
        weights = [x for x in tensors_in((ran.args, dict(ran.kwargs))) if isinstance(x, nn.Parameter)]
        for tensor in (*tensors_in(ran.result), *weights):
            value = None if id(tensor) in seen else known(tensor)
            seen.add(id(tensor))
            if value is not None:
                yield value


def known(tensor: Tensor) -> Known | None:
    """Return what is known of a tensor; ``None`` for one that says nothing: of few elements, or all alike."""
    if tensor.numel() < LEAST or not tensor.is_floating_point() or tensor.layout != torch.strided:
        return None
    with torch.no_grad():
        wide = tensor.detach().double()
        wide = wide.where(wide.abs() < HIDDEN, 0.0)
        mean, square, absolute = wide.mean().item(), wide.square().mean().item(), wide.abs().mean().item()
    spread = square - mean * mean
    return Known(tensor.detach(), mean, square**0.5, absolute) if 1e-9 * square < spread < float("inf") else None


def tolerance_in(tensor: Tensor) -> float:
    """Return how far values of a tensor may be apart, as a part of their size, after several operations."""
    return LOOSE * tolerance_of(str(tensor.dtype)[6:])


def _have_same_elements(one: Known, other: Known, tolerance: float) -> bool:
    with torch.no_grad():
        sides = [x.tensor.reshape(-1).double().sort().values for x in (one, other)]
        return bool(torch.allclose(*sides, rtol=tolerance, atol=tolerance * one.size))


def is_laid_out_as(one: Known, other: Known, tolerance: float) -> bool:
    """Are two tensors the same, with the dimensions of one of them in another order, and some joined?"""
    least = tolerance * one.size
    for here, there in ((one.tensor, other.tensor), (other.tensor, one.tensor)):
        flat, lies = here.reshape(-1), there.reshape(-1)
        probes = range(0, flat.numel(), max(1, flat.numel() // PROBES))
        wanted = flat[:: probes.step].double()
        for order in orders_of(there):
            found = lies[_turned(probes, there.shape, order)].double()
            if torch.allclose(found, wanted, rtol=tolerance, atol=least):
                turned = there.permute(order).reshape(-1).to(flat.dtype)
                if torch.allclose(turned, flat, rtol=tolerance, atol=least):
                    return True
        if here.ndim <= 1 and there.ndim <= 1:
            break
    return False


def _turned(numbers: Iterable[int], shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return which elements of a shape lie at some numbers with its dimensions in an order."""
    behind = {dim: math.prod(shape[dim + 1 :]) for dim in order}
    dims = [(shape[dim], behind[dim]) for dim in reversed(order)]
    found = []
    for number in numbers:
        at = 0
        for size, step in dims:
            number, rest = divmod(number, size)
            at += rest * step
        found.append(at)
    return torch.tensor(found)


def orders_of(tensor: Tensor) -> Iterator[tuple[int, ...]]:
    """Yield the orders of a tensor's dimensions: first as it is. Those of one element stay where they are."""
    wide = [dim for dim in range(tensor.ndim) if tensor.shape[dim] != 1]
    for order in itertools.permutations(wide) if len(wide) <= MOST_DIMS else (wide,):
        dims = iter(order)
        yield tuple([next(dims) if dim in wide else dim for dim in range(tensor.ndim)])
