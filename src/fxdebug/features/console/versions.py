"""The versions of the tensors that a recorded run wrote to in place: which of them a memory held at a stop."""

from __future__ import annotations

from typing import TypeAlias

from fxdebug.data.values import Value
from fxdebug.query.network import Network

Memory: TypeAlias = tuple[object, ...]


class Versions:
    """The versions of the tensors that a run wrote to: which one a memory held at a stop."""

    def __init__(self, net: Network) -> None:
        self._net = net
        self._known: dict[Memory, list[tuple[int, Value]]] | None = None
        self.stop_of: dict[str, int] = {}  # operation → number of its stop

    def at(self, value: Value, number: int) -> Value:
        """Return the version of a tensor that its memory held after a stop; itself if it was not written to."""
        if value.storage is None:
            return value
        if self._known is None:
            self._known = self._all()
        past = [version for since, version in self._known.get(_memory(value), ()) if since <= number]
        return past[-1] if past else value

    def _all(self) -> dict[Memory, list[tuple[int, Value]]]:
        """Return the versions of each tensor, with the stop since which each of them exists."""
        net = self._net
        written: dict[int, int] = {}  # number of a value → the stop that wrote it
        for call in net.trace.calls:
            body, steps = net.bodies[call.index], net.steps(call)
            for position, value in () if body is None else body.writes:
                stop = self.stop_of.get(f"{net.call_id(call)}/{steps[position].name}")
                if stop is not None:
                    written.setdefault(value.number, stop)
        found: dict[Memory, list[tuple[int, Value]]] = {_memory(net.trace.values[number]): [] for number in written}
        for value in net.trace.values:
            versions = found.get(_memory(value))
            if versions is not None and (not versions or value.number in written):
                versions.append((written.get(value.number, -1), value))
        return found


def _memory(value: Value) -> Memory:
    """Return what versions of one tensor have in common: the memory and its layout."""
    return value.storage, value.offset, value.shape, value.stride, value.dtype
