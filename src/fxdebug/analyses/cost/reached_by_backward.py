"""The operations that a backward pass from the run's result goes through, by the tensors that they made."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.graphs import Op, Operand, Ref
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, Value, leaves
from fxdebug.operators.names import canonical


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a call with its operands in place of references; ``new`` are the numbers of its new values."""

    op: Op
    args: tuple[Item, ...]
    kwargs: Mapping[str, Item]
    result: Item
    operands: frozenset[int]
    new: frozenset[int]


GRADIENT_CHANGED = "requires_grad changed outside the recorded operations"  # as the reason of a call has it
Steps: TypeAlias = Sequence[Step]


def steps_of(call: Call) -> list[Step] | None:
    """Return the functions and methods that a call's own graph has, in order; ``None`` where it has no graph."""
    body, graph = call.body, call.graph
    if body is None or graph is None:
        return None
    results: dict[str, Item] = {}
    written: dict[int, list[int]] = {}
    for position, value in body.writes:
        written.setdefault(position, []).append(value.number)
    steps = []
    for position, (op, result) in enumerate(zip(graph.ops, body.results, strict=True)):
        results[op.name] = _without_many_numbers(result)
        if op.kind not in ("call_function", "call_method"):
            continue
        args = tuple([_resolved(arg, results) for arg in op.args])
        kwargs = {name: _resolved(arg, results) for name, arg in op.kwargs.items()}
        operands = frozenset(v.number for item in (*args, *kwargs.values()) for _, v in leaves(item))
        made = {value.number for _, value in leaves(result)}.union(written.get(position, ()))
        steps.append(Step(op, args, kwargs, result, operands, frozenset(made - operands)))
    return steps


MANY = 1000  # items; each part of a longer list that is taken would go through all of it


def _without_many_numbers(result: Item) -> Item:
    """Return a result as an operand; a long list without tensors, such as that of ``tolist``, as its type."""
    if isinstance(result, Group) and len(result.items) >= MANY and not any(leaves(result)):
        return Thing(result.type, f"<{result.type}>")
    return result


def _resolved(operand: Operand, results: Mapping[str, Item]) -> Item:
    if isinstance(operand, Ref):
        return results.get(operand.node)
    if isinstance(operand, Group):
        return Group(operand.kind, operand.type, tuple([_resolved(x, results) for x in operand.items]), operand.keys)
    return operand


def reached_by_backward(trace: TraceData, steps: Sequence[Steps | None]) -> set[int] | None:
    """Return the numbers of the values that the run's result depends on; ``None`` where this is unknown.

    No backward goes through a detached tensor, a comparison, or indices. Inside of a ``torch.autograd.Function`` no
    tensor has a gradient, and so all of them lead on.

    An operation that only selects from its operands makes no new value, so a tensor that is returned in a tuple and
    never used is not reached through the others. ``None``: the run raised, or a tensor on the way was made by nothing
    that the trace has.
    """
    if trace.root.outputs is None:
        return None
    makers: dict[int, set[int]] = {}
    writes = _writes(trace)
    for call, own in zip(trace.calls, steps, strict=True):
        if own is None:
            inputs = {value.number for value in call.inputs}
            for value in call.outputs or ():
                if value.number not in inputs:
                    makers.setdefault(value.number, set()).update(inputs)
        for step in own or ():
            if canonical(step.op.op) == "requires_grad":  # a gradient begins here
                makers.update({number: set() for number in step.new})
                continue
            operands = step.operands.union(*[_written_since(trace.values[n], step, writes) for n in step.operands])
            for number in step.new:
                makers.setdefault(number, set()).update(operands)
    made_with = _made_in_the_same_memory(trace.values, makers)
    given = {value.number for value in trace.root.inputs}
    concealed = concealed_gradients(trace, steps)
    pending = [value.number for value in trace.root.outputs if value.requires_grad or value.number in concealed]
    reached = set(pending)
    while pending:
        number = pending.pop()
        value = trace.values[number]
        sources = makers.get(number)
        if sources is None and value.requires_grad and value.name is None and number not in given:
            sources = made_with.get(value.storage)  # a view of it was written to
            if sources is None:
                return None
        differentiable: set[int] = set()
        if value.requires_grad or number in concealed:
            differentiable = {n for n in sources or () if trace.values[n].requires_grad or n in concealed}
        fresh = (differentiable or sources or set()) - reached
        reached |= fresh
        pending.extend(fresh)
    return reached


def concealed_gradients(trace: TraceData, steps: Sequence[Steps | None]) -> set[int]:
    """Return values that may have a gradient though they were noted without one: in a function of autograd.

    What such a function returns was noted when it was made, inside, where gradients are off. That there was one is
    known of the call around it. Values of a ``torch.no_grad`` in the same call cannot be told from them.
    """
    found: set[int] = set()
    around: set[int] = set()
    for call, own in zip(trace.calls, steps, strict=True):
        if GRADIENT_CHANGED in call.reason or call.parent_index in around:
            around.add(call.index)
            found.update(*[step.new for step in own or () if not step.op.grad])
    return found


def _writes(trace: TraceData) -> dict[int, list[int]]:
    """Return the values that operations wrote into memory of an earlier one, by the number of this memory, in order."""
    writes: dict[int, list[int]] = {}
    for call in trace.calls:
        for _, value in () if call.body is None else call.body.writes:
            if value.storage is not None:
                writes.setdefault(value.storage, []).append(value.number)
    return {storage: sorted(numbers) for storage, numbers in writes.items()}


def _written_since(operand: Value, step: Step, writes: Mapping[int, list[int]]) -> list[int]:
    """Return the last value written into an operand's memory before a step: code still names the operand as before.

    Values are numbered in the order in which they appear.
    """
    numbers = writes.get(operand.storage) if operand.storage is not None and step.new else None
    if not numbers:
        return []
    position = bisect_left(numbers, min(step.new)) - 1
    return [numbers[position]] if position >= 0 and numbers[position] > operand.number else []


def _made_in_the_same_memory(values: Sequence[Value], makers: Mapping[int, set[int]]) -> dict[int | None, set[int]]:
    """Return the values that operations made, by the number of their memory."""
    made: dict[int | None, set[int]] = {}
    for number in makers:
        storage = values[number].storage
        if storage is not None:
            made.setdefault(storage, set()).add(number)
    return made
