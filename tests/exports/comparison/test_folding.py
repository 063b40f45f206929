"""Rows that differ in numbers only are one line with the errors at both ends."""

from __future__ import annotations

import math
from dataclasses import replace

from fxdebug.exports.comparison.folding import _errors, group_by_pattern


def test_a_group_has_its_error_once_or_that_of_both_ends(different):
    first = different.first
    small, large, endless = (replace(first, error=error) for error in (0.125, 0.5, math.inf))
    assert _errors([small]) == "0.125"
    assert _errors([small, large, small]) == "0.125"
    assert _errors([small, small, large]) == "0.125 → 0.5"
    assert _errors([endless, small]) == "∞ → 0.125"


def test_names_that_differ_in_numbers_only_are_one_group_where_the_first_of_them_stood():
    names = ["blocks.0.norm", "head", "blocks.1.norm", "blocks.10.norm", "head.1"]
    assert group_by_pattern(names, str) == [["blocks.0.norm", "blocks.1.norm", "blocks.10.norm"], ["head"], ["head.1"]]
