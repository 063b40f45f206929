"""The region of a value on which two runs disagree: the steps that lead to it from values on which they agree.

The fault is among these steps. A :class:`Divergence` has two regions, one of each run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fxdebug.comparison.constants import number_in
from fxdebug.comparison.diagnosis.cause import Cause, make_cause
from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.pairing.align import aligned_pairs
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import Kind
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import FAR
from fxdebug.comparison.tolerance import visible_share
from fxdebug.data.calls import Call
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS
from fxdebug.operators.names import (
    ACTIVATIONS,
    BIAS_FIRST,
    FACTORIES,
    LOOKUPS,
    MAY_BE_WRITTEN,
    REPEATING,
    SLICES,
    STEPS_OF,
    TRANSPARENT,
    WRITTEN_OUT,
    normalized_constants,
    role,
)


@dataclass(frozen=True)
class Region:
    """Steps without a partner that a value comes from, and the paired values they begin with."""

    steps: tuple[Step, ...]  # in execution order, transparent ones too
    paired_inputs: tuple[Value, ...]
    masks: tuple[Value, ...] = ()  # without a partner: every implementation writes them in its own way
    repeating: frozenset[int] = frozenset()  # indices of steps that do the same as an earlier one

    @property
    def computing(self) -> tuple[Step, ...]:
        """The steps that compute, rather than view or copy."""
        return tuple([step for step in self.steps if not step.transparent])

    @property
    def last(self) -> Step | None:
        """The last step that computes."""
        return self.computing[-1] if self.computing else None


@dataclass(frozen=True)
class Divergence:
    """Two values that should be equal and are not, and the regions that lead to them.

    ``result`` is the step that shows the difference; ``a`` and ``b`` are its results, or two of its inputs.
    """

    judge: Judge
    result: StepResult
    a: Value
    b: Value
    in_a: Region
    in_b: Region

    def cause(
        self, kind: Kind, step: Step, because: str, *, partner: Step | None = None, absorbable: bool = True
    ) -> Cause:
        """Return a step of b as the cause."""
        return self.cause_in(kind, step.call, step.op, because, step=step, partner=partner, absorbable=absorbable)

    def cause_in(
        self,
        kind: Kind,
        call: Call,
        op: str | None,
        because: str,
        *,
        step: Step | None,
        partner: Step | None,
        absorbable: bool = True,
    ) -> Cause:
        """Return an operation in a call of b as the cause; ``step`` shows it, ``partner`` is its counterpart in a."""
        return make_cause(
            self.judge,
            kind,
            call,
            op,
            because,
            self.result,
            step=step,
            partner=partner,
            a=self.a,
            b=self.b,
            absorbable=absorbable,
        )


def region_of(run: StepList, value: Value, paired: Callable[[Value], bool], *, through: bool = False) -> Region:
    """Return the steps that a value comes from, back to the values that have a partner according to ``paired``.

    ``through``: do not stop at the value itself, even if it has a partner.
    """
    by_index: dict[int, Step] = {}
    paired_inputs: dict[int, Value] = {}
    masks: dict[int, Value] = {}
    pending: list[tuple[Value, bool]] = [(value, through)]
    while pending and len(by_index) < FAR:
        at, anyway = pending.pop()
        if not anyway and paired(at):
            paired_inputs[at.number] = at
            continue
        if by_index and (visible_share(at) is not None or at.dtype == "bool"):
            masks[at.number] = at
            continue
        maker = run.makers.get(at.number)
        if maker is None or maker.index in by_index:
            continue
        by_index[maker.index] = maker
        if maker.name in FACTORIES:
            continue  # what it is given says its size and dtype
        # a search that does not stop at a view does not stop at the viewed value either
        pending += [(given.value, anyway and maker.transparent) for given in maker.inputs if not given.is_weight]
    steps = tuple([by_index[index] for index in sorted(by_index)])
    return Region(steps, tuple(paired_inputs.values()), tuple(masks.values()), _repeated_steps(run, steps))


def _repeated_steps(run: StepList, steps: Iterable[Step]) -> frozenset[int]:
    """Return the indices of steps that repeat an earlier step on the same values."""
    first_of_kind: dict[object, int] = {}
    first_result: dict[int, int] = {}  # the result of a repeating step → the result of the first
    repeating = set()
    for step in steps:
        roots = [run.root(given.value).number for given in step.inputs]
        key = (step.name, tuple([first_result.get(root, root) for root in roots]), step.constants)
        first = first_of_kind.setdefault(key, step.index)
        if first != step.index and roots and len(step.outputs) == 1:
            repeating.add(step.index)
            outputs = next(other for other in steps if other.index == first).outputs
            if len(outputs) == 1:
                first_result[run.root(step.outputs[0]).number] = run.root(outputs[0]).number
    return frozenset(repeating)


def elementary_steps(steps: Iterable[Step]) -> list[tuple[str, Step]]:
    """Return the elementary operations of steps, several for a fused one, without slices, repeats and factories."""
    doing = [step for step in steps if is_embedding_lookup(step) or step.name not in SLICES | FACTORIES | REPEATING]
    return [(name, step) for step in doing for name in _elementary_names(step)]


def is_embedding_lookup(step: Step) -> bool:
    """Does it take rows out of a table of weights, as an embedding does, but by indexing?"""
    tables = [given.value for given in step.weights if given.value.dtype in EPS]
    return step.name == "getitem" and bool(tables) and len(tables[0].shape) > 1


def is_lookup(step: Step) -> bool:
    """Does it take rows out of a table, as an embedding does?"""
    return step.name in LOOKUPS or is_embedding_lookup(step)


def _elementary_names(step: Step) -> tuple[str, ...]:
    if is_embedding_lookup(step):
        return ("embedding",)
    if step.name != "scaled_dot_product_attention":
        return STEPS_OF.get(step.name, (step.name,))
    masked = len(step.inputs) > 3 or "is_causal=True" in step.constants
    names = STEPS_OF[f"masked {step.name}" if masked else step.name]
    return tuple([name for name in names if name != "mul" or "scale=1.0" not in step.constants])


def written_fractions(step: Step) -> list[float]:
    """Return the fractions among a step's constants; whole numbers may be sizes, dimensions or counts."""
    numbers = map(number_in, normalized_constants(step.constants))
    return [number for number in numbers if number is not None and math.isfinite(number) and number != int(number)]


def multiplied_pairs(step: Step) -> list[tuple[Value, ...]]:
    """Return the pairs of values that a step multiplies with each other, as matrices."""
    data = tuple([given.value for given in step.data])
    if step.name == "scaled_dot_product_attention" and len(data) >= 3:
        return [data[:2]]
    if step.name in BIAS_FIRST and len(data) == 3:
        return [data[1:]]
    return [data[:2]] if step.name in ("matmul", "einsum", "baddbmm") and len(data) == 2 else []


def unrepeated(run: StepList, value: Value) -> Value:
    """Return the value before repetition: one run repeats heads of keys for several queries, the other shares them."""
    at = run.root(value)
    for _ in range(4):
        maker = run.makers.get(at.number)
        if maker is None or maker.name not in REPEATING or not maker.data:
            break
        at = run.root(maker.data[0].value)
    return at


def terms_of(run: StepList, step: Step) -> set[int]:
    """Return the numbers of all values that are added up in the sum that a step is a part of."""
    while (after := _next_sum(run, step)) is not None:
        step = after
    terms, pending = set[int](), [step]
    while pending:
        for given in pending.pop().inputs:
            root = run.root(given.value)
            maker = run.makers.get(root.number)
            if maker is not None and maker.name == "add" and _next_sum(run, maker) is not None:
                pending.append(maker)
            terms.add(root.number)
    return terms


def _next_sum(run: StepList, step: Step) -> Step | None:
    """Return the sum in which the result of a sum is a term, where it is used for nothing else."""
    users = run.users.get(run.root(step.outputs[0]).number, ()) if step.outputs else ()
    users = [user for user in users if not user.transparent]
    return users[0] if len(users) == 1 and users[0].name == "add" and users[0] is not step else None


def pieces_of(run: StepList, step: Step) -> list[Value]:
    """Return a step's results and all slices of them, such as the parts of a fused projection."""
    pieces = list(step.outputs)
    for value in step.outputs:
        for user in run.users.get(run.root(value).number, ()):
            if user.name in SLICES:
                pieces += user.outputs
    return pieces


def unmatched_steps(a: Region, b: Region) -> tuple[list[tuple[str, Step]], list[tuple[str, Step]]]:
    """Return the elementary operations of region a that region b lacks, and those of b that a lacks."""
    one, other = (
        elementary_steps([step for step in side.computing if step.index not in side.repeating]) for side in (a, b)
    )
    same = aligned_pairs(one, other, _similarity, lambda pair: pair[0])
    left, right = {id(x) for x, _ in same}, {id(y) for _, y in same}
    gone = [x for x in one if id(x) not in left]
    new = [y for y in other if id(y) not in right]
    gone, new = _without_spellings(_without_idle(gone, b), _without_idle(new, a))
    return _rejoin_fused(gone), _rejoin_fused(new)


def _without_spellings(
    gone: list[tuple[str, Step]], new: list[tuple[str, Step]]
) -> tuple[list[tuple[str, Step]], list[tuple[str, Step]]]:
    """Drop an operation of one side that the other side writes out: these are no difference."""
    for name, parts in WRITTEN_OUT.items():
        for fused, written in ((gone, new), (new, gone)):
            at = next((place for place, named in enumerate(fused) if named[0] == name), None)
            rest = _without_parts(written, parts)
            if at is not None and rest is not None:
                del fused[at]
                for part in MAY_BE_WRITTEN.get(name, ()):
                    rest = rest if (less := _without_parts(rest, (part,))) is None else less
                written[:] = rest
    return gone, new


def _without_idle(parts: list[tuple[str, Step]], other: Region) -> list[tuple[str, Step]]:
    """Drop parts of fused steps that the other side has as separate steps without effect (adding a tiny epsilon)."""
    idle = Counter(role(s.name) for s in other.steps if s.transparent and s.name not in TRANSPARENT)
    active = []
    for name, step in parts:
        if name != step.name and idle[role(name)]:
            idle[role(name)] -= 1
        else:
            active.append((name, step))
    return active


def _without_parts(steps: list[tuple[str, Step]], parts: Iterable[str]) -> list[tuple[str, Step]] | None:
    """Return some steps without one for each of some operations; ``None`` where one of these is not there."""
    rest = list(steps)
    for part in parts:
        at = next((place for place, (name, _) in enumerate(rest) if role(name) == role(part)), None)
        if at is None:
            return None
        del rest[at]
    return rest


def _similarity(a: tuple[str, Step], b: tuple[str, Step]) -> float:
    return 1.0 if a[0] == b[0] else 0.9 if role(a[0]) == role(b[0]) else 0.0


def _rejoin_fused(parts: list[tuple[str, Step]]) -> list[tuple[str, Step]]:
    """Join the parts of a fused operation into one again where all of them are there."""
    counts = Counter(step.index for _, step in parts)
    whole: dict[int, tuple[str, Step]] = {}
    for place, (name, step) in enumerate(parts):
        if counts[step.index] == len(_elementary_names(step)):
            whole.setdefault(-1 - step.index, (step.op, step))
        else:
            whole[place] = (name, step)
    return list(whole.values())


def view_chain(run: StepList, value: Value) -> list[Step]:
    """Return the views and copies between a value and the one that it is a view of, in execution order."""
    steps: list[Step] = []
    at = value
    while (maker := run.makers.get(at.number)) is not None and maker.transparent and len(steps) < FAR:
        steps.append(maker)
        source = next((given for given in maker.inputs if given.value.numel == at.numel), None)
        if source is None or source.value.number == at.number:
            break
        at = source.value
    return steps[::-1]


def maker_of_mask(run: StepList, mask: Value) -> Step | None:
    """Return the step that makes a mask, before copies and views of it."""
    maker = run.maker(mask)
    while maker is not None and maker.name in REPEATING | TRANSPARENT and len(maker.data) == 1:
        before = run.maker(maker.data[0].value)
        if before is None or visible_share(before.outputs[0] if before.outputs else mask) != visible_share(mask):
            break
        maker = before
    return maker


def handing_call(pairs: Pairs, step: Step, a: Value, b: Value) -> tuple[Call, Call | None]:
    """Return the call of b whose code hands ``b`` to a step instead of ``a``, and the inner call it is handed to.

    Where a call passes on a value from its own arguments, its caller chose that value.
    """
    call, inner = step.call, None
    while call.parent is not None and _is_given(pairs.b, call, b):
        partner = pairs.call_in_a(call)
        if partner is not None and not _is_given(pairs.a, partner, a):
            break
        wanted = pairs.values_of_a.get(pairs.a.root(a).number)
        if wanted is not None and _is_given(pairs.b, call, pairs.b.values[wanted]):
            break  # it was given the right one, too
        call, inner = call.parent, call
    return call, inner


def _is_given(run: StepList, call: Call, value: Value) -> bool:
    root = run.root(value).number
    return any(run.root(given).number == root for given in call.inputs)


def common_call(calls: Iterable[Call]) -> Call | None:
    """Return the deepest call that contains all of these."""
    paths = []
    for call in calls:
        path = [call]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        paths.append(path[::-1])
    if not paths:
        return None
    shared = None
    for level in zip(*paths):
        if any(call is not level[0] for call in level):
            break
        shared = level[0]
    return shared


def computes_floats(step: Step) -> bool:
    """Does it compute floats from floats? Steps that make masks, positions and constants do not."""
    return any(v.dtype in EPS for v in step.outputs) and any(g.value.dtype in EPS for g in step.inputs)


def most_informative(steps: list[Step], gone: list[Step] | None = None) -> Step:
    """Return the step to name among several: an activation, else the last that computes.

    If one step of a (``gone``) does the work of a whole call or recurrence, no single step of b stands for it. Then
    it is the last step of b, or the last one in the first inner call that does a part of it. Of calls whose operations
    were not recorded, the first one is named: those after it are given what it returned.
    """
    computing = [step for step in steps if computes_floats(step)] or steps
    if computing[0].unrecorded and not any(step.unrecorded for step in gone or ()):
        return computing[0]
    if not all(is_single_operation(step) for step in gone or ()):
        around = common_call(step.call for step in computing)
        if any(step.unrecorded for step in gone or ()) and computing[0].call is not around:
            computing = [
                s for s in computing if _child_around(s.call, around) is _child_around(computing[0].call, around)
            ]
        return computing[-1]
    return next((step for step in computing if step.name in ACTIVATIONS), computing[-1])


def _child_around(call: Call, top: Call | None) -> Call:
    """Return the call right below ``top`` that a call is in."""
    while call.parent is not None and call.parent is not top:
        call = call.parent
    return call


def is_single_operation(step: Step) -> bool:
    """Is it one operation, rather than a recurrence or a call whose operations were not recorded?"""
    return not step.unrecorded and len(step.weights) <= 2
