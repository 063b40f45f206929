"""Results that are far larger than what they are made of, and than what becomes of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work
from fxdebug.operators.categories import VIEWS

TIMES = 8  # as large as its operands, and as what is left of it
LARGE = 1 << 18  # elements: below, the calls take the time
_SUMS = frozenset("sum mean".split())
_NORMS = frozenset("norm linalg_vector_norm linalg_norm".split())
_POWERS = frozenset("pow abs mul".split())
_PRODUCTS = frozenset("matmul einsum linear bmm mm".split())
_OF_PAIRS = frozenset("cosine_similarity pairwise_distance".split())
_SCALES = frozenset("mul div".split())


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
    users = list(dict.fromkeys(work.users[op.results[0].number]))
    if not users or any(user.name not in _PRODUCTS for user in users):
        return None
    return users, "Could x be reshaped to a matrix and multiplied by the two small ones: a @ X @ b.mT?"


def _pairs(work: Work, op: TimedOp) -> tuple[list[TimedOp], str] | None:
    """Return the operations from a broadcast product or difference to its sum, and what to ask of them."""
    result = op.results[0]
    if op.name not in ("mul", "sub") or len(op.operands) != 2:
        return None
    if result.numel < TIMES * max(value.numel for value in op.operands):
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


def _only_user(work: Work, value: Value) -> TimedOp | None:
    users = set(work.users[value.number])
    if len(users) != 1 or value.number in work.returned or value.number in work.unseen or value.storage in work.written:
        return None
    return users.pop()
