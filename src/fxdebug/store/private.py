"""A trace without what may be private: paths, texts of objects, string arguments, texts of exceptions.

A private trace stays private: what is attached to it later, such as measures and reports of the run itself, loses the
same texts when the trace is saved or exported.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fxdebug.data.calls import Call, Failure, Note
from fxdebug.data.findings import Finding
from fxdebug.data.graphs import CallGraph, Graph, Guard, Op, Ref, RunGraphs
from fxdebug.data.measures import Taken
from fxdebug.data.report import ReportData
from fxdebug.data.trace import AnyTrace, TraceData, replaced
from fxdebug.data.values import Group, Inputs, Outputs, Thing, rebuilt

PRIVATE = (
    "saved as private: without folders and text of source files, texts of objects, string arguments and exception texts"
)
_HIDDEN = "…"
_FOLDERS = re.compile(r"(?:[A-Za-z]:)?(?:[\\/]|\.{1,2}[\\/]|~[\\/])(?:[^\\/:'\"\n]*[\\/])*")
_OUTER_FOLDER = re.compile(r"(?:^|[\s(=])(?:[A-Za-z]:[\\/]|[\\/]|\.{1,2}[\\/]|~)")
_QUOTED = re.compile(r"""[bru]{0,2}(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|`[^`\n]*`""")
_EXCEPTION = re.compile(r"(\w*(?:Error|Exception|Warning|Interrupt|Exit|Iteration)): .*", re.DOTALL)
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w{0,63}")
_OF_TORCH = re.compile(r"\w{0,64}|[\w ,.]{1,64}->[\w ,.]{0,64}")  # as in mode="bilinear", einsum("bij,bjk->bik")


def is_private(trace: TraceData) -> bool:
    """Was the trace saved as private?"""
    return any(note.what == PRIVATE for note in trace.notes)


def without_private(trace: AnyTrace) -> AnyTrace:
    """Return the trace without private texts, and with a note that says so; numbers, shapes and names are kept."""
    graphs = trace.call_graphs
    return replaced(
        trace,
        calls=tuple([_call(call) for call in trace.calls]),
        values=trace.values,
        notes=(Note(PRIVATE), *[replace(note, what=_text(note.what)) for note in trace.notes if note.what != PRIVATE]),
        settings={name: _text(entry) if isinstance(entry, str) else entry for name, entry in trace.settings.items()},
        graph_source=None if graphs is None else _graphs(graphs),
        source_lines={},
        taken={name: _taken(taken) for name, taken in trace.taken.items()},
    )


def _taken(taken: Taken) -> Taken:
    return replace(taken, measure=replace(taken.measure, about=_text(taken.measure.about)), by=_text(taken.by))


def _call(call: Call) -> Call:
    return replace(
        call,
        inputs=_inputs(call.inputs),
        outputs=_outputs(call.outputs),
        given=None if call.given is None else _inputs(call.given),
        returned=_outputs(call.returned),
        error=None if call.error is None else _failure(call.error),
        source=_source(call.source),
        thread=None if call.thread is None else "another thread",
    )


def _failure(error: Failure) -> Failure:
    return replace(error, message="", traceback=None, source=_source(error.source))


def _source(source: str | None) -> str | None:
    """Return a source line without its folders.

    >>> _source("/home/ann/secret/model.py:12")
    'model.py:12'
    """
    return None if source is None else source.replace("\\", "/").rpartition("/")[2]


def _text(text: str) -> str:
    """Return a remark of ours without folders, quotations and the texts of exceptions.

    >>> _text("'x' of /home/ann/model.py was not shown: ValueError: no such user 'ann'")
    '… of model.py was not shown: ValueError'
    """
    return _FOLDERS.sub("", _QUOTED.sub(_HIDDEN, _EXCEPTION.sub(r"\1", text)))


# Items -------------------------------------------------------------------------------------------


def _inputs(inputs: Inputs) -> Inputs:
    return Inputs(
        tuple([_item(item) for item in inputs.args]), {name: _item(item) for name, item in inputs.kwargs.items()}
    )


def _outputs(outputs: Outputs | None) -> Outputs | None:
    return None if outputs is None else Outputs(_item(outputs.item))


def _item(item: Any, *, of_torch: bool = False) -> Any:
    """Return an item without texts; ``of_torch``: an argument of one of torch's functions, whose short words stay."""
    return rebuilt(item, lambda leaf: _leaf(leaf, of_torch), _group)


def _group(group: Group, items: tuple[Any, ...]) -> Group:
    keys = None if group.keys is None else tuple([_key(key, place) for place, key in enumerate(group.keys)])
    return replace(group, items=items, keys=keys, text=None if group.text is None else "")


def _leaf(item: Any, of_torch: bool) -> Any:
    if isinstance(item, Thing):
        return replace(item, text="")
    if isinstance(item, bytes) or (isinstance(item, str) and not (of_torch and _OF_TORCH.fullmatch(item))):
        return Thing(type(item).__name__, "")
    return item


def _key(key: Any, place: int) -> Any:
    if isinstance(key, str):
        return key if _PLAIN_KEY.fullmatch(key) else f"key_{place}"
    return _item(key)


# Reports -----------------------------------------------------------------------------------------


def report_without_private(report: ReportData[Any]) -> ReportData[Any]:
    """Return a report without private texts, to go with a private trace; numbers and names of modules are kept."""
    return replace(
        report,
        rows=tuple([_row(row, report) for row in report.rows]),
        totals={name: (_cell(name, cell), unit) for name, (cell, unit) in report.totals.items()},
        findings=tuple([_finding(finding) for finding in report.findings]),
        notes=tuple([replace(note, what=_text(note.what)) for note in report.notes]),
        settings={name: _cell(name, cell) for name, cell in report.settings.items()},
        parts=tuple(map(report_without_private, report.parts)),
        marks=tuple([(step, _cell("mark", text)) for step, text in report.marks]),
    )


def _row(row: Any, report: ReportData[Any]) -> Any:
    cells = {name: _cell(name, cell) for name, cell in report.cells(row).items() if isinstance(cell, str)}
    if isinstance(row, SimpleNamespace):  # of a report that was read from a file
        return SimpleNamespace(**{**vars(row), **cells})
    return replace(row, **cells)


def _finding(finding: Finding) -> Finding:
    return replace(finding, what=_text(finding.what), advice=_text(finding.advice), source=_source(finding.source))


def _cell(name: str, cell: Any) -> Any:
    """Return a cell without private texts; ids of operations, which have a slash too, are kept.

    >>> _cell("node", "h.0#0/softmax"), _cell("source", "/home/ann/model.py:3"), _cell("what", "of /home/ann/model.py")
    ('h.0#0/softmax', 'model.py:3', 'of model.py')
    """
    if not isinstance(cell, str):
        return cell
    if name == "source":
        return _source(cell)
    return _text(cell) if _OUTER_FOLDER.search(cell) or _QUOTED.search(cell) or _EXCEPTION.search(cell) else cell


# Graphs ------------------------------------------------------------------------------------------


def _graphs(graphs: RunGraphs) -> RunGraphs:
    return RunGraphs(tuple(map(_graph, graphs.graphs)), tuple(map(_body, graphs.bodies)))


def _body(body: CallGraph) -> CallGraph:
    return replace(
        body,
        reason=_text(body.reason),
        guards=tuple([Guard(_text(guard.what), _text(guard.answer), _source(guard.source)) for guard in body.guards]),
        results=tuple([_item(item) for item in body.results]),
        sources=tuple(map(_source, body.sources)),
    )


def _graph(graph: Graph) -> Graph:
    kept: set[str] = set()
    ops = tuple([_op(op, kept) for op in graph.ops])

    def literal(match: re.Match[str]) -> str:
        try:
            text = ast.literal_eval(match[0])
        except (ValueError, SyntaxError):
            text = None
        return match[0] if text in kept else f"'{_HIDDEN}'"

    return Graph(ops, _QUOTED.sub(literal, graph.code))


def _op(op: Op, kept: set[str]) -> Op:
    ours = op.target.startswith(("torch.", "_operator.")) and not op.target.startswith("torch.ops.")
    of_torch = op.kind == "call_method" or (op.kind == "call_function" and ours)
    operands = [*op.args, *op.kwargs.values()]
    clean = [item if isinstance(item, Ref) else _item(item, of_torch=of_torch) for item in operands]
    kept |= {text for item in clean for text in _texts_in(item)}
    count = len(op.args)
    return replace(op, args=tuple(clean[:count]), kwargs=dict(zip(op.kwargs, clean[count:])))


def _texts_in(item: object) -> list[str]:
    pending, found = [item], []
    while pending:
        one = pending.pop()
        if isinstance(one, Group):
            pending += [*one.items, *(one.keys or ())]
        elif isinstance(one, str):
            found.append(one)
    return found
