"""Work that a run does without need, from its record: each rule tells the share of the time that is at stake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fxdebug.data.findings import Finding
from fxdebug.features.profile.wasted.dense_gradients import dense_gradients
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
from fxdebug.features.profile.wasted.loops import (
    earlier_again,
    growing,
    loops,
    side_by_side,
    single_gradients,
    single_weights,
)
from fxdebug.features.profile.wasted.same_each_run import same_each_run
from fxdebug.features.profile.wasted.settings import settings
from fxdebug.features.profile.wasted.slow_functions import python_numbers, slow_functions
from fxdebug.features.profile.wasted.surroundings import Surroundings
from fxdebug.features.profile.wasted.timed_ops import Work
from fxdebug.features.profile.wasted.unused_results import (
    attention_weights,
    best_of_sorted,
    both_branches,
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
    equal_work, same_each_run, unused, checks, parts_used, both_branches, mirrored_spectra, best_of_sorted, loops,
    side_by_side, growing, earlier_again, single_weights, single_gradients, python_numbers, large_between,
    written_out, elementwise_lines, triangles, gated_rows, equal_rows, enlarged, transform_lengths, product_order,
    low_rank_weights, padded_inside, factors, attention_weights, inverses, one_hot_products, diagonal_products,
    diagonal_factors, casts_back, copies, copied_weights, repeats, slow_functions, dense_gradients,
)  # fmt: skip


def wasted(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield what is computed without need and takes at least ``least`` % of the time of all operations."""
    if not work.seconds:
        return
    found = [finding for rule in _RULES for finding in rule(work, least)]
    for rule_around in (sparse_products, masked_pairs, long_kernels, settings):
        found += rule_around(work, around, least)
    yield from _once(found)


def _once(found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield findings, those that say the same of one line in several calls as one, with the shares of all."""
    alike: dict[tuple[str, str | None, str], list[Finding]] = {}
    for finding in found:
        alike.setdefault((finding.rule, finding.source, finding.what.rpartition(": ")[0]), []).append(finding)
    for (_, _, what), same in alike.items():
        first = max(same, key=lambda finding: finding.measured or 0.0)
        if len(same) == 1 or first.source is None:
            yield from same
            continue
        share = sum(finding.measured or 0.0 for finding in same)
        nodes = [finding.node for finding in same if finding is not first and finding.node]
        what = f"{what}, in {len(same)} calls: {share:.0f} % of the time is at stake"
        yield replace(first, what=what, measured=share, others=(*first.others, *nodes))
