"""The graph of a call as plain data, and how far it can be trusted.

A :class:`Graph` is shared by all calls that ran the same operations; a :class:`CallGraph` ties one call to its graph
and has the values of the graph's nodes in this call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from fxdebug.brief import brief
from fxdebug.data.values import Group, Item, Thing, Value

Status: TypeAlias = Literal["verified", "recorded", "opaque"]  # from the most to the least trustworthy
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


Operand: TypeAlias = Item | Ref


@brief
@dataclass(frozen=True, slots=True)
class Op:
    """One node of a graph, in torch.fx's terms.

    ``kind`` is ``placeholder``, ``get_attr``, ``call_function``, ``call_method``, ``call_module`` or
    ``output``. ``target`` is the function's name, the method, the attribute or the child's path relative
    to the module. ``op`` is the short name for searches. ``grad`` and ``autocast`` are the state it ran in.
    """

    name: str
    kind: NodeKind
    op: str
    target: str
    args: tuple[Operand, ...] = ()
    kwargs: Mapping[str, Operand] = field(default_factory=dict)
    grad: bool = True
    autocast: str | None = None


@brief
@dataclass(frozen=True, slots=True)
class Guard:
    """An assumption of a graph: a question that the code asked, its answer, and the line that asked."""

    what: str
    answer: str
    source: str | None = None

    def __str__(self) -> str:
        return f"{self.what} is {self.answer}" + (f" ({self.source})" if self.source else "")


@brief
@dataclass(frozen=True, slots=True)
class Graph:
    """The operations of a call in execution order, and their text as a Python function."""

    ops: tuple[Op, ...]
    code: str = ""

    def __len__(self) -> int:
        return len(self.ops)


@brief
@dataclass(frozen=True, slots=True)
class CallGraph:
    """The graph of one call: how far it can be trusted, and the values of its nodes.

    ``status`` is ``verified`` (traced symbolically and matched with the run), ``recorded`` (the operations that ran,
    with the constants of this run) or ``opaque`` (nothing inside can be seen); ``reason`` says why it is not better.
    ``guards`` are the assumptions of a verified graph.

    ``graph`` is an index into ``Trace.graphs``. ``results`` are the results of the graph's nodes in this call and
    ``sources`` the source lines they come from, both in the graph's order. ``calls`` are the indices in the trace of
    the calls behind the ``call_module`` nodes, in order. ``writes`` has a pair (position of the node, value) for each
    tensor that a node wrote to and that existed before it.
    """

    status: Status
    reason: str = ""
    guards: tuple[Guard, ...] = ()
    graph: int | None = None
    results: tuple[Item, ...] = ()
    sources: tuple[str | None, ...] = ()
    calls: tuple[int, ...] = ()
    writes: tuple[tuple[int, Value], ...] = ()


@brief
@dataclass(frozen=True, slots=True)
class RunGraphs:
    """The distinct graphs of a run, and the graph of each call in the trace's order."""

    graphs: tuple[Graph, ...] = ()
    bodies: tuple[CallGraph, ...] = ()


def refs_in(operand: Any) -> list[tuple[str, str]]:
    """Return every reference to a node inside an operand, with its place in it: ``("[1]", "linear")``."""
    references: list[tuple[str, str]] = []
    pending: list[tuple[str, Any]] = [("", operand)]
    while pending:
        place, item = pending.pop()
        if isinstance(item, Ref):
            references.append((place, item.node))
        elif isinstance(item, Group):
            keys = item.keys if item.keys is not None else range(len(item.items))
            pending.extend(reversed([(f"{place}[{key}]", inner) for key, inner in zip(keys, item.items)]))
    return references


def text_of(operand: Operand) -> str:
    """Return an operand as Python writes it: a node's name, a number, a list of these.

    >>> text_of(Group("sequence", "tuple", (Ref("size"), -1, Group("sequence", "slice", (None, 8, None)))))
    '(size, -1, :8)'
    """
    pieces: list[str] = []
    pending: list[Operand] = [operand]  # a reference stands for any text; there is no recursion, as groups nest deep
    while pending:
        item = pending.pop()
        if isinstance(item, Ref):
            pieces.append(item.node)
        elif isinstance(item, Thing):
            pieces.append(item.text)
        elif isinstance(item, Group):
            pending.extend(reversed(_written_out(item)))
        else:
            pieces.append(repr(item))
    return "".join(pieces)


def arguments_text(args: Sequence[Operand], kwargs: Mapping[str, Operand]) -> str:
    """Return the arguments of a call as Python writes them.

    >>> arguments_text((Ref("x"), 2), {"dim": -1})
    'x, 2, dim=-1'
    """
    return ", ".join([text_of(arg) for arg in args] + [f"{key}={text_of(arg)}" for key, arg in kwargs.items()])


def _written_out(group: Group) -> list[Operand]:
    """Return the items of a group in order, with the texts around them."""
    items: list[Operand] = list(group.items)
    heads = [", "] * len(items)
    left, right = ("[", "]") if group.type == "list" else ("(", ")")
    if group.kind == "mapping":
        heads = [f", {key!r}: " for key in group.keys or ()]
        left, right = "{", "}"
    elif group.type == "slice":
        items = [Ref("") if item is None else item for item in (items[:2] if items[2:] == [None] else items)]
        heads = [":"] * len(items)
        left = right = ""
    elif group.type not in ("list", "tuple"):
        left = f"{group.type}("
    if heads:
        heads[0] = heads[0].lstrip(",: ")
    return [Ref(left), *[part for head, item in zip(heads, items) for part in (Ref(head), item)], Ref(right)]
