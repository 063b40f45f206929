"""Work that a run does without need, from its record: each rule tells the share of the time that is at stake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxdebug.data.findings import Finding
from fxdebug.data.measured.surroundings import Surroundings
from fxdebug.data.trace import TraceData
from fxdebug.features.profile.report import CallProfile
from fxdebug.features.profile.wasted.equal_work import equal_work
from fxdebug.features.profile.wasted.forms import (
    casts_back,
    copied_weights,
    copies,
    diagonal_factors,
    diagonal_products,
    inverses,
    low_rank_weights,
    one_hot_products,
    product_order,
    repeats,
)
from fxdebug.features.profile.wasted.large_results import large_between, padded_inside
from fxdebug.features.profile.wasted.loops import earlier_again, growing, loops, side_by_side, single_weights
from fxdebug.features.profile.wasted.python_numbers import python_numbers
from fxdebug.features.profile.wasted.same_each_run import same_each_run
from fxdebug.features.profile.wasted.settings import settings
from fxdebug.features.profile.wasted.slow_functions import slow_functions
from fxdebug.features.profile.wasted.timed_ops import Work
from fxdebug.features.profile.wasted.unused_results import (
    attention_weights,
    best_of_sorted,
    checks,
    factors,
    mirrored_spectra,
    parts_used,
    unused,
)
from fxdebug.features.profile.wasted.written_out import elementwise_lines, written_out
from fxdebug.features.profile.wasted.zeros import (
    enlarged,
    equal_rows,
    gated_rows,
    long_kernels,
    masked_pairs,
    sparse_products,
    transform_lengths,
    triangles,
)

_RULES = (
    equal_work, same_each_run, unused, checks, parts_used, mirrored_spectra, best_of_sorted, loops, side_by_side,
    growing, earlier_again, single_weights, python_numbers, large_between, written_out, elementwise_lines, triangles,
    gated_rows, equal_rows, enlarged, long_kernels, transform_lengths, product_order, low_rank_weights, padded_inside,
    factors, attention_weights, inverses, one_hot_products, diagonal_products, diagonal_factors, casts_back,
    copies, copied_weights, repeats, slow_functions,
)  # fmt: skip


def wasted(trace: TraceData, calls: Sequence[CallProfile], around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield what is computed without need and takes at least ``least`` % of the time of all operations."""
    work = Work(trace, calls, has_loss=around.has_loss)
    if not work.seconds:
        return
    for rule in _RULES:
        yield from rule(work, least)
    yield from sparse_products(work, around, least)
    yield from masked_pairs(work, around, least)
    yield from settings(work, around, least)
