"""Results that are far larger than what they are made of, and than what becomes of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, is_view
from fxdebug.operators.categories import VIEWS

TIMES = 8  # as large as its operands, and as what is left of it
LARGE = 1 << 18  # elements: below, the calls take the time
_SUMS = frozenset("sum mean".split())
_NORMS = frozenset("norm linalg_vector_norm linalg_norm".split())
_POWERS = frozenset("pow abs mul".split())
_PRODUCTS = frozenset("matmul einsum linear bmm mm".split())
_OF_PAIRS = frozenset("cosine_similarity pairwise_distance".split())
_SCALES = frozenset("mul div".split())
FILLED = 2  # times as long as what is given is the filled one, at least
_CONSTANTS = frozenset("zeros full ones new_zeros new_full new_ones zeros_like full_like ones_like".split())
_KEEPS_PADDING = ("conv", "fft_", "unfold", "as_strided")  # what pads for its window, or its length


def large_between(work: Work, least: float) -> Iterator[Finding]:
    """Yield sums over products, and distances, of all pairs that are first written into memory; Kronecker products."""
    yield from _similarities(work, least)
    for op in work.ops:
        if len(op.results) != 1 or op.results[0].numel < LARGE or op.results[0].number in work.returned:
            continue
        found = _kronecker(work, op) if op.name == "kron" else _pairs(work, op)
        if found is None:
            continue
        chain, advice = found
        share = work.share(sum(one.seconds for one in (op, *chain)))
        if share >= least:
            made = " and ".join(dict.fromkeys(value.label for value in op.operands))
            what = f"{op.results[0].label} is made of {made}, and then only "
            what += "multiplied" if op.name == "kron" else f"summed to {chain[-1].results[0].label}"
            yield work.finding("large between", op, share, least, what, advice)


def padded_inside(work: Work, least: float) -> Iterator[Finding]:
    """Yield inputs that the model itself fills up to a fixed length, most of which is then filling."""
    yield from _filled_by_mask(work, least)
    written = Counter(op.operands[0].storage for op in work.ops if op.name == "setitem" and op.operands)
    for op in work.ops:
        found = _filled_up(work, op, written)
        if found is None:
            continue
        given, result = found
        lengths = [(n, full) for n, full in zip(given.shape, result.shape) if n != full]
        users = work.users[result.number]
        if len(lengths) != 1 or any(user.name.startswith(_KEEPS_PADDING) for user in users):
            continue
        (length, full) = lengths[0]
        share = (1 - length / full) * work.share(sum(one.seconds for one in _as_long(work, op, full)))
        if length and full >= FILLED * length and share >= least:
            what = f"{given.label} is filled up to {full}, from {length}, and all that follows runs on the filling, too"
            advice = f"Could it stay as long as its longest row, {length}?"
            yield work.finding("padding", op, share, least, what, advice, WARNING)


def _filled_by_mask(work: Work, least: float) -> Iterator[Finding]:
    """Yield rows of a fixed length into which a mask of booleans writes fewer steps than half of them."""
    for op in work.ops:
        if op.name != "setitem" or len(op.operands) != 3 or not _is_constant(work, op.operands[0]):
            continue
        base, mask, given = op.operands
        places = math.prod(base.shape[:2])
        if mask.dtype != "bool" or len(mask.shape) != 2 or mask.shape != base.shape[:2] or not given.shape:
            continue
        share = work.share(sum(one.seconds for one in _as_long(work, op, base.shape[1])))
        share *= 1 - given.shape[0] / places
        if places >= FILLED * given.shape[0] and share >= least:
            what = (
                f"{given.shape[0]:,} steps are written into rows of {base.shape[1]}, which have room for {places:,}, "
            )
            what += "and all that follows runs on the filling, too"
            advice = "Could the rows be as long as the longest one of the batch, or batches have rows of like lengths?"
            yield work.finding("padding", op, share, least, what, advice, WARNING)


def _as_long(work: Work, op: TimedOp, length: int) -> Iterator[TimedOp]:
    """Yield the operations after one whose results have a dimension of a length."""
    for one in work.ops:
        if one.position > op.position and any(length in value.shape for value in one.results):
            yield one


def _filled_up(work: Work, op: TimedOp, written: Mapping[int | None, int]) -> tuple[Value, Value] | None:
    """Return what an operation fills up, and the longer result: by ``pad``, ``cat`` with constants, or a slice."""
    if op.name == "pad" and op.operands and len(op.results) == 1:
        mode = op.step.kwargs.get("mode", op.step.args[2] if len(op.step.args) > 2 else "constant")
        return (op.operands[0], op.results[0]) if mode == "constant" else None
    if op.name in ("cat", "concat") and len(op.operands) == 2 and len(op.results) == 1:
        constant = [_is_constant(work, value) for value in op.operands]
        return (op.operands[constant.index(False)], op.results[0]) if sum(constant) == 1 else None
    if op.name == "setitem" and len(op.operands) == 2 and written[op.operands[0].storage] == 1:
        base, value = op.operands
        return (value, base) if _is_constant(work, base) and len(base.shape) == len(value.shape) else None
    return None


def _is_constant(work: Work, value: Value) -> bool:
    maker = work.maker.get(value.number)
    return maker is not None and maker.name in _CONSTANTS


def _similarities(work: Work, least: float) -> Iterator[Finding]:
    """Yield similarities and distances of all pairs by a function that broadcasts its two operands inside."""
    for op in work.ops:
        if op.name not in _OF_PAIRS or len(op.operands) < 2 or len(op.results) != 1:
            continue
        one, other = op.operands[:2]
        if len(one.shape) != len(other.shape):
            continue
        whole = math.prod(max(sizes) for sizes in zip(one.shape, other.shape))
        share = work.share(op.seconds)
        if whole >= max(LARGE, TIMES * max(one.numel, other.numel)) and share >= least:
            what = f"{op.name} of all pairs makes {whole:,} numbers of {one.label} and {other.label} inside"
            advice = (
                "Could it be a matrix product of normalized rows: F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).mT?"
            )
            if op.name != "cosine_similarity":
                advice = "Could it be torch.cdist, which never has all the differences in memory?"
            yield work.finding("large between", op, share, least, what, advice)


def _kronecker(work: Work, op: TimedOp) -> tuple[list[TimedOp], str] | None:
    users: list[TimedOp] = []
    pending = [op.results[0]]
    while pending:
        for user in dict.fromkeys(work.users[pending.pop().number]):
            if is_view(user):
                pending += user.results
            else:
                users.append(user)
    if not users or any(user.name not in _PRODUCTS for user in users):
        return None
    return users, "Could x be reshaped to a matrix and multiplied by the two small ones: a @ X @ b.mT?"


def _pairs(work: Work, op: TimedOp) -> tuple[list[TimedOp], str] | None:
    """Return the operations from a broadcast product or difference to its sum, and what to ask of them."""
    result = op.results[0]
    if op.name not in ("mul", "sub") or len(op.operands) != 2:
        return None
    if result.numel < TIMES * max(_distinct(value) for value in op.operands):
        return None
    chain: list[TimedOp] = []
    value, names = result, []
    while (user := _only_user(work, value)) is not None and len(user.results) == 1 and len(chain) < 6:
        chain.append(user)
        names.append(user.name)
        value = user.results[0]
        if value.numel * TIMES <= result.numel:
            break
        if value.numel != result.numel:
            return None
    if not chain or value.numel * TIMES > result.numel:
        return None
    between = [name for name in names[:-1] if name not in VIEWS]
    if op.name == "mul" and names[-1] in _SUMS and all(name in _SCALES for name in between):
        return chain, "Could it be a matrix product (matmul, einsum), which never has all the products in memory?"
    is_norm = names[-1] in _NORMS and not between
    if op.name == "sub" and (is_norm or (names[-1] in _SUMS and len(between) == 1 and between[0] in _POWERS)):
        return chain, "Could it be torch.cdist, which never has all the differences in memory?"
    return None


def _distinct(value: Value) -> int:
    """Return how many numbers a tensor has in memory: ``expand`` shows each of them several times."""
    if value.stride is None or len(value.stride) != len(value.shape):
        return value.numel
    return math.prod(size for size, step in zip(value.shape, value.stride) if step)


def _only_user(work: Work, value: Value) -> TimedOp | None:
    users = set(work.users[value.number])
    if len(users) != 1 or value.number in work.returned or value.number in work.unseen or value.storage in work.written:
        return None
    return users.pop()
