"""Operations that have a cheaper form: the order of products, one-hot products, casts and copies there and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from fxdebug.data.findings import Finding
from fxdebug.data.measures import counted
from fxdebug.data.values import Group, Value
from fxdebug.features.profile.wasted.slow_functions import is_scan
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_view, weight_behind
from fxdebug.operators.categories import CASTS, ELEMENTWISE, VIEWS
from fxdebug.operators.names import canonical

TWICE = 2.0  # the best order does less than half: otherwise the order is no cause
_CONSTANTS = frozenset("zeros full ones new_zeros new_full zeros_like full_like".split())
FACTORS = 100  # of a chain of products, at most
THIN = 4  # times as large as its rank is a weight, at least
CHAIN = 12  # operations that make a weight
_COPIES_OF_WEIGHTS = frozenset("deepcopy clone".split())
COPIED_WEIGHTS = 4  # fewer are told from 20 % of the time on, as other copies are
COPIED = 20.0  # % of the time: below, a copy may well pay for itself in the operations after it
_COPIES = frozenset("contiguous clone".split())
_REPEATS = frozenset("repeat repeat_interleave tile".split())
_WINDOWS = frozenset("unfold im2col".split())  # those of nn.functional write each window, a tensor's own is a view
_EXPANDS = frozenset("expand expand_as broadcast_to unsqueeze getitem view".split())
_ATTENTION = "scaled_dot_product_attention"
_INVERSES = frozenset("inverse linalg_inv inv linalg_inv_ex pinverse linalg_pinv".split())
_FACTORED = _INVERSES | frozenset(
    "cholesky linalg_cholesky linalg_cholesky_ex linalg_solve linalg_solve_triangular cholesky_solve det logdet "
    "slogdet linalg_det linalg_slogdet linalg_eigh linalg_svd".split()
)
_PRODUCTS = frozenset("matmul einsum linear bmm mm".split())
_FLOATS = ("float64", "float32", "bfloat16", "float16")


def product_order(work: Work, least: float) -> Iterator[Finding]:
    """Products of three or more tensors in an order that multiplies more than another one."""
    for op in work.ops:
        ops = [op]
        if op.name == "einsum":
            done, best = _einsum_products(op)
        elif op.name == "matmul" and not _is_factor(work, op):
            ops, factors = _chain_of_products(work, op)
            done, best = sum(_multiplications(one) for one in ops), _best_of_chain(factors)
        else:
            continue
        if not best or done < TWICE * best:
            continue
        share = work.share(sum(one.seconds for one in ops) * (1 - best / done))
        if share >= least:
            what = f"multiplies {done:.2g} times in this order, and {best:.2g} times in the best one"
            advice = "Could the small product come first?"
            if op.name == "einsum":
                advice = "Could it be written as several products, the small one first? The package opt_einsum, once "
                advice += "installed, makes torch choose the order."
            elif len(ops) > 2:
                what = f"{len(ops)} products, each of the one before, {what.replace('multiplies', 'multiply', 1)}"
                advice = "Could the small products come first (torch.linalg.multi_dot)? Of one matrix again and again: "
                advice += "torch.linalg.matrix_power."
            yield work.finding("order of products", costliest(ops), share, least, what, advice)


def _einsum_products(op: TimedOp) -> tuple[float, float]:
    """Return the multiplications of an einsum from left to right, and those of the best order of pairs."""
    equation, *rest = op.step.args
    tensors = [value for item in rest for value in (item.items if isinstance(item, Group) else (item,))]
    if not isinstance(equation, str) or "." in equation or not 3 <= len(tensors) <= 6:
        return 0.0, 0.0
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    values = [value for value in tensors if isinstance(value, Value)]
    if len(terms) != len(values) or any(len(term) != len(value.shape) for term, value in zip(terms, values)):
        return 0.0, 0.0
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values):
        for letter, size in zip(term, value.shape):
            sizes[letter] = max(size, sizes.get(letter, 1))
    letters = left.replace(",", "")
    result = set(right) if arrow else {letter for letter in letters if letters.count(letter) == 1}
    return _in_order([set(term) for term in terms], result, sizes), _best([set(t) for t in terms], result, sizes)


def _in_order(terms: list[set[str]], result: set[str], sizes: dict[str, int]) -> float:
    import torch.backends.opt_einsum as chosen

    if chosen.is_available() and chosen.enabled and chosen.strategy is not None:
        return _best(terms, result, sizes)  # torch chooses the order itself
    total, terms = 0.0, list(terms)
    while len(terms) > 1:
        cost, terms = _joined(terms, 0, 1, result, sizes)
        total += cost
    return total


def _best(terms: Sequence[set[str]], result: set[str], sizes: dict[str, int]) -> float:
    if len(terms) == 1:
        return 0.0
    found = math.inf
    for i, j in combinations(range(len(terms)), 2):
        cost, rest = _joined(terms, i, j, result, sizes)
        found = min(found, cost + _best(rest, result, sizes))
    return found


def _joined(
    terms: Sequence[set[str]], i: int, j: int, result: set[str], sizes: dict[str, int]
) -> tuple[float, list[set[str]]]:
    """Return what the product of two terms multiplies, and the terms that are left, the product first."""
    rest = [term for k, term in enumerate(terms) if k not in (i, j)]
    both = terms[i] | terms[j]
    kept = both & set().union(result, *rest)
    return float(math.prod(sizes[letter] for letter in both)), [kept, *rest]


def _is_factor(work: Work, op: TimedOp) -> bool:
    """Is the result of a product of two matrices only a factor of another product?"""
    result = op.results[0] if op.results else None
    if result is None or len(op.operands) != 2 or any(len(value.shape) < 2 for value in op.operands):
        return False
    users = work.users[result.number]
    if len(users) != 1 or result.number in work.returned or result.number in work.unseen:
        return False
    return users[0].name == "matmul" and all(len(value.shape) > 1 for value in users[0].operands)


def _chain_of_products(work: Work, op: TimedOp) -> tuple[list[TimedOp], list[Value]]:
    """Return a product and those that it is made of, and all factors, from left to right."""
    ops, factors, pending = [op], list[Value](), [*reversed(op.operands)]
    if len(op.operands) != 2 or any(len(value.shape) < 2 for value in op.operands):
        return [], []
    while pending and len(factors) <= FACTORS:
        value = pending.pop()
        maker = work.maker.get(value.number)
        if maker is not None and maker.name == "matmul" and len(maker.operands) == 2 and _is_factor(work, maker):
            ops.append(maker)
            pending += reversed(maker.operands)
        else:
            factors.append(value)
    return ops, [] if pending else factors


def _multiplications(op: TimedOp) -> float:
    return float(sum(value.numel for value in op.results) * op.operands[0].shape[-1])


def _best_of_chain(factors: Sequence[Value]) -> float:
    """Return the fewest multiplications of a chain of three or more matrices; powers of one are by squares."""
    count = len(factors)
    if count < 3:
        return 0.0
    fewest: dict[tuple[int, int], float] = {(i, i): 0.0 for i in range(count)}
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length - 1
            batch = max(math.prod(value.shape[:-2]) for value in factors[i : j + 1])
            outer = batch * factors[i].shape[-2] * factors[j].shape[-1]
            ways = (fewest[i, k] + fewest[k + 1, j] + outer * factors[k].shape[-1] for k in range(i, j))
            if len({value.number for value in factors[i : j + 1]}) == 1:
                squares = length.bit_length() + length.bit_count() - 2
                fewest[i, j] = float(squares * factors[i].numel * factors[i].shape[-1])
            else:
                fewest[i, j] = min(ways)
    return fewest[0, count - 1]


def low_rank_weights(work: Work, least: float) -> Iterator[Finding]:
    """Weights to which a product of two thin matrices is added before a layer multiplies with them, in each step."""
    found: dict[TimedOp, float] = {}
    thin = None
    for op in work.ops:
        if op.name not in ("linear", "matmul") or len(op.operands) < 2 or not work.has_loss:
            continue
        chain, product = _made_of_weights(work, op.operands[1])
        if product is None:
            continue
        thin = product
        found |= dict.fromkeys(chain, 1.0)
        whole = [value for one in chain for value in one.operands if value.shape == op.operands[1].shape]
        if not any(value.requires_grad and value.name for value in whole):
            found[op] = op.backward / 2 / op.seconds if op.seconds else 0.0  # the whole weight gets a gradient for it
    share = work.share(sum(op.seconds * part for op, part in found.items()))
    if thin is not None and share >= least:
        a, b = thin.operands
        what = f"a product of {a.label} and {b.label} is made as large as the weight that it is added to, in each step"
        advice = "Could the two be applied to the input, one after the other: x @ w.T + (x @ a.T) @ b.T?"
        yield work.finding("order of products", thin, share, least, what, advice)


def _made_of_weights(work: Work, weight: Value) -> tuple[list[TimedOp], TimedOp | None]:
    """Return what makes a weight of parameters alone, and the product of two thin ones in it, if there is one."""
    pending, chain, thin = [weight], [], None
    while pending:
        value = pending.pop()
        maker = work.maker.get(value.number)
        if value.name is not None or maker is None:
            if value.name is None:
                return [], None  # an input
            continue
        chain.append(maker)
        if len(chain) > CHAIN:
            return [], None
        if maker.name == "matmul" and len(maker.operands) == 2:
            rank, size = maker.operands[0].shape[-1], min(weight.shape, default=0)
            thin = maker if rank * THIN <= size else thin
        elif maker.name not in ELEMENTWISE | VIEWS:
            return [], None
        pending += maker.operands
    return chain, thin


def one_hot_products(work: Work, least: float) -> Iterator[Finding]:
    """Products with one-hot rows: a lookup that multiplies by zeros."""
    for op in work.ops:
        if op.name not in ("one_hot", "scatter") and not _compares_places(work, op):
            continue
        if op.name == "scatter" and not _marks(work, op):
            continue
        chain, value, use = [op], op.results[0] if op.results else None, None
        while value is not None and use is None:
            users = work.users[value.number]
            if not users:
                break
            following = next((one for one in users if one.name in _PRODUCTS or _sums_products(work, one)), None)
            if following is not None:
                use = following
                break
            step = next((one for one in users if one.name in CASTS | {"view", "reshape", "flatten"}), None)
            value = step.results[0] if step is not None and step.results else None
            chain += [step] if step is not None else []
        if use is None:
            continue
        share = work.share(use.seconds + sum(one.seconds for one in chain))
        if share >= least:
            what = f"a product with one-hot rows of {op.results[0].shape[-1]} looks rows up by multiplying with zeros"
            advice = "Could it be an embedding, table[index], or gather?"
            if any(len(one.shape) > 1 and one.shape[-1] == 1 and _is_arange(work, one) for one in op.operands):
                what = f"a product with {op.results[0].shape[-2]} rows of ones and zeros sums rows by their index"
                advice = "Could it be index_add, or scatter_add, which add each row once?"
            yield work.finding("one-hot product", use, share, least, what, advice)


def _marks(work: Work, op: TimedOp) -> bool:
    """Does an operation write one number at an index of each row of a constant: one-hot rows, smoothed or not?"""
    maker = work.maker.get(op.operands[0].number) if op.operands else None
    one = op.step.kwargs.get("value", op.step.args[3] if len(op.step.args) > 3 else None)
    is_one = isinstance(one, (int, float)) and len(op.operands) == 2 and op.operands[1].shape[-1:] == (1,)
    return maker is not None and maker.name in _CONSTANTS and is_one


def _compares_places(work: Work, op: TimedOp) -> bool:
    """Are indices compared with all places: one-hot rows, written out?"""
    return op.name == "eq" and any(_is_arange(work, value) for value in op.operands)


def _is_arange(work: Work, value: Value) -> bool:
    """Are a value's numbers those of ``arange``, in any shape?"""
    maker = work.maker.get(value.number)
    while maker is not None and is_view(maker) and maker.operands:
        maker = work.maker.get(maker.operands[0].number)
    return maker is not None and maker.name == "arange"


def diagonal_products(work: Work, least: float) -> Iterator[Finding]:
    """Products with a diagonal matrix: all but one of the numbers of a row are zeros."""
    for op in work.ops:
        if op.name not in ("diag", "diag_embed") or not op.results or not op.operands:
            continue
        uses = [user for user in work.users[op.results[0].number] if user.name in _PRODUCTS]
        share = work.share(op.seconds + sum(one.seconds for one in uses))
        if uses and len(op.results[0].shape) > len(op.operands[0].shape) and share >= least:
            what = f"a product with a diagonal matrix, {op.results[0].label}, multiplies with zeros"
            advice = "Could the rows be multiplied by its diagonal: d[:, None] * x?"
            yield work.finding("one-hot product", uses[0], share, least, what, advice)


def diagonal_factors(work: Work, least: float) -> Iterator[Finding]:
    """Factors and solutions of matrices that are diagonal: all that is done with them could be done with the diagonal.

    Such as those of a normal distribution with a matrix of covariances, where the variances alone are given.
    """
    for op in work.ops:
        if op.name not in ("diag", "diag_embed") or not op.results or not op.operands:
            continue
        square = op.results[0].shape[-2:]
        if len(op.results[0].shape) <= len(op.operands[0].shape) or len(square) < 2:
            continue
        derived, ops = {op.results[0].number}, [op]
        for later in work.ops:
            if later.position > op.position and any(value.number in derived for value in later.operands):
                ops.append(later)
                derived |= {value.number for value in later.results if value.shape[-2:] == square}
        factored = [one for one in ops if one.name in _FACTORED]
        share = work.share(sum(one.seconds for one in ops))
        if factored and share >= least:
            what = (
                f"{counted(len(ops), 'operation')} ({', '.join(sorted({one.name for one in factored}))}, …) work on a "
            )
            what += f"diagonal matrix, {op.results[0].label}, as on any other"
            advice = "Could they take the diagonal alone: 1 / d for the inverse, log(d).sum(-1) for the determinant? A "
            advice += "MultivariateNormal of variances is Independent(Normal(mean, std), 1)."
            yield work.finding("one-hot product", op, share, least, what, advice)


def _sums_products(work: Work, op: TimedOp) -> bool:
    """Is each row multiplied by a one-hot one, and summed: one element is chosen?"""
    users = [user for value in op.results for user in work.users[value.number]]
    return op.name == "mul" and bool(users) and all(user.name == "sum" for user in users)


def casts_back(work: Work, least: float) -> Iterator[Finding]:
    """Casts of floats, where the same tensor's data is cast back within a few operations, again and again."""
    casts = [op for op in work.ops if _casts(op)]
    back = []
    for op in casts:
        value, depth = op.operands[0], 0
        while depth < 4 and (maker := work.maker.get(value.number)) is not None:
            if _casts(maker) and maker.operands[0].dtype == op.results[0].dtype:
                back += [maker, op]
                break
            if not maker.operands or maker.name in _PRODUCTS:
                break
            value, depth = maker.operands[0], depth + 1
    back = list(dict.fromkeys(back))
    share = work.share(sum(op.seconds for op in back))
    if back and share >= least:
        op = costliest(back)
        what = f"{len(back)} casts go to another dtype and back, here {op.operands[0].dtype} to {op.results[0].dtype}"
        advice = "Could the operations between them stay in one dtype?"
        yield work.finding("casts there and back", op, share, least, what, advice)


def _casts(op: TimedOp) -> bool:
    if canonical(op.step.op.op.partition(".")[0]) not in CASTS or len(op.results) != 1 or not op.operands:
        return False
    before, after = op.operands[0].dtype, op.results[0].dtype
    return before != after and before in _FLOATS and after in _FLOATS


def copies(work: Work, _: float) -> Iterator[Finding]:
    """Copies of tensors into another order of memory, with nothing computed.

    One that several operations read may pay for itself, and one that is written into is needed.
    """
    made = [op for op in work.ops if op.name in _COPIES and _is_new(op) and _is_read_once(work, op)]
    made = [op for op in made if op.operands[0].name is None]  # copies of weights have a finding of their own
    share = work.share(sum(op.seconds for op in made))
    if made and share >= COPIED:
        op = costliest(made)
        computes = "computes" if len(made) == 1 else "compute"
        what = f"{len(made)} {'copy' if len(made) == 1 else 'copies'} (contiguous, clone) {computes} nothing, here of "
        what += op.results[0].label
        advice = "Are they needed? Most operations take any strides; view() after a transpose can be reshape()."
        if len(made) == 1:
            advice = advice.replace("Are they", "Is it")
        yield work.finding("copies", op, share, COPIED, what, advice)


def copied_weights(work: Work, least: float) -> Iterator[Finding]:
    """Weights that are copied in each run, and what is computed of the copies alone until they are weights again."""
    copied: list[TimedOp] = []
    derived: set[int] = set()
    names: set[str | None] = set()
    for op in work.ops:
        of = op.operands[-1 if op.name == "copy" else 0] if op.operands else None
        if of is None or not op.results:
            continue
        weight = weight_behind(work, of) if op.name in _COPIES_OF_WEIGHTS and _is_new(op) else None
        if weight is not None:
            names.add(weight.name)
        elif not (of.number in derived and op.name in {"copy", "detach", *_COPIES_OF_WEIGHTS, *ELEMENTWISE}):
            continue
        copied.append(op)
        derived |= {value.number for value in op.results}
    share = work.share(sum(op.seconds for op in copied))
    if names and share >= (least if len(names) >= COPIED_WEIGHTS else COPIED):
        what = f"{counted(len(names), 'weight')} {'is' if len(names) == 1 else 'are'} copied in each run "
        what += "(deepcopy, clone), and computed with"
        advice = "Is the copy needed? An average can follow them in place: torch._foreach_lerp_(slow, fast, 1 - keep)."
        yield work.finding("copies", costliest(copied), share, least, what, advice)


def _is_new(op: TimedOp) -> bool:
    return bool(op.operands and op.results) and op.results[0].storage != op.operands[0].storage


def _is_read_once(work: Work, op: TimedOp) -> bool:
    value, seen = op.results[0], set[int]()
    while len(work.users[value.number]) == 1 and value.storage not in work.written:
        following = work.users[value.number][0]
        if is_scan(following):  # along memory it may be several times as fast
            return False
        if following.name not in VIEWS or not following.results or following.results[0].storage != value.storage:
            return True
        seen.add(value.number)
        value = following.results[0]
        if value.number in seen:  # a view that returns what it was given
            return True
    return not work.users[value.number] and value.storage not in work.written


def repeats(work: Work, least: float) -> Iterator[Finding]:
    """Numbers that are written into memory several times, where operations can read them several times."""
    made = [op for op in work.ops if _repeats(work, op)]
    share = work.share(sum(op.seconds for op in made))
    if made and share >= least:
        op = costliest(made)
        times = op.results[0].numel // max(1, _before(work, op).numel)
        what = f"{counted(len(made), 'operation')} ({op.name}) {'writes' if len(made) == 1 else 'write'} the same "
        what += f"numbers {times} times into memory, here {op.results[0].label}"
        advice = "Could the operation that reads them broadcast (x[:, None], expand)?"
        numbers = [v.number for u in work.users[op.results[0].number] if u.name == _ATTENTION for v in u.operands[1:3]]
        if op.name in _WINDOWS:
            advice = "Could it be a convolution, which reads the windows where they are?"
        if op.results[0].number in numbers:
            advice = "Could scaled_dot_product_attention take fewer heads of keys and values, with enable_gqa=True?"
        yield work.finding("repeated in memory", op, share, least, what, advice)


def _repeats(work: Work, op: TimedOp) -> bool:
    """Does an operation write what it reads more than once?"""
    if not op.operands or len(op.results) != 1 or op.results[0].storage in work.written:
        return False
    if op.name not in _REPEATS and not (op.name in {*_COPIES, *_WINDOWS, "reshape", "flatten"} and _is_new(op)):
        return False
    return _before(work, op).numel * 2 <= op.results[0].numel


def _before(work: Work, op: TimedOp) -> Value:
    """Return what an operation repeats: its operand, or what that was expanded from."""
    value = op.operands[0]
    while (maker := work.maker.get(value.number)) is not None and maker.name in _EXPANDS and maker.operands:
        value = maker.operands[0]
    return value


def inverses(work: Work, least: float) -> Iterator[Finding]:
    """Inverses of matrices that are only multiplied: a solver does less, and rounds less."""
    found = []
    for op in work.ops:
        if op.name in _INVERSES and op.results and op.results[0].number not in work.returned:
            users = [user for value in op.results for user in work.users[value.number] if user.name != "getitem"]
            if users and all(user.name in _PRODUCTS for user in users):
                found.append(op)
    share = work.share(sum(op.seconds for op in found))
    if not found or share < least:
        return
    op = costliest(found)
    maker = work.maker.get(op.operands[0].number)
    what = f"a matrix {op.operands[0].label} is inverted, and its inverse only multiplied"
    if len(found) > 1:
        what = f"{len(found)} matrices are inverted, and the inverses only multiplied, here of {op.operands[0].label}"
    advice = "Could it be torch.linalg.solve(a, b), which does less than inv(a) @ b and rounds less?"
    if maker is not None and maker.name in ("cholesky", "linalg_cholesky", "linalg_cholesky_ex", "tril", "triu"):
        advice = "The matrix is a triangle: could it be torch.linalg.solve_triangular(a, b, upper=False), or "
        advice += "torch.cholesky_solve(b, a)?"
    yield work.finding("inverse", op, share, least, what, advice)
