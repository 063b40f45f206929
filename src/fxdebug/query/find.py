"""``trace.find`` and ``trace.ops``: calls and operations by name, shape, dtype, status, source line and statistics.

Both take the same conditions: globs for names (``*`` also matches dots), ``"2,*,384"`` for shapes, and ``where``, a
function or a line such as ``"absmax > 100 or input.nan > 0"`` about statistics. They return plain lists in execution
order. A name without wildcards that the trace does not know is an error that offers the nearest ones.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias

from fxdebug.data.calls import Call, Parameter
from fxdebug.data.graphs import NODE_KINDS, STATUSES, NodeKind, Status
from fxdebug.data.measures import CALL, OPERATION
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.errors import UsageError
from fxdebug.query.measures import Number, measures_of, number_of
from fxdebug.query.names import (
    WILDCARDS,
    names_of_call,
    parameters_by_module,
    require_graphs,
    require_known,
    require_one_of,
)
from fxdebug.query.network import Node, network_of
from fxdebug.query.where import CallOrNode, Shape, Subject, Where, conditions

# a glob over class names, a class with its subclasses, or a tuple of these
TypeCondition: TypeAlias = "str | type | tuple[str | type, ...] | None"


def find_calls(
    trace: TraceData,
    path: str | None = None,
    *,
    type: TypeCondition = None,
    dtype: str | None = None,
    shape: Shape = None,
    status: Status | None = None,
    source: str | None = None,
    where: Where[Call] = None,
) -> list[Call]:
    """Return the calls that meet every condition, in execution order.

    ``path``: a glob over module paths and their aliases. ``type``: a glob over class names, a class (its subclasses
    count, too), or a tuple of these; in a loaded run, a class is known by its full name. ``dtype`` and ``shape``: of a
    tensor it returned. ``status``: ``verified``, ``recorded`` or ``opaque``. ``source``: ``model.py``, ``model.py:12``
    or a glob. ``where``: a function of the call, or a line about the statistics of a tensor it returned, of an
    ``input.``, of a ``parameter.`` or buffer of its own module, or about another measure of the call: ``"duration >
    1ms"``. ``dtype``, ``shape`` and a line must hold for one and the same tensor.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.tensor([-1.0, 2.0]))
    >>> [c.path for c in find_calls(trace, type="ReLU")]
    ['1']
    >>> [c.path for c in find_calls(trace, where="min >= 0")]
    ['', '1']
    """
    calls = list(trace.calls)
    if path is not None:
        calls = [call for call in calls if _is_at(call, path)]
        if not calls and not WILDCARDS & set(path):
            require_known("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        calls = _by_type(trace, calls, type)
    if status is not None:
        require_graphs(trace, "status")
        require_one_of("status", status, STATUSES)
        calls = [call for call in calls if call.status == status]
    _require_known_file(source, (call.source for call in trace.calls))
    matched = _Matches(trace, dtype, shape, where)
    in_line = _source_pattern(source)
    return [call for call in calls if in_line(call.source or "") and matched.facts(call) is not None]


def find_ops(
    trace: TraceData,
    op: str | None = None,
    *,
    path: str | None = None,
    type: TypeCondition = None,
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
    conditions are those of :func:`find_calls`; an ``input.`` is an operand, a ``parameter.`` one that is a parameter
    or buffer. A measure that only calls have, such as ``duration``, is a ``UsageError``.
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
        nodes = [node for node in nodes if _is_at(node.call, path)]
        if not nodes and not WILDCARDS & set(path):
            require_known("module", path, {*trace.modules, *(call.path for call in trace.calls)})
    if type is not None:
        nodes = _by_type(trace, nodes, type)
    if status is not None:
        require_one_of("status", status, STATUSES)
        nodes = [node for node in nodes if node.status == status]
    _require_known_file(source, (node.source for node in network_of(trace).nodes.values()))
    matched = _Matches(trace, dtype, shape, where)
    in_line = _source_pattern(source)
    return [node for node in nodes if in_line(node.source or "") and matched.facts(node) is not None]


def _is_at(call: Call, path: str) -> bool:
    """Has the module of a call this path, or one that the glob matches? Keys of a ModuleDict may have wildcards."""
    if not isinstance(path, str):
        raise UsageError(f"path={path!r}: give a text, such as 'encoder.layers.*'")
    return any(name == path or fnmatch.fnmatchcase(name, path) for name in names_of_call(call))


def facts_of(
    trace: TraceData, found: Sequence[Call | Node], dtype: str | None, shape: Shape, where: str
) -> list[dict[str, Any]]:
    """Return for each call or node the facts that a ``where=`` line mentions, of the tensors for which it holds."""
    matched = _Matches[Any](trace, dtype, shape, where)
    return [matched.facts(item) or {} for item in found]


def _by_name(
    items: list[CallOrNode], what: str, pattern: str, name: Callable[[CallOrNode], str], known: set[str] | None = None
) -> list[CallOrNode]:
    matching = [item for item in items if fnmatch.fnmatchcase(name(item), pattern)]
    if not matching and not WILDCARDS & set(pattern):
        require_known(what, pattern, (known or set()) | {name(item) for item in items})
    return matching


def _by_type(
    trace: TraceData, items: list[CallOrNode], wanted: str | type | tuple[str | type, ...]
) -> list[CallOrNode]:
    """Return the items whose class is one of those that are wanted."""
    matching: set[int] = set()
    called = {call.index: call for call in map(_call_of, items)}
    for one in wanted if isinstance(wanted, tuple) else (wanted,):
        if isinstance(one, str):
            found = {index for index, call in called.items() if fnmatch.fnmatchcase(call.type, one)}
            if not found and not WILDCARDS & set(one):
                known = {*trace.modules.values(), *(call.type for call in trace.calls)}
                require_known("module type", one, known)
        elif isinstance(one, type):
            is_one = _is_of_class(trace, one)
            found = {index for index, call in called.items() if is_one(call)}
        else:
            raise UsageError(f"type={wanted!r}: give a class, a name such as 'Linear', or a tuple of these")
        matching |= found
    return [item for item in items if _call_of(item).index in matching]


def _call_of(item: Call | Node) -> Call:
    return item if isinstance(item, Call) else item.call


def _is_of_class(trace: TraceData, kind: type) -> Callable[[Call], bool]:
    """Return a predicate of calls: is its module of this class, or of a subclass?

    A live run knows the classes themselves, a loaded one their full names and those of their bases. A file of an older
    version has bare names alone.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is object or name == "torch.nn.modules.module.Module":
        return lambda call: True  # every module is one: also where a file does not know its class
    named = {path: each.names for each in trace.classes for path in each.paths}
    bare = {each.__name__ for each in _with_subclasses(kind)}

    def is_one(call: Call) -> bool:
        live = trace._class_of_call.get(call.index)
        if live is not None:
            return any(base is kind for base in live.__mro__)
        names = named.get(call.path)
        return call.type in bare if names is None else name in names

    return is_one


def _with_subclasses(kind: type) -> set[type]:
    found: set[type] = set()
    pending = [kind]
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending.extend(type.__subclasses__(one))
    return found


class _Matches(Generic[CallOrNode]):
    """The conditions on tensors, and ``where`` as a function, for calls and nodes of one trace."""

    def __init__(self, trace: TraceData, dtype: str | None, shape: Shape, where: Where[CallOrNode]) -> None:
        self._trace = trace
        self._line = line = where if isinstance(where, str) else None
        dtypes = frozenset(value.dtype for value in trace.values)
        self._conditions = conditions(dtype, shape, line, dtypes, measures_of(trace))
        self._function: Callable[[CallOrNode], object] | None = where if callable(where) else None
        self._own: dict[str, list[Parameter]] = {}  # path → parameters and buffers of the module itself
        if self._mentions("parameter"):
            measured = [parameter for parameter in trace.parameters if parameter.stats is not None]
            if trace.parameters and not measured:
                raise UsageError(
                    f"where={line!r}: this run has no statistics of its parameters: trace it with weights=True"
                )
            self._own = parameters_by_module(trace)

    def facts(self, item: CallOrNode) -> dict[str, Any] | None:
        """Return the facts that the line mentions where everything holds, or ``None``."""
        facts = self._conditions.match(self._of_call(item) if isinstance(item, Call) else self._of_node(item))
        return facts if facts is not None and (self._function is None or self._function(item)) else None

    def _mentions(self, tensors: str) -> bool:
        return self._conditions.line is not None and self._conditions.line.mentions(tensors)

    def _of_call(self, call: Call) -> Subject:
        inputs = tuple(call.inputs) if self._mentions("input") else ()
        own: list[Parameter] = []
        if self._mentions("parameter"):
            own = [parameter for name in names_of_call(call) for parameter in self._own.get(name, ())]
        return Subject(tuple(call.outputs or ()), inputs, own, self._number(call, CALL))

    def _of_node(self, node: Node) -> Subject:
        operands: list[Value] = []
        if self._mentions("input") or self._mentions("parameter"):
            edges = network_of(self._trace).into.get(node.id, ())
            operands = [edge.value for edge in edges if edge.value is not None and edge.kind == "data"]
        inputs = [value for value in operands if value.name is None]
        parameters = [value for value in operands if value.name is not None]
        return Subject(node.values, inputs, parameters, self._number(node, OPERATION))

    def _number(self, item: Call | Node, subject: Literal["call", "operation"]) -> Callable[[str], Number]:
        """Return the function that gives a number of a call or an operation by its measure."""

        def number(name: str) -> Number:
            if subject not in measures_of(self._trace)[name].of:
                ask = "calls, with find" if subject == OPERATION else "operations, with ops"
                raise UsageError(f"where={self._line!r}: {subject}s have no {name}; ask {ask}")
            return number_of(self._trace, item, name)

        return number


def _source_pattern(source: str | None) -> Callable[[str], bool]:
    """Return a predicate of source lines for ``model.py``, ``model.py:12`` or a glob, with or without folders."""
    if source is None:
        return lambda line: True
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
