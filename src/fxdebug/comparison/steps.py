"""The code of a call whose operations were not recorded: what it does between the calls that it makes.

A run with ``graph=False``, a trace read from the reference's files and what is opaque have calls only. A value that
a call is given and that nobody returned was made by the code around it, of what that had at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value
from fxdebug.operators.names import ADDING, family
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
    unrecorded: bool = False  # a piece of a call's code: what it is given is all that it had at hand
    passed_through: tuple[Value, ...] = ()  # its results that somebody else made

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
        return self.outputs or self.passed_through

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


def interchangeable(a: Step, b: Step) -> bool:
    """May one stand for the other? A product with weights is not one of two values, nor one to which more is added."""
    adding = (a.name in ADDING) == (b.name in ADDING)
    return family(a.name) == family(b.name) and bool(a.weights) == bool(b.weights) and adding


@dataclass(eq=False)
class StepList:
    """One side of a comparison: a trace with its steps and who made and used which value."""

    trace: TraceData
    graphs: bool = True  # are its operations looked at, or its calls alone?
    steps: list[Step] = field(default_factory=list)
    makers: dict[int, Step] = field(default_factory=dict)  # a value's number → the step that made it
    users: dict[int, list[Step]] = field(default_factory=dict)  # a value's number, as `same` has it → who uses it
    view_of: dict[int, int] = field(default_factory=dict)  # a value's number → of the one that it is another view of
    values: dict[int, Value] = field(default_factory=dict)
    by_call: dict[int, list[Step]] = field(default_factory=dict)  # a call's index → the steps of its own body
    by_node: dict[str, Step] = field(default_factory=dict)  # a node's id → its step
    renamed_paths: dict[str, str] = field(default_factory=dict)  # paths as the other side has them

    def root(self, value: Value) -> Value:
        """The value that this one is another view or another copy of."""
        return self.values[self.view_of.get(value.number, value.number)]

    def path(self, call: Call) -> str:
        """The path to look for on the other side."""
        return self.renamed_paths.get(call.path, call.path)
