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
    for loop in _loops(work):
        ops = loop.ops
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
    lines = [_line_in(work, profile, op) for op in ops]
    entries: Counter[str] = Counter()
    last: tuple[str, int] | None = None
    for line, child in lines:
        if line and (line, child) != last:
            entries[line] += 1
        last = (line, child) if line else last
    own = {line for line, count in entries.items() if count >= STEPS}
    if not own:
        return None
    positions = [i for i, (line, _) in enumerate(lines) if line in own]
    first, end = positions[0], positions[-1] + 1
    head = lines[first][0]
    loop, before = _Loop(profile), ("", -1)
    for op, (line, child) in zip(ops[first:end], lines[first:end]):
        is_next = line == head and (line, child) != before and (before[0] != head or child < 0 or before[1] >= 0)
        if is_next or not loop.passes:
            loop.passes.append([])
        loop.passes[-1].append(op)
        before = line, child
    if len(loop.passes) < STEPS or _goes_over_layers(loop):
        return None
    return loop


def _line_in(work: Work, profile: CallProfile, op: TimedOp) -> tuple[str, int]:
    """Return the line of a call's own code that ran an operation, and the position of the call in it, -1 for none."""
    call, child = op.profile.call, -1
    while call.index != profile.call.index and call.parent_index is not None:
        child, line = call.index, call.source
        call = work.trace.calls[call.parent_index]
    return (op.source or "", -1) if child < 0 else (line or "", child)


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
    chains: dict[int, list[TimedOp]] = {}  # by the number of the last result
    for op in work.ops:
        if op.name not in ("cat", "hstack", "vstack", "stack") or len(op.results) != 1:
            continue
        before = next((chains.pop(value.number) for value in op.operands if value.number in chains), [])
        chains[op.results[0].number] = [*before, op]
    for chain in chains.values():
        share = work.share(sum(op.seconds for op in chain))
        if len(chain) < STEPS or share < least:
            continue
        moved = sum(size for op in chain if (size := bytes_moved(op.step)))
        last = chain[-1].results[0]
        what = f"cat runs {len(chain)} times, each time on all that is there and a new part, and copies "
        what += f"{moved // max(1, bytes_moved(chain[-1].step) or 1)} times what the last one does, {last.label}"
        advice = "Could the parts be kept in a list and joined once, or be written into a tensor made before the loop?"
        yield work.finding("grows by cat", costliest(chain), share, least, what, advice)
