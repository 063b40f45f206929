"""Products with matrices that are mostly zeros, and work on rows that are all equal: multiplications for nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fxdebug.data.findings import Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.surroundings import Surroundings
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, drops, is_view, weight_behind
from fxdebug.operators.categories import ELEMENTWISE, VIEWS
from fxdebug.operators.names import ACTIVATIONS

_PRODUCTS = frozenset("matmul einsum linear bmm mm".split())
_NOUGHTS = frozenset("zeros zeros_like new_zeros".split())
_ONES = frozenset("ones full ones_like full_like new_ones new_full".split())
_REPEATS = frozenset("repeat repeat_interleave tile expand expand_as broadcast_to".split())
_BY_ROWS = ELEMENTWISE | ACTIVATIONS | frozenset("linear layer_norm rms_norm softmax".split())
_ENLARGES = frozenset("interpolate upsample upsample_nearest upsample_bilinear".split())
ROWS = 4  # equal rows, at least
LARGE_PRIME = 100  # of a transform's length: from here on it took 3 times as long as at 8,192 (MKL, one thread)
SMALL_PRIMES = 7  # factors for which all libraries have kernels
_TRANSFORMS = frozenset("fft_fft fft_ifft fft_rfft fft_irfft".split())
LONG = 512  # taps of a kernel from which on a transform may do less
TIMES = 8  # as many multiplications as by a transform, at least


def sparse_products(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield products with an input, a buffer or a weight of which nine in ten elements are zero."""
    shares = dict(around.zeros)
    numbers = {value.number: slot for slot, value in work.trace.root.inputs.named() if slot in shares}
    uses: dict[str, list[TimedOp]] = {}
    for op in work.ops:
        for value in op.operands if op.name in _PRODUCTS else ():
            whole = value
            while whole.name is None and (maker := work.maker.get(whole.number)) is not None and is_view(maker):
                whole = maker.operands[0]
            name = whole.name if whole.name in shares else numbers.get(whole.number)
            if name is not None:
                uses.setdefault(name, []).append(op)
    for name, ops in uses.items():
        share, op = work.share(sum(one.seconds for one in ops) * shares[name]), costliest(ops)
        if share >= least:
            label = next(v.label for v in op.operands if len(v.shape) > 1)
            what = f"a product with {name}, {label}: {100 * shares[name]:.1f} % of its elements are zeros"
            advice = "Could it be sparse (to_sparse_csr()), or a list of its elements with index_add?"
            yield work.finding("mostly zeros", op, share, least, what, advice)


def masked_pairs(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield attention whose mask, an input or a buffer, hides nine in ten pairs or more, which are all computed."""
    shares = dict(around.zeros)
    numbers = {value.number: slot for slot, value in work.trace.root.inputs.named() if slot in shares}
    by_mask: dict[str, list[TimedOp]] = {}
    for op in work.ops:
        for value in op.operands[3:] if op.name == "scaled_dot_product_attention" else ():
            while value.name is None and (maker := work.maker.get(value.number)) is not None and is_view(maker):
                value = maker.operands[0]
            name = value.name if value.name in shares else numbers.get(value.number)
            if name is not None and value.dtype == "bool":
                by_mask.setdefault(name, []).append(op)
    for name, ops in by_mask.items():
        share, op = work.share(sum(one.seconds for one in ops) * shares[name]), costliest(ops)
        if share >= least:
            what = f"attention computes all pairs, of which its mask {name} hides {100 * shares[name]:.1f} %"
            advice = "Could it be computed in blocks of neighbours, or by torch.nn.attention.flex_attention?"
            yield work.finding("mostly zeros", op, share, least, what, advice)


def gated_rows(work: Work, least: float) -> Iterator[Finding]:
    """Yield modules that run on all rows, and whose results are multiplied by gates most of which are zero."""
    for op in work.ops:
        if op.name not in ("scatter", "scatter_add") or len(op.operands) < 2 or not op.results:
            continue
        base = work.maker.get(op.operands[0].number)
        gates, taken = op.results[0], op.operands[1]
        if base is None or base.name not in _NOUGHTS or taken.numel * 2 > gates.numel:
            continue
        ran = {index for use in _uses_of(work, gates) for index in _calls_behind(work, use, op)}
        inside = [one for one in work.ops if any(index in ran for index in work.around(one.profile.call.index))]
        unused = 1 - taken.numel / gates.numel
        share = work.share(sum(one.seconds for one in inside) * unused)
        if len(ran) >= ROWS and share >= least:
            what = f"{len(ran)} modules run on all rows, and {100 * unused:.0f} % of the gates that multiply their "
            what += "results are zero"
            advice = (
                "Could each module run on the rows alone that its gate lets through: (chosen == i).nonzero(), x[rows], "
            )
            advice += "index_add?"
            yield work.finding("mostly zeros", costliest(inside), share, least, what, advice)


def _uses_of(work: Work, value: Value) -> Iterator[TimedOp]:
    """Yield the products that take a value, or a part of it."""
    for user in dict.fromkeys(work.users[value.number]):
        if user.name in VIEWS and user.results and user.results[0].number != value.number:
            yield from _uses_of(work, user.results[0])
        elif user.name in _PRODUCTS | {"mul"}:
            yield user


def _calls_behind(work: Work, use: TimedOp, gate: TimedOp) -> Iterator[int]:
    """Yield the calls of modules whose results a product multiplies by gates, joined or alone."""
    here = use.profile.call.index
    pending = [value for value in use.operands if value.name is None]
    while pending:
        maker = work.maker.get(pending.pop().number)
        if maker is None or maker is gate:
            continue
        calls = list(work.around(maker.profile.call.index))
        if here in calls[1:]:
            yield calls[calls.index(here) - 1]
        elif maker.name in VIEWS or maker.name in ("stack", "cat", "concat"):
            pending += maker.operands


def triangles(work: Work, least: float) -> Iterator[Finding]:
    """Yield products with a triangle of ones: sums of all rows up to each."""
    for op in work.ops:
        if op.name not in ("tril", "triu") or not op.results or not op.operands:
            continue
        made = work.maker.get(op.operands[0].number)
        uses = [user for user in work.users[op.results[0].number] if user.name in _PRODUCTS]
        share = work.share(op.seconds + sum(one.seconds for one in uses))
        if uses and made is not None and made.name in _ONES and share >= least:
            what = f"a product with a triangle of ones, {op.results[0].label}, sums the rows up to each anew"
            yield work.finding("mostly zeros", uses[0], share, least, what, "Could it be cumsum?")


def equal_rows(work: Work, least: float) -> Iterator[Finding]:
    """Yield layers that run on rows that are all equal, as ``repeat`` or ``expand`` made them."""
    times: dict[int, float] = {}  # number of a value → how often each of its rows is there
    found: dict[int, list[TimedOp]] = {}  # by the number of what was repeated
    origin: dict[int, int] = {}
    for op in work.ops:
        if len(op.results) != 1 or not op.operands or op.results[0].storage in work.written or drops(op):
            continue
        result, value = op.results[0], op.operands[0]
        if op.name in _REPEATS:
            factor = result.numel / max(1, value.numel)
            same_last = bool(value.shape) and value.shape[-1:] == result.shape[-1:] and value.shape[-1] > 1
            if factor >= ROWS and same_last and value.name is None:
                times[result.number], origin[result.number] = factor, value.number
            continue
        known = [one for one in op.operands if one.number in times]
        others = [one for one in op.operands if one.number not in times and one.name is None and one.numel > 1]
        if len({one.number for one in known}) != 1 or others:
            continue
        number = known[0].number
        keeps_rows = result.shape[-1:] == known[0].shape[-1:] and result.numel == known[0].numel
        if (op.name in VIEWS and keeps_rows) or op.name in _BY_ROWS:
            times[result.number], origin[result.number] = times[number], origin[number]
            if op.name not in VIEWS:
                found.setdefault(origin[number], []).append(op)
    for ops in found.values():
        op = costliest(ops)
        factor = times[op.results[0].number]
        share = work.share(sum(one.seconds for one in ops) * (1 - 1 / factor))
        if share >= least:
            names = ", ".join(sorted({one.name for one in ops})[:4])
            what = f"{len(ops)} operations ({names}) compute the same for {factor:.0f} equal rows, here of "
            what += op.operands[0].label
            advice = "Could they run before the rows are repeated (repeat, expand)?"
            yield work.finding("equal rows", op, share, least, what, advice)


def enlarged(work: Work, least: float) -> Iterator[Finding]:
    """Yield layers that compute each place alone, after a picture was enlarged: before it there are fewer places."""
    for op in work.ops:
        if op.name not in _ENLARGES or len(op.results) != 1 or not op.operands or op.results[0].number in work.returned:
            continue
        times = op.results[0].numel / max(1, op.operands[0].numel)
        users = list(dict.fromkeys(work.users[op.results[0].number]))
        if times < ROWS or len(users) != 1 or not _is_pointwise(users[0]):
            continue
        use = users[0]
        share = work.share(use.seconds * (1 - 1 / times))
        if share >= least:
            what = f"a 1x1 convolution runs after its input was enlarged {times:.0f} times, on {op.results[0].label}"
            advice = "Could it run before? Enlarging mixes places, and the layer channels: the order does not matter."
            yield work.finding("equal rows", use, share, least, what, advice)


def _is_pointwise(op: TimedOp) -> bool:
    """Is an operation a convolution with a kernel of one element, at all places, without padding?"""
    if not op.name.startswith("conv") or len(op.operands) < 2 or len(op.results) != 1:
        return False
    return math.prod(op.operands[1].shape[2:]) == 1 and op.results[0].shape[2:] == op.operands[0].shape[2:]


def long_kernels(work: Work, around: Surroundings, least: float) -> Iterator[Finding]:
    """Yield convolutions with kernels so long that a Fourier transform, or two short kernels, multiply far less."""
    for op in work.ops:
        if not op.name.startswith("conv") or len(op.operands) < 2 or len(op.results) != 1:
            continue
        given, kernel, result = op.operands[0], op.operands[1], op.results[0]
        weight = weight_behind(work, kernel)
        if weight is not None and weight.name in around.separable:
            rows, columns = kernel.shape[-2:]
            share = work.share(op.seconds) * (1 - (rows + columns) / (rows * columns))
            if share >= least:
                what = f"each kernel of {weight.name}, {kernel.label}, is a column times a row: {rows * columns} "
                what += f"multiplications for a number, where {rows + columns} do"
                advice = f"Could it be two convolutions, with kernels of {rows}x1 and 1x{columns}?"
                yield work.finding("long kernel", op, share, least, what, advice)
            continue
        if len(kernel.shape) < 3 or len(given.shape) != len(kernel.shape):
            continue
        taps, size = math.prod(kernel.shape[2:]), math.prod(given.shape[2:])
        is_dense = _length(result) * 2 + taps >= size  # no stride
        if taps < LONG or not is_dense:
            continue
        direct = result.numel * kernel.shape[1] * taps
        padded = size + taps
        maps = given.shape[0] * (given.shape[1] + result.shape[1]) + kernel.shape[0] * kernel.shape[1]
        by_transform = 2.5 * padded * math.log2(padded) * maps
        by_transform += 4.0 * given.shape[0] * result.shape[1] * kernel.shape[1] * padded / 2
        share = work.share(op.seconds)
        if direct >= TIMES * by_transform and share >= least:
            what = f"a convolution with a kernel of {taps:,} elements multiplies {direct:.2g} times; by Fourier "
            what += f"transforms it would be about {by_transform:.2g}"
            advice = "Could it be irfft(rfft(x, n) * rfft(kernel, n), n), which rounds a little otherwise?"
            yield work.finding("long kernel", op, share, least, what, advice)


def transform_lengths(work: Work, least: float) -> Iterator[Finding]:
    """Yield Fourier transforms of a length with a large prime factor, which take longer than of small ones."""
    slow = {op: length for op in work.ops for length in _transformed(op) if _largest_prime(length) >= LARGE_PRIME}
    share = work.share(sum(op.seconds for op in slow))
    if slow and share >= least:
        op = costliest(slow)
        length, better = slow[op], next(n for n in range(slow[op], 2 * slow[op]) if _largest_prime(n) <= SMALL_PRIMES)
        what = f"a Fourier transform ({op.name}) has {length:,} elements, with the prime factor "
        what += f"{_largest_prime(length):,}: transforms are fast at lengths of small factors"
        advice = (
            f"Could it be padded to {better:,} (n={better}), and the result cut, where zeros at the end change nothing?"
        )
        yield work.finding("transform length", op, share, least, what, advice)


def _transformed(op: TimedOp) -> Iterator[int]:
    """Yield the length that an operation transforms, where it goes over the last dimension."""
    if op.name not in _TRANSFORMS or not op.operands or len(op.results) != 1:
        return
    dim = op.step.kwargs.get("dim", op.step.args[2] if len(op.step.args) > 2 else -1)
    length = op.step.kwargs.get("n", op.step.args[1] if len(op.step.args) > 1 else None)
    if length is None:
        whole = op.results[0] if op.name == "fft_irfft" else op.operands[0]
        length = whole.shape[dim] if isinstance(dim, int) and whole.shape else None
    if type(length) is int and length > 1:
        yield length


def _largest_prime(number: int) -> int:
    """Return the largest prime factor of a number.

    >>> _largest_prime(8192), _largest_prime(8093), _largest_prime(8190)
    (2, 8093, 13)
    """
    factor, largest = 2, 1
    while factor * factor <= number:
        while number % factor == 0:
            number, largest = number // factor, factor
        factor += 1
    return max(number, largest)


def _length(value: Value) -> int:
    return math.prod(value.shape[2:])
