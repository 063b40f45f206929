"""Numbers near the limits of their dtype: near overflow, lost in underflow, cancelled, too large for float16."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fxdebug.analyses.numbers.findings import FindingKind
from fxdebug.analyses.numbers.lineage import OPERATIONS, Lineage, NodeInput, NodeResults, literals_of
from fxdebug.data.findings import ADVICE, WARNING, Finding, Severity
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.categories import CASTS, SOFTMAXES, UNFILLED, VIEWS, WRITES
from fxdebug.operators.dtypes import FLOATS, largest_of
from fxdebug.operators.masks import is_mask
from fxdebug.operators.nonfinite import has_nonfinite
from fxdebug.query.network import Node
from fxdebug.stats.elements import elements

NARROW = frozenset(name for name in FLOATS if name not in ("float32", "float64"))
SHORT_EXPONENT = NARROW - {"bfloat16"}  # numbers that matter underflow in these
WIDE = ("float32", "bfloat16", "float64")
FLOAT16_MAX = FLOATS["float16"].max
WHOLE_STEP = 1 / 16  # whole results count as exact if floats as large as the operands are spaced closer than this
SUBNORMAL_NEAR = 2.0**24  # tensors are read only if they are within this factor of the smallest normal number


@dataclass(frozen=True)
class NumberLimits:
    """The thresholds of the rules about the limits of a dtype.

    ``headroom``: a result within this factor of its dtype's largest number; at 4 it is infinite after two more
    doublings. ``lost_share``: share of the elements that became 0, for a finding. ``most_lost``: share of the nonzero
    elements that did, for a warning; cubes of small activations lose some in any model. ``subnormal_share``: share of
    the nonzero elements that are subnormal.
    """

    headroom: float = 4.0
    lost_share: float = 0.01
    most_lost: float = 0.5
    subnormal_share: float = 0.1


# A difference is cancelled when fewer than half of the digits are left: smaller than sqrt(eps) times its operands.
# Higham, Accuracy and Stability of Numerical Algorithms (2002), section 1.7: the relative error grows by
# (|a| + |b|) / |a - b|.
_SUBTRACTS = frozenset("sub rsub isub subtract add radd iadd".split())
_SHRINKS = frozenset("mul rmul imul multiply div divide truediv itruediv true_divide square pow ipow".split())
_FIRST_ONLY = frozenset("div divide truediv itruediv true_divide pow ipow".split())  # 0 where the first operand is 0
_DECAYS = frozenset("exp exp2 sigmoid".split())


# Operations with exact results: a difference of these loses no digits.
_EXACT = frozenset(
    "arange full zeros ones full_like zeros_like ones_like tensor embedding round floor ceil trunc sign argmax "
    "one_hot eye tril triu cumsum detach where masked_fill".split()
)


def check_limits(
    trace: TraceData, results: NodeResults, limits: NumberLimits, *, tensors: bool = True
) -> list[Finding]:
    """Return findings on values near or beyond the limits of their dtype: one for all layers with the same line."""
    masks = Masks(results)
    local = [finding for node in _operations(results) for finding in _findings_at(node, results, masks, limits)]
    findings = [*_headroom(results, masks, limits), *local]
    if tensors and trace.data is not None:
        findings += _subnormal(trace, results, limits)
    return [*group_findings(findings), *_float16(results, masks)]


def _operations(results: NodeResults) -> Iterator[Node]:
    return (node for node in results.net.nodes.values() if node.kind in OPERATIONS)


class Masks:
    """Additive masks, and values to which a mask was added: their low numbers are intended."""

    def __init__(self, results: NodeResults) -> None:
        self._masks: set[int] = set()
        for node in results.net.nodes.values():
            inputs = [value for value, _ in results.inputs(node)] if self._masks else []
            lows = [
                low for value in inputs if value.number in self._masks and (low := _depth_below_zero(value)) is not None
            ]
            for value in results.outputs(node):
                low = _depth_below_zero(value)
                if is_mask(value) or (low is not None and any(0.25 * old <= low <= 4 * old for old in lows)):
                    self._masks.add(value.number)

    def __contains__(self, value: Value) -> bool:
        return value.number in self._masks


def _depth_below_zero(value: Value) -> float | None:
    """Return how far a value goes below zero, if that is at least as far as above; infinity if it has -Inf."""
    stats = value.stats
    if stats is None:
        return None
    if stats.neginf:
        return math.inf
    if not isinstance(stats.min, (int, float)) or stats.min >= 0 or stats.absmax is None or stats.absmax > -stats.min:
        return None
    return -float(stats.min)


# Overflow ----------------------------------------------------------------------------------------


def _headroom(results: NodeResults, masks: Masks, limits: NumberLimits) -> Iterator[Finding]:
    """Yield a finding for each operation at which results of narrow dtypes first come close to overflow."""

    def near(value: Value) -> bool:
        largest = largest_of(value.dtype)
        reach = _absmax(value)
        return (
            value.dtype in NARROW
            and reach * limits.headroom > largest
            and value not in masks
            and not has_nonfinite(value)
        )

    for origin in Lineage(results, near, _op_if_computed).origins:
        largest, reach = FLOATS[origin.value.dtype].max, _absmax(origin.value)
        what = (
            f"up to {reach:.4g}, {largest / reach:.1f} times less than the largest {origin.value.dtype}, {largest:.4g}"
        )
        yield _finding("headroom", WARNING, origin.node, results, what, origin.value, origin.inputs)


def _float16(results: NodeResults, masks: Masks) -> Iterator[Finding]:
    """Yield one piece of advice for the run: the operation with the largest number beyond float16."""

    def beyond(value: Value) -> bool:
        return value.dtype in WIDE and _absmax(value) > FLOAT16_MAX and value not in masks

    origins = Lineage(results, beyond, _op_if_computed).origins
    if not origins:
        return
    worst = max(origins, key=lambda origin: _absmax(origin.value))
    others = tuple(origin.node.id for origin in origins if origin is not worst)
    reached = len({node.id for origin in origins for node in origin.reached})
    what = f"up to {_absmax(worst.value):.4g}: it would overflow in float16, whose largest is {FLOAT16_MAX:.0f}"
    finding = _finding("float16", ADVICE, worst.node, results, what, worst.value, worst.inputs)
    yield replace(finding, others=others, reached=reached)


def _op_if_computed(node: Node, inputs: list[NodeInput], bad: list[Value], inherited: int) -> str | None:
    """Return the operation as a cause if it computes; reads, moves and uninitialised memory are no origins."""
    if inherited or node.kind not in OPERATIONS or node.op in UNFILLED | VIEWS - CASTS | WRITES:
        return None
    return None if not inputs and _constant(node) else node.op


def _constant(node: Node) -> bool:
    return node.op in _EXACT


def _absmax(value: Value) -> float:
    reach = None if value.stats is None else value.stats.absmax
    return 0.0 if reach is None else float(reach)


# At one operation --------------------------------------------------------------------------------


def _findings_at(node: Node, results: NodeResults, masks: Masks, limits: NumberLimits) -> Iterator[Finding]:
    output = node.value
    if output is None or output.stats is None or output.dtype not in FLOATS or not output.stats.count:
        return
    inputs = tuple([value for value, _ in results.inputs(node)])
    if any(value.stats is None for value in inputs) or any(map(has_nonfinite, inputs)) or has_nonfinite(output):
        return
    if node.op in _SUBTRACTS:
        yield from _cancelled(node, results, inputs, output)
    elif node.op in _SHRINKS | _DECAYS | SOFTMAXES or (node.op in CASTS and inputs and inputs[0].dtype in FLOATS):
        yield from _vanished(node, results, inputs, output, masks, limits)


def _vanished(
    node: Node,
    results: NodeResults,
    inputs: tuple[Value, ...],
    output: Value,
    masks: Masks,
    limits: NumberLimits,
) -> Iterator[Finding]:
    """Yield a finding for underflow: more zeros in the result than the zeros of the operands explain."""
    assert output.stats is not None
    if (
        not inputs
        or 0 in literals_of(node)
        or any(value in masks for value in inputs)
        or _divides_to_whole_numbers(node)
    ):
        return
    if node.op in CASTS and FLOATS[inputs[0].dtype].least >= FLOATS[output.dtype].least:
        return
    operands = () if node.op in _DECAYS | SOFTMAXES else inputs[:1] if node.op in _FIRST_ONLY else inputs
    share = output.stats.zeros / output.stats.count - sum(map(_zero_share, operands))
    small = output.dtype in SHORT_EXPONENT
    if share <= limits.lost_share or (
        node.op in _DECAYS | SOFTMAXES and not small
    ):  # exp(-200) is 0 for all that follows
        return
    is_grave = small and node.op not in SOFTMAXES and share > limits.most_lost * (1 - sum(map(_zero_share, operands)))
    severity: Severity = WARNING if is_grave else ADVICE
    least = FLOATS[output.dtype].least
    what = f"{share:.0%} of the elements became 0: they are below {least:.2g}, the smallest {output.dtype}"
    yield _finding("underflow", severity, node, results, what, output, inputs)


def _divides_to_whole_numbers(node: Node) -> bool:
    """Is the operation a division with a rounding mode?"""
    return node.step is not None and node.step.kwargs.get("rounding_mode") is not None


def _zero_share(value: Value) -> float:
    return 0.0 if value.stats is None or not value.stats.count else value.stats.zeros / value.stats.count


def _cancelled(node: Node, results: NodeResults, inputs: tuple[Value, ...], output: Value) -> Iterator[Finding]:
    """Yield a finding for cancellation: a difference that is tiny compared with its operands, which were rounded."""
    literal = max((abs(number) for number in literals_of(node)), default=0.0) if len(inputs) == 1 else 0.0
    half = sum([_absmax(value) / 2 for value in inputs[:2]]) + literal / 2  # the sum of the largest float64 is infinite
    result = _absmax(output)
    if not result or not half or (len(inputs) < 2 and not literal):
        return
    ratio, step = max(result / 2 / half, sys.float_info.min), half * FLOATS[output.dtype].eps * 2
    exact = step < WHOLE_STEP and _are_whole_numbers(output)
    if ratio >= math.sqrt(FLOATS[output.dtype].eps) or exact or not _has_computed_operand(node, results):
        return
    lost = FLOATS[output.dtype].eps / ratio
    what = (
        f"the result is {ratio:.1e} of its operands: digits cancel, and rounding from before is up to {lost:.0%} of it"
        if lost >= 0.01
        else f"the result is {ratio:.1e} of its operands: digits cancel, and rounding from before grows to {lost:.1e}"
    )
    yield _finding("cancellation", WARNING, node, results, what, output, inputs)


def _has_computed_operand(node: Node, results: NodeResults) -> bool:
    """Is any operand computed, and so rounded? The difference of exact operands loses no digits."""
    sources = [results.net.nodes[source] for _, source in results.inputs(node)]
    return any(_is_computed(results, source) for source in sources)


def _is_computed(results: NodeResults, node: Node) -> bool:
    for _ in range(16):  # through views, placeholders and calls to the operation that computed it
        if node.kind in OPERATIONS and node.op not in VIEWS:
            return node.op not in _EXACT
        edges = results.net.into.get(node.id, [])
        edges = [
            edge for edge in edges if edge.kind == "data" and (node.kind != "call_module" or edge.argument == "result")
        ]
        if not edges:
            return False
        node = results.net.nodes[edges[0].source]
    return False


def _are_whole_numbers(value: Value) -> bool:
    """Are all elements whole numbers, judged by minimum, maximum and the sum of squares?"""
    stats = value.stats
    if stats is None or stats.std is None or not isinstance(stats.mean, float):
        return False
    squares = stats.std**2 * (stats.finite - 1) + stats.finite * stats.mean**2
    ends = all(isinstance(end, (int, float)) and float(end).is_integer() for end in (stats.min, stats.max))
    return ends and math.isclose(squares, round(squares), rel_tol=1e-6)


# Subnormal numbers -------------------------------------------------------------------------------


def _subnormal(trace: TraceData, results: NodeResults, limits: NumberLimits) -> Iterator[Finding]:
    """Yield a finding for each call with many subnormal numbers in its results, where the tensors were kept."""
    read: set[int] = set()
    for call in trace.calls:
        for value in call.outputs or ():
            tiny = FLOATS[value.dtype].tiny if value.dtype in FLOATS else None
            near = value.dtype == "float16" or (tiny is not None and 0 < _absmax(value) < tiny * SUBNORMAL_NEAR)
            if tiny is None or not near or value.saved is None or value.number in read:
                continue
            read.add(value.number)
            magnitudes = elements(trace.tensor(value).cpu()).double().abs()
            below = int(((magnitudes > 0) & (magnitudes < tiny)).sum())
            other = int((magnitudes > 0).sum())
            if other and below / other > limits.subnormal_share:
                node = results.net.nodes[results.net.call_id(call)]
                what = (
                    f"{below / other:.0%} of what is not 0 is below {tiny:.2g}, where {value.dtype} runs out of digits"
                )
                yield _finding("subnormal", ADVICE, node, results, what, value, tuple(call.inputs))


# Findings ----------------------------------------------------------------------------------------


def _finding(
    kind: FindingKind,
    severity: Severity,
    node: Node,
    results: NodeResults,
    what: str,
    output: Value,
    inputs: Iterable[Value],
) -> Finding:
    inputs = tuple(dict.fromkeys(inputs))
    call = results.net.call_id(node.call)
    return Finding(kind, severity, node.path, call, node.op, what, node.id, node.source, value=output, inputs=inputs)


def group_findings(findings: Iterable[Finding], *, calls_only: bool = False) -> list[Finding]:
    """Merge findings of one kind at one source line into the first, which names the others.

    ``calls_only``: merge only findings of one operation in several calls of the same module.
    """
    groups: dict[tuple[str | None, ...], list[Finding]] = {}
    for finding in findings:
        step = f"{finding.path}/{finding.node.rpartition('/')[2]}" if calls_only else None
        key = finding.kind, finding.op, finding.source or finding.node, finding.severity, step
        groups.setdefault(key, []).append(finding)
    return [replace(group[0], others=tuple(other.node for other in group[1:])) for group in groups.values()]
