"""The code of a call whose operations were not recorded: what it does between the calls that it makes.

A run with ``graph=False``, a trace read from the reference's files and what is opaque have calls only. A value that
a call is given and that nobody returned was made by the code around it, of what that had at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fxdebug.comparison.constants import zero_below
from fxdebug.comparison.tolerance import same_numbers
from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op, Ref, text_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, Value, leaves
from fxdebug.operators.names import (
    ADDING,
    CONVOLUTIONS,
    REORDERING,
    TRANSPARENT,
    called,
    canonical,
    convolved,
    family,
    shorter,
)
from fxdebug.query import network
from fxdebug.query.network import Node


class StepInput(NamedTuple):
    """A tensor that a step is given. ``memory``: not as it was made, but as another step left it."""

    argument: str
    value: Value
    memory: bool = False

    @property
    def weight(self) -> bool:
        """Is it a parameter or buffer of the model?"""
        return self.value.name is not None


@dataclass(eq=False, slots=True)
class Step:
    """One operation of a run, or one call whose inside is unknown."""

    index: int
    node: Node
    name: str  # as :func:`~fxdebug.comparison.opnames.canonical` has it
    inputs: tuple[StepInput, ...]
    outputs: tuple[Value, ...]  # those it made
    constants: tuple[str, ...] = ()
    transparent: bool = False
    loose: bool = False  # a piece of a call's code: what it is given is all that it had at hand
    passed: tuple[Value, ...] = ()  # its results that somebody else made

    @property
    def call(self) -> Call:
        """The call in whose body it is."""
        return self.node.call

    @property
    def op(self) -> str:
        """Its name as the trace has it."""
        return self.node.op

    @property
    def results(self) -> tuple[Value, ...]:
        """What came out, whoever made it."""
        return self.outputs or self.passed

    @property
    def data(self) -> tuple[StepInput, ...]:
        """What it is given, without weights."""
        return tuple([given for given in self.inputs if not given.weight])

    @property
    def weights(self) -> tuple[StepInput, ...]:
        """The parameters and buffers it is given."""
        return tuple([given for given in self.inputs if given.weight])

    def __repr__(self) -> str:
        return f"<step {self.index} {self.node.id} {self.name}>"


def kindred(a: Step, b: Step) -> bool:
    """May one stand for the other? A product with weights is not one of two values, nor one to which more is added."""
    adding = (a.name in ADDING) == (b.name in ADDING)
    return family(a.name) == family(b.name) and bool(a.weights) == bool(b.weights) and adding


@dataclass(eq=False)
class StepList:
    """One side of a comparison: a trace with its steps and who made and used which value."""

    trace: TraceData
    graphs: bool = True  # are its operations looked at, or its calls alone?
    steps: list[Step] = field(default_factory=list)
    made: dict[int, Step] = field(default_factory=dict)  # a value's number → the step that made it
    users: dict[int, list[Step]] = field(default_factory=dict)  # a value's number, as `same` has it → who uses it
    same: dict[int, int] = field(default_factory=dict)  # a value's number → of the one that it is another view of
    values: dict[int, Value] = field(default_factory=dict)
    inside: dict[int, list[Step]] = field(default_factory=dict)  # a call's index → the steps of its own body
    at: dict[str, Step] = field(default_factory=dict)  # a node's id → its step
    renamed: dict[str, str] = field(default_factory=dict)  # paths as the other side has them

    def root(self, value: Value) -> Value:
        """The value that this one is another view or another copy of."""
        return self.values[self.same.get(value.number, value.number)]

    def path(self, call: Call) -> str:
        """The path to look for on the other side."""
        return self.renamed.get(call.path, call.path)


def steps_of(trace: TraceData, *, graphs: bool = True) -> StepList:
    """The steps of a trace, in execution order. Without ``graphs`` its calls are all that is looked at."""
    run = StepList(trace, graphs and trace.call_graphs is not None)
    run.values = {value.number: value for value in trace.values}
    net = network.network_of(trace)
    found = _operations(run, net) if run.graphs else []
    for call in trace.calls:
        if run.graphs and net.steps(call):
            continue
        for piece in glue(net, call):
            given = tuple([StepInput(slot, value) for slot, value in piece.given])
            name = called(call.type)
            found.append((piece.position, Step(0, piece.node, name, given, piece.made, loose=True)))
    for _, step in sorted(found, key=lambda pair: pair[0]):
        _add(run, step)
    return run


def _operations(run: StepList, net: Any) -> list[tuple[float, Step]]:
    """The operations of all graphs, each with its position."""
    made_by: dict[str, list[Value]] = {}
    for number, id in net.producer_of.items():
        if number in run.values:
            made_by.setdefault(id, []).append(run.values[number])
    found: list[tuple[float, Step]] = []
    results: dict[int, dict[str, Item]] = {}  # by call
    for node in net.nodes.values():
        if node.kind in ("call_function", "call_method"):
            inputs = _inputs(run, net, node)
            made = tuple(made_by.get(node.id, ()))
            name = "linear" if _pointwise(node.op, inputs) else canonical(node.op)
            step = Step(0, node, name, inputs, made)
            if node.step is not None:
                index = node.call.index
                if index not in results:
                    results[index] = _results(net, node.call)
                step.constants = tuple(_constants(node.step, results[index]))
                if canonical(node.op) in CONVOLUTIONS:
                    step.constants = convolved(step.constants)
                if name in ("clamp", "clamp_min") and len(inputs) == 1 and zero_below(step.constants):
                    step.name = "relu"
                if name != canonical(node.op) and _same_places(inputs, made):
                    step.constants = ()  # how a kernel of one place moves
                if name == "scaled_dot_product_attention" and inputs:
                    usual = shorter(str(inputs[0].value.shape[-1] ** -0.5))  # as if it had not been given
                    step.constants = tuple([text for text in step.constants if text != f"scale={usual}"])
            found.append((node.position, step))
    return found


def _pointwise(op: str, inputs: tuple[StepInput, ...]) -> bool:
    """Is it a convolution whose kernel sees one place? Then it is a product with weights, wherever channels stand."""
    kernels = [given.value.shape for given in inputs if given.weight and len(given.value.shape) > 2]
    data = [given.value.shape for given in inputs if not given.weight]
    if canonical(op) not in CONVOLUTIONS or len(kernels) != 1 or len(data) != 1:
        return False
    return math.prod(kernels[0][2:]) == 1 and data[0][1 - len(kernels[0])] == kernels[0][1]  # not in groups


def _same_places(inputs: tuple[StepInput, ...], made: tuple[Value, ...]) -> bool:
    """Has what came out as many places as what went in, in neither strides nor margins?"""
    data = next(given.value for given in inputs if not given.weight)
    return len(made) == 1 and made[0].shape[2:] == data.shape[2:]


def _add(run: StepList, step: Step) -> None:
    step.index = len(run.steps)
    if family(step.name) == "product":  # with weights that are turned before they are used
        step.inputs = tuple([_unturned(run, given) for given in step.inputs])
    if not step.loose:
        step.passed = tuple([value for value in step.node.values if value not in step.outputs])
    source = _hands_on(step)
    if source is not None:
        step.transparent = True
        run.same[step.outputs[0].number] = run.same.get(source.number, source.number)
    run.steps.append(step)
    run.at.setdefault(step.node.id, step)
    run.inside.setdefault(step.call.index, []).append(step)
    for value in step.outputs:
        run.made.setdefault(value.number, step)
    for given in step.inputs:
        users = run.users.setdefault(run.root(given.value).number, [])
        if not users or users[-1] is not step:
            users.append(step)


def _unturned(run: StepList, given: StepInput) -> StepInput:
    """A weight, where it is a view of one."""
    root = run.root(given.value)
    viewed = root.name is not None and root.dtype == given.value.dtype and not given.memory
    return given._replace(value=root) if viewed and given.value.name is None else given


def _hands_on(step: Step) -> Value | None:
    """The value whose elements a step gives on, all of them and as they are."""
    given = [given.value for given in step.data if given.value.numel and not given.memory]
    given = given or [given.value for given in step.weights]
    if len(step.outputs) != 1 or not given or given[0].numel != step.outputs[0].numel:
        return None
    if step.name in TRANSPARENT:
        return given[0]
    # joined with nothing, times one, clamped where nothing was beyond: the numbers say that it did nothing
    reorders = step.name in REORDERING and (step.name != "getitem" or any("[" in text for text in step.constants))
    nothing = [value for value in given[1:] if step.name != "add" or not _all_zero(value)]
    one, other = given[0].stats, step.outputs[0].stats
    alone = not nothing and not reorders and given[0].dtype == step.outputs[0].dtype
    return given[0] if alone and one is not None and one.std and same_numbers(one, other) else None


def _all_zero(value: Value) -> bool:
    return value.stats is not None and value.stats.zeros == value.stats.count


def _inputs(run: StepList, net: Any, node: Node) -> tuple[StepInput, ...]:
    """The tensors of an operation in the order of its arguments, and what was written into their memory since."""
    found: list[StepInput] = []
    for edge in net.into.get(node.id, ()):
        value = edge.value
        if edge.kind == "memory":
            left = [v for v in _written(net, edge.source) if value is None or v.storage == value.storage]
            found += [StepInput(edge.argument, v, True) for v in left[:1]]
        elif value is not None and value.number in run.values:
            found.append(StepInput(edge.argument, value))
    return tuple(found)


def _written(net: Any, id: str) -> list[Value]:
    """What a node wrote; of a call, what the last step in it that wrote did."""
    node = net.nodes[id]
    body = net.bodies[node.call.index]
    if body is None or node.step is None:
        return list(node.values)
    place = next((i for i, step in enumerate(net.steps(node.call)) if step is node.step), -1)
    return [value for position, value in body.writes if position == place] or list(node.values)


def _results(net: Any, call: Call) -> dict[str, Item]:
    """The results of the nodes of a call's graph, by name."""
    body = net.bodies[call.index]
    return {} if body is None else {step.name: item for step, item in zip(net.steps(call), body.results)}


def _constants(step: Op, results: dict[str, Item]) -> Iterator[str]:
    """What an operation is given besides tensors, as text; sizes that were computed as the numbers they were."""
    for name, operand in [*((None, arg) for arg in step.args), *step.kwargs.items()]:
        plain = _plain(operand, results)
        if isinstance(plain, Thing) and plain.type == "tensor":
            continue
        if isinstance(plain, Group) and any(True for _ in leaves(plain)):
            continue
        text = shorter(text_of(plain))
        yield text if name is None else f"{name}={text}"


_TENSOR = Thing("tensor", "•")


def _plain(operand: Any, results: dict[str, Item]) -> Any:
    """An operand with references replaced by what they were."""
    if isinstance(operand, Ref):
        return _plain(results.get(operand.node), {})
    if isinstance(operand, Value):
        return _TENSOR
    if isinstance(operand, Group):
        return replace(operand, items=tuple([_plain(item, results) for item in operand.items]), text=None)
    return operand


MOST = 64  # values at hand that are looked at


class Glue(NamedTuple):
    """Something that the code of a call made: where in the order of nodes, of what, and what."""

    position: float
    node: Node
    given: tuple[tuple[str, Value], ...]
    made: tuple[Value, ...]


def glue(net: Any, call: Call) -> Iterator[Glue]:
    """Each thing that a call without a graph makes before one of its calls, and what it returns in the end."""
    node = net.nodes[net.call_id(call)]
    hand: list[tuple[str, Value]] = list(call.inputs.named())
    known = {value.number for _, value in hand}
    for child in call.children:
        made = [value for value in child.inputs if value.number not in known and value.name is None]
        made = list({value.number: value for value in made}.values())
        name = child.path[len(call.path) :].lstrip(".")
        if made:
            yield Glue(net.first_position[child.index] - 0.5, node, tuple(hand[-MOST:]), tuple(made))
            hand += [(f"{name}({i})", value) for i, value in enumerate(made)]
        hand += [(f"{name}{slot}", value) for slot, value in (child.outputs.named() if child.outputs else ())]
        known.update(value.number for _, value in hand)
    own = tuple([value for value in node.values if value.number not in known])
    yield Glue(node.position, node, tuple(hand[-MOST:]), tuple({value.number: value for value in own}.values()))
