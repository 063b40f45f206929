"""Colours of a drawing: by status, by a measure, and red for NaN, Inf and exceptions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fxdebug.analyses.measures import available, derive
from fxdebug.data.calls import Call
from fxdebug.data.graphs import Status
from fxdebug.data.measures import CALL, OPERATION, Measure, names_in, quantity
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Stats
from fxdebug.errors import UsageError, nearest
from fxdebug.exports.columns import number
from fxdebug.exports.drawing.drawing import Box, Drawing, Step
from fxdebug.exports.drawing.options import KIND, NONE, STATUS, Coloring, DrawOptions
from fxdebug.query.measures import (
    STATISTICS,
    Number,
    measures_in,
    measures_of,
    number_of,
    number_of_all,
    require_measure,
)
from fxdebug.query.network import Node, network_of

LINE, GREY, RED, CARRIED = "#8a8a94", "#5f5f68", "#c62828", "#2f6fb3"
UNKNOWN = "n/a"
WHITE, BAD_FILL, MISSING_FILL = "#ffffff", "#f7c6c5", "#e9e7e2"
STATUS_FILLS: dict[Status | None, str] = {
    "verified": "#dff0e1", "recorded": "#fbe3b0", "opaque": "#d5d6de", None: "#f1f1f4",
}  # fmt: skip
# One hue from light to dark, which readers who see no red or no green tell apart, and prints in grey.
SCALE = ("#f7fbff", "#e3eef9", "#cfe1f2", "#b5d4e9", "#9fcae3", "#88bcdc", "#6daed5")

_NO_MEASURES = (KIND, STATUS, NONE)


def is_bad(stats: Stats | None) -> bool:
    """Is there a NaN or an infinity?"""
    return stats is not None and stats.finite < stats.count


def require_colors(trace: TraceData, options: DrawOptions) -> None:
    """Take the measures that a drawing asks for. Raises ``UsageError`` for one that the run does not have."""
    asked = [*names_in(options.measures), *([] if options.color in _NO_MEASURES else [options.color])]
    derive(trace, *asked)
    for name in asked:
        if name not in measures_of(trace):
            known = [*_NO_MEASURES, *(measure.name for measure in measures_in(available(trace), (CALL, OPERATION)))]
            measures = ", ".join(known[len(_NO_MEASURES) :])
            use = f"use {', '.join(_NO_MEASURES)}, or a measure of this run: {measures}"
            raise UsageError(f"color={name!r}: {use}.{nearest(name, known)}")
        require_measure(trace, name, (CALL, OPERATION))


class Colors:
    """The fill colour of every step and box of a drawing, and the range of the measure that colours them."""

    def __init__(
        self, trace: TraceData, drawing: Drawing, coloring: Coloring, measures: str | Sequence[str] = ()
    ) -> None:
        self.coloring = coloring
        self._trace = trace
        self._network = network_of(trace)
        self.measure: Measure | None = None
        names = list(names_in(measures))
        if coloring not in _NO_MEASURES:
            self.measure = require_measure(trace, coloring, (CALL, OPERATION))
            names = [coloring, *(name for name in names if name != coloring)]
        self.measures = [require_measure(trace, name, (CALL, OPERATION)) for name in names]
        self.stats = {id: step.stats for id, step in drawing.steps.items()}  # pooled over repetitions, once
        self.nan_inside = frozenset(self._with_nan_inside(drawing))  # ids of closed calls that do not return it
        self._amounts: dict[str | int, float] = {}  # by the id of a step, and by the id() of a box
        if self.measure is not None:
            numbers: list[tuple[str | int, Number]] = [*self._of_steps(drawing), *self._of_boxes(drawing)]
            self._amounts = {key: scaled(found, self.measure) for key, found in numbers if found is not None}
        ends = self._amounts.values()
        least = min(ends, default=0.0)
        # a measure with a unit begins at 0, so that a colour twice as dark is twice as much
        self.range = (least if self.measure is None or not self.measure.unit else 0.0, max(ends, default=0.0))

    def fill(self, step: Step) -> str:
        """Return the fill colour of an operation or a call."""
        if is_bad(self.stats[step.id]) or step.failed:
            return BAD_FILL
        if self.coloring == STATUS:
            return STATUS_FILLS.get(step.status, STATUS_FILLS[None])
        return self._color(step.id)

    def header(self, box: Box) -> str | None:
        """Return the colour behind the name of a call that is drawn open, where a measure colours the drawing."""
        return None if self.measure is None or id(box) not in self._amounts else self._color(id(box))

    @property
    def are_missing(self) -> bool:
        """Is there a step that the measure has no number of?"""
        return self.measure is not None and bool(self._unknown)

    def _color(self, key: str | int) -> str:
        amount = self._amounts.get(key)
        if amount is None:
            return WHITE if self.measure is None or self.measure.name in STATISTICS else MISSING_FILL
        low, high = self.range
        share = 0.0 if high <= low else (amount - low) / (high - low)
        return SCALE[min(int(share * len(SCALE)), len(SCALE) - 1)]

    # Numbers of steps and boxes -----------------------------------------------------------------

    def lines(self, thing: Step | Box) -> list[str]:
        """Return the numbers of a step or of an open call, of every measure that was asked for."""
        found = [(measure, self._number(thing, measure)) for measure in self.measures]
        return [
            f"{measure.name} {UNKNOWN if amount is None else shown(amount, measure)}"
            for measure, amount in found
            if amount is not None or _lacks(thing, measure)
        ]

    def _with_nan_inside(self, drawing: Drawing) -> Iterable[str]:
        """Yield the closed calls whose results are finite, though an operation or a call inside made a NaN."""
        closed = [step for step in drawing.steps.values() if step.kind == "call" and not is_bad(self.stats[step.id])]
        if not closed:
            return
        guilty = {
            outside.index
            for node in self._network.nodes.values()
            if node.kind.startswith("call_") and any(value.stats and value.stats.nan for value in node.values)
            for outside in _with_all_around(node.call)
        }
        for step in closed:
            nodes = [self._network.nodes[id] for id in (step.twins or (step.id,)) if id in self._network.nodes]
            if any(node.call.index in guilty for node in nodes):
                yield step.id

    def _of_steps(self, drawing: Drawing) -> list[tuple[str, Number]]:
        assert self.measure is not None
        steps = [step for step in drawing.steps.values() if step.kind in ("op", "arranging", "call")]
        found = [(step.id, self._number(step, self.measure)) for step in steps]
        self._unknown = [id for id, amount in found if amount is None and self.measure.name not in STATISTICS]
        return found

    def _of_boxes(self, drawing: Drawing) -> list[tuple[int, Number]]:
        assert self.measure is not None
        if not self.measure.own:  # a number with all calls in it would make every box as dark as what is in it
            return []
        return [(id(box), self._number(box, self.measure)) for box in boxes_in(drawing.root)]

    def _number(self, thing: Step | Box, measure: Measure) -> Number:
        """Return the number of all that a step stands for; of a box that of the calls themselves."""
        if isinstance(thing, Box):
            calls = [] if thing.call is None else list(thing.row.calls)  # type: ignore[union-attr]
            return number_of_all(self._trace, calls, measure.name) if CALL in measure.of else None
        if thing.kind in ("input", "output") or (measure.name in STATISTICS and not _is_measured(thing)):
            return None
        if measure.name in STATISTICS:
            stats = self.stats[thing.id]
            return None if stats is None else statistic(stats, measure.name)
        nodes = [self._network.nodes[id] for id in (thing.twins or (thing.id,)) if id in self._network.nodes]
        items = self._items(thing, nodes, measure)
        return number_of_all(self._trace, items, measure.name) if items else None

    def _items(self, step: Step, nodes: Iterable[Node], measure: Measure) -> list[Call | Node]:
        """Return the calls or operations to add up: a closed call stands for everything in it."""
        if step.kind != "call":
            if OPERATION not in measure.of:
                return []
            merged = [one for one in step.merged if number_of(self._trace, one, measure.name) is not None]
            return [*nodes, *merged]  # of operations that only arrange, such as getitem, there may be no time
        if CALL not in measure.of:
            return []
        calls = [node.call for node in nodes]
        return [inner for call in calls for inner in call.walk()] if measure.own and measure.adds else [*calls]


def _with_all_around(call: Call) -> Iterable[Call]:
    """Yield a call and every call that it ran in."""
    around: Call | None = call
    while around is not None:
        yield around
        around = around.parent


def _lacks(thing: Step | Box, measure: Measure) -> bool:
    """Is a number that counts something unknown of what a reader expects to have one?"""
    if isinstance(thing, Box) or measure.name in STATISTICS or not measure.adds:
        return False
    return (thing.kind == "call" and CALL in measure.of) or (thing.kind == "op" and OPERATION in measure.of)


def boxes_in(root: Box | None) -> Iterable[Box]:
    """Yield every open box of a drawing."""
    pending = [] if root is None else [root]
    while pending:
        box = pending.pop()
        yield box
        pending.extend(box.boxes)


def _is_measured(step: Step) -> bool:
    """Do statistics say something about it? Those of token ids, masks and rearranging operations do not."""
    return (
        step.kind != "arranging" and bool(step.values) and not step.values[0].dtype.startswith(("int", "uint", "bool"))
    )


def statistic(stats: Stats, name: str) -> Number:
    """Return one statistic; ``inf`` counts the infinities of both signs."""
    found: Number = stats.posinf + stats.neginf if name == "inf" else getattr(stats, name)
    return found


def shown(amount: Number, measure: Measure) -> str:
    """Return a number of a measure with its unit."""
    return quantity(amount, measure.unit) if measure.unit and isinstance(amount, (int, float)) else number(amount)


# The scale: numbers with a unit and counts as they are, statistics by the logarithm of their magnitude ------------


def scaled(amount: float | int | complex, measure: Measure) -> float:
    """Return the position of a number on the colour scale."""
    amount = abs(amount) if isinstance(amount, complex) else float(amount)
    if measure.unit or measure.adds:
        return amount
    return math.copysign(math.log1p(abs(amount) * 1e3), amount)


def unscaled(amount: float, measure: Measure) -> float:
    """Return the number at a position on the colour scale."""
    if measure.unit or measure.adds:
        return amount
    return math.copysign(math.expm1(abs(amount)) / 1e3, amount)
