"""Build the steps of a trace: operations from its graphs, or pieces of code where no graph was recorded.

A run with ``graph=False``, a trace read from transformers' debug tree and an opaque call have calls only. If such a
call hands an inner call a value that no call returned, its own code made that value from the values at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from fxdebug.comparison.constants import is_relu_clamp
from fxdebug.comparison.steps import Step, StepInput, StepList
from fxdebug.comparison.thresholds import MANY
from fxdebug.comparison.tolerance import same_numbers
from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op, Ref, text_of
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, Value, leaves
from fxdebug.operators.names import (
    CONVOLUTIONS,
    REORDERING,
    TRANSPARENT,
    canonical,
    convolution_arguments,
    family,
    normalized_constant,
    op_of_module,
)
from fxdebug.query.network import Network, Node, network_of

SQUARED = normalized_constant("2")  # the exponent


def steps_of(trace: TraceData, *, graphs: bool = True) -> StepList:
    """Return the steps of a trace, in execution order; without ``graphs`` from its calls alone."""
    run = StepList(trace, graphs and trace.call_graphs is not None)
    run.values = {value.number: value for value in trace.values}
    net = network_of(trace)
    positioned = _operations(run, net) if run.graphs else []
    for call in trace.calls:
        if run.graphs and net.steps(call):
            continue
        for piece in unrecorded_steps(net, call):
            given = tuple([StepInput(slot, value) for slot, value in piece.inputs])
            name = op_of_module(call.type)
            positioned.append((piece.position, Step(0, piece.node, name, given, piece.outputs, unrecorded=True)))
    for _, step in sorted(positioned, key=lambda pair: pair[0]):
        _add(run, step)
    return run


def _operations(run: StepList, net: Network) -> list[tuple[float, Step]]:
    """Return the operations of all graphs, each with its position."""
    made_by: dict[str, list[Value]] = {}
    for number, id in net.producer_of.items():
        if number in run.values:
            made_by.setdefault(id, []).append(run.values[number])
    positioned: list[tuple[float, Step]] = []
    results: dict[int, dict[str, Item]] = {}  # by call
    for node in net.nodes.values():
        if node.kind in ("call_function", "call_method"):
            inputs = _inputs(run, net, node)
            made = tuple(made_by.get(node.id, ()))
            name = "linear" if _is_pointwise_convolution(node.op, inputs) else canonical(node.op)
            step = Step(0, node, name, inputs, made)
            if node.step is not None:
                index = node.call.index
                if index not in results:
                    results[index] = _results(net, node.call)
                step.constants = tuple(_constants(node.step, results[index]))
                if canonical(node.op) in CONVOLUTIONS:
                    step.constants = convolution_arguments(step.constants)
                if name in ("clamp", "clamp_min") and len(inputs) == 1 and is_relu_clamp(step.constants):
                    step.name = "relu"
                if name != canonical(node.op) and _keeps_positions(inputs, made):
                    step.constants = ()  # with a kernel of size 1, stride and padding changed nothing
                _write_square_as_power(step)
                if name == "scaled_dot_product_attention" and inputs:
                    usual = inputs[0].value.shape[-1] ** -0.5
                    step.constants = tuple([text for text in step.constants if not _is_scale(text, usual)])
            positioned.append((node.position, step))
    return positioned


def _write_square_as_power(step: Step) -> None:
    """Write ``x * x`` and ``square(x)`` as ``x ** 2``."""
    same = len(step.inputs) == 2 and step.inputs[0].value.number == step.inputs[1].value.number
    if step.name == "mul" and same and not step.constants and not any(given.memory for given in step.inputs):
        step.name, step.inputs, step.constants = "pow", step.inputs[:1], (SQUARED,)
    elif step.name == "pow" and len(step.inputs) == 1 and not step.constants:
        step.constants = (SQUARED,)


def _is_scale(text: str, usual: float) -> bool:
    """Is it the scale that an attention has by default, however it was computed?"""
    name, _, number = text.partition("=")
    try:
        return name == "scale" and math.isclose(float(number), usual, rel_tol=1e-6)
    except ValueError:
        return False


def _is_pointwise_convolution(op: str, inputs: tuple[StepInput, ...]) -> bool:
    """Is it a convolution with a kernel of size 1? It is a product with weights, whatever the layout of channels."""
    kernels = [given.value.shape for given in inputs if given.is_weight and len(given.value.shape) > 2]
    data = [given.value.shape for given in inputs if not given.is_weight]
    if canonical(op) not in CONVOLUTIONS or len(kernels) != 1 or len(data) != 1:
        return False
    return math.prod(kernels[0][2:]) == 1 and data[0][1 - len(kernels[0])] == kernels[0][1]  # without groups


def _keeps_positions(inputs: tuple[StepInput, ...], made: tuple[Value, ...]) -> bool:
    """Has the result the spatial size of the input, so that stride and padding changed nothing?"""
    data = next(given.value for given in inputs if not given.is_weight)
    return len(made) == 1 and made[0].shape[2:] == data.shape[2:]


def _add(run: StepList, step: Step) -> None:
    step.index = len(run.steps)
    if family(step.name) == "product":  # its weights may be transposed before they are used
        step.inputs = tuple([_untransposed(run, given) for given in step.inputs])
    if not step.unrecorded:
        step.passed_through = tuple([value for value in step.node.values if value not in step.outputs])
    source = _passed_on_unchanged(step)
    if source is not None:
        step.transparent = True
        run.view_of[step.outputs[0].number] = run.view_of.get(source.number, source.number)
    run.steps.append(step)
    run.by_node.setdefault(step.node.id, step)
    run.by_call.setdefault(step.call.index, []).append(step)
    for value in step.outputs:
        run.makers.setdefault(value.number, step)
    for given in step.inputs:
        users = run.users.setdefault(run.root(given.value).number, [])
        if not users or users[-1] is not step:
            users.append(step)


def _untransposed(run: StepList, given: StepInput) -> StepInput:
    """Return an input with the weight itself in place of a view of it (transposed, as in ``linear``)."""
    root = run.root(given.value)
    viewed = root.name is not None and root.dtype == given.value.dtype and not given.memory
    return given._replace(value=root) if viewed and given.value.name is None else given


def _passed_on_unchanged(step: Step) -> Value | None:
    """Return the input whose elements a step passes on unchanged; ``None`` where it changes them."""
    given = [given.value for given in step.data if given.value.numel and not given.memory]
    given = given or [given.value for given in step.weights]
    if len(step.outputs) != 1 or not given or given[0].numel != step.outputs[0].numel:
        return None
    if step.name in TRANSPARENT:
        return given[0]
    # other operations may have no effect on these numbers: ``cat`` with nothing, times one, a clamp that cuts nothing
    reorders = step.name in REORDERING and (step.name != "getitem" or any("[" in text for text in step.constants))
    reorders = reorders and not _rolls_by_nothing(step)
    further = [value for value in given[1:] if step.name != "add" or not _all_zero(value)]
    one, other = given[0].stats, step.outputs[0].stats
    alone = not further and not reorders and given[0].dtype == step.outputs[0].dtype
    return given[0] if alone and one is not None and one.std and same_numbers(one, other) else None


def _rolls_by_nothing(step: Step) -> bool:
    """Does it move nothing, as in the layers of a model of windows that are not shifted?"""
    shifts = next(iter(step.constants), "").rpartition("=")[2].strip("()[]").replace(" ", "")
    return step.name == "roll" and bool(shifts) and all(each in ("0", "0.0", "") for each in shifts.split(","))


def _all_zero(value: Value) -> bool:
    return value.stats is not None and value.stats.zeros == value.stats.count


def _inputs(run: StepList, net: Network, node: Node) -> tuple[StepInput, ...]:
    """Return the tensors that an operation is given; each is followed by what was written into its memory since."""
    inputs: list[StepInput] = []
    for edge in net.into.get(node.id, ()):
        value = edge.value
        if edge.kind == "memory":
            written = [v for v in _written_values(net, edge.source) if value is None or v.storage == value.storage]
            inputs += [StepInput(edge.argument, v, True) for v in written[:1]]
        elif value is not None and value.number in run.values:
            inputs.append(StepInput(edge.argument, value))
    return tuple(inputs)


def _written_values(net: Network, id: str) -> list[Value]:
    """Return the values that an operation wrote; its results where it wrote none, and those of a call."""
    return net.written.get(id) or list(net.nodes[id].values)


def _results(net: Network, call: Call) -> dict[str, Item]:
    """Return the results of the nodes of a call's graph, by name."""
    body = net.bodies[call.index]
    return {} if body is None else {step.name: item for step, item in zip(net.steps(call), body.results)}


def _constants(step: Op, results: dict[str, Item]) -> Iterator[str]:
    """Yield the non-tensor arguments of an operation as text; a computed size as its number."""
    for name, operand in [*((None, arg) for arg in step.args), *step.kwargs.items()]:
        plain = _resolved(operand, results)
        if isinstance(plain, Thing) and plain.type == "tensor":
            continue
        if isinstance(plain, Group) and any(True for _ in leaves(plain)):
            continue
        text = normalized_constant(text_of(plain))
        yield text if name is None else f"{name}={text}"


_TENSOR = Thing("tensor", "•")


def _resolved(operand: Any, results: dict[str, Item]) -> Any:
    """Return an operand with references replaced by their results, and tensors by a mark."""
    if isinstance(operand, Ref):
        return _resolved(results.get(operand.node), {})
    if isinstance(operand, Value):
        return _TENSOR
    if isinstance(operand, Group):
        return replace(operand, items=tuple([_resolved(item, results) for item in operand.items]), text=None)
    return operand


class UnrecordedStep(NamedTuple):
    """A piece of a call's code without recorded operations: its position, the values it may read, those it made."""

    position: float  # in the order of nodes
    node: Node
    inputs: tuple[tuple[str, Value], ...]
    outputs: tuple[Value, ...]


def unrecorded_steps(net: Network, call: Call) -> Iterator[UnrecordedStep]:
    """Yield a step for the values that a call without a graph makes before each inner call, then for its results."""
    node = net.nodes[net.call_id(call)]
    at_hand: list[tuple[str, Value]] = list(call.inputs.named())
    known = {value.number for _, value in at_hand}
    for child in call.children:
        new = [value for value in child.inputs if value.number not in known and value.name is None]
        new = list({value.number: value for value in new}.values())
        name = child.path[len(call.path) :].lstrip(".")
        if new:
            yield UnrecordedStep(net.first_position[child.index] - 0.5, node, tuple(at_hand[-MANY:]), tuple(new))
            at_hand += [(f"{name}({i})", value) for i, value in enumerate(new)]
        at_hand += [(f"{name}{slot}", value) for slot, value in (child.outputs.named() if child.outputs else ())]
        known.update(value.number for _, value in at_hand)
    own = {value.number: value for value in node.values if value.number not in known}
    yield UnrecordedStep(node.position, node, tuple(at_hand[-MANY:]), tuple(own.values()))
