"""A drawing of a run: calls as boxes in boxes, the steps between them, and arrows; data only.

The page's layout fills it, and so does ``build_drawing`` of the feature ``diagrams``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.graphs import STATUSES, Status
from fxdebug.data.values import Stats, Value, pooled
from fxdebug.query.folding import FoldedCalls, Row
from fxdebug.query.network import Node

StepKind: TypeAlias = Literal["op", "arranging", "call", "input", "output"]
NEXT_TURN = "to the next turn"  # what an arrow says that carries a value on
ArrowKind: TypeAlias = Literal["data", "memory", "order", "carried"]
# Operations that return the same elements in another arrangement.
REARRANGING = frozenset(
    (
        "view reshape transpose permute contiguous expand expand_as view_as unsqueeze squeeze flatten unflatten "
        "movedim swapaxes swapdims t T mT adjoint detach clone broadcast_to"
    ).split()
)


@dataclass
class Box:
    """A call that is drawn open, or calls that repeat in turn: a cluster with boxes and steps inside."""

    row: Row
    status: Status | None = None
    boxes: list[Box] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    @property
    def call(self) -> Call | None:
        """The first call that is drawn open; ``None`` for a group of calls that repeat in turn."""
        return self.row.first if isinstance(self.row, FoldedCalls) else None


# A step is no second model of an operation: it refers to the `Node` that it shows. It cannot be that node, because it
# stands for several: the same node in every repetition, a whole closed call, or a row of rearranging operations.
@dataclass
class Step:
    """One drawn node: an operation, a closed call, an input or an output; drawn once for repeated layers.

    ``kind`` is ``op``, ``arranging`` (an operation that only rearranges elements), ``call``, ``input`` or ``output``.
    ``node`` is the node of the first repetition and ``twins`` are the ids of the same node in all repetitions of its
    box; ``values`` are their first results. ``repeats`` counts how often a closed call is repeated where it stands.
    ``same_arguments`` is false where an argument of a repeated operation changes, such as the index of a loop.
    """

    id: str
    kind: StepKind
    node: Node
    title: str
    values: tuple[Value, ...]
    status: Status | None = None
    repeats: int = 1
    twins: tuple[str, ...] = ()
    same_arguments: bool = True
    merged: list[Node] = field(default_factory=list)  # rearranging operations that follow and are drawn with it

    @property
    def stats(self) -> Stats | None:
        """The statistics of its first result, pooled over the repetitions."""
        known = [value.stats for value in self.values if value.stats is not None]
        return pooled(known) if known else None

    @property
    def failed(self) -> bool:
        """Is it a call that raised?"""
        return self.kind == "call" and self.node.call.error is not None


@dataclass
class Arrow:
    """An arrow from one step to another.

    ``kind`` is ``data``; ``memory`` where the target reads memory or an object that the source wrote to; ``order``
    where the target only ran next and the source of its input is unknown; ``carried`` where a turn of a loop that is
    drawn once passes a value on to the next turn. ``shapes`` has, in order, all shapes that flow here in the
    repetitions.
    """

    source: str
    target: str
    value: Value | None
    kind: ArrowKind = "data"
    shapes: dict[tuple[int, ...], None] = field(default_factory=dict)


@dataclass
class Drawing:
    """Boxes, steps and arrows, by the ids of the drawn nodes. ``root`` is ``None`` where the root is closed.

    ``stands_for`` maps every node of the run that is represented to the drawn node that represents it.
    """

    root: Box | None
    steps: dict[str, Step]
    arrows: list[Arrow]
    depth: int | None
    stands_for: dict[str, str] = field(default_factory=dict)


def worst_status(statuses: Iterable[Status | None]) -> Status | None:
    """Return the least trustworthy of some statuses, or ``None`` if there is none."""
    present = set(statuses)
    return next((status for status in reversed(STATUSES) if status in present), None)
