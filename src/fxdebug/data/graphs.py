"""What the body of a call did: its graph as plain data, and how far it can be trusted.

A :class:`Graph` is shared by all calls that did the same; a :class:`Body` ties one call to its graph
and has the values that its nodes had in this call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.data.values import Group, Item, Thing, Value

Status: TypeAlias = Literal["verified", "recorded", "opaque"]  # how far a graph can be trusted, the most first
NodeKind: TypeAlias = Literal["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"]

STATUSES: tuple[Status, ...] = get_args(Status)
NODE_KINDS: tuple[NodeKind, ...] = get_args(NodeKind)
VERIFIED: Final = "verified"
RECORDED: Final = "recorded"
OPAQUE: Final = "opaque"


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of another node of the same graph."""

    node: str


Operand: TypeAlias = "Item | Ref"


@dataclass(frozen=True, slots=True)
class Op:
    """One node of a graph, in torch.fx's terms.

    ``kind`` is ``placeholder``, ``get_attr``, ``call_function``, ``call_method``, ``call_module`` or
    ``output``. ``target`` is the function's name, the method, the attribute or the child's path relative
    to the module. ``op`` is the short name people search for. ``grad`` and ``autocast`` are the state it
    ran in, ``source`` the user's line.
    """

    name: str
    kind: NodeKind
    op: str
    target: str
    args: tuple[Operand, ...] = ()
    kwargs: Mapping[str, Operand] = field(default_factory=dict)
    grad: bool = True
    autocast: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """An assumption the graph rests on: what was asked, what the answer was, and in which line."""

    what: str
    answer: str
    source: str | None = None

    def __str__(self) -> str:
        return f"{self.what} is {self.answer}" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True, slots=True)
class Graph:
    """The operations of a body in execution order, and the text of the Python function they make."""

    ops: tuple[Op, ...]
    code: str = ""

    def __len__(self) -> int:
        return len(self.ops)


@dataclass(frozen=True, slots=True)
class CallGraph:
    """What one call did.

    ``status`` is ``verified`` (traced symbolically and matched with what ran), ``recorded`` (what ran,
    with the constants of this run) or ``opaque`` (nothing inside can be seen); ``reason`` says why not
    more. ``guards`` are the assumptions. ``graph`` indexes ``Trace.graphs``. ``results`` has what each node
    of the graph gave in this call, ``sources`` the line it was asked for in, both in the graph's order.
    ``calls`` are the trace's indices of the calls that its ``call_module`` nodes are, in order; ``writes``
    pairs of (position of a node, value) say which nodes wrote to memory that was there before.
    """

    status: Status
    reason: str = ""
    guards: tuple[Guard, ...] = ()
    graph: int | None = None
    results: tuple[Item, ...] = ()
    sources: tuple[str | None, ...] = ()
    calls: tuple[int, ...] = ()
    writes: tuple[tuple[int, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class RunGraphs:
    """The graphs of a run, and for each call (in the trace's order) which of them it is."""

    graphs: tuple[Graph, ...] = ()
    bodies: tuple[CallGraph, ...] = ()


def refs_in(operand: Any) -> list[tuple[str, str]]:
    """Every reference to a node below an operand, with the place it stands in: ``("[1]", "linear")``."""
    found: list[tuple[str, str]] = []
    pending: list[tuple[str, Any]] = [("", operand)]
    while pending:
        place, item = pending.pop()
        if isinstance(item, Ref):
            found.append((place, item.node))
        elif isinstance(item, Group):
            keys = item.keys if item.keys is not None else range(len(item.items))
            pending.extend(reversed([(f"{place}[{key}]", inner) for key, inner in zip(keys, item.items)]))
    return found


def text_of(operand: Operand) -> str:
    """An operand as people read it: a node's name, a number, a list of those.

    >>> text_of(Group("sequence", "tuple", (Ref("size"), -1, Group("sequence", "slice", (None, 8, None)))))
    '(size, -1, :8)'
    """
    if isinstance(operand, Ref):
        return operand.node
    if isinstance(operand, Thing):
        return operand.text
    if isinstance(operand, Group):
        if operand.kind == "mapping":
            keys = operand.keys or ()
            return "{" + ", ".join(f"{key!r}: {text_of(item)}" for key, item in zip(keys, operand.items)) + "}"
        if operand.type == "slice":
            start, stop, step = ("" if item is None else text_of(item) for item in operand.items)
            return f"{start}:{stop}" + (f":{step}" if step else "")
        inside = ", ".join(map(text_of, operand.items))
        left, right = ("[", "]") if operand.type == "list" else ("(", ")")
        return f"{'' if operand.type in ('list', 'tuple') else operand.type}{left}{inside}{right}"
    return repr(operand)
