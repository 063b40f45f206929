"""The result of a comparison as plain data: rows of pairs, the findings among them, and the verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from fxdebug.brief import brief
from fxdebug.comparison.measures import BASES, EQUAL, STATISTICS, Basis, Measures
from fxdebug.comparison.thresholds import GROWTH, HALF
from fxdebug.data.calls import Call
from fxdebug.data.findings import ERROR
from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.printable import printable
from fxdebug.query.network import network_of

Kind: TypeAlias = Literal[
    "input", "weights", "constant", "operation", "missing", "extra", "wiring", "overwritten", "shape", "dtype",
    "nonfinite", "random", "raised", "values",
]  # fmt: skip
Verdict: TypeAlias = Literal["equal", "inherited", "adds", "absorbed", "ignored", "unknown", "only_a", "only_b"]
Outcome: TypeAlias = Literal["equal", "different", "could not compare"]
MatchedBy: TypeAlias = Literal["", "path", "mapping", "weights", "values", "dataflow", "order"]  # how a pair was found


# The kinds of findings. A finding is a difference that the pair adds, not one that it inherits.
KINDS: dict[Kind, str] = {
    "input": "the runs were given different inputs",
    "weights": "the parameters differ",
    "constant": "the same operation with another constant",
    "operation": "another operation, with the same results on these inputs",
    "missing": "an operation of a has no counterpart in b",
    "extra": "an operation of b has no counterpart in a",
    "wiring": "the same operation is given another value",
    "overwritten": "a value was written to before it was used",
    "shape": "the results have different shapes",
    "dtype": "the results have different dtypes",
    "nonfinite": "NaN or infinity on one side only",
    "random": "random numbers were drawn",
    "raised": "the run of b raised",
    "values": "the same inputs give other values",
}


MEASURED_APART = ("shape", "missing", "extra", "raised", "input", "random", "nonfinite")  # their errors are no sizes


class Counts(NamedTuple):
    """Counts of the pairs that were compared, and of all there are in a and in b."""

    compared: int
    a: int
    b: int


NOTHING = Counts(0, 0, 0)


@dataclass(frozen=True)
class Coverage:
    """The part of two runs that was compared.

    ``calls``, ``operations`` and ``returned`` (the tensors that the models return) are counts; operations are those
    that compute, without views and copies. ``share`` is the share of the calls with results that are accounted for:
    paired, or returning a value that the other run has, too. It is that of the run of which more is accounted for,
    because a port may have functions where the original has modules. ``operations_a`` and ``operations_b`` have no
    counterpart, and are in calls that have one. ``stand_in`` names the runs (``a``, ``b``) whose file has no
    returned values, so that values of inner calls were compared in their place.
    """

    calls: Counts = NOTHING
    operations: Counts = NOTHING
    returned: Counts = NOTHING
    share: float = 0.0
    operations_a: tuple[Side, ...] = ()
    operations_b: tuple[Side, ...] = ()
    stand_in: str = ""


@brief
@dataclass(frozen=True)
class Side:
    """A side of a row: its call or operation, and the result. ``node`` is the id in the trace's graph."""

    path: str
    call: Call
    type: str
    op: str | None = None
    source: str | None = None
    value: Value | None = None
    node: str | None = None


HARDLY = ", which is hardly the cause"


@brief
@dataclass(frozen=True)
class Row:
    """A pair of calls or operations (or one without a partner), and how it was judged.

    ``path``, ``op`` and ``source`` are those of b, or of a where b has none. ``verdict`` is ``equal`` (within
    tolerance), ``inherited`` (it was given the error), ``adds`` (it is a finding), ``absorbed`` (it differs, and
    nothing that follows does), ``ignored``, ``unknown`` (no numbers to compare), ``only_a`` or ``only_b``. ``kind``
    is one of :data:`KINDS` for a finding. ``error`` and ``error_in`` are the relative errors of the outputs and of
    the inputs. ``how`` and ``sure`` say by what the pair was matched and with which confidence (0 to 1); ``because``
    is a sentence.
    """

    path: str
    op: str | None = None
    kind: Kind | None = None
    source: str | None = None
    a: Side | None = None
    b: Side | None = None
    verdict: Verdict = "equal"
    error: float = 0.0
    error_in: float = 0.0
    tolerance: float = 0.0
    measures: Measures = EQUAL
    how: MatchedBy = ""
    sure: float = 1.0
    because: str = ""
    position: int = 0  # in the execution order of b
    handed_over: bool = False  # it shows on a value that a call was given or returned, not on an operation
    proven: bool = False  # its repair was tried: with that edit, one side returns what the other one does
    repair: str = ""  # the edit that was tried, and what became of it
    by_region: bool = False  # that edit puts all that a does there in its place: it does not say what of it matters
    doubtful: bool = False  # that edit brings b no nearer to a: what the finding says is hardly the cause
    effect: float | None = None  # what its cause does to what is returned, in all its places, where that was measured

    @property
    def basis(self) -> Basis:
        """The data it was judged by: ``tensors``, ``sample`` or ``statistics``."""
        return self.measures.basis

    @property
    def has_two_shapes(self) -> bool:
        """Is it about results of two shapes, as those of a part and of the whole are?"""
        known = [side.value.shape for side in (self.a, self.b) if side is not None and side.value is not None]
        return self.measures.what == "shape" or (len(known) == 2 and known[0] != known[1])

    @property
    def where(self) -> str:
        """Path and operation in one word; the root goes by its class."""
        side = self.b or self.a
        path = self.path or (side.type if side is not None else "")
        return f"{path}/{self.op}" if self.op else path

    @property
    def certain(self) -> bool:
        """Is it a finding, or certain enough to say something? Pairs by order alone are not, nor unsure ones."""
        return self.kind is not None or (self.how != "order" and self.sure >= HALF)

    @property
    def measured(self) -> bool:
        """Are there two sides, and numbers to compare?"""
        return (
            self.a is not None and self.b is not None and self.verdict != "unknown" and self.measures.what != "unknown"
        )

    def proven_by(self, repair: str, *, by_region: bool = False) -> Self:
        """Return the finding with an edit that was tried and makes one side return what the other one does."""
        because = self.because.removesuffix(HARDLY)
        return replace(self, because=because, proven=True, doubtful=False, by_region=by_region, repair=repair)

    def doubted_by(self, repair: str) -> Self:
        """Return the finding with an edit that was tried and brings b no nearer to a."""
        of_code = self.kind in ("missing", "extra", "constant")  # what else is told is no more than seen
        because = f"{self.because.removesuffix(HARDLY)}{HARDLY if of_code else ''}"
        return replace(self, because=because, doubtful=True, repair=f"{repair} was tried: it brings b no nearer to a")

    def __str__(self) -> str:
        kind = f" {self.kind}" if self.kind else ""
        return printable(f"{self.where}: {self.verdict}{kind}, error {self.error:.2g}")


def in_order(findings: Iterable[Row]) -> list[Row]:
    """Return findings in execution order, with those at the end that change next to nothing beside the others.

    An epsilon that is off by 1e-6 never stands before another activation, nor what another way to write a function
    rounds before a fault.
    """
    rows = sorted(findings, key=lambda row: row.position)
    sizes = [row.error for row in rows if row.kind not in MEASURED_APART and math.isfinite(row.error)]
    least = max(sizes, default=0.0) / GROWTH
    limits = {"constant": least, "values": least / GROWTH}
    return sorted(rows, key=lambda row: row.error < limits.get(row.kind or "", 0.0))


@dataclass(frozen=True, eq=False)
class ComparisonData:
    """Two runs side by side.

    ``verdict`` is ``equal``, ``different`` or ``could not compare``; ``missing`` says why not. ``findings`` are
    the calls and operations that add error, the largest effect first where it was measured, else in execution order,
    with settings at the end that change next to nothing beside another finding; ``first`` is the first of them,
    ``None`` where there is none, ``causes`` has those of one cause together. ``rows`` are every pair,
    ``only_a`` and ``only_b`` the calls without a partner; ``coverage`` says how much was compared, ``notes`` what to
    know about it. A comparison is true in a condition when the runs are *equal*.
    """

    a: TraceData
    b: TraceData
    rows: tuple[Row, ...] = ()
    findings: tuple[Row, ...] = ()
    only_a: tuple[Call, ...] = ()
    only_b: tuple[Call, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: tuple[Row, ...] = ()  # the returned values of the models, side by side
    settings: Mapping[str, Any] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    missing: tuple[str, ...] = ()  # what would have to be compared before the runs may be called equal
    gradients: ReportData[Any] | None = None  # how the gradients of both relate, where both hold some that differ

    @property
    def verdict(self) -> Outcome:
        """``different`` where there are findings, ``could not compare`` where too much is missing, else ``equal``.

        Runs whose gradients differ are different, too.
        """
        if self.findings or self.gradients_differ:
            return "different"
        return "could not compare" if self.missing else "equal"

    @property
    def gradients_differ(self) -> bool:
        """Do both runs have gradients that differ? No where this is unknown, as in two dtypes."""
        found = () if self.gradients is None else self.gradients.findings
        return any(finding.severity == ERROR for finding in found)

    @property
    def repaired(self) -> bool:
        """Were edits tried that make b return what a returns? Then the causes of these findings are proven."""
        return any(row.proven for row in self.findings)

    @property
    def first(self) -> Row | None:
        """The first finding, or ``None``."""
        return self.findings[0] if self.findings else None

    @property
    def causes(self) -> tuple[tuple[Row, ...], ...]:
        """The findings of each cause together: of one line of code, with one sentence, in several places."""
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in self.findings:
            # the names of its weights begin with its path, and no number with "0."
            because = re.sub(rf"(?<![\w.]){re.escape(row.path)}\.(?=[A-Za-z_])", "", row.because)
            groups.setdefault((row.source, row.op, row.kind, because), []).append(row)
        return tuple([tuple(rows) for rows in groups.values()])

    @property
    def equal(self) -> bool:
        """Are the runs equal within tolerance? In two dtypes (``narrow``), rounding hides more differences.

        It is false where the runs could not be compared, too: see ``verdict`` and ``missing``.
        """
        return self.verdict == "equal"

    @property
    def narrow(self) -> str | None:
        """The coarser dtype where the runs have different ones: its rounding hides smaller differences."""
        narrow = self.settings.get("narrow")
        return None if narrow is None else str(narrow)

    def __bool__(self) -> bool:
        return self.equal

    @property
    def basis(self) -> Basis:
        """The weakest data that any pair was judged by: ``statistics``, ``sample`` or ``tensors``."""
        bases = {row.basis for row in self.rows if row.measured and row.certain}
        return next((basis for basis in BASES if basis in bases), STATISTICS)

    @property
    def compared(self) -> int:
        """The number of pairs with numbers to compare, without those that are unsure."""
        return sum(row.measured and row.certain for row in self.rows)

    @property
    def worst(self) -> Row | None:
        """The pair with the largest error that is no finding; in equal runs, the largest rounding error.

        Pairs that are unsure are left out, and differences that nothing after them shows.
        """
        counted = [row for row in self.rows if row.verdict not in ("ignored", "absorbed")]
        rows = [row for row in counted if row.measured and row.certain and row.kind is None]
        finite = [row for row in rows if math.isfinite(row.error)]  # between different shapes there is no distance
        return max(finite, key=lambda row: row.error, default=None)

    def chain(self, finding: Row | None = None) -> tuple[Row, ...]:
        """Return the calls that the error of a finding (the first) went through, in the order they returned.

        These are the calls around the finding, and the later calls in them that depend on it, without inner calls.
        """
        start = finding or self.first
        if start is None or start.b is None:
            return ()
        above = {call.index for call in start.b.call.with_ancestors()}
        reached = _downstream(self.b, start.b.node)
        return tuple(
            row
            for row in self.rows
            if row.op is None and row.kind is None and row.b is not None and row.verdict in ("inherited", "adds")
            if row.b.call.index in above or (row.b.call.parent_index in above and row.b.node in reached)
            if row.position >= start.position
        )

    def __repr__(self) -> str:
        equal = "equal within tolerance" if self.narrow is None else f"no difference beyond what {self.narrow} explains"
        if self.gradients is not None and self.gradients_differ:
            equal = f"gradients differ, {self.gradients.answer}"
        elif self.missing:
            equal = f"could not compare, {self.missing[0]}"
        first = f"first {self.first}" if self.first is not None else equal
        return printable(f"<comparison of {self.a.model} and {self.b.model}: {first}>")


def _downstream(trace: TraceData, start: str | None) -> set[str]:
    """Return the ids of a node and of all nodes that depend on it."""
    net = network_of(trace)
    pending = [] if start is None else [start]
    reached = set(pending)
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            if edge.target not in reached:
                reached.add(edge.target)
                pending.append(edge.target)
    return reached
