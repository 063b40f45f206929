"""Asking a trace: which calls, which operations, what leads where.

One language everywhere: globs for names (``*`` also matches dots), ``"2,*,384"`` for shapes, and a
predicate that is a function or a line such as ``"absmax > 100 or nan > 0"`` about the statistics of
what came out. Answers are plain lists in execution order. A name without wildcards that the trace does
not know is an error that offers the nearest ones.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable

from fxdebug.data.calls import Call
from fxdebug.data.graphs import NODE_KINDS, STATUSES, NodeKind, Status
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.query.names import MAGIC, Asked, Where, has_graphs, known, names, refuse_unknown
from fxdebug.query.network import Node, network_of
from fxdebug.query.where import Shape, about_values

# Finding -----------------------------------------------------------------------------------------


def find_calls(
    trace: TraceData,
    path: str | None = None,
    *,
    type: str | None = None,
    dtype: str | None = None,
    shape: Shape = None,
    status: Status | None = None,
    source: str | None = None,
    where: Where[Call] = None,
) -> list[Call]:
    """Calls in execution order, narrowed down by every argument that is given.

    ``path``: a glob over module paths and their aliases. ``type``: over class names. ``dtype`` and
    ``shape``: of a tensor it returned. ``status``: ``verified``, ``recorded`` or ``opaque``. ``source``:
    ``model.py``, ``model.py:12`` or a glob. ``where``: a function of the call, or a line about the statistics
    of a tensor it returned. ``dtype``, ``shape`` and a line must hold for one and the same tensor.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0, 2.0]))
    >>> [c.path for c in find_calls(trace, type="ReLU")], [c.path for c in find_calls(trace, where="min >= 0")]
    (['1'], ['', '1'])
    """
    calls = list(trace.calls)
    if path is not None:
        calls = [call for call in calls if any(fnmatch.fnmatchcase(name, path) for name in names(call))]
        if not calls and not MAGIC & set(path):
            refuse_unknown("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        calls = _by_name(calls, "module type", type, lambda call: call.type, set(trace.modules.values()))
    if status is not None:
        has_graphs(trace, "status")
        known("status", status, STATUSES)
        calls = [call for call in calls if call.status == status]
    _refuse_unknown_file(source, (call.source for call in trace.calls))
    test = _test(trace, dtype, shape, source, where)
    return [call for call in calls if test(call, tuple(call.outputs or ()), call.source)]


def find_ops(
    trace: TraceData,
    op: str | None = None,
    *,
    path: str | None = None,
    type: str | None = None,
    kind: NodeKind | None = None,
    dtype: str | None = None,
    shape: Shape = None,
    status: Status | None = None,
    source: str | None = None,
    where: Where[Node] = None,
) -> list[Node]:
    """Operations in execution order: functions and methods that ran, narrowed down as in :func:`find`.

    ``op``: a glob over their names (``softmax``, ``mat*``). ``path`` and ``type``: of the module whose
    body they are in. ``kind``: one of torch.fx's, ``call_function`` or ``call_method`` when not given.
    """
    has_graphs(trace, "operations")
    nodes = list(network_of(trace).nodes.values())
    if kind is None:
        nodes = [node for node in nodes if node.kind in ("call_function", "call_method")]
    else:
        known("kind", kind, NODE_KINDS)
        nodes = [node for node in nodes if node.kind == kind]
    if op is not None:
        nodes = _by_name(nodes, "operation", op, lambda node: node.op)
    if path is not None:
        nodes = [node for node in nodes if any(fnmatch.fnmatchcase(name, path) for name in names(node.call))]
        if not nodes and not MAGIC & set(path):
            refuse_unknown("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        kinds = set(trace.modules.values()) | {call.type for call in trace.calls}
        nodes = _by_name(nodes, "module type", type, lambda node: node.call.type, kinds)
    if status is not None:
        known("status", status, STATUSES)
        nodes = [node for node in nodes if node.status == status]
    _refuse_unknown_file(source, (node.source for node in network_of(trace).nodes.values()))
    test = _test(trace, dtype, shape, source, where)
    return [node for node in nodes if test(node, node.values, node.source)]


def _by_name(
    things: list[Asked], what: str, pattern: str, name: Callable[[Asked], str], known: set[str] | None = None
) -> list[Asked]:
    found = [thing for thing in things if fnmatch.fnmatchcase(name(thing), pattern)]
    if not found and not MAGIC & set(pattern):
        refuse_unknown(what, pattern, (known or set()) | {name(thing) for thing in things})
    return found


def _test(
    trace: TraceData, dtype: str | None, shape: Shape, source: str | None, where: Where[Asked]
) -> Callable[[Asked, tuple[Value, ...], str | None], bool]:
    """Everything but names: of the thing itself, its tensors and its line."""
    of_values = None
    if dtype is not None or shape is not None or isinstance(where, str):
        seen = frozenset(value.dtype for value in trace.values)
        of_values = about_values(dtype, shape, where if isinstance(where, str) else None, seen)
    of_thing = where if callable(where) else None
    lines = None if source is None else _source_pattern(source)

    def test(thing: Asked, values: tuple[Value, ...], line: str | None) -> bool:
        if lines is not None and not lines(line or ""):
            return False
        if of_values is not None and not any(of_values(value) for value in values):
            return False
        return of_thing is None or bool(of_thing(thing))

    return test


def _source_pattern(source: str) -> Callable[[str], bool]:
    """``model.py``, ``model.py:12`` or a glob, with as many folders before it as one likes."""
    name, colon, line = source.replace("\\", "/").rpartition("/")[2].partition(":")
    if colon and not (line.isdigit() or MAGIC & set(line)):
        raise UsageError(f"source {source!r}: after {name}: stands the number of a line, or a pattern such as 1*")
    pattern = source if colon else f"{source}:*"
    return lambda line: fnmatch.fnmatchcase(line, pattern) or fnmatch.fnmatchcase(line, f"*[/\\\\]{pattern}")


def _refuse_unknown_file(source: str | None, lines: Iterable[str | None]) -> None:
    """Raise for a file without wildcards of which no line is known; a line where nothing happened is no mistake."""
    name = "" if source is None else source.replace("\\", "/").rpartition("/")[2].partition(":")[0]
    if name and not MAGIC & set(name):
        files = {line.replace("\\", "/").rpartition("/")[2].partition(":")[0] for line in lines if line}
        refuse_unknown("source file", name, files)
