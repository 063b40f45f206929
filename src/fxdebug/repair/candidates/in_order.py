"""All candidates of a cause, in the order in which they are tried."""

from __future__ import annotations

import time
from dataclasses import replace

from fxdebug.comparison.result import ComparisonData
from fxdebug.errors import FxDebugError
from fxdebug.repair.candidates.earlier_values import told_of_earlier_values
from fxdebug.repair.candidates.left_out_calls import told_of_calls_left_out
from fxdebug.repair.candidates.of_weights.turned_weights import told_of_turned_weights
from fxdebug.repair.candidates.of_weights.weights_of_a import told_of_weights_of_a
from fxdebug.repair.candidates.other_regions import says_little, told_of_regions
from fxdebug.repair.candidates.other_settings import told_of_settings
from fxdebug.repair.candidates.repaired_in_turn import told_in_turn, told_in_turn_by_all
from fxdebug.repair.candidates.rotary_rows import told_of_rotary_rows
from fxdebug.repair.candidates.varied_operations import told_of_few_variations, told_of_results, told_of_variations
from fxdebug.repair.rerun.edited_runs import EditedRuns
from fxdebug.repair.trials.missing_after_all import without_refuted
from fxdebug.repair.trials.tried_repairs import doubtful_last, is_settled, with_next_place, with_told

OF_THE_REST = 0.5  # of the time that is left, for one kind of candidates
SHARE = 0.7  # of the time: what findings do to what is returned is measured after it
NOT_TRIED = "further edits that may repair b could not be tried"
_TELL = (
    told_of_settings,
    told_of_calls_left_out,
    told_of_rotary_rows,
    told_of_turned_weights,
    told_of_weights_of_a,
    told_of_few_variations,
    told_of_earlier_values,
    told_of_variations,
    told_in_turn,
    told_of_results,
    without_refuted,
    told_in_turn_by_all,
)
_WITHOUT_REGIONS = told_of_results, without_refuted, told_in_turn_by_all  # these say less than a region


def with_repairs(found: ComparisonData, runs: EditedRuns, until: float) -> ComparisonData:
    """Return a comparison with a cause that repairs b, where no finding is proven yet: other settings, several faults.

    Findings that are doubted stand last. No run begins after ``until``. A note says where trying fails.
    """
    found = doubtful_last(found)
    begun = time.monotonic()
    until = begun + SHARE * (until - begun)
    regions: ComparisonData | None = None
    for tell in (told_of_regions, *_TELL):
        if is_settled(found.findings):
            break
        if tell in _WITHOUT_REGIONS and regions is not None and not any(map(says_little, regions.findings)):
            return regions
        now = time.monotonic()
        try:
            told = tell(found, runs, until if tell is _TELL[-1] else now + OF_THE_REST * (until - now))
        except FxDebugError:
            raise
        except Exception as error:  # our own: what is known already is told without it
            known = found if regions is None else regions
            return replace(known, notes=(*found.notes, f"{NOT_TRIED} ({type(error).__name__})"))
        if tell is told_of_regions:  # which are quick, and say less than what is tried then
            regions = told
        else:
            found = found if told is None else told  # one with findings is false
    if regions is not None and not is_settled(found.findings):
        return regions
    if len(found.findings) == 1 and not found.repaired and time.monotonic() < until:
        return with_told(found, [with_next_place(found.findings[0], runs)])
    return found
