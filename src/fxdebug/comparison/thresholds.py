"""All thresholds of the comparison in one table, each with its reason; what is no judgement (lengths of lists) is not.

Errors are relative to the size of the elements of a.
"""

from __future__ import annotations

# Rounding: how far apart two sound results may be ----------------------------------------------------------------

# Rounding steps that may add up in one operation. Sums of float32 are kept in float32, so their rounding grows with the
# number of elements; those of narrower dtypes are kept in float32 and rounded once.
ROUNDING_STEPS = {"float64": 512, "complex128": 512, "float32": 84, "complex64": 84}
NARROW_ROUNDING_STEPS = 4
EXACT_INPUT_STEPS = 16  # the same on bit-equal inputs, where only kernels and threads differ
SUM_ROUNDING = 1e-12  # of the largest number: by how much sums in float64 differ between orders
SAME_SUM = 1e-5  # of the size of sums: those of float32 in another order differ by less
COPIED = 1e-6  # weights are copied, and an epsilon of float32 is below it
CLOSE = 1e-4  # two ways to write one thing in float32 agree far better; other values far less
DIFFERENT = 0.1  # an error that rounding does not cause
SIGMAS = 6.0  # standard deviations that a sum of roundings, or the largest of many scores, may be off by
UNSURE = 2e-2  # of a factor: one that is known worse than this is not known

# Growth: how much of a difference is inherited -------------------------------------------------------------------

# In healthy models, normalisation of rows with outliers and softmax of large scores enlarge rounding errors 10 to 20
# times, and all operations together by less than this. So a difference this many times smaller than another may be its.
GROWTH = 30.0
FEW_TIMES = 4.0  # by how much a few operations in a row may exceed what independent errors add up to
FADED = 0.05  # share of a cause's error: a later error above it comes from that cause, even below tolerance
CLOSER = 8  # two orders of the same numbers are this many times closer once sorted, and chance is no nearer than that

# Shares: how many of several must agree --------------------------------------------------------------------------

HALF = 0.5  # of calls, operations, weights or slices: with fewer in common, two things are no counterparts
NEARLY_ALL = 0.9  # of rows in the same places: by chance, two rows may have nearly the same sum
FEW = 0.25  # of choices or rows: if more differ, something else than rounding or a few rows is behind it
INTEGER_SHARE = 0.02  # of integers that may differ if the floats they were computed from do
NARROW_INTEGER_SHARE = 0.1  # the same where one of the runs has a dtype narrower than float32
MANY = 64  # elements from which on statistics tell values apart; of rows with one sum no more are told apart

# Numbers in code -------------------------------------------------------------------------------------------------

MASK = 1e4  # additive masks hold zeros and its negative or less; constants from here on are values of masks
EPSILON = 1e-2  # a fraction below this, added in a norm, is its epsilon

# How far to look: beyond these, what is found explains nothing ---------------------------------------------------

FAR = 400  # operations of a region
NEAR = 40  # operations that make a table, a mask or positions
VIEWS = 8  # views, copies and functions of one value in a row
