"""The chain of a loop: the work of a pass that needs the passes before it, and that later passes need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fxdebug.features.profile.wasted.timed_ops import TimedOp, Work, is_view, writes
from fxdebug.operators.categories import ADDS

STEPS = 12  # from here on a line that runs so often in one call is a loop
_MIXES = frozenset("matmul einsum bmm baddbmm scaled_dot_product_attention multi_head_attention_forward".split())
_ADDS_OR_FILLS = ADDS | frozenset("setitem copy fill zero index_add scatter_add index_copy".split())
_LAYERS = frozenset("linear matmul addmm mm".split())
_OF_WORDS = frozenset("embedding one_hot".split())  # of a number that the pass before chose


@dataclass
class Chain:
    """The chain of a loop: what needs the pass before, and that the one before it, and is itself needed so."""

    passes: Sequence[Sequence[TimedOp]]
    work: Work
    feeds_words_back: bool = False
    _after: dict[TimedOp, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._after = self._needed_after()
        self.needed(set(), set())

    def needed(self, joined: set[TimedOp], left_out: set[TimedOp]) -> float:
        """Return the part of the work of a pass that is in the chain, without the work of ``left_out``.

        The passes may be cut in the middle of what the loop repeats: one alone needs the one before in any loop. What
        an operation of ``joined`` joined is not followed into products and attention, where a mask could hide later
        steps.
        """
        made: dict[int, tuple[int, int]] = {}  # number of a value → the pass that made it, and how many it needs
        hidden: dict[int, tuple[int, int]] = {}  # the same of what is joined, with the joined before it hidden
        kept: dict[int | None, tuple[int, int]] = {}  # the same of memory that is written into
        needs = whole = 0.0
        for number, one in enumerate(self.passes):
            for op in one:
                is_writing = writes(op)
                known = [
                    hidden[v.number] if op.name in _MIXES and v.number in hidden else made[v.number]
                    for v in op.operands
                    if v.number in made
                ]
                if not is_writing and not is_view(op):
                    known += [kept[value.storage] for value in op.operands if value.storage in kept]
                elif is_writing and op.name.strip("_") not in _ADDS_OR_FILLS:  # sums can be in any order
                    known += [kept[value.storage] for value in op.operands[:1] if value.storage in kept]
                depth = max([needed + (made_in < number) for made_in, needed in known], default=0)
                if is_writing and op.operands and op.operands[0].storage is not None:
                    kept[op.operands[0].storage] = number, depth
                for value in op.results if not is_writing else ():
                    made.setdefault(value.number, (number, depth))
                if op in joined:
                    new = [made[v.number] for v in op.operands if v.number in made and v.number not in hidden]
                    hidden[op.results[0].number] = number, max([d + (n < number) for n, d in new], default=0)
                    continue
                if is_view(op) and op.operands[0].number in hidden and op.results[0].numel == op.operands[0].numel:
                    hidden[op.results[0].number] = hidden[op.operands[0].number]
                if STEPS // 2 <= number < len(self.passes) - STEPS // 4 and op not in left_out:
                    whole += op.seconds
                    is_in = 2 * depth >= number and 2 * self._after.get(op, 0) >= len(self.passes) - 1 - number
                    self.feeds_words_back |= is_in and op.name in _OF_WORDS
                    needs += op.seconds * self._part_of_chain(op, made, number) if is_in else 0.0
        return needs / whole if whole else 0.0

    def _part_of_chain(self, op: TimedOp, made: dict[int, tuple[int, int]], number: int) -> float:
        """Return the part of an operation that is in the chain: on what ``cat`` joined, that of the state."""
        maker = self.work.maker.get(op.operands[0].number) if op.name in _LAYERS and op.operands else None
        if maker is None or maker.name not in ("cat", "concat", "hstack"):
            return 1.0
        size = sum(value.numel for value in maker.operands)
        in_chain = [v.numel for v in maker.operands if v.number in made and 2 * made[v.number][1] >= number - 1]
        return sum(in_chain) / size if size else 1.0

    def _needed_after(self) -> dict[TimedOp, int]:
        """Return how many later passes need an operation, one after the other."""
        after: dict[TimedOp, int] = {}
        number_of = {op: number for number, one in enumerate(self.passes) for op in one}
        writers: dict[int | None, list[TimedOp]] = {}
        for op in number_of:
            if writes(op) and op.operands:
                writers.setdefault(op.operands[0].storage, []).append(op)
        for op in reversed(list(number_of)):
            needed = after.setdefault(op, 0)
            makers = [self.work.maker[v.number] for v in op.operands if v.number in self.work.maker]
            for value in op.operands:
                before = writers.get(value.storage, [])
                while before and before[-1].position >= op.position:  # it comes later than all that are left
                    before.pop()
                makers += before[-1:]
            for maker in makers:
                if maker in number_of and maker is not op:
                    later = needed + (number_of[maker] < number_of[op])
                    after[maker] = max(after.get(maker, 0), later)
        return after
