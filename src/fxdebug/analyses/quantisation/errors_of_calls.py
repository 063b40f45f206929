"""The error that each call of a quantised run adds, by the path of its module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fxdebug.comparison.measures import STATISTICS
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats
from fxdebug.operators.dtypes import EPS

LARGE = 0.3  # of what a call returns: 3 bits of a weight add about 0.2
APART = 10.0  # times the next error; 4 bits beside 8 have 16, but not an error of 0.3
Weights: TypeAlias = dict[str, dict[str, Stats | None]]  # by the path of a module, and by their own names


@dataclass(frozen=True, slots=True)
class CallError:
    """The error that the calls of one module add: the largest of its calls.

    ``error`` is relative, ``None`` where it is not known. ``path_a`` is the module of a, ``has_inner`` tells whether a
    call inside of it adds error itself. ``by_statistics``: the error is a lower bound. ``is_last``: what it returns is
    returned by the model.
    """

    path: str
    path_a: str
    type: str
    error: float | None
    calls: int
    position: int
    shape: tuple[int, ...]
    has_inner: bool
    by_statistics: bool
    is_last: bool


def errors_of_calls(comparison: ComparisonData, *, isolated: bool) -> list[CallError]:
    """Return the error that each module's calls add, in the order in which they ran.

    ``isolated``: calls were given what those of a were given, so the error of what they return is their own. Else the
    error that went in is taken off. Left out are then modules that call others, which pass on the errors of these, and
    those of one class with equal weights in both, which add none however much they enlarge what goes in.
    """
    found: dict[str, list[tuple[Row, float | None]]] = {}
    weights = _weights(comparison.a), _weights(comparison.b)
    for row in comparison.rows:
        if row.op is not None or row.a is None or row.b is None or row.b.call.parent_index is None:
            continue
        if (
            not row.certain
            or row.verdict == "ignored"
            or (not isolated and (row.b.call.children or _is_unchanged(row, *weights)))
        ):
            continue
        found.setdefault(row.path, []).append((row, _added(row, isolated)))
    last = {value.number for value in comparison.b.root.returned or comparison.b.root.outputs or ()}
    shapes = _shapes(comparison.a)
    errors = [_of_module(path, rows, last, shapes) for path, rows in found.items()]
    adding = [one.path for one in errors if one.error != 0.0]
    return [replace(one, has_inner=any(path.startswith(f"{one.path}.") for path in adding)) for one in errors]


@dataclass(frozen=True, slots=True)
class Apart:
    """Calls that add a far larger error than all others: their paths, their least and their largest, that of others."""

    paths: tuple[str, ...]
    least: float
    largest: float
    others: int
    of_others: float


def apart(errors: Sequence[CallError]) -> Apart | None:
    """Return the calls that add so much more error than the others that one number of bits cannot be the reason.

    Modules that call others are left out, as is what adds no error. ``None`` where there is no such gap.
    """
    known = [(one.error, one.path) for one in errors if one.error and not one.has_inner]
    known.sort(reverse=True)
    gaps = [(known[at][0] / known[at + 1][0], at + 1) for at in range(len(known) - 1) if known[at][0] >= LARGE]
    factor, count = max(gaps, default=(0.0, 0))
    if factor < APART:
        return None
    sizes = [error for error, _ in known]
    paths = {path for _, path in known[:count]}
    ordered = tuple([one.path for one in errors if one.path in paths])
    return Apart(ordered, sizes[count - 1], sizes[0], len(sizes) - count, sizes[count])


def _of_module(
    path: str, rows: list[tuple[Row, float | None]], last: set[int], shapes: dict[str, tuple[int, ...]]
) -> CallError:
    known = [error for _, error in rows if error is not None]
    first = rows[0][0]
    assert first.a is not None and first.b is not None
    return CallError(
        path,
        first.a.call.path,
        first.b.type,
        max(known, default=None),
        len(rows),
        min(row.position for row, _ in rows),
        shapes.get(first.a.call.path, ()),
        False,
        any(row.measures.basis == STATISTICS for row, _ in rows),
        any(
            value.number in last
            for row, _ in rows
            if row.b
            for value in row.b.call.returned or row.b.call.outputs or ()
        ),
    )


def _added(row: Row, isolated: bool) -> float | None:
    """Return the error that a call adds; ``None`` where it was not measured, or is no distance."""
    if not row.measured or row.measures.what:
        return None
    out = row.error if row.measures.relative is None else row.measures.relative
    if not math.isfinite(out):
        return None
    return out if isolated else max(out - row.error_in, 0.0) if math.isfinite(row.error_in) else None


def _is_unchanged(row: Row, weights_a: Weights, weights_b: Weights) -> bool:
    """Are both calls of one class, with the same weights and results of one dtype?"""
    assert row.a is not None and row.b is not None
    one, other = weights_a.get(row.a.call.path, {}), weights_b.get(row.b.call.path, {})
    dtypes = [{value.dtype for value in side.call.outputs or ()} for side in (row.a, row.b)]
    known = None not in one.values()
    return row.a.type == row.b.type and dtypes[0] == dtypes[1] and one == other and known


def _weights(trace: TraceData) -> Weights:
    """Return the statistics of the parameters and buffers of each module by their own names, ``None`` for unknown."""
    found: Weights = {}
    for parameter in trace.parameters:
        for name in parameter.names:
            path, _, own = name.rpartition(".")
            found.setdefault(path, {})[own] = parameter.before
    return found


def _shapes(trace: TraceData) -> dict[str, tuple[int, ...]]:
    """Return the shape of the largest weight of each module that has some of its own."""
    shapes: dict[str, tuple[int, ...]] = {}
    for parameter in trace.parameters:
        if parameter.dtype not in EPS:
            continue
        for name in parameter.names:
            path = name.rpartition(".")[0]
            if math.prod(parameter.shape) > math.prod(shapes.get(path, (0,))):
                shapes[path] = tuple(parameter.shape)
    return shapes


def result_error(comparison: ComparisonData) -> float | None:
    """Return the relative error of what was returned: the root mean square over its floating tensors.

    Scalars count only where nothing else is returned. ``None`` where it is not known.
    """
    rows = [row for row in comparison.outputs if row.measured and not row.measures.what]
    floats = [row for row in rows if row.b and row.b.value and row.b.value.dtype in EPS]
    whole = [row for row in floats if row.b and row.b.value and math.prod(row.b.value.shape) > 1] or floats
    errors = [row.error if row.measures.relative is None else row.measures.relative for row in whole]
    return mean_square(errors)


def mean_square(errors: list[float]) -> float | None:
    """Return the root mean square of errors, ``None`` of none and of infinite ones.

    >>> mean_square([3.0, 3.0]), mean_square([])
    (3.0, None)
    """
    if not errors or not all(map(math.isfinite, errors)):
        return None
    return math.sqrt(sum(error**2 for error in errors) / len(errors))
