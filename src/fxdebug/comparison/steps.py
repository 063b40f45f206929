"""The steps of a run, as a comparison sees them: its operations, and its calls whose operations were not recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fxdebug.brief import brief
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.names import BIAS_FIRST, family
from fxdebug.query.network import Node


class StepInput(NamedTuple):
    """A tensor that a step is given. ``memory``: the content that a later write left in its memory."""

    argument: str
    value: Value
    memory: bool = False

    @property
    def is_weight(self) -> bool:
        """Is it a parameter or buffer of the model?"""
        return self.value.name is not None


@dataclass(eq=False, slots=True)
class Step:
    """An operation of a run, or a piece of a call's code whose operations were not recorded.

    ``transparent`` steps pass on all elements as they are: views, copies, casts. An ``unrecorded`` step is given
    all that the code had at hand there, so an input without a partner says nothing.
    """

    index: int
    node: Node
    name: str  # as :func:`~fxdebug.operators.names.canonical` has it
    inputs: tuple[StepInput, ...]
    outputs: tuple[Value, ...]  # the results it made
    constants: tuple[str, ...] = ()
    transparent: bool = False
    unrecorded: bool = False
    passed_through: tuple[Value, ...] = ()  # its results that another step made

    @property
    def call(self) -> Call:
        """The call that ran it."""
        return self.node.call

    @property
    def op(self) -> str:
        """Its name as the trace has it."""
        return self.node.op

    @property
    def results(self) -> tuple[Value, ...]:
        """The results, whichever step made them."""
        return self.outputs or self.passed_through

    @property
    def data(self) -> tuple[StepInput, ...]:
        """Its inputs without weights."""
        return tuple([given for given in self.inputs if not given.is_weight])

    @property
    def weights(self) -> tuple[StepInput, ...]:
        """The parameters and buffers it is given."""
        return tuple([given for given in self.inputs if given.is_weight])

    def __repr__(self) -> str:
        return f"<step {self.index} {self.node.id} {self.name}>"


def interchangeable(a: Step, b: Step) -> bool:
    """May two steps be counterparts? Products with weights, of two values, and with an added operand are distinct.

    So are results of complex and of real numbers, and an item of several results and a part of a tensor.
    """
    if bool(a.passed_through) != bool(b.passed_through):
        return False
    if any(x.dtype.startswith("complex") != y.dtype.startswith("complex") for x, y in zip(a.outputs, b.outputs)):
        return False
    adding = (a.name in BIAS_FIRST) == (b.name in BIAS_FIRST)
    return family(a.name) == family(b.name) and bool(a.weights) == bool(b.weights) and adding


@brief
@dataclass(eq=False)
class StepList:
    """A side of a comparison: a trace with its steps in execution order, their makers and users."""

    trace: TraceData
    graphs: bool = True  # are its operations compared, or only its calls?
    steps: list[Step] = field(default_factory=list)
    makers: dict[int, Step] = field(default_factory=dict)  # a value's number → the step that made it
    users: dict[int, list[Step]] = field(default_factory=dict)  # the number of a value's root → the steps that use it
    view_of: dict[int, int] = field(default_factory=dict)  # a view's number → its root's
    values: dict[int, Value] = field(default_factory=dict)
    by_call: dict[int, list[Step]] = field(default_factory=dict)  # a call's index → the steps of its own body
    by_node: dict[str, Step] = field(default_factory=dict)  # a node's id → its step
    renamed_paths: dict[str, str] = field(default_factory=dict)  # this side's paths → those of the other side

    def root(self, value: Value) -> Value:
        """Return the value that this one is a view or a copy of; itself where it is neither."""
        return self.values[self.view_of.get(value.number, value.number)]

    def is_input(self, value: Value) -> bool:
        """Was the model given it, or is it a view of what the model was given?"""
        root = self.root(value).number
        return any(self.root(given).number == root for given in self.trace.root.inputs)

    def maker(self, value: Value) -> Step | None:
        """Return the step that computed a value, behind all views and copies; ``None`` for inputs and weights."""
        return self.makers.get(self.root(value).number)

    def path(self, call: Call) -> str:
        """Return the path to look for on the other side."""
        return self.renamed_paths.get(call.path, call.path)
