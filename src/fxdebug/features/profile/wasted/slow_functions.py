"""Functions that are called in a form that takes far longer than another one with the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fxdebug.data.findings import Finding
from fxdebug.data.values import Thing
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest
from fxdebug.operators.dtypes import bytes_of

# What a form gains was measured with torch 2.9 on one thread of a CPU, by the time of processors.
COLUMNS = 8  # numbers of a row that fit into one integer: unique of rows took 24 times as long as that of integers
POWERS = range(4, 17)  # x ** 4 took 7 times as long as x * x; squares and cubes have kernels of their own
APART = 512  # bytes from step to step, or a multiple: 1.2 to 3.7 times as long as turned; no longer at 2,000 bytes
STEPS_OF_SCAN, SCANNED = 1024, 1 << 18  # steps, and elements: of 300 x 300 elements the copy takes longer
WINDOW = 7  # places of a pooling window in each direction from which on two passes took 1.8 times less than one


def slow_functions(work: Work, least: float) -> Iterator[Finding]:
    """Functions that have a faster form for what they are given: of each form one finding, for all its calls."""
    for is_slow, what, advice in _FORMS:
        found = [op for op in work.ops if op.operands and op.seconds and is_slow(work, op)]
        share = work.share(sum(op.seconds for op in found))
        if found and share >= least:
            op = costliest(found)
            label = (op.operands[1] if op.name == "embedding" and len(op.operands) > 1 else op.operands[0]).label
            times = f", {len(found)} times" if len(found) > 1 else ""
            yield work.finding("slow function", op, share, least, f"{what}, of {label}{times}", advice)


def _unique_rows(_: Work, op: TimedOp) -> bool:
    """Are the distinct rows of integers searched, which are compared column by column?"""
    dim = op.step.kwargs.get("dim", op.step.args[4] if len(op.step.args) > 4 else None)
    given = op.operands[0]
    return (
        op.name in ("unique", "unique_dim")
        and type(dim) is int
        and len(given.shape) == 2
        and dim % 2 == 0
        and 1 < given.shape[1] <= COLUMNS
        and given.dtype.startswith(("int", "uint"))
    )


def _normed_rows(work: Work, op: TimedOp) -> bool:
    """Does a lookup in inference first norm the rows that it takes, in the table itself?"""
    return op.name in ("embedding", "embedding_bag") and not work.has_loss and _max_norm(op) is not None


def _max_norm(op: TimedOp) -> object:
    position = {"embedding": 3, "embedding_bag": 3}[op.name]
    given = op.step.kwargs.get("max_norm", op.step.args[position] if len(op.step.args) > position else None)
    return None if isinstance(given, Thing) else given


def is_whole_power(_: Work, op: TimedOp) -> bool:
    """Is a tensor raised to a whole number above three, by the function for any exponent?"""
    given = op.step.kwargs.get("exponent", op.step.args[1] if len(op.step.args) > 1 else None)
    return (
        op.name == "pow"
        and isinstance(given, (int, float))
        and given in POWERS
        and op.operands[0].device == "cpu"
        and op.operands[0].dtype.startswith("float")
    )


def _wide_window(_: Work, op: TimedOp) -> bool:
    """Does a pooling of maxima look at a large window for each place, which its neighbours look at, too?"""
    if op.name != "max_pool2d" or op.operands[0].device != "cpu" or len(op.results) != 1:
        return False
    names = ("kernel_size", "stride", "padding", "dilation")
    given = dict(zip(names, op.step.args[1:])) | dict(op.step.kwargs)
    kernel, stride = (_both(given.get(name)) for name in ("kernel_size", "stride"))
    dilation = _both(given.get("dilation", 1))
    return kernel is not None and min(kernel) >= WINDOW and stride == (1, 1) == dilation


def _both(item: object) -> tuple[int, int] | None:
    """Return the two sizes that one number or a pair of them says; ``None`` for anything else."""
    items: Sequence[object] = getattr(item, "items", (item, item)) if not isinstance(item, int) else (item, item)
    first, second = items if len(items) == 2 else (None, None)
    return (first, second) if type(first) is int and type(second) is int else None


def is_scan(op: TimedOp) -> bool:
    """Does an operation go along a dimension, step by step, with what it has so far?"""
    return op.name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


def _scan_of_columns(_: Work, op: TimedOp) -> bool:
    """Does a scan go down columns whose steps are so far apart that they share few places of the cache?"""
    if not is_scan(op) or op.operands[0].device != "cpu" or not op.operands[0].stride:
        return False
    given = op.operands[0]
    dim = op.step.kwargs.get("dim", op.step.args[1] if len(op.step.args) > 1 else None)
    if type(dim) is not int or given.numel < SCANNED or given.shape[dim] < STEPS_OF_SCAN or given.stride is None:
        return False
    apart = given.stride[dim] * (bytes_of(given.dtype, ()) or 0)
    return apart > 0 and apart % APART == 0


_FORMS: tuple[tuple[Callable[[Work, TimedOp], bool], str, str], ...] = (
    (
        _unique_rows,
        "unique compares rows of integers, column by column",
        "Could the columns be folded to one integer for each row (a * n + b), whose unique has no dim?",
    ),
    (
        _normed_rows,
        "max_norm makes each run norm the rows of the table that it looks up, in place and one by one",
        "Could the table be normed once, and max_norm be None in inference?",
    ),
    (
        is_whole_power,
        "a whole power above three is computed by the function for any exponent",
        "Could it be a few products: s = x * x, s * s * x? For a polynomial: x * (a + s * (b + …)).",
    ),
    (
        _wide_window,
        "max_pool2d with stride 1 looks at all places of a large window for each result",
        "Could it be pooled by rows, then by columns: (k, 1), then (1, k)? Of windows of 5, 9 and 13 each can be the "
        "one of 5 on the result before. In channels_last it took a fifth of the time; fxdebug.tune measures that.",
    ),
    (
        _scan_of_columns,
        "a running sum or product goes down columns, whose elements share few places of the cache",
        "Could it go along the last dimension of a turned copy: x.mT.contiguous().cumsum(-1).mT?",
    ),
)
