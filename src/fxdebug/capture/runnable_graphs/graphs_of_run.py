"""The graphs of a run in the process of its model, made and run on demand.

:class:`LazyGraphs` makes the :class:`~fxdebug.data.graphs.RunGraphs` of a trace, and the runnable
``torch.fx.GraphModule`` of a verified call.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from fxdebug.capture import reasons
from fxdebug.capture.graphs.from_tape import template_of_tape
from fxdebug.capture.graphs.to_fx import fx_build_of
from fxdebug.capture.graphs.verify import GraphVerifier, VerifiedCall
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.capture.replay.rng import RngSnapshot
from fxdebug.capture.runnable_graphs.graph_data import graph_of
from fxdebug.capture.runnable_graphs.graph_module import GraphOfCall
from fxdebug.capture.runnable_graphs.hidden_inputs import changed_by_caller, hidden_input
from fxdebug.capture.runnable_graphs.node_values import NodeValues
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.tape_mode import Tape
from fxdebug.capture.tensors.value_table import ValueTable
from fxdebug.capture.torch_state.untracked import closes_untracked
from fxdebug.data.calls import Call
from fxdebug.data.graphs import OPAQUE, RECORDED, VERIFIED, CallGraph, Graph, Guard, RunGraphs
from fxdebug.data.values import Value
from fxdebug.errors import UsageError, first_line


class _GraphsOnce:
    """The graphs of a run, equal ones once."""

    def __init__(self) -> None:
        self.all: list[Graph] = []
        self._numbered: dict[int, tuple[Graph, int]] = {}  # by id, which stays its own while the graph is kept
        self._by_code: dict[str, list[int]] = {}

    def number_of(self, graph: Graph) -> int:
        """Return the number of a graph; it is added if no equal one is there."""
        known = self._numbered.get(id(graph))
        if known is None:
            same_code = self._by_code.setdefault(graph.code, [])
            number = next((each for each in same_code if self.all[each] == graph), len(self.all))
            if number == len(self.all):
                self.all.append(graph)
                same_code.append(number)
            known = self._numbered[id(graph)] = graph, number
        return known[1]


class LazyGraphs:
    """The tapes and the model of a run, from which its graphs are made on demand.

    ``shift`` is the number of calls at the start of the trace that the tapes do not have.
    """

    def __init__(self, model: nn.Module, modules: list[nn.Module], tape: Tape, values: ValueTable, shift: int) -> None:
        self._model = model
        self._modules = modules
        self._tape = tape
        self._values = values
        self._shift = shift
        self._verified: dict[int, VerifiedCall] = {}
        self._run_graphs: RunGraphs | None = None
        self.given: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # copies of small inputs, to run it again
        self.returned_bits: str | None = None  # a digest of what it returned, where statistics are kept

    @property
    def model(self) -> nn.Module:
        """The model that ran."""
        return self._model

    @closes_untracked
    def call_graphs(self, count: int) -> RunGraphs:
        """Return the graphs of all ``count`` calls of the trace; they are made once."""
        if self._run_graphs is None:
            states = RngSnapshot()  # a constant in a graph may be of a class whose ``__repr__`` draws
            try:
                with collect_less_often.block():
                    self._run_graphs = self._made(count)
            finally:
                states.restore()
        return self._run_graphs

    def _made(self, count: int) -> RunGraphs:
        self._verify()
        graphs = _GraphsOnce()
        calls = [self._call_graph(index - self._shift, graphs) for index in range(count)]
        return RunGraphs(tuple(graphs.all), tuple(calls))

    def fx(self, call: Call) -> GraphOfCall:
        """Return the runnable graph of a verified call. Raises ``UsageError`` with the reason for any other."""
        verified = self.verified_call(call.index)
        if verified is None or verified.status != VERIFIED or verified.template is None:
            if verified is None:
                raise UsageError(reasons.ONLY_SHOWN(call=call.id, status=OPAQUE))
            because, status = verified.reason, verified.status
            raise UsageError(reasons.ONLY_SHOWN_BECAUSE(call=call.id, status=status, reason=because))
        tape, inputs = verified.tape, (verified.tensor_ids or [])[: verified.template.inputs]
        classes = [self._values.first_values[tensor_id].type for tensor_id in inputs if tensor_id is not None]
        outermost = self._tape.call_tapes[min(self._tape.call_tapes)]
        not_reusable = hidden_input(tape, outermost, self._values, verified.handed_over) or changed_by_caller(tape)
        build = fx_build_of(verified.template)
        try:
            return GraphOfCall(build, tape.module, call.id, classes, not_reusable, verified.objects, tape.surroundings)
        except (AttributeError, KeyError, TypeError) as error:  # an attribute that it names was removed or moved since
            changed = f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(reasons.FITS_NO_MORE(call=call.id, error=changed)) from None

    def verified_call(self, index: int) -> VerifiedCall | None:
        """Return the template and the status of a call, by its index in the trace; ``None`` if it has no tape."""
        self._verify()
        return self._verified.get(index - self._shift)

    def _verify(self) -> None:
        if not self._verified and self._tape.call_tapes:
            order = sorted(self._tape.call_tapes)
            tapes = [self._tape.call_tapes[index] for index in order]
            verifier = GraphVerifier(self._model, self._modules, self._values, self._tape.kept)
            self._verified = dict(zip(order, verifier.verify(tapes)))
            for tape in tapes:
                tape.argument_copies = None  # they keep caches alive and have served their purpose

    def _call_graph(self, index: int, graphs: _GraphsOnce) -> CallGraph:
        verified = self._verified.get(index)
        if verified is None:
            return CallGraph(OPAQUE, reasons.OTHER_METHOD() if index < 0 else reasons.NOTHING_NOTED())
        if verified.template is None:
            return CallGraph(verified.status, verified.reason)
        tape, build = verified.tape, fx_build_of(verified.template)
        number = graphs.number_of(graph_of(build, tape.module))
        node_values = NodeValues(build, tape, verified.tensor_ids or (), self._values)
        items = node_values.items()
        results = [*[items.get(node) for node in build.shown[:-1]], node_values.item(result_in(tape.out), iter(()))]
        sources: list[str | None] = []
        calls: list[int] = []
        writes: list[tuple[int, Value]] = []
        for position, node in enumerate(build.shown):
            entry = tape.entries[build.entry_of[node]] if node in build.entry_of else None
            sources.append(None if entry is None or entry.line is None else entry.line.text())
            if entry is not None:
                if entry.tape is not None:
                    calls.append(entry.tape.index + self._shift)
                writes += [(position, value) for _, value in entry.writes]
        return CallGraph(
            verified.status,
            verified.reason,
            tuple([Guard(guard.what, guard.answer, guard.source) for guard in verified.template.guards]),
            number,
            tuple(results),
            tuple(sources),
            tuple(calls),
            tuple(writes),
        )


class GraphsSoFar(LazyGraphs):
    """The graphs of an unfinished run, each from its tape: nothing is run again to verify one."""

    def __init__(self, model: nn.Module, tape: Tape, values: ValueTable) -> None:
        super().__init__(model, [], tape, values, 0)
        self._counts = {index: len(each.entries) for index, each in tape.call_tapes.items()}  # it goes on meanwhile

    def _verify(self) -> None:
        for index, count in self._counts.items():
            tape = self._tape.call_tapes[index]
            if tape.unobserved is not None:
                self._verified[index] = VerifiedCall(tape, OPAQUE, tape.unobserved)
                continue
            template, tensor_ids = template_of_tape(tape, self._values, count)
            reason = tape.untraceable or reasons.GOES_ON_STILL()
            self._verified[index] = VerifiedCall(tape, RECORDED, reason, template, tensor_ids)
