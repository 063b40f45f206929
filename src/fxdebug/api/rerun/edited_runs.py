"""Run two models again with operations replaced, each run compared with the plain run of the other model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from fxdebug.api.trace import Trace
from fxdebug.capture.pausing.replaced_operations import ReplacedOperations
from fxdebug.capture.runs.same_start import state_restored
from fxdebug.comparison.compare_traces import pair_traces
from fxdebug.comparison.measure_pair import Meter
from fxdebug.comparison.pairing.name_mapping import NameMapping
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.result import ComparisonData, Row
from fxdebug.data.trace import TraceData
from fxdebug.errors import FxDebugError


@dataclass(frozen=True)
class RunAgain:
    """A model, the trace of its plain run, and what runs it again with operations replaced."""

    model: nn.Module
    trace: TraceData
    run: Callable[[ReplacedOperations], Trace]


@dataclass
class EditedRuns:
    """Runs of two models with operations replaced. ``firsts`` has the first finding of each.

    Both models begin each run in the state that they have now, and have it again afterwards.
    """

    a: RunAgain
    b: RunAgain
    compared: Callable[..., ComparisonData]  # of two traces
    mapping: NameMapping | None = None
    firsts: list[Row | None] = field(default_factory=list)
    _paired: tuple[Pairs, Meter] | None = field(default=None, repr=False)

    def see_a(self, stepper: ReplacedOperations) -> None:
        """Run model a with a look at some of its operations."""
        with state_restored(self.a.model, self.b.model):
            self.a.run(stepper)

    def run(self, side: Literal["a", "b"], stepper: ReplacedOperations) -> ComparisonData | None:
        """Run a model with operations replaced and compare it with the other's plain run; ``None`` where it raised."""
        with state_restored(self.a.model, self.b.model):
            try:
                if side == "a":
                    found = self.compared(self.a.run(stepper), self.b.trace)
                else:
                    found = self.compared(self.a.trace, self.b.run(stepper))
            except FxDebugError:
                raise
            except Exception:  # of the model, with an operation that was replaced
                return None
        self.firsts.append(found.first)
        return found

    def pairs(self) -> tuple[Pairs, Meter]:
        """Return the pairs of the plain runs, and what measures them."""
        if self._paired is None:
            meter = Meter(self.a.trace, self.b.trace)
            self._paired = pair_traces(self.a.trace, self.b.trace, self.mapping, meter), meter
        return self._paired
