"""``trace.find`` and ``trace.ops``: calls and operations by name, shape, dtype, status, source line and statistics.

Both take the same conditions: globs for names (``*`` also matches dots), ``"2,*,384"`` for shapes, and ``where``, a
function or a line such as ``"absmax > 100 or nan > 0"`` about the statistics of the results. They return plain lists
in execution order. A name without wildcards that the trace does not know is an error that offers the nearest ones.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable

from fxdebug.data.calls import Call
from fxdebug.data.graphs import NODE_KINDS, STATUSES, NodeKind, Status
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.query.names import WILDCARDS, names_of_call, require_graphs, require_known, require_one_of
from fxdebug.query.network import Node, network_of
from fxdebug.query.where import CallOrNode, Shape, Where, value_condition


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
    """Return the calls that meet every condition, in execution order.

    ``path``: a glob over module paths and their aliases. ``type``: over class names. ``dtype`` and
    ``shape``: of a tensor it returned. ``status``: ``verified``, ``recorded`` or ``opaque``. ``source``:
    ``model.py``, ``model.py:12`` or a glob. ``where``: a function of the call, or a line about the statistics
    of a tensor it returned. ``dtype``, ``shape`` and a line must hold for one and the same tensor.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0, 2.0]))
    >>> [c.path for c in find_calls(trace, type="ReLU")]
    ['1']
    >>> [c.path for c in find_calls(trace, where="min >= 0")]
    ['', '1']
    """
    calls = list(trace.calls)
    if path is not None:
        calls = [call for call in calls if any(fnmatch.fnmatchcase(name, path) for name in names_of_call(call))]
        if not calls and not WILDCARDS & set(path):
            require_known("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        calls = _by_name(calls, "module type", type, lambda call: call.type, set(trace.modules.values()))
    if status is not None:
        require_graphs(trace, "status")
        require_one_of("status", status, STATUSES)
        calls = [call for call in calls if call.status == status]
    _require_known_file(source, (call.source for call in trace.calls))
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
    """Return the operations (functions and methods) that meet every condition, in execution order.

    ``op``: a glob over their names (``softmax``, ``mat*``). ``path`` and ``type``: of the module whose ``forward``
    ran them. ``kind``: one of torch.fx's kinds of nodes; ``call_function`` and ``call_method`` by default. The other
    conditions are those of :func:`find_calls`.
    """
    require_graphs(trace, "operations")
    nodes = list(network_of(trace).nodes.values())
    if kind is None:
        nodes = [node for node in nodes if node.kind in ("call_function", "call_method")]
    else:
        require_one_of("kind", kind, NODE_KINDS)
        nodes = [node for node in nodes if node.kind == kind]
    if op is not None:
        nodes = _by_name(nodes, "operation", op, lambda node: node.op)
    if path is not None:
        nodes = [node for node in nodes if any(fnmatch.fnmatchcase(name, path) for name in names_of_call(node.call))]
        if not nodes and not WILDCARDS & set(path):
            require_known("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        kinds = set(trace.modules.values()) | {call.type for call in trace.calls}
        nodes = _by_name(nodes, "module type", type, lambda node: node.call.type, kinds)
    if status is not None:
        require_one_of("status", status, STATUSES)
        nodes = [node for node in nodes if node.status == status]
    _require_known_file(source, (node.source for node in network_of(trace).nodes.values()))
    test = _test(trace, dtype, shape, source, where)
    return [node for node in nodes if test(node, node.values, node.source)]


def _by_name(
    items: list[CallOrNode], what: str, pattern: str, name: Callable[[CallOrNode], str], known: set[str] | None = None
) -> list[CallOrNode]:
    matching = [item for item in items if fnmatch.fnmatchcase(name(item), pattern)]
    if not matching and not WILDCARDS & set(pattern):
        require_known(what, pattern, (known or set()) | {name(item) for item in items})
    return matching


def _test(
    trace: TraceData, dtype: str | None, shape: Shape, source: str | None, where: Where[CallOrNode]
) -> Callable[[CallOrNode, tuple[Value, ...], str | None], bool]:
    """Return the conditions other than names as one predicate of a call or node, its tensors and its source line."""
    value_holds = None
    if dtype is not None or shape is not None or isinstance(where, str):
        dtypes = frozenset(value.dtype for value in trace.values)
        value_holds = value_condition(dtype, shape, where if isinstance(where, str) else None, dtypes)
    item_holds = where if callable(where) else None
    line_holds = None if source is None else _source_pattern(source)

    def test(item: CallOrNode, values: tuple[Value, ...], line: str | None) -> bool:
        if line_holds is not None and not line_holds(line or ""):
            return False
        if value_holds is not None and not any(value_holds(value) for value in values):
            return False
        return item_holds is None or bool(item_holds(item))

    return test


def _source_pattern(source: str) -> Callable[[str], bool]:
    """Return a predicate of source lines for ``model.py``, ``model.py:12`` or a glob, with or without folders."""
    name, colon, line = source.replace("\\", "/").rpartition("/")[2].partition(":")
    if colon and not (line.isdigit() or WILDCARDS & set(line)):
        raise UsageError(f"source {source!r}: after {name}: write a line number, or a pattern such as 1*")
    pattern = source if colon else f"{source}:*"
    return lambda line: fnmatch.fnmatchcase(line, pattern) or fnmatch.fnmatchcase(line, f"*[/\\\\]{pattern}")


def _require_known_file(source: str | None, lines: Iterable[str | None]) -> None:
    """Raise ``NotFound`` for a file that no known line is in; a line of a known file where nothing ran is no error."""
    name = "" if source is None else source.replace("\\", "/").rpartition("/")[2].partition(":")[0]
    if name and not WILDCARDS & set(name):
        files = {line.replace("\\", "/").rpartition("/")[2].partition(":")[0] for line in lines if line}
        require_known("source file", name, files)
