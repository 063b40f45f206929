"""Norms and softmaxes that are written as single operations, each of which goes over all elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from fxdebug.data.findings import Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.wasted.slow_functions import is_whole_power
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest
from fxdebug.operators.categories import CASTS, ELEMENTWISE, VIEWS

SMALLER = 4  # times as large as its mean is what a norm goes over, at least
LARGE = 1 << 14  # elements: below, the calls take the time, and a norm of one operation is no faster for its passes
_MEANS = frozenset("mean var std var_mean std_mean".split())
_MOST = frozenset("amax max".split())
_OF_ONE = ELEMENTWISE | CASTS | frozenset("exp sqrt rsqrt reciprocal clamp clip abs neg".split())
_STEPS = 8  # of single operations from a tensor to its statistic, and back


PASSES = 5  # operations at one line that each go over all elements
MUCH = 50.0  # % of the time in such a line: below, fusing them is no cause
WIDE = 1 << 18  # elements: from here on memory, and not the calls, takes the time
_FUNCTIONS = {"erf": "torch.nn.functional.gelu", "tanh": "torch.nn.functional.gelu(x, approximate='tanh')"}


def elementwise_lines(work: Work, _: float) -> Iterator[Finding]:
    """Yield lines whose expressions have many operations that each read and write all elements of a large tensor."""
    of: dict[TimedOp, list[TimedOp]] = {}
    for op in work.ops:
        elementwise = not is_whole_power(work, op) and op.name in _OF_ONE | {"tanh", "erf", "sigmoid", "log", "where"}
        if not op.source or not elementwise or len(op.results) != 1 or op.results[0].numel < WIDE:
            continue
        of[op] = [op]
        for value in op.operands:
            maker = work.maker.get(value.number)
            if maker in of and maker.source == op.source and of[maker] is not of[op]:
                others = [one for one in op.operands if (by := work.maker.get(one.number)) is not None and by not in of]
                if any(_is_made_of(work, one, of[maker]) for one in others):
                    continue  # such as x + norm(x) in a loop: what is between is another pass
                of[maker] += of[op]
                of |= dict.fromkeys(of[op], of[maker])
    by_line: defaultdict[str, list[TimedOp]] = defaultdict(list)
    for ops in {id(ops): ops for ops in of.values()}.values():
        if len(ops) >= PASSES and len({op.results[0].shape for op in ops}) == 1:
            by_line[ops[0].source or ""] += ops
    for ops in by_line.values():
        share = work.share(sum(op.seconds for op in ops))
        names = [op.name for op in sorted(ops, key=lambda op: op.position)]
        if share < MUCH or any(op.name == "exp" for op in ops):
            continue
        op = costliest(ops)
        what = f"{len(ops)} operations ({', '.join(dict.fromkeys(names))}) at this line each go over all of "
        what += op.results[0].label
        known = next((_FUNCTIONS[name] for name in names if name in _FUNCTIONS and "mul" in names), "")
        advice = f"Is it {known}, one operation?" if known else "Could torch.compile make one pass of them?"
        yield work.finding("written out", op, share, MUCH, what, advice)


def _is_made_of(work: Work, value: Value, ops: list[TimedOp]) -> bool:
    """Does a tensor come from one of these operations, by a few others?"""
    before = {value.number}
    for _ in range(_STEPS):
        makers = [maker for number in before if (maker := work.maker.get(number)) is not None]
        if any(maker in ops for maker in makers):
            return True
        before = {given.number for maker in makers for given in maker.operands}
    return False


@dataclass
class _Norm:
    """The operations of one written-out norm or softmax of a tensor: of a norm, whether it subtracts a mean."""

    of: Value
    ops: dict[TimedOp, None] = field(default_factory=dict)
    has_mean: bool = False
    has_scale: bool = False
    has_exp: bool = False


def written_out(work: Work, least: float) -> Iterator[Finding]:
    """Yield layer norms, RMS norms and softmaxes over the last dimension for which torch has one operation."""
    by_kind: defaultdict[str, list[_Norm]] = defaultdict(list)
    for norm in _norms(work):
        if norm.has_exp:
            by_kind["torch.softmax"].append(norm)
        elif norm.has_scale and (norm.has_mean or norm.of.device != "cpu"):  # on CPUs torch has no fused rms_norm
            by_kind["layer_norm" if norm.has_mean else "rms_norm"].append(norm)
    for name, norms in by_kind.items():
        ops = [op for norm in norms for op in norm.ops]
        share = work.share(sum(op.seconds for op in ops))
        if share < least:
            continue
        kind = {"torch.softmax": "softmax", "layer_norm": "layer norm", "rms_norm": "RMS norm"}[name]
        times = f", {len(norms)} times" if len(norms) > 1 else ""
        what = f"a {kind} is written as {round(len(ops) / len(norms))} operations{times}, each of which goes over "
        what += f"{norms[0].of.label} or its rows"
        full = name if name.startswith("torch.") else f"torch.nn.functional.{name}"
        yield work.finding("written out", costliest(ops), share, least, what, f"Could it be {full}, one operation?")


def _norms(work: Work) -> list[_Norm]:
    found: dict[int, _Norm] = {}
    for reduction in work.ops:
        if reduction.name not in _MEANS | _MOST | {"sum"} or not reduction.results or not reduction.operands:
            continue
        whole, small = reduction.operands[0], reduction.results[0]
        if whole.numel < LARGE or small.numel * SMALLER > whole.numel or not _over_last(whole, small):
            continue
        base, before = _base(work, whole)
        for back, between in _goes_back(work, small, whole, base):
            norm = found.setdefault(base.number, _Norm(base))
            exp = any(op.name == "exp" for op in before)
            if back.name in ("mul", "div") and reduction.name in _MEANS and not exp:
                norm.has_scale = True
            elif back.name == "sub" and reduction.name == "mean":
                norm.has_mean = True
            elif back.name == "div" and reduction.name == "sum" and exp:
                norm.has_exp = True
            elif not (back.name == "sub" and reduction.name in _MOST):
                continue
            norm.ops.update(dict.fromkeys([*before, reduction, *between, back]))
    return list(found.values())


def _over_last(whole: Value, small: Value) -> bool:
    """Is a statistic over the last dimension alone?"""
    kept = small.shape[:-1] if len(small.shape) == len(whole.shape) and small.shape[-1] == 1 else small.shape
    return kept == whole.shape[:-1]


def _base(work: Work, value: Value) -> tuple[Value, list[TimedOp]]:
    """Return the tensor that a value of the same shape is made of element by element, and the operations between."""
    shape = value.shape
    ops: list[TimedOp] = []
    while (maker := work.maker.get(value.number)) is not None and maker.name in _OF_ONE and len(ops) < _STEPS:
        wide = [one for one in maker.operands if one.shape == shape]
        small = [one for one in maker.operands if one.shape != shape]
        if len({one.number for one in wide}) != 1 or any(not _is_of(work, one, wide[0]) for one in small):
            break
        ops.append(maker)
        value = wide[0]
    return value, ops


def _is_of(work: Work, small: Value, whole: Value) -> bool:
    """Is a small tensor a statistic of a large one, by few operations?"""
    for _ in range(_STEPS):
        maker = work.maker.get(small.number)
        if maker is None or not maker.operands:
            return False
        if maker.operands[0].shape == whole.shape:
            return maker.name in _MEANS | _MOST | {"sum"}
        small = maker.operands[0]
    return False


def _goes_back(work: Work, small: Value, whole: Value, base: Value) -> Iterator[tuple[TimedOp, list[TimedOp]]]:
    """Yield the operations where a statistic meets what it was taken of, and those on its way."""
    pending: list[tuple[Value, list[TimedOp]]] = [(small, [])]
    while pending:
        value, way = pending.pop()
        for user in dict.fromkeys(work.users[value.number]):
            if len(user.results) != 1:
                continue
            result = user.results[0]
            if result.shape == whole.shape and user.name in ("sub", "mul", "div"):
                others = [one for one in user.operands if one.shape == whole.shape]
                if any(_base(work, one)[0].number == base.number for one in others):
                    yield user, way
            elif result.numel == small.numel and user.name in _OF_ONE | VIEWS and len(way) < _STEPS:
                pending.append((result, [*way, user]))
