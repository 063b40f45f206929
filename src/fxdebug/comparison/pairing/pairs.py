"""What belongs together on the two sides: values, the steps that made them, and calls.

Values are paired by what they are, whatever views and copies of them there are. Each pair knows how it was found
and how sure that is.
"""

from __future__ import annotations

from typing import NamedTuple

from fxdebug.comparison.result import MatchedBy
from fxdebug.comparison.steps import Step, StepList, interchangeable
from fxdebug.data.calls import Call
from fxdebug.data.values import Value


class Pair(NamedTuple):
    """The other side of a pair, and how it was found: ``path mapping weights values dataflow order``."""

    a: int  # a value's number, a step's index or a call's index
    matched_by: MatchedBy
    confidence: float


class Pairs:
    """All pairs of two runs. Keys are of b, the suspect."""

    def __init__(self, a: StepList, b: StepList) -> None:
        self.a, self.b = a, b
        self.values: dict[int, Pair] = {}
        self.steps: dict[int, Pair] = {}
        self.calls: dict[int, Pair] = {}
        self.values_of_a: dict[int, int] = {}
        self.steps_of_a: dict[int, int] = {}
        self.calls_of_a: dict[int, int] = {}

    def add_value(self, a: Value, b: Value, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two values; ``False`` where one of them has another partner already."""
        one, other = self.a.root(a).number, self.b.root(b).number
        if other in self.values or one in self.values_of_a:
            return False
        self.values[other] = Pair(one, matched_by, confidence)
        self.values_of_a[one] = other
        return True

    def add_step(self, a: Step, b: Step, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two steps and what they made."""
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
        """Are their results each other's, or nobody's?"""
        return all(self.both_unpaired(x, y) or self.are_paired(x, y) for x, y in zip(a.outputs, b.outputs))

    def add_value_and_makers(self, a: Value, b: Value, matched_by: MatchedBy, confidence: float) -> bool:
        """Pair two values, and the steps that made them where those do the same."""
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
        """Pair two calls."""
        if b.index not in self.calls and a.index not in self.calls_of_a:
            self.calls[b.index] = Pair(a.index, matched_by, confidence)
            self.calls_of_a[a.index] = b.index

    def value_in_a(self, b: Value) -> Value | None:
        """The value of a that is paired with one of b."""
        found = self.values.get(self.b.root(b).number)
        return None if found is None else self.a.values[found.a]

    def value_in_b(self, a: Value) -> Value | None:
        """The value of b that is paired with one of a."""
        other = self.values_of_a.get(self.a.root(a).number)
        return None if other is None else self.b.values[other]

    def step_in_a(self, b: Step) -> Step | None:
        """The step of a that is paired with one of b."""
        found = self.steps.get(b.index)
        return None if found is None else self.a.steps[found.a]

    def call_in_a(self, b: Call) -> Call | None:
        """The call of a that is paired with one of b."""
        found = self.calls.get(b.index)
        return None if found is None else self.a.trace.calls[found.a]

    def are_paired(self, a: Value, b: Value) -> bool:
        """Are these two paired with each other?"""
        found = self.values.get(self.b.root(b).number)
        return found is not None and found.a == self.a.root(a).number

    def is_firm(self, b: Value) -> bool:
        """Has a value of b a partner that was not merely met in the same place?"""
        found = self.values.get(self.b.root(b).number)
        return found is not None and found.matched_by != "order"

    def is_firm_in_a(self, a: Value) -> bool:
        """The same of a value of a."""
        other = self.values_of_a.get(self.a.root(a).number)
        return other is not None and self.values[other].matched_by != "order"

    def both_unpaired(self, a: Value, b: Value) -> bool:
        """Has neither a partner?"""
        return self.b.root(b).number not in self.values and self.a.root(a).number not in self.values_of_a
