"""Calls of b on parts of what one call of a is given, as of a model that streams: each part beside its place in a."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value

if TYPE_CHECKING:
    from torch import Tensor


CALLED = "called on "  # at the begin of the sentence


@dataclass(frozen=True)
class UnlikePart:
    """A call of b whose result differs from a's at the places of its part, though it is given what a has there."""

    whole: Call  # of a
    call: Call  # of b
    part: int  # counted from 0
    sizes: tuple[int, ...]  # of all parts
    dimension: int
    a: Value
    b: Value
    error: float
    tolerance: float

    @property
    def text(self) -> str:
        """The place in words."""
        start = sum(self.sizes[: self.part])
        stop = start + self.sizes[self.part]
        return (
            f"{CALLED}{len(self.sizes)} parts in b; the one at {start}:{stop} of dimension {self.dimension} is the "
            "first to return something else, though it is given what a has there"
        )


@dataclass(frozen=True)
class _Facing:
    """The values of parts, with their errors against the places of a whole and what is allowed."""

    whole: Value
    dimension: int
    parts: list[Value]
    errors: list[float]
    limits: list[float]

    @property
    def fits(self) -> bool:
        """Is no error larger than what is allowed?"""
        return all(error <= limit for error, limit in zip(self.errors, self.limits))


class CalledInParts:
    """The calls of b that are made on parts, by their modules; ``paths`` are those modules."""

    def __init__(self, pairs: Pairs, meter: Meter) -> None:
        self._pairs, self._meter = pairs, meter
        self._groups = [(whole, calls) for whole, calls in _groups(pairs) if _are_parts(whole, calls)]
        self.paths = frozenset(call.path for _, calls in self._groups for call in calls)

    def first(self) -> UnlikePart | None:
        """Return the innermost call that is the first to differ; ``None`` where none does, or the data are not kept.

        Nothing is known of a run whose calls were given what those of a were: a part is none of them.
        """
        if self._pairs.b.trace.settings.get("isolated"):
            return None
        found = [unlike for whole, calls in self._groups for unlike in self._unlike(whole, calls)]
        found.sort(key=lambda unlike: unlike.call.index)
        for unlike in found:
            inside = {call.index for call in unlike.call.walk()} - {unlike.call.index}
            if not any(other.call.index in inside for other in found):
                return unlike
        return None

    def alike(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the numbers of the calls of a and of b whose parts together return what the whole does."""
        groups = [(whole, calls) for whole, calls in self._groups if self._return_the_same(whole, calls)]
        of_b = [call.index for _, calls in groups for call in calls]
        return frozenset(whole.index for whole, _ in groups), frozenset(of_b)

    def _return_the_same(self, whole: Call, calls: list[Call]) -> bool:
        results = self._facing(whole, calls, returned=True)
        return results is not None and results.fits

    def _unlike(self, whole: Call, calls: list[Call]) -> Iterator[UnlikePart]:
        out, into = (self._facing(whole, calls, returned=returned) for returned in (True, False))
        if out is None or into is None:
            return
        for number, call in enumerate(calls):
            if into.errors[number] <= into.limits[number] and out.errors[number] > out.limits[number]:
                sizes = tuple([each.shape[out.dimension] for each in out.parts])
                error, limit = out.errors[number], out.limits[number]
                yield UnlikePart(whole, call, number, sizes, out.dimension, out.whole, out.parts[number], error, limit)

    def _facing(self, whole: Call, calls: list[Call], *, returned: bool) -> _Facing | None:
        """Measure what calls on parts are given, or return, against its places in the whole; ``None`` without data."""
        one, parts = _single(whole, returned=returned), [_single(call, returned=returned) for call in calls]
        values = [each for each in parts if each]
        along = None if one is None or len(values) < len(calls) else _dimension(one, values)
        if one is None or along is None:
            return None
        errors = [self._error(one, along, values, number, value) for number, value in enumerate(values)]
        known = [error for error in errors if error is not None]
        if len(known) < len(errors):
            return None
        return _Facing(one, along, values, known, [self._meter.tolerance(one, value) for value in values])

    def _error(self, a: Value, along: int, parts: list[Value], number: int, b: Value) -> float | None:
        """Return the error of a part against its place in a; ``None`` without the data of both."""
        if a.saved is None or b.saved is None:
            return None
        start = sum(each.shape[along] for each in parts[:number])
        whole: Tensor = self._pairs.a.trace.tensor(a)
        return self._meter.of_tensors(a, b, whole.narrow(along, start, b.shape[along]), self._pairs.b.trace.tensor(b))


def _groups(pairs: Pairs) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the calls of a that are the only ones of their module, with the several calls of b of that module."""

    def path_in_a(calls: Sequence[Call]) -> str:
        partner = next((one for call in calls if (one := pairs.call_in_a(call)) is not None), calls[0])
        return partner.path

    return once_and_several_times(pairs.a.trace, pairs.b.trace, path_in_a)


def once_and_several_times(
    a: TraceData, b: TraceData, path_in_a: Callable[[Sequence[Call]], str] = lambda calls: calls[0].path
) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the calls of modules that a calls once and b several times, in the order of b.

    ``path_in_a`` returns the path of the module in a by its calls in b.
    """
    of_a, of_b = (_calls_by_path(trace) for trace in (a, b))
    for calls in of_b.values():
        wholes = of_a.get(path_in_a(calls), ())
        if len(calls) > 1 and len(wholes) == 1:
            yield wholes[0], calls


def is_given_in_parts(a: TraceData, b: TraceData) -> bool:
    """Does b call all modules several times that a calls once each, as a model that is given a sequence in parts?"""
    paths = {call.path for call in a.calls if call.parent is not None}
    several = sum(1 for _ in once_and_several_times(a, b))
    return len(paths) > 1 and several == len(paths)


def loops_of_other_lengths(a: TraceData, b: TraceData) -> Set[str]:
    """Return the paths of modules that b calls several times and a once, with loops that are not as long together.

    Their rounds are paired by their order, and one more in each part shifts all that follow.
    """
    found = set()
    for whole, calls in once_and_several_times(a, b):
        rounds = Counter(call.path for call in whole.children)
        together = Counter(inner.path for call in calls for inner in call.children)
        if any(count > 1 and together[path] != count for path, count in rounds.items()):
            found.add(calls[0].path)
    return found


def _calls_by_path(trace: TraceData) -> dict[str, list[Call]]:
    """Return the calls inside of the model by the paths of their modules."""
    found: dict[str, list[Call]] = defaultdict(list)
    for call in trace.calls:
        if call.parent is not None:
            found[call.path].append(call)
    return found


def _are_parts(whole: Call, calls: list[Call]) -> bool:
    """Do the results of some calls have the sizes of parts of another call's?"""
    one, parts = _single(whole, returned=True), [_single(call, returned=True) for call in calls]
    return one is not None and None not in parts and _dimension(one, [each for each in parts if each]) is not None


def _single(call: Call, *, returned: bool) -> Value | None:
    """Return the first tensor that a call is given, or returns."""
    values = call.outputs if returned else call.inputs
    return next(iter(values or ()), None)


def _dimension(whole: Value, parts: list[Value]) -> int | None:
    """Return along which dimension some values are the parts of another one, in order; ``None`` if they are not."""
    if any(len(part.shape) != len(whole.shape) for part in parts):
        return None
    unlike = [at for at, size in enumerate(whole.shape) if any(part.shape[at] != size for part in parts)]
    fits = len(unlike) == 1 and sum(part.shape[unlike[0]] for part in parts) == whole.shape[unlike[0]]
    return unlike[0] if fits else None
