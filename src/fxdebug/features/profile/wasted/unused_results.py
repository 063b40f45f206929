"""Results that nothing uses, and results of which only a small part is used."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, writes
from fxdebug.operators.categories import ELEMENTWISE, TO_PYTHON_NUMBERS, VIEWS
from fxdebug.operators.names import ACTIVATIONS, NORMS, SOFTMAXES

_SELECTS = frozenset("getitem select narrow index_select".split())
_RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu cumsum cumprod associative_scan".split())
_BY_ROWS = ELEMENTWISE | ACTIVATIONS | NORMS - {"batch_norm", "instance_norm"} | SOFTMAXES | {"linear", "dropout"}
_READS = TO_PYTHON_NUMBERS | {"bool", "int", "float", "index", "is_nonzero", "numpy", "equal", "allclose"}
LESS_THAN = 0.5  # of the elements are used: otherwise a slice is part of the algorithm


def unused(work: Work, least: float) -> Iterator[Finding]:
    """Operations whose results reach neither what the run returns, nor memory from outside, nor a number in Python."""
    needed = _needed(work)
    if needed is None:
        return
    dead = [op for op in work.ops if op not in needed and op.seconds and op.results]
    share = work.share(sum(op.seconds for op in dead))
    if share >= least:
        op = costliest(dead)
        lines = len({work.line(one) for one in dead})
        what = f"{len(dead)} operations at {lines} {'line' if lines == 1 else 'lines'} make results that the run does "
        advice = "Are they needed? Hooks and code for looking at a model go on working where nobody looks."
        yield work.finding("unused results", op, share, least, what + "not return and does not use", advice)


def _needed(work: Work) -> set[TimedOp] | None:
    """Return the operations that what the run returns depends on; ``None`` where that is not known.

    It is not where the run returns no tensor, or one that no recorded operation made: under ``vmap``, say, a wrapper.
    """
    if not work.returned:
        return None
    outside = {value.storage for value in work.trace.root.inputs} | {
        value.storage for op in work.ops for value in op.operands if value.name is not None
    }
    storages, needed = set(outside), set()
    numbers = work.returned | work.unseen
    storages |= {v.storage for op in work.ops for v in op.results if v.number in numbers}
    for op in reversed(work.ops):
        is_read = op.name in _READS or op.step.op.op.partition(".")[0].strip("_") in _READS
        written = writes(op) and any(value.storage in storages for value in op.operands[:1])
        if not (is_read or written or any(value.number in numbers for value in op.results)):
            continue
        needed.add(op)
        numbers |= {value.number for value in op.operands}
        storages |= {value.storage for value in op.operands if value.storage in work.written}
    return needed or None


def parts_used(work: Work, least: float) -> Iterator[Finding]:
    """Results of which a slice of less than half is used: logits of all positions, where the last one is wanted."""
    for op in work.ops:
        if len(op.results) != 1 or op.name in VIEWS or op.name in _RECURRENT or not op.seconds:
            continue
        result = op.results[0]
        used = _elements_used(work, result)
        if used is None or not result.numel or used >= LESS_THAN * result.numel:
            continue
        unneeded = 1 - used / result.numel
        chain = list(_rows_before(work, op))
        share = work.share(unneeded * sum(one.seconds for one in chain))
        if share >= least:
            what = f"of {result.numel:,} numbers that are computed here, {used:,} are used; the rest is sliced off"
            advice = "Could the slice be taken of its input, before it is computed?"
            yield work.finding("slice used", op, share, least, what, advice)


def _elements_used(work: Work, value: Value, depth: int = 8) -> int | None:
    """Return how many elements of a value are used, at most; ``None`` where it is used as a whole."""
    number = value.number
    if number in work.returned or number in work.unseen or value.storage in work.written:
        return None
    users, total = work.users[number], 0
    if not users or not depth:
        return None
    for user in users:
        if user.operands[0].number != number or not user.results:
            if user.step.op.op in ("size", "getattr", "dim", "numel", "stride"):
                continue
            return None
        if user.name in _SELECTS:
            masks = [one for one in user.operands[1:] if one.dtype in ("bool", "uint8")]
            if masks:
                return None
            total += sum(one.numel for one in user.results)
        elif user.name in VIEWS and user.results[0].numel == value.numel:
            inner = _elements_used(work, user.results[0], depth - 1)
            if inner is None:
                return None
            total += inner
        else:
            return None
    return total or None


def _rows_before(work: Work, op: TimedOp) -> Iterator[TimedOp]:
    """Yield an operation, and those before it that compute each row alone, for it alone."""
    while True:
        yield op
        computed = [value for value in op.operands if value.name is None and value.number in work.maker]
        if op.name not in _BY_ROWS or len(computed) != 1 or len(work.users[computed[0].number]) != 1:
            return
        op = work.maker[computed[0].number]
        if op.name not in _BY_ROWS:
            return
