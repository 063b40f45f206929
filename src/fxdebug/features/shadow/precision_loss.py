"""Growth of rounding errors: the operations at which a run loses digits, found with a shadow run in a wider dtype."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fxdebug.analyses.numbers.findings import FindingKind
from fxdebug.analyses.numbers.lineage import is_operation, is_output
from fxdebug.cells import cell_len, shortened_to, wrapped
from fxdebug.data.calls import Call, Note
from fxdebug.data.findings import ERROR, WARNING, Finding
from fxdebug.data.measures import CALL, OPERATION, register
from fxdebug.data.report import Column, ReportData
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.categories import DRAWS, UNFILLED
from fxdebug.operators.dtypes import FLOATS
from fxdebug.printable import printable
from fxdebug.query.network import Network, Node, network_of

ERROR_OF_DTYPE = register("error.dtype", "", "relative error, against the same run in a wider dtype", [CALL, OPERATION])

# An operation loses digits if the error of its result is at least this many roundings of the dtype (or a quarter of the
# value, in a dtype with few digits) and at least ``GROWTH`` times the error of its inputs.
LOST_ROUNDINGS, LARGE_ERROR = 256.0, 0.25
GROWTH = 32.0


# No finding if every later result has an error smaller by this factor: the rounding of a mean close to 0, for example,
# is gone once the mean is subtracted.
RECOVERED = 8.0
_SUBTRACTS = ("sub", "rsub", "add", "radd", "isub", "iadd")
MOST_LAYERS = 12  # layers that are shown
_NUMBER = re.compile(r"\b\d+\b")

_T = TypeVar("_T", bound=TraceData)


def find_precision_loss(
    trace: _T,
    dtype: str,
    of_nodes: Mapping[tuple[int, str], float],
    of_calls: Mapping[int, float],
    notes: Sequence[str] = (),
) -> ShadowData[_T]:
    """Return the operations at which the relative error grows, and the findings among them.

    ``of_nodes``: the error of each result by call index and node name. ``of_calls``: the error of each call's outputs.
    """
    net = network_of(trace)
    errors: dict[str, float] = {}
    inherited: dict[str, float] = {}
    rows = []
    for node in net.nodes.values():
        edges = net.into.get(node.id, ())
        inherited[node.id] = max((errors.get(edge.source, 0.0) for edge in edges), default=0.0)
        own = of_calls.get(node.call.index) if node.kind == "call_module" else None
        if node.step is not None:
            own = of_nodes.get((node.call.index, node.step.name))
        errors[node.id] = inherited[node.id] if own is None else own
        if own is not None and is_operation(net, node) and node.op not in UNFILLED | DRAWS:
            rows.append(_row(net, node, own, inherited[node.id]))
    if any(node.op in DRAWS for node in net.nodes.values()):
        notes = [*notes, "the run draws random numbers, and in the twin they may be others"]
    findings = tuple([_finding(net, row) for row in rows if _loses_digits(net, row, errors)])
    calls = {net.call_id(call): of_calls[call.index] for call in trace.calls if call.index in of_calls}
    return ShadowData(
        analysis="shadow",
        subject=trace.model,
        columns=COLUMNS,
        rows=tuple(rows),
        totals={"relative error of the result": (of_calls.get(trace.root.index), ""), "operations": (len(rows), "")},
        findings=findings,
        notes=tuple([Note(note) for note in notes]),
        settings={"dtype": dtype},
        measures={ERROR_OF_DTYPE.name: {**calls, **{row.node: row.error for row in rows}}},
        ranked=False,
        trace=trace,
        calls=calls,
        layers=tuple(_layers(net, calls)),
    )


def _row(net: Network, node: Node, error: float, inherited: float) -> Row:
    eps = FLOATS[node.dtype].eps if node.dtype in FLOATS else 0.0
    inputs = tuple(dict.fromkeys(edge.value for edge in net.into.get(node.id, ()) if edge.value is not None))
    before = max(inherited, eps)
    growth = 1.0 if inherited == math.inf else error / before if before else 0.0
    call, ratio = net.call_id(node.call), _ratio(node, inputs)
    return Row(node.id, node.path, call, node.op, node.source, error, inherited, growth, node.value, inputs, ratio)


def _ratio(node: Node, inputs: tuple[Value, ...]) -> float | None:
    """Return the size of a sum or difference relative to its operands; ``None`` for other operations."""
    if node.op not in _SUBTRACTS or node.stats is None or node.stats.absmax is None:
        return None
    operands = sum(value.stats.absmax or 0.0 for value in inputs if value.stats is not None)
    if node.step is not None and len(inputs) == 1:
        operands += sum(abs(arg) for arg in node.step.args if isinstance(arg, (int, float)))
    return node.stats.absmax / operands if operands else None


def _loses_digits(net: Network, row: Row, errors: Mapping[str, float]) -> bool:
    """Does this operation lose digits that later results still lack?"""
    dtype = "" if row.value is None else row.value.dtype
    if (
        row.error < min(LOST_ROUNDINGS * (FLOATS[dtype].eps if dtype in FLOATS else 1.0), LARGE_ERROR)
        or row.growth < GROWTH
    ):
        return False
    if not any(map(is_output, _reached(net, row.node))):
        return False  # the result reaches no output: it may decide when a loop ends
    later = [net.nodes[edge.target] for edge in net.out_of.get(row.node, ()) if edge.kind == "data"]
    return any(errors[node.id] * RECOVERED >= row.error for node in later)


def _finding(net: Network, row: Row) -> Finding:
    cancels = row.ratio is not None and row.ratio < 0.1
    kind: FindingKind = "cancellation" if cancels else "precision"
    why = f"; its operands cancel to {row.ratio:.1e} of their size" if cancels else ""
    what = f"the relative error grows from {row.inherited:.1e} to {row.error:.1e}{why}"
    reached = _reached(net, row.node)
    output = any(map(is_output, reached))
    count = sum(is_operation(net, node) for node in reached)
    return Finding(
        rule=kind,
        severity=ERROR if output and row.error > 0.1 else WARNING,
        path=row.path,
        call=row.call,
        op=row.op,
        what=what,
        node=row.node,
        source=row.source,
        measured=row.error,
        value=row.value,
        inputs=row.inputs,
        reached=count,
        output=output,
    )


def _reached(net: Network, id: str) -> list[Node]:
    reached, pending = {id}, [id]
    while pending:
        for edge in net.out_of.get(pending.pop(), ()):
            if edge.target not in reached:
                reached.add(edge.target)
                pending.append(edge.target)
    return [net.nodes[other] for other in reached - {id}]


def _layers(net: Network, errors: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the errors of the outermost repeated calls (``h.0``, ``h.1`` …), else of the model and its children."""
    kinds: dict[str, list[Call]] = {}
    for call in net.trace.calls:
        if _NUMBER.search(call.path):
            kinds.setdefault(_NUMBER.sub("#", call.path), []).append(call)
    repeated = [calls for calls in kinds.values() if len(calls) > 1]
    chosen = min(repeated, key=lambda calls: calls[0].depth, default=[c for c in net.trace.calls if c.depth <= 1])
    layers = [(id, errors[id]) for call in chosen if (id := net.call_id(call)) in errors]
    return layers[:: max(1, -(-len(layers) // MOST_LAYERS))]


_SHOWN = 5
_LEAST = 24  # letters of a place, for which its line goes


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, or a call whose operations are unknown, with the relative errors of its result and its inputs.

    ``growth`` is the error divided by the larger of ``inherited`` and one rounding of the dtype. ``ratio`` is
    |out| / (|a| + |b|) of a sum or difference: the share of the operands that is left.
    """

    node: str
    path: str
    call: str
    op: str
    source: str | None
    error: float
    inherited: float
    growth: float
    value: Value | None = None
    inputs: tuple[Value, ...] = ()
    ratio: float | None = None


COLUMNS = (
    Column("node", "node", about="the operation, by its id in the graph of the run"),
    Column("op", "operation"),
    Column("inherited", "error before", about="the largest relative error of its operands"),
    Column("error", "error", about="the relative error of its result"),
    Column("growth", "growth", about="of the error, at this operation"),
    Column("ratio", "ratio", about="of a sum or difference: its size relative to its operands"),
    Column("path", "path", about="the module", shown=False),
    Column("call", "call", shown=False),
    Column("source", "line"),
)


@dataclass(frozen=True, repr=False)
class ShadowData(ReportData[Row], Generic[_T]):
    """A run compared with its shadow in a wider dtype: ``rows`` in execution order, ``findings`` where digits got lost.

    ``trace`` is the native run. ``calls`` has the error of every call's outputs by the call's id, in execution order;
    ``layers`` the calls that show its growth.
    """

    trace: _T = field(kw_only=True)
    calls: Mapping[str, float] = field(default_factory=dict)
    layers: tuple[tuple[str, float], ...] = ()

    @property
    def dtype(self) -> str:
        """The dtype of the shadow."""
        return str(self.settings["dtype"])

    @property
    def error(self) -> float | None:
        """The relative error of the model's outputs, ``None`` where they could not be compared."""
        error, _ = self.totals["relative error of the result"]
        return error if isinstance(error, float) else None

    @property
    def worst(self) -> Row | None:
        """The operation at which the error grows most; ``None`` when nothing could be compared."""
        return max(self.rows, key=lambda row: row.growth, default=None)


def text(shadow: ShadowData[_T], width: int) -> str:
    """Return the findings, the operations at which the error grows most, and the error after each layer, as text."""
    error = "not compared" if shadow.error is None else f"{shadow.error:.1e}"
    if shadow.error is not None and not math.isfinite(shadow.error):
        error = "not known: NaN or infinities on one side only"
    head = f"{shadow.subject} against its {shadow.dtype} twin: the relative error of the result is {error}"
    texts = [str(finding) for finding in shadow.findings] or ["no operation loses digits"]
    lines = [line for part in (head, *texts) for line in wrapped(printable(part), width, further="  ")]
    lines.append("the error grows most at")
    for row in sorted(shadow.rows, key=lambda row: -row.growth)[:_SHOWN]:
        where = "" if row.source is None else f"  {row.source.rpartition('/')[2]}"
        lines.append(_placed(f"  {row.inherited:.1e} → {row.error:.1e}  ", row.node, printable(where), width))
    lines.append("by depth")
    lines += [_placed(f"  {error:.1e}  ", id, "", width) for id, error in shadow.layers]
    notes = [line for note in shadow.notes for line in wrapped(printable(note.what), width)]
    return "\n".join([*lines, *notes])


def _placed(start: str, id: str, end: str, width: int) -> str:
    """Return a line with the id of a node between two texts: the source line goes first, then the middle of the id."""
    if cell_len(start) + cell_len(end) + _LEAST > width:
        end = ""
    room = max(width - cell_len(start) - cell_len(end), _LEAST)
    return f"{start}{shortened_to(printable(id), room, 'ends')}{end}"
