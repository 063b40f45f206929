"""Loops of Python over rows or over time, and values that grow with each step of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from fxdebug.data.findings import Finding
from fxdebug.features.profile.report import CallProfile, bytes_moved
from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, costliest, writes

_CELLS = {"LSTMCell": "nn.LSTM", "GRUCell": "nn.GRU", "RNNCell": "nn.RNN"}
STEPS = 12  # from here on a line that runs so often in one call is a loop
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
    for loop in _loops(work):
        ops = [op for op in loop.ops if op not in copied]
        share = work.share(sum(op.seconds for op in ops))
        sizes = [size for op in ops if op.seconds and (size := bytes_moved(op.step))]
        if share < least or not sizes or median(sizes) > SMALL:
            continue
        types = Counter(op.profile.call.type for op in ops)
        cell = next((name for name in _CELLS if types[name]), None)
        op, count = costliest(ops), len(loop.passes)
        each = f"{len(ops) / count:.0f} small operations in each"
        if _depends(loop):
            what = f"a loop of {count} steps, each of which needs the one before, with {each}"
            advice = (
                "Could what needs no earlier step be computed for all steps at once, before the loop, and the rest "
            )
            advice += "be compiled?"
            if cell:
                what = f"a {cell} is called once a time step, {count} times, with {each}"
                advice = f"Could it be {_CELLS[cell]}, which takes the whole sequence?"
            yield work.finding("loop over time", op, share, least, what, advice)
        else:
            what = f"a loop of {count} passes, none of which needs another, with {each}"
            advice = "Could all rows be computed at once, with a mask where they differ?"
            yield work.finding("row by row", op, share, least, what, advice)


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
    return None if len(loop.passes) < STEPS or _goes_over_layers(loop) else loop


def _place_in(work: Work, profile: CallProfile, op: TimedOp) -> tuple[str, str, int]:
    """Return where a call's own code ran an operation: the line, what it called there, and the number of that call.

    It called the operation itself (with the number -1), or a module in whose call the operation ran.
    """
    call, line, child = op.profile.call, op.source, None
    while call.index != profile.call.index and call.parent_index is not None:
        child, line = call, call.source
        call = work.trace.calls[call.parent_index]
    return (line or "", op.name, -1) if child is None else (line or "", child.path, child.index)


def _goes_over_layers(loop: _Loop) -> bool:
    """Does every pass use weights of its own?"""
    weights = [frozenset(v.number for op in one for v in op.operands if v.name is not None) for one in loop.passes]
    paths = [frozenset(op.profile.call.path for op in one) - {loop.call.call.path} for one in loop.passes]
    distinct = max(len({one for one in weights if one}), len({one for one in paths if one}))
    return 2 * distinct >= len(loop.passes)


def _depends(loop: _Loop) -> bool:
    """Does most of the work of a pass need the pass before, and that the one before it, and so on?

    The passes may be cut in the middle of what the loop repeats: one alone needs the one before in any loop.
    """
    made: dict[int, tuple[int, int]] = {}  # number of a value → the pass that made it, and how many it needs
    needs = whole = 0.0
    for number, one in enumerate(loop.passes):
        for op in one:
            known = [made[value.number] for value in op.operands if value.number in made]
            depth = max([needed + (made_in < number) for made_in, needed in known], default=0)
            for value in op.results if not writes(op) else ():
                made.setdefault(value.number, (number, depth))
            if number >= STEPS // 2:
                whole += op.seconds
                needs += op.seconds if 2 * depth >= number else 0.0
    return needs >= 0.5 * whole


def growing(work: Work, least: float) -> Iterator[Finding]:
    """Tensors that ``cat`` makes anew in every step of a loop, each of the last and a new part: copies that grow."""
    for chain in _chains(work):
        share = work.share(sum(op.seconds for op in chain))
        if share < least:
            continue
        moved = sum(size for op in chain if (size := bytes_moved(op.step)))
        last = chain[-1].results[0]
        what = f"cat runs {len(chain)} times, each time on all that is there and a new part, and copies "
        what += f"{moved // max(1, bytes_moved(chain[-1].step) or 1)} times what the last one does, {last.label}"
        advice = "Could the parts be kept in a list and joined once, or be written into a tensor made before the loop?"
        yield work.finding("grows by cat", costliest(chain), share, least, what, advice)


def _chains(work: Work) -> list[list[TimedOp]]:
    """Return the calls of ``cat`` that each take the result of the one before, where they are many."""
    chains: dict[int, list[TimedOp]] = {}  # by the number of the last result
    for op in work.ops:
        if op.name not in ("cat", "hstack", "vstack", "stack") or len(op.results) != 1:
            continue
        before = next((chains.pop(value.number) for value in op.operands if value.number in chains), [])
        chains[op.results[0].number] = [*before, op]
    return [chain for chain in chains.values() if len(chain) >= STEPS]
