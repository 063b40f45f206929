"""Results that nothing uses, and results of which only a small part is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_view, writes
from fxdebug.operators.categories import CASTS, ELEMENTWISE, TO_PYTHON_NUMBERS, VIEWS
from fxdebug.operators.names import ACTIVATIONS, NORMS, SOFTMAXES

_SLICES = frozenset("getitem select narrow".split())
_SELECTS = _SLICES | frozenset("index_select gather take_along_dim diagonal diag trace".split())
_RECURRENT = frozenset("lstm gru rnn_tanh rnn_relu cumsum cumprod associative_scan".split())
_BY_ROWS = ELEMENTWISE | ACTIVATIONS | NORMS - {"batch_norm", "instance_norm"} | SOFTMAXES | {"linear", "dropout"}
_READS = TO_PYTHON_NUMBERS | {"bool", "int", "float", "index", "is_nonzero", "numpy", "equal", "allclose"}
_ASKS = frozenset("any all isnan isinf isfinite equal allclose is_all_true is_any_true".split())
_CHECKS = _ASKS | frozenset(
    "remainder fmod mod floor round trunc broadcast_tensors "
    "eq ne lt le gt ge logical_not logical_or logical_and invert or and not abs sum max min amax amin".split()
)
_ATTENTION = "multi_head_attention_forward"
_SORTS = frozenset("sort argsort msort".split())
_FACTORS = {"linalg_svd": 1, "svd": 1, "linalg_eigh": 0, "linalg_eig": 0}  # which of the results are the values
_VALUES = {"linalg_svd": "svdvals", "svd": "svdvals", "linalg_eigh": "eigvalsh", "linalg_eig": "eigvals"}
_COMPARES = frozenset("lt le gt ge".split())
LONG_ROW = 4096  # elements: below, topk is hardly faster than a sort
STEPS_TO_SUM = 6  # operations from a sort to the comparison of its sums
HALF_AND_ONE = 0.55  # of a spectrum: the first half, and the frequency between the halves
LESS_THAN = 0.5  # of the elements are used: otherwise a slice is part of the algorithm


def unused(work: Work, least: float) -> Iterator[Finding]:
    """Operations whose results reach neither what the run returns, nor memory from outside, nor a number in Python."""
    needed = _needed(work)
    if needed is None:
        return
    dead = [op for op in work.ops if op not in needed and op.seconds and op.results and not is_view(op)]
    share = work.share(sum(op.seconds for op in dead))
    if share >= least:
        op = costliest(dead)
        lines = len({work.line(one) for one in dead})
        make = "makes" if len(dead) == 1 else "make"
        what = f"{counted(len(dead), 'operation')} at {counted(lines, 'line')} {make} results that the run does "
        advice = "Are they needed? Hooks and code for looking at a model go on working where nobody looks."
        yield work.finding("unused results", op, share, least, what + "not return and does not use", advice)


def _needed(work: Work) -> set[TimedOp] | None:
    """Return the operations that what the run returns depends on; ``None`` where that is not known.

    It is not where the run returns no tensor, or one that no recorded operation made: under ``vmap``, say, a wrapper.
    """
    if not work.returned:
        return None
    outside, made = {value.storage for value in work.trace.root.inputs}, set()
    for op in work.ops:  # what no operation made before it was used comes from outside, such as averages of weights
        outside |= {value.storage for value in op.operands if value.name is not None or value.storage not in made}
        made |= {value.storage for value in op.results} - outside
    storages, needed = set(outside), set()
    numbers = work.returned | work.unseen
    unmade: set[int | None] = set()  # memory of what is used and no operation made, such as a copy of a parameter
    storages |= {v.storage for op in work.ops for v in op.results if v.number in numbers}
    storages |= {value.storage for value in work.trace.root.outputs or ()} - {None}  # written into by the last
    for op in reversed(work.ops):
        is_read = op.name in _READS or op.step.op.op.partition(".")[0].strip("_") in _READS
        written = writes(op) and any(value.storage in storages for value in op.operands[:1])
        written |= not is_view(op) and any(value.storage in outside for value in op.results)  # in place
        written |= _updates(work, op)
        of_unmade = any(value.storage in unmade for value in op.results)
        if not (is_read or written or of_unmade or any(value.number in numbers for value in op.results)):
            continue
        needed.add(op)
        numbers |= {value.number for value in op.operands}
        unmade |= {v.storage for v in op.operands if v.name is None and v.number not in work.maker} - outside - {None}
        storages |= {value.storage for value in op.operands if value.storage in work.written}
    return needed or None


def _updates(work: Work, op: TimedOp) -> bool:
    """Does an operation make of a tensor that was there before the run another one that nothing uses: a running sum?"""
    if op.name not in ELEMENTWISE or len(op.results) != 1 or work.users[op.results[0].number]:
        return False
    given = {value.number for value in work.trace.root.inputs}
    held = [v for v in op.operands if v.name is None and v.number not in work.maker and v.number not in given]
    return any(value.shape == op.results[0].shape for value in held)


def parts_used(work: Work, least: float) -> Iterator[Finding]:
    """Results of which a slice of less than half is used: logits of all positions, where the last one is wanted."""
    for op in work.ops:
        if len(op.results) != 1 or op.name in VIEWS or op.name in _RECURRENT or not op.seconds:
            continue
        if op.name.startswith("fft_"):  # each number that it returns needs all that it is given
            continue
        result = op.results[0]
        used = _elements_used(work, result)
        if used is None or not result.numel or used >= LESS_THAN * result.numel:
            continue
        unneeded = 1 - used / result.numel
        by_rows = _takes_whole_rows(work, result)
        if not by_rows and op.name in SOFTMAXES | NORMS:  # an element needs its whole row
            continue
        chain = list(_rows_before(work, op, by_rows))
        share = work.share(unneeded * sum(one.seconds for one in chain))
        if share >= least:
            what = f"of {result.numel:,} numbers that are computed here, {used:,} are used; the rest is sliced off"
            advice = "Could the slice be taken of its input, before it is computed?"
            yield work.finding("slice used", op, share, least, what, advice)


def both_branches(work: Work, least: float) -> Iterator[Finding]:
    """Two results that are computed for all rows, of which ``where`` takes one for each row."""
    for op in work.ops:
        if op.name != "where" or len(op.operands) != 3 or len(op.results) != 1:
            continue
        mask, *branches = op.operands
        makers = [work.maker.get(value.number) for value in branches]
        if op.results[0].shape[-1:] == mask.shape[-1:] or any(len(work.users[value.number]) != 1 for value in branches):
            continue  # it chooses elements, or a branch is used as a whole, too
        chains = [list(_rows_before(work, maker, by_rows=True)) for maker in makers if maker is not None]
        if len(chains) < 2 or not all(any(one.name == "linear" for one in chain) for chain in chains):
            continue
        share = work.share(sum(one.seconds for chain in chains for one in chain) / 2)
        if share >= least:
            what = f"two results, {branches[0].label}, are computed for all rows, and where takes one of them for each"
            advice = "Could each be computed for its rows alone: out[mask] = a(x[mask]), out[~mask] = b(x[~mask])?"
            yield work.finding("slice used", costliest([*chains[0], *chains[1]]), share, least, what, advice)


def mirrored_spectra(work: Work, least: float) -> Iterator[Finding]:
    """Spectra of real numbers of which one half is used: the other is its mirror image, and need not be computed."""
    for op in work.ops:
        if op.name != "fft_fft" or not op.operands or len(op.results) != 1:
            continue
        maker = work.maker.get(op.operands[0].number)
        given = maker.operands[0] if maker is not None and maker.name in CASTS and maker.operands else op.operands[0]
        used = _elements_used(work, op.results[0])
        share = work.share(op.seconds / 2)
        is_half = used is not None and used <= HALF_AND_ONE * op.results[0].numel
        if is_half and not given.dtype.startswith("complex") and share >= least:
            what = f"the whole spectrum of real numbers, {given.label}, is computed, and half of it is used"
            yield work.finding("slice used", op, share, least, what, "Could it be torch.fft.rfft?")


def factors(work: Work, least: float) -> Iterator[Finding]:
    """Yield factorings of matrices of which a part is not used: the whole of a large factor, or all but the values."""
    for op in work.ops:
        if op.name not in _FACTORS or len(op.results) < 2 or not op.operands:
            continue
        used = [count_used(work, value) for value in op.results]
        others = [n for i, n in enumerate(used) if i != _FACTORS[op.name]]
        what = advice = ""
        at_stake = 1.0
        if not any(others):
            what = f"a {op.name} of {op.operands[0].label} computes all factors, and only the values are used"
            advice = f"Could it be torch.linalg.{_VALUES[op.name]}?"
        elif op.name == "linalg_svd" and _is_full(op):
            rows, columns = op.operands[0].shape[-2:]
            larger = 0 if rows > columns else 2
            part = min(rows, columns) / max(rows, columns)
            if used[larger] <= part * op.results[larger].numel:
                at_stake = 1 - part
                what = (
                    f"a svd of {op.operands[0].label} makes a factor of {op.results[larger].label}, and of its numbers "
                )
                what += f"{used[larger]:,} are used"
                advice = "Could it be torch.linalg.svd(x, full_matrices=False)?"
        share = work.share(op.seconds * at_stake)
        if what and share >= least:
            yield work.finding("slice used", op, share, least, what, advice)


def count_used(work: Work, value: Value) -> int:
    """Return how many elements of a result are used, at most."""
    is_kept = value.number in work.returned or value.number in work.unseen
    if not is_kept and not list(_uses(work, value)):
        return 0
    used = _elements_used(work, value)
    return value.numel if used is None else used


def _is_full(op: TimedOp) -> bool:
    rows, columns = op.operands[0].shape[-2:]
    full = op.step.kwargs.get("full_matrices", op.step.args[1] if len(op.step.args) > 1 else True)
    return rows != columns and full is not False


def attention_weights(work: Work, least: float) -> Iterator[Finding]:
    """Yield attention of torch that returns its weights, as it does unless told otherwise, where nobody uses them."""
    asked = [op for op in work.ops if op.name == _ATTENTION and op.step.kwargs.get("need_weights", True) is not False]
    found = [op for op in asked if len(op.results) == 2 and not count_used(work, op.results[1])]
    share = work.share(sum(op.seconds for op in found))
    if found and share >= least:
        what = (
            f"nn.MultiheadAttention returns the weights of attention {counted(len(found), 'time')}, nobody uses them, "
        )
        what += "and with them it is not one fused operation"
        advice = "Could it be called with need_weights=False? fxdebug.tune measures it."
        yield work.finding("eager attention", costliest(found), share, least, what, advice)


def best_of_sorted(work: Work, least: float) -> Iterator[Finding]:
    """Sorts of which only the first or the last few elements of each row are used."""
    at_line: defaultdict[str | None, list[TimedOp]] = defaultdict(list)
    for op in work.ops:
        if op.name in _SORTS and op.results and (_ends_of_sorted(work, op) or _adds_up_to(work, op)):
            at_line[work.line(op)].append(op)
    for ops in at_line.values():
        share, op = work.share(sum(op.seconds for op in ops)), costliest(ops)
        if share >= least:
            ends = _ends_of_sorted(work, op)
            if ends:
                used = max(one.numel for one in ends)
                what = f"all of {op.operands[0].label} is sorted, and {used:,} of {op.results[0].numel:,} are used"
                advice = "Could it be topk?"
            else:
                what = f"all of {op.operands[0].label} is sorted, to take the largest until their sum is reached"
                advice = "Could it be topk of as many as the sum can need, such as 1,024?"
            yield work.finding("slice used", op, share, least, what, advice)


def _adds_up_to(work: Work, op: TimedOp) -> bool:
    """Are long sorted rows added up, and the sums compared: the largest until a sum is reached (top-p)?"""
    if op.results[0].shape[-1:] < (LONG_ROW,) or op.results[0].number in work.returned:
        return False
    pending, sums = [(op.results[0], False, 0)], False
    while pending and not sums:
        value, added, depth = pending.pop()
        for user in work.users[value.number] if depth < STEPS_TO_SUM else ():
            sums |= added and user.name in _COMPARES
            if user.name == "cumsum" or user.name in ELEMENTWISE | SOFTMAXES | VIEWS | {"exp"}:
                pending += [(one, added or user.name == "cumsum", depth + 1) for one in user.results]
    return sums


def _ends_of_sorted(work: Work, op: TimedOp) -> list[Value]:
    """Return the first or last elements that are taken of what a sort returns; nothing where others are used, too."""
    given = op.step.kwargs.get("dim", next((one for one in op.step.args[1:] if type(one) is int), -1))
    found = []
    for value in op.results:
        if value.number in work.returned or value.number in work.unseen:
            return []
        for user in _uses(work, value):
            dim = given % len(value.shape) if isinstance(given, int) and value.shape else -1
            if user.name not in _SLICES or len(user.results) != 1 or not _is_end(value, user.results[0], dim):
                return []
            found.append(user.results[0])
    return [one for one in found if one.numel < LESS_THAN * op.results[0].numel]


def _is_end(value: Value, part: Value, dim: int) -> bool:
    """Is a part of a value what is first or last along a dimension, one after the other?"""
    if value.stride is None or part.stride is None or dim < 0 or value.storage != part.storage:
        return False
    sizes, strides = list(value.shape), list(value.stride)
    size = sizes.pop(dim)
    step = strides.pop(dim)
    length = 1
    if len(part.shape) == len(value.shape):
        length = part.shape[dim]
        sizes.insert(dim, length)
        strides.insert(dim, step)
    begin = (part.offset - value.offset) // max(1, step)
    return (list(part.shape), list(part.stride)) == (sizes, strides) and (begin == 0 or begin + length == size)


def _uses(work: Work, value: Value) -> Iterator[TimedOp]:
    """Yield the operations that use a value, without those that take it out of what several are returned in."""
    for user in work.users[value.number]:
        taken = {one.number for one in user.results}
        if user.name != "getitem" or not taken <= {one.number for one in user.operands} or not taken:
            yield user


def checks(work: Work, least: float) -> Iterator[Finding]:
    """Operations that only check numbers: for NaN, or by an assertion, which Python reads."""
    only = told_as_checks(work, least)
    if only:
        names = ", ".join(sorted({op.name for op in only if op.name not in _READS}))
        what = f"{len(only)} operations ({names}) only check numbers, for Python to read the answer"
        advice = "Are these checks needed in each run? Those of an assert are left out by python -O, those of "
        advice += "torch.distributions by validate_args=False."
        yield work.finding("checks", costliest(only), work.share(sum(op.seconds for op in only)), least, what, advice)


def told_as_checks(work: Work, least: float) -> set[TimedOp]:
    """Return the operations that only check numbers; none where they take less than the least share."""
    only: set[TimedOp] = set()
    for op in reversed(work.ops):
        if op.name in _READS:
            if op.operands and (maker := work.maker.get(op.operands[0].number)) is not None and maker.name in _ASKS:
                only.add(op)
        elif op.name in _CHECKS and op.results and not any(v.number in work.returned for v in op.results):
            users = [user for value in op.results for user in _uses(work, value)]
            if users and all(user in only for user in users):
                only.add(op)
    return only if work.share(sum(op.seconds for op in only)) >= least else set()


def made_for_reads(work: Work) -> dict[TimedOp, str]:
    """Return the operations whose results only Python reads as numbers, each with the line that reads them."""
    line_of: dict[TimedOp, str] = {}
    for op in reversed(work.ops):
        users = [user for value in op.results for user in _uses(work, value)]
        kept = any(value.number in work.returned | work.unseen for value in op.results)
        if op.name in _READS:
            if op.source:
                line_of[op] = op.source
        elif users and not kept and not writes(op) and op.name not in _ASKS and all(one in line_of for one in users):
            line_of[op] = line_of[users[0]]
    return line_of


def _elements_used(work: Work, value: Value, depth: int = 8) -> int | None:
    """Return how many elements of a value are used, at most; ``None`` where it is used as a whole."""
    number = value.number
    if number in work.returned or number in work.unseen or value.storage in work.written:
        return None
    users, total = list(_uses(work, value)), 0
    if not users or not depth:
        return None
    for user in users:
        if user.operands[0].number != number or not user.results:
            if user.step.op.op in ("size", "getattr", "dim", "numel", "stride"):
                continue
            return None
        if user.name in _SELECTS:
            masks = [one for one in user.operands[1:] if one.dtype in ("bool", "uint8")]
            if any(_is_made_of(work, mask, value) for mask in masks):
                return None  # which rows are taken is known only when they are computed
            total += sum(one.numel for one in user.results)
        elif user.name in VIEWS and user.results[0].numel == value.numel:
            inner = _elements_used(work, user.results[0], depth - 1)
            if inner is None:
                return None
            total += inner
        else:
            return None
    return total or None


def _is_made_of(work: Work, mask: Value, value: Value) -> bool:
    """Does a mask depend on a value?"""
    pending, seen = [mask.number], set()
    while pending:
        number = pending.pop()
        if number == value.number:
            return True
        maker = work.maker.get(number)
        if number not in seen and maker is not None:
            pending += [one.number for one in maker.operands]
        seen.add(number)
    return False


def _takes_whole_rows(work: Work, value: Value) -> bool:
    """Are the parts that are used of a value as long as it is, along the last dimension?"""
    parts = [part for user in _uses(work, value) if user.name in _SELECTS for part in user.results]
    row = value.shape[-1:], (value.stride or ())[-1:]
    if parts and all(part.storage != value.storage and part.shape[-1:] == row[0] for part in parts):
        return True  # rows that a mask or indices chose
    return bool(parts) and all((part.shape[-1:], (part.stride or ())[-1:]) == row for part in parts)


def _rows_before(work: Work, op: TimedOp, by_rows: bool) -> Iterator[TimedOp]:
    """Yield an operation, and those before it that compute each row alone, for it alone.

    Where not whole rows are used, they end with the first that computes an element of a whole row.
    """
    while True:
        yield op
        computed = [value for value in op.operands if value.name is None and value.number in work.maker]
        if op.name not in _BY_ROWS or len(computed) != 1 or len(work.users[computed[0].number]) != 1:
            return
        if not by_rows and op.name == "linear":
            return
        op = work.maker[computed[0].number]
        if op.name not in _BY_ROWS or (not by_rows and op.name in SOFTMAXES | NORMS):
            return
