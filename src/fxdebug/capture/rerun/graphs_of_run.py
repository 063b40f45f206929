"""The graphs of a run while its model is at hand: explained when somebody asks, run when somebody wants to.

:class:`Live` makes the :class:`~fxdebug.data.graphs.RunGraphs` of a trace, and the runnable
``torch.fx.GraphModule`` of a verified call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.fx
from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.join import Joiner, keys_of, plain_item
from fxdebug.capture.graphs.symbolic_size import Size, plain
from fxdebug.capture.graphs.to_fx import Absent, Built, built_of
from fxdebug.capture.graphs.verify import GraphVerifier, VerifiedCall
from fxdebug.capture.rerun.graph_module import GraphOfCall
from fxdebug.capture.rerun.hidden_inputs import hidden_input, set_by_a_caller
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.describe import type_name
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.data.calls import Call
from fxdebug.data.graphs import OPAQUE, VERIFIED, CallGraph, Graph, Guard, Op, Operand, Ref, RunGraphs
from fxdebug.data.values import Group, Item, Value
from fxdebug.errors import UsageError, first_line


class LazyGraphs:
    """What is needed to explain a run after it: its tapes, its model. ``shift``: calls the trace put on top."""

    def __init__(self, model: nn.Module, modules: list[nn.Module], tape: Tape, values: ValueTable, shift: int) -> None:
        self._model = model
        self._modules = modules
        self._tape = tape
        self._values = values
        self._shift = shift
        self._explained: dict[int, VerifiedCall] = {}
        self._explanation: RunGraphs | None = None

    def explanation(self, count: int) -> RunGraphs:
        """The graphs of all ``count`` calls of the trace; made once."""
        if self._explanation is None:
            self._explain()
            graphs: list[Graph] = []
            numbers: dict[int, int] = {}  # by id: these graphs are kept
            made = [self._body(index - self._shift, graphs, numbers) for index in range(count)]
            self._explanation = RunGraphs(tuple(graphs), tuple(made))
        return self._explanation

    def fx(self, call: Call) -> GraphOfCall:
        """The runnable graph of a verified call. Raises ``UsageError`` with the reason for any other."""
        self._explain()
        explained = self._explained.get(call.index - self._shift)
        if explained is None or explained.status != VERIFIED or explained.pattern is None:
            if explained is None:
                raise UsageError(reasons.ONLY_SHOWN(call=call.id, status=OPAQUE))
            because, status = explained.reason, explained.status
            raise UsageError(reasons.ONLY_SHOWN_BECAUSE(call=call.id, status=status, reason=because))
        body, inputs = explained.body, (explained.uids or [])[: explained.pattern.inputs]
        kinds = [self._values.objects[uid].type for uid in inputs if uid is not None]
        outermost = self._tape.call_tapes[min(self._tape.call_tapes)]
        hidden = hidden_input(body, outermost) or set_by_a_caller(body)
        try:
            return GraphOfCall(built_of(explained.pattern), body.module, call.id, kinds, hidden)
        except (AttributeError, KeyError, TypeError) as error:  # what it names was taken away or put elsewhere since
            changed = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(reasons.FITS_NO_MORE(call=call.id, error=changed)) from None

    def explained(self, index: int) -> VerifiedCall | None:
        """What became of a call, by its index in the trace."""
        self._explain()
        return self._explained.get(index - self._shift)

    def _explain(self) -> None:
        if not self._explained and self._tape.call_tapes:
            order = sorted(self._tape.call_tapes)
            bodies = [self._tape.call_tapes[index] for index in order]
            explainer = GraphVerifier(self._model, self._modules, self._values, self._tape.kept)
            self._explained = dict(zip(order, explainer.explain(bodies)))
            for body in bodies:
                body.copies = None  # they keep caches alive and have served their purpose

    def _body(self, index: int, graphs: list[Graph], numbers: dict[int, int]) -> CallGraph:
        explained = self._explained.get(index)
        if explained is None:
            return CallGraph(OPAQUE, reasons.OTHER_METHOD() if index < 0 else reasons.NOTHING_NOTED())
        if explained.pattern is None:
            return CallGraph(explained.status, explained.reason)
        built = built_of(explained.pattern)
        graph = graph_of(built, explained.body.module)
        number = numbers.setdefault(id(graph), len(graphs))
        if number == len(graphs):
            graphs.append(graph)
        joiner = Joiner(built, explained.body, explained.uids or (), self._values)
        results = joiner.results()
        nodes = built.nodes
        lines = [self._line(explained, built, node) for node in nodes]
        guards = tuple(Guard(guard.what, guard.answer, guard.source) for guard in explained.pattern.guards)
        items = tuple([results.get(node) for node in nodes[:-1]])
        returned = joiner.item(explained.body.out, iter(()))
        calls, writes = self._calls_and_writes(explained, built, nodes)
        return CallGraph(
            explained.status, explained.reason, guards, number, (*items, returned), tuple(lines), calls, writes
        )

    def _calls_and_writes(
        self, explained: VerifiedCall, built: Built, nodes: Sequence[torch.fx.Node]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, Value], ...]]:
        calls: list[int] = []
        writes: list[tuple[int, Value]] = []
        for position, node in enumerate(nodes):
            index = built.of_node.get(node)
            if index is not None:
                entry = explained.body.entries[index]
                if entry.body is not None:
                    calls.append(entry.body.index + self._shift)
                writes += [(position, value) for _, value in entry.writes]
        return tuple(calls), tuple(writes)

    @staticmethod
    def _line(explained: VerifiedCall, built: Built, node: torch.fx.Node) -> str | None:
        index = built.of_node.get(node)
        line = None if index is None else explained.body.entries[index].line
        return None if line is None else line.text()


MOST_WRITTEN = 64  # children of so many combinations of classes, where the same body calls others in each module


def graph_of(built: Built, module: nn.Module) -> Graph:
    """A torch.fx graph as plain data, with its code: one for all modules whose children have the same classes."""
    children = tuple([_class_of_child(node, built, module) for node in built.calls])
    graph = built.written.get(children)
    if graph is None:
        if len(built.written) >= MOST_WRITTEN:
            built.written.clear()
        graph = built.written[children] = _written(built, dict(zip(built.calls, children)))
    return graph


def _written(built: Built, children: Mapping[torch.fx.Node, str]) -> Graph:
    switches = _Switches(built)
    ops = tuple([_op(node, built, children.get(node), switches) for node in built.nodes])
    try:
        code = built.graph.python_code("self").src.strip()
    except Exception as error:  # a target torch.fx has no name for: the graph stands without its text
        code = f"# torch.fx cannot write this graph as code: {error}"
    return Graph(ops, code)


class _Switches:
    """The grad and autocast state at each node."""

    def __init__(self, built: Built) -> None:
        self._contexts = {node: built.pattern.nodes[index].context for node, index in built.of_node.items()}
        self._start = built.pattern.context

    def of(self, node: torch.fx.Node) -> tuple[bool, str | None]:
        gradients, _, autocast = self._contexts.get(node, self._start)
        return gradients, ", ".join(f"{device} {str(dtype)[6:]}" for device, dtype in autocast) if autocast else None


def _op(node: torch.fx.Node, built: Built, child: str | None, switches: _Switches) -> Op:
    grad, autocast = switches.of(node)
    args = tuple([operand(arg, built) for arg in node.args])
    kwargs: Mapping[str, Operand] = {name: operand(arg, built) for name, arg in node.kwargs.items()}
    return Op(node.name, node.op, child or _short_name(node), _target(node), args, kwargs, grad, autocast)


def _registered(module: nn.Module, path: str) -> nn.Module | None:
    """A submodule by its path; an attribute of the same name (``forward``) does not hide it."""
    for name in path.split(".") if path else ():  # a module may call itself
        found = module._modules.get(name)
        if found is None:
            return None
        module = found
    return module


def _class_of_child(node: torch.fx.Node, built: Built, module: nn.Module) -> str:
    child = built.objects.get(str(node.target))
    return type_name(type(_registered(module, str(node.target)) if child is None else child))


def _short_name(node: torch.fx.Node) -> str:
    if node.op == "call_function":
        function = getattr(node.target, "__wrapped__", node.target)
        if function is getattr and len(node.args) > 1:
            return str(node.args[1])
        return str(getattr(function, "__name__", type(function).__name__)).strip("_")
    return str(node.target).strip("_") if node.op == "call_method" else node.op


def _target(node: torch.fx.Node) -> str:
    if node.op != "call_function":
        return str(node.target)
    function: Any = getattr(node.target, "__wrapped__", node.target)
    home = getattr(function, "__module__", None) or type(function).__module__
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", type(function).__name__)
    return f"{home}.{name}"


def operand(thing: Any, built: Built) -> Operand:
    """An argument of a torch.fx node as plain data."""
    if isinstance(thing, torch.fx.Node):
        held = built.objects.get(str(thing.target)) if thing.op == "get_attr" else None
        if isinstance(held, (Absent, type, torch.Generator)):
            return plain_item(held.type if isinstance(held, Absent) else held)
        return Ref(thing.name)
    if isinstance(thing, Size):
        return plain(thing)
    if isinstance(thing, (list, tuple)):
        kind = "list" if isinstance(thing, list) else "tuple"
        return Group("sequence", kind, tuple([operand(item, built) for item in thing]))  # type: ignore[misc]
    if isinstance(thing, dict):
        items: tuple[Item, ...] = tuple([operand(item, built) for item in thing.values()])  # type: ignore[misc]
        return Group("mapping", "dict", items, keys_of(thing))
    if isinstance(thing, slice):
        bounds = (thing.start, thing.stop, thing.step)
        return Group("sequence", "slice", tuple([operand(bound, built) for bound in bounds]))  # type: ignore[misc]
    return plain_item(thing)
