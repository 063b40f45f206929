"""The names of calls within the calls around them, short enough to be shown."""

from __future__ import annotations

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.features.shared.programs.facts import shortened


def own_names(trace: TraceData) -> list[str]:
    """Return for each call of a run its name within the call around it, different from those of its siblings.

    It is the part of its path below that of the caller, with the number of the call where a module is called again.
    """
    names: list[str] = []
    taken: list[set[str]] = [set() for _ in trace.calls]
    several = {call.path for call in trace.calls if call.number}
    for call in trace.calls:
        name = shortened(_below_parent(call)) + (f"#{call.number}" if call.path in several else "")
        if call.parent_index is not None:
            siblings = taken[call.parent_index]
            while name in siblings:
                name += "~"
            siblings.add(name)
        names.append(name)
    return names


def _below_parent(call: Call) -> str:
    parent = call.parent
    if parent is None:
        return call.type
    inside = parent.path and call.path.startswith(f"{parent.path}.")
    return (call.path[len(parent.path) + 1 :] if inside else call.path) or call.type
