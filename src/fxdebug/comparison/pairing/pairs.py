"""The pairs of two runs: values, the steps that made them, and calls.

A value is paired together with all views and copies of it. Each pair says how it was matched, with which confidence.
"""

from __future__ import annotations

from typing import NamedTuple

from fxdebug.comparison.result import MatchedBy
from fxdebug.comparison.steps import Step, StepList, interchangeable
from fxdebug.data.calls import Call
from fxdebug.data.values import Value


class Pair(NamedTuple):
    """The partner in a, how the pair was matched, and the confidence (0 to 1)."""

    a: int  # a value's number, a step's index or a call's index
    matched_by: MatchedBy
    confidence: float


class Pairs:
    """All pairs of two runs: ``values``, ``steps`` and ``calls`` by b's numbers; ``…_of_a``: b's numbers by a's."""

    def __init__(self, a: StepList, b: StepList) -> None:
        self.a, self.b = a, b
        self.values: dict[int, Pair] = {}
        self.steps: dict[int, Pair] = {}
        self.calls: dict[int, Pair] = {}
        self.values_of_a: dict[int, int] = {}
        self.steps_of_a: dict[int, int] = {}
        self.calls_of_a: dict[int, int] = {}

    def add_value(self, a: Value, b: Value, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two values; ``False`` where one of them has another partner already, or only one is complex."""
        if a.dtype.startswith("complex") != b.dtype.startswith("complex"):
            return False
        one, other = self.a.root(a).number, self.b.root(b).number
        if other in self.values or one in self.values_of_a:
            return False
        self.values[other] = Pair(one, matched_by, confidence)
        self.values_of_a[one] = other
        return True

    def add_step(self, a: Step, b: Step, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two steps and their results; ``False`` where a step or a result has another partner already."""
        if b.index in self.steps or a.index in self.steps_of_a:
            return False
        if not b.transparent and not a.transparent and not self._results_compatible(a, b):
            return False
        self.steps[b.index] = Pair(a.index, matched_by, confidence)
        self.steps_of_a[a.index] = b.index
        if not b.transparent and not a.transparent:
            for one, other in zip(a.outputs, b.outputs):
                self.add_value(one, other, matched_by, confidence)
        return True

    def _results_compatible(self, a: Step, b: Step) -> bool:
        """Are their results paired with each other, or not at all?"""
        return all(self.both_unpaired(x, y) or self.are_paired(x, y) for x, y in zip(a.outputs, b.outputs))

    def add_value_and_makers(self, a: Value, b: Value, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two values, and their makers if these are interchangeable; ``False`` as in :meth:`add_value`."""
        one, other = self.a.maker(a), self.b.maker(b)
        if not self.add_value(a, b, matched_by, confidence):
            return False
        if (
            one is not None
            and other is not None
            and interchangeable(one, other)
            and len(one.outputs) == len(other.outputs)
        ):
            self.add_step(one, other, matched_by, confidence)
        return True

    def add_call(self, a: Call, b: Call, matched_by: MatchedBy, confidence: float) -> None:
        """Pair two calls, unless one of them has a partner already."""
        if b.index not in self.calls and a.index not in self.calls_of_a:
            self.calls[b.index] = Pair(a.index, matched_by, confidence)
            self.calls_of_a[a.index] = b.index

    def value_in_a(self, b: Value) -> Value | None:
        """Return the value of a that is paired with one of b."""
        pair = self.values.get(self.b.root(b).number)
        return None if pair is None else self.a.values[pair.a]

    def facing(self, b: Value) -> tuple[Value, Value] | None:
        """Return the value of a that is paired with one of b, and that one of b before views, as both are laid out."""
        partner = self.value_in_a(b)
        return None if partner is None else (partner, self.b.root(b))

    def value_in_b(self, a: Value) -> Value | None:
        """Return the value of b that is paired with one of a."""
        number = self.values_of_a.get(self.a.root(a).number)
        return None if number is None else self.b.values[number]

    def step_in_a(self, b: Step) -> Step | None:
        """Return the step of a that is paired with one of b."""
        pair = self.steps.get(b.index)
        return None if pair is None else self.a.steps[pair.a]

    def call_in_a(self, b: Call) -> Call | None:
        """Return the call of a that is paired with one of b."""
        pair = self.calls.get(b.index)
        return None if pair is None else self.a.trace.calls[pair.a]

    def are_paired(self, a: Value, b: Value) -> bool:
        """Are these two paired with each other?"""
        pair = self.values.get(self.b.root(b).number)
        return pair is not None and pair.a == self.a.root(a).number

    def is_firm(self, b: Value) -> bool:
        """Has a value of b a partner, and was that matched by more than order?"""
        pair = self.values.get(self.b.root(b).number)
        return pair is not None and pair.matched_by != "order"

    def is_firm_in_a(self, a: Value) -> bool:
        """Has a value of a a partner, and was that matched by more than order?"""
        number = self.values_of_a.get(self.a.root(a).number)
        return number is not None and self.values[number].matched_by != "order"

    def both_unpaired(self, a: Value, b: Value) -> bool:
        """Has neither of two values a partner?"""
        return self.b.root(b).number not in self.values and self.a.root(a).number not in self.values_of_a
