"""Which calls have graphs that look alike: repeated layers are drawn once only where they do."""

from __future__ import annotations

from fxdebug.data.calls import Call
from fxdebug.graph import Network


class Shapes:
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
