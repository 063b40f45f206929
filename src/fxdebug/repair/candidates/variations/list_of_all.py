"""All ways in which an operation may have been meant, likely ones first: a list of what yields them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from fxdebug.operators.names import RANDOM, UNINITIALISED
from fxdebug.repair.candidates.variations.groupings import groupings, moved_dimensions
from fxdebug.repair.candidates.variations.made_from_results import known_factors, left_out
from fxdebug.repair.candidates.variations.other_numbers import (
    given_numbers,
    numbers_in_tensors,
    other_modes,
    other_settings,
    other_switches,
    scaled_numbers,
)
from fxdebug.repair.candidates.variations.other_operands import (
    backwards,
    exchanged,
    masks_inverted,
    masks_left_out,
    over_other_dimension,
    turned,
)
from fxdebug.repair.candidates.variations.other_weights import exchanged_rows, reworked_weights
from fxdebug.repair.candidates.variations.parts_and_groups import (
    in_any_order,
    in_groups,
    interleaved,
    interleaved_elements,
    over_other_dimensions,
)
from fxdebug.repair.candidates.variations.shares import divided_by_sum
from fxdebug.repair.candidates.variations.shifted_rows import shifted
from fxdebug.repair.candidates.variations.twin_operations import twins
from fxdebug.repair.candidates.variations.variation import Variation
from fxdebug.repair.rerun.replaced_operations import Ran, is_inplace
from fxdebug.repair.trials.edits_of_operations import UNCHECKED

Vary: TypeAlias = Callable[[str, Ran, Sequence[float]], Iterator[Variation]]
"""Yields other ways to compute an operation.

It is given the operation's canonical name, the operation as it ran, and constants of the other run, which may stand in
the place of its own.
"""

VARY: tuple[Vary, ...] = (
    divided_by_sum,
    exchanged,
    other_switches,
    other_modes,
    in_groups,
    over_other_dimensions,
    groupings,
    moved_dimensions,
    masks_inverted,
    masks_left_out,
    over_other_dimension,
    left_out,
    interleaved_elements,
    turned,
    in_any_order,
    interleaved,
    other_settings,
    given_numbers,
    scaled_numbers,
    numbers_in_tensors,
    twins,
    shifted,
    backwards,
    reworked_weights,
    exchanged_rows,
    known_factors,
)
FEW = 16  # kinds of which there are few ways: these come first

VARY_SETTINGS: tuple[Vary, ...] = other_switches, other_modes, other_settings, given_numbers, left_out
FEW_SETTINGS = 2


def may_be_varied(name: str, ran: Ran) -> bool:
    """Can an operation be computed a second time in another way?

    Not if it draws, or writes to its input, nor if its kernel may end the process where arguments do not fit: it is
    private or none of torch, or does not check them.
    """
    of_torch = not name.startswith("_") and getattr(ran.function, "namespace", "aten") == "aten"
    return of_torch and name not in RANDOM | UNINITIALISED | UNCHECKED and not is_inplace(ran)
