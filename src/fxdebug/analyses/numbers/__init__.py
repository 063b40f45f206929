"""Errors in the numbers of a run: NaN, infinities, ranges of dtypes, lost digits."""
