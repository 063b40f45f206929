"""Loops of Python over rows or over time, and values that grow with each step of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from fxdebug.data.findings import Finding
from fxdebug.data.values import Value
from fxdebug.features.profile.report import CallProfile, bytes_moved
from fxdebug.features.profile.wasted.chains import STEPS, Chain
from fxdebug.features.profile.wasted.dense_gradients import whole_gradients
from fxdebug.features.profile.wasted.equal_work import told_as_repeated
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, is_view
from fxdebug.features.profile.wasted.unused_results import made_for_reads, told_as_checks
from fxdebug.operators.categories import ELEMENTWISE, VIEWS
from fxdebug.operators.dtypes import bytes_of

_CELLS = {"LSTMCell": "nn.LSTM", "GRUCell": "nn.GRU", "RNNCell": "nn.RNN"}
HALF = 0.5  # of the work of a pass: from here on the loop goes over time
PARTS = 4  # runs of a module on parts of one tensor
_LAYERS = frozenset("linear matmul conv1d conv2d".split())
MANY = 24  # weights that one line goes over
_SIMPLE = ELEMENTWISE | frozenset("data setattr detach copy lerp addcmul addcdiv zero sum norm sqrt clamp".split())
MUCH = 50.0  # % of the time: below, steps that all need one another are no cause
SMALL = 1 << 19  # bytes that an operation moves: above, the work is more than the calls


@dataclass
class _Loop:
    """The operations of a loop in one call, those of calls in it included, by the pass that they belong to."""

    call: CallProfile
    passes: list[list[TimedOp]] = field(default_factory=list)

    @property
    def ops(self) -> list[TimedOp]:
        return [op for one in self.passes for op in one]


def loops(work: Work, least: float) -> Iterator[Finding]:
    """Loops that do little in each pass: over rows, which do not need one another, or over time."""
    copied = {op for chain in _chains(work) for op in chain}  # a loop that mostly copies has a finding of its own
    again = {op.operands[1].number for op in _again(work)}  # weights of a loop that has another finding, too
    repeated = told_as_repeated(work, least) | told_as_checks(work, least)
    repeated |= {op for ops in whole_gradients(work, least) for op in ops} | made_for_reads(work).keys()
    found = list(_loops(work))
    for loop in found:
        if any(value.number in again for op in loop.ops for value in op.operands[1:2]):
            continue
        ops = [op for op in loop.ops if op not in copied and op not in repeated]
        share = work.share(sum(op.seconds for op in ops))
        sizes = [size for op in ops if op.seconds and (size := bytes_moved(op.step))]
        if share < least or not sizes or median(sizes) > SMALL:
            continue
        yield from _told(work, loop, ops, (copied, repeated), share, least)
    yield from _on_parts(work, least, {op for loop in found for op in loop.ops})


def _told(
    work: Work,
    loop: _Loop,
    ops: Sequence[TimedOp],
    others: tuple[set[TimedOp], set[TimedOp]],
    share: float,
    least: float,
) -> Iterator[Finding]:
    """Tell of a loop by how much of its work needs earlier passes.

    ``others`` have findings of their own: what copies a growing tensor, and what is computed again.
    """
    copied, repeated = others
    cell = next((name for name in _CELLS if any(op.profile.call.type == name for op in ops)), None)
    op, count = costliest(ops), len(loop.passes)
    each = f"{len(ops) / count:.0f} small operations in each"
    chain = Chain(loop.passes, work)
    needs = chain.needed(set(), copied | repeated)
    by_cat_alone = needs >= HALF > (needs_else := chain.needed(copied, repeated))
    needs = needs_else if by_cat_alone else needs
    free = share * (1 - needs)
    rule, advice = "row by row", "Could that part be computed for all steps at once, before or after the loop?"
    what = f"a loop of {count} steps, {100 * (1 - needs):.0f} % of whose work needs no earlier step, or no later one "
    what += f"needs it, with {each}"
    if needs >= HALF and cell is not None and not chain.feeds_words_back:
        rule, advice = "loop over time", f"Could it be {_CELLS[cell]}, which takes the whole sequence?"
        what = f"a {cell} is called once a time step, {count} times, with {each}"
    elif needs >= HALF and free >= least:
        rule, share = "loop over time", free
    elif needs >= HALF:
        if chain.feeds_words_back or share < MUCH:
            return  # each step needs the word before, or little is left but the steps themselves
        rule, advice = "loop over time", "Could the steps be compiled, or many computed at once, as a scan does?"
        what = f"a loop of {count} steps, each of which needs the one before, with {each}"
    elif by_cat_alone:
        advice = "Could all steps be computed at once, with a mask that hides the later ones?"
        what = f"a loop of {count} steps, which need earlier ones only by what cat joins, with {each}"
    elif needs:
        share = free
    else:
        advice = "Could all rows be computed at once, with a mask where they differ?"
        what = f"a loop of {count} passes, none of which needs another, with {each}"
    if share >= least:
        yield work.finding(rule, op, share, least, what, advice)


def _loops(work: Work) -> Iterator[_Loop]:
    inside: defaultdict[int, list[TimedOp]] = defaultdict(list)  # of a call, with those of calls in it
    for op in work.ops:
        call = op.profile.call
        inside[call.index].append(op)
        while call.parent_index is not None:
            call = work.trace.calls[call.parent_index]
            inside[call.index].append(op)
    taken: set[int] = set()
    for profile in work.calls:
        if profile.call.parent_index in taken or len(inside[profile.call.index]) < STEPS:
            if profile.call.parent_index in taken:
                taken.add(profile.call.index)
            continue
        loop = _loop_in(work, profile, inside[profile.call.index])
        if loop is not None:
            taken.add(profile.call.index)
            yield loop


def _loop_in(work: Work, profile: CallProfile, ops: Sequence[TimedOp]) -> _Loop | None:
    """Return the loop that a call's own code runs, if it has one over rows or time; not one over layers."""
    places = [_place_in(work, profile, op) for op in ops]
    begins = [place[2] < 0 or not i or places[i - 1][2] != place[2] for i, place in enumerate(places)]
    counts = Counter([place[:2] for place, is_first in zip(places, begins) if is_first and place[0]])
    often = {sign: count for sign, count in counts.items() if count >= STEPS}
    if not often:
        return None
    lines = {line for line, _ in often}
    inside = [i for i, place in enumerate(places) if place[0] in lines]
    own = {places[i][:2] for i in inside if places[i][2] < 0} & often.keys()
    usual = Counter(often[sign] for sign in own or often)
    passes = min(usual, key=lambda count: (-usual[count], count))  # so often most of it runs
    head = next(sign for sign in (own or often) if often[sign] == passes)
    loop = _Loop(profile)
    for i in range(inside[0], inside[-1] + 1):
        if not loop.passes or (begins[i] and places[i][:2] == head):
            loop.passes.append([])
        loop.passes[-1].append(ops[i])
    return None if len(loop.passes) < STEPS or _goes_over_layers(work, loop) else loop


def _place_in(work: Work, profile: CallProfile, op: TimedOp) -> tuple[str, str, int]:
    """Return where a call's own code ran an operation: the line, what it called there, and the number of that call.

    It called the operation itself (with the number -1), or a module in whose call the operation ran.
    """
    call, line, child = op.profile.call, op.source, None
    while call.index != profile.call.index and call.parent_index is not None:
        child, line = call, call.source
        call = work.trace.calls[call.parent_index]
    return (line or "", op.name, -1) if child is None else (line or "", child.path, child.index)


def _goes_over_layers(work: Work, loop: _Loop) -> bool:
    """Does every pass use weights of its own, or copies of such?"""
    weights = [frozenset(v.number for op in one for v in op.operands if _is_weight(work, v)) for one in loop.passes]
    paths = [frozenset(op.profile.call.path for op in one) - {loop.call.call.path} for one in loop.passes]
    return any(
        2 * len(set(each)) >= len(each) > 0 for each in ([one for one in kind if one] for kind in (weights, paths))
    )


def _is_weight(work: Work, value: Value) -> bool:
    maker = work.maker.get(value.number)
    while maker is not None and maker.name in ("clone", "deepcopy", "detach", "data") and maker.operands:
        value = maker.operands[0]
        maker = work.maker.get(value.number)
    return value.name is not None


def _on_parts(work: Work, least: float, told: set[TimedOp]) -> Iterator[Finding]:
    """Tell of modules that run on the parts of one tensor, and read their weights anew for each part."""
    runs: defaultdict[tuple[str, int | None], list[CallProfile]] = defaultdict(list)
    for profile in work.calls:
        wholes = {_whole_of(work, value) for value in profile.call.inputs}
        if profile.call.path and len(wholes) == 1 and None not in wholes:
            runs[profile.call.path, wholes.pop()].append(profile)
    inner: defaultdict[int, list[TimedOp]] = defaultdict(list)  # of a call, with those of calls in it
    for op in work.ops:
        index: int | None = op.profile.call.index
        while index is not None:
            inner[index].append(op)
            index = work.trace.calls[index].parent_index
    for (path, _), calls in runs.items():
        ops = [op for profile in calls for op in inner[profile.call.index]]
        moved = sum(bytes_moved(op.step) or 0 for op in ops)
        weights = sum(bytes_of(v.dtype, v.shape) or 0 for op in ops for v in op.operands if v.name is not None)
        share = work.share(sum(op.seconds for op in ops) * (1 - 1 / len(calls)))
        if len(calls) < PARTS or share < least or 2 * weights < moved or told & set(ops):
            continue
        told |= set(ops)
        what = f"{path} runs {len(calls)} times, each on a part of one tensor, and reads its weights anew for each part"
        advice = "Could it run once, on the whole tensor?"
        yield work.finding("row by row", costliest(ops), share, least, what, advice)


def _whole_of(work: Work, value: Value) -> int | None:
    """Return the number of the tensor that a value is a part of; ``None`` where it is none."""
    number, size = None, value.numel
    while (maker := work.maker.get(value.number)) is not None and maker.name in VIEWS and maker.operands:
        if maker.name == "getitem" and not is_view(maker):  # rows that indices chose: some go to each
            break
        value = next((one for one in maker.operands if one.number != value.number), maker.operands[0])
        if value.numel > size:
            number = value.number
        if maker.operands[0].number == maker.results[0].number:
            break
    return number


def side_by_side(work: Work, least: float) -> Iterator[Finding]:
    """Tell of many small layers that take one input, each with weights of its own: one larger layer calls once."""
    groups: defaultdict[tuple[str, int, tuple[tuple[int, ...], ...]], list[TimedOp]] = defaultdict(list)
    uses = Counter(value.number for op in work.ops if op.name in _LAYERS for value in op.operands[:1])
    for op in work.ops:
        weights = [value for value in op.operands[1:] if value.name is not None]
        if op.name in _LAYERS and weights and op.operands[0].name is None and op.seconds:
            given = op.operands[0].number
            whole = None if uses[given] > 1 else _whole_of(work, op.operands[0])
            groups[op.name, given if whole is None else whole, tuple([one.shape for one in weights])].append(op)
    for (name, _, _), ops in groups.items():
        share = work.share(sum(op.seconds for op in ops))
        distinct = len({op.operands[1].number for op in ops})
        if distinct < STEPS or share < least or median(bytes_moved(op.step) or 0 for op in ops) > SMALL:
            continue
        parts = len({op.operands[0].number for op in ops}) > 1
        taken = "a part of the same tensor" if parts else "the same input"
        what = f"{len(ops)} times {name} with weights of one shape takes {taken}, one after the other"
        advice = "Could it be one layer with all these weights, whose result is split? For whole modules, "
        advice += "torch.func.stack_module_state with vmap does so."
        if parts:
            advice = "Could it be one layer for all parts: a convolution with groups, or a product of stacked weights "
            advice += "(bmm)?"
        yield work.finding("side by side", costliest(ops), share, least, what, advice)


def earlier_again(work: Work, least: float) -> Iterator[Finding]:
    """Tell of layers that run on all positions that are there, in every step of a loop that adds a few."""
    again = _again(work)
    share = work.share(sum(op.seconds * part for op, part in again.items()))
    if share < least:
        return
    op = costliest(again)
    runs = [one for one in again if one.operands[1].number == op.operands[1].number]
    first, last = (one.results[0].shape[-2] for one in (runs[0], runs[-1]))
    what = f"in each of {len(runs) + 1} steps the layers run on all positions that are there, {first} to {last} in the "
    what += "later ones, and have computed all but the new ones before"
    advice = "Where attention looks back only, could keys and values of earlier positions be kept (a cache; "
    advice += "use_cache=True in transformers)?"
    yield work.finding("earlier positions again", op, share, least, what, advice)


def _again(work: Work) -> dict[TimedOp, float]:
    """Return the layers that run again on positions that a step before had, each with the part of its work that is."""
    if not _chains(work):
        return {}
    runs: defaultdict[int, list[TimedOp]] = defaultdict(list)
    for op in work.ops:
        if op.name in ("linear", "embedding") and len(op.operands) > 1 and op.results and len(op.results[0].shape) > 1:
            runs[op.operands[1].number].append(op)
    again: dict[TimedOp, float] = {}
    for ops in runs.values():
        rows = [op.results[0].numel // op.results[0].shape[-1] for op in ops]
        added = {later - earlier for earlier, later in pairwise(rows)}
        if len(ops) >= STEPS and len(added) == 1 and min(added) > 0:
            again |= {op: 1 - min(added) / count for op, count in zip(ops[1:], rows[1:])}
    return again


def single_weights(work: Work, least: float) -> Iterator[Finding]:
    """Tell of a line that goes over the weights one by one: averages, clipping, decay."""
    at_line: defaultdict[str | None, list[TimedOp]] = defaultdict(list)
    for op in work.ops:
        if op.source:
            at_line[op.source].append(op)
    for ops in at_line.values():
        share = work.share(sum(op.seconds for op in ops))
        weights = {value.name for op in ops for value in op.operands} - {None}
        simple = all(op.name.strip("_") in _SIMPLE for op in ops)
        if share < least or not simple or len(weights) < MANY or len(ops) < len(weights):
            continue
        if median(bytes_moved(op.step) or 0 for op in ops) > SMALL:
            continue
        what = f"{len(ops)} small operations at this line go over {len(weights)} weights, one after the other"
        advice = "Could they be a few operations on lists of tensors (torch._foreach_lerp_, _foreach_mul_, "
        advice += "clip_grad_norm_(foreach=True), get_ema_multi_avg_fn)?"
        yield work.finding("weights one by one", costliest(ops), share, least, what, advice)


def single_gradients(work: Work, least: float) -> Iterator[Finding]:
    """Tell of a line that runs a backward for each of many numbers: jacobians, and gradients of single examples."""
    at_line: defaultdict[str | None, list[TimedOp]] = defaultdict(list)
    for op in work.ops:
        if op.name == "grad":
            at_line[work.line(op)].append(op)
    for ops in at_line.values():
        share = work.share(sum(op.seconds for op in ops))
        if len(ops) >= STEPS and share >= least:
            what = f"a backward runs {len(ops)} times at this line, each time for a part of a result"
            advice = "Could they run at once: torch.func.jacrev, jacfwd where there are fewer inputs than results, "
            advice += "jacobian(vectorize=True), grad(is_grads_batched=True), or torch.func.vmap(grad(loss))?"
            yield work.finding("row by row", costliest(ops), share, least, what, advice)


def growing(work: Work, least: float) -> Iterator[Finding]:
    """Tensors that ``cat`` makes anew in every step of a loop, each of the last and a new part: copies that grow."""
    by_size: defaultdict[tuple[int, str], list[list[TimedOp]]] = defaultdict(list)  # keys and values grow side by side
    for chain in _chains(work):
        by_size[len(chain), chain[-1].results[0].label].append(chain)
    for chains in by_size.values():
        ops, lasts = [op for chain in chains for op in chain], [chain[-1] for chain in chains]
        share = work.share(sum(op.seconds for op in ops))
        if share < least:
            continue
        moved = sum(size for op in ops if (size := bytes_moved(op.step)))
        at_last = sum(size for op in lasts if (size := bytes_moved(op.step)))
        what = f"cat runs {len(ops)} times, each time on all that is there and a new part, and copies "
        what += f"{moved // max(1, at_last)} times what is there at the end, {lasts[-1].results[0].label}"
        advice = "Could the parts be kept in a list and joined once, or be written into a tensor made before the loop?"
        yield work.finding("grows by cat", costliest(ops), share, least, what, advice)


def _chains(work: Work) -> list[list[TimedOp]]:
    """Return the calls of ``cat`` that each take the result of the one before, where they are many."""
    chains: dict[int, list[TimedOp]] = {}  # by the number of the last result
    for op in work.ops:
        if op.name not in ("cat", "hstack", "vstack", "stack") or len(op.results) != 1:
            continue
        before = next((chains.pop(value.number) for value in op.operands if value.number in chains), [])
        chains[op.results[0].number] = [*before, op]
    return [chain for chain in chains.values() if len(chain) >= STEPS]
