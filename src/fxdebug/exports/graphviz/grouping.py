"""Which calls have graphs that look alike: repeated layers are drawn once only where they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxdebug.data.calls import Call
from fxdebug.query.network import Network

if TYPE_CHECKING:
    from fxdebug.exports.graphviz.drawing import Arrow, Box, Step


class GraphSignatures:
    """What the graphs of calls look like, as numbers: equal where the same operations follow one another."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._graphs: dict[int, int] = {}
        self._numbers: dict[tuple[str, ...], int] = {}

    def of(self, call: Call) -> int:
        """The number of a call's graph; -1 where it has none."""
        body = self._net.bodies[call.index]
        if body is None or body.graph is None:
            return -1
        if body.graph not in self._graphs:
            names = tuple([f"{step.kind} {step.name}" for step in self._net.steps(call)])
            self._graphs[body.graph] = self._numbers.setdefault(names, len(self._numbers))
        return self._graphs[body.graph]


# They give the same elements in another arrangement.
REARRANGING = frozenset(
    (
        "view reshape transpose permute contiguous expand expand_as view_as unsqueeze squeeze flatten unflatten "
        "movedim swapaxes swapdims t T mT adjoint detach clone broadcast_to"
    ).split()
)


def joined(root: Box, steps: dict[str, Step], arrows: list[Arrow]) -> list[Arrow]:
    """Rows of rearranging steps in one box become one step each; returns the arrows that are left."""
    into: dict[str, list[Arrow]] = {}
    out_of: dict[str, list[Arrow]] = {}
    for arrow in arrows:
        into.setdefault(arrow.target, []).append(arrow)
        out_of.setdefault(arrow.source, []).append(arrow)
    gone: dict[str, str] = {}  # step → the one it was joined to
    pending = [root]
    while pending:
        box = pending.pop()
        pending.extend(box.boxes)
        here = {step.id for step in box.steps}
        for step in box.steps:
            before = into.get(step.id, [])
            if step.kind != "arranging" or len(before) != 1 or before[0].kind != "data":
                continue
            first = gone.get(before[0].source, before[0].source)
            if first not in here or steps[first].kind != "arranging" or len(out_of[before[0].source]) != 1:
                continue
            steps[first].merged.append(step.node)
            steps[first].title += f" · {step.title}"
            steps[first].values = step.values
            gone[step.id] = first
            del steps[step.id]
        box.steps = [step for step in box.steps if step.id not in gone]
    left = [arrow for arrow in arrows if arrow.target not in gone]
    for arrow in left:
        arrow.source = gone.get(arrow.source, arrow.source)
    return left
