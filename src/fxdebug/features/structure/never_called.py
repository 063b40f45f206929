"""A module that never runs beside one of the same weights that runs in its place as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fxdebug.data.findings import WARNING, Finding
from fxdebug.features.structure.repeats import list_of
from fxdebug.plugins import found
from fxdebug.query.names import names_of_call, parameters_by_module
from fxdebug.query.network import Network


def find_never_called(net: Network) -> Iterator[Finding]:
    """Yield modules that run several times in one call of their parent while one of the same shapes beside never runs.

    Told are attributes, as ``self.norm1`` and ``self.norm2``; the entries of lists may run as a router chooses.
    """
    trace = net.trace
    shapes = {
        path: sorted((parameter.names[0].rpartition(".")[2], parameter.shape) for parameter in held)
        for path, held in parameters_by_module(trace).items()
        if path and held
    }
    ran = {name for call in trace.calls for name in names_of_call(call)}
    used = {node.target.rpartition(".")[0] for node in net.nodes.values() if node.kind == "get_attr"}
    idle = [path for path in shapes if path not in ran | used and not list_of(path) and _parent(path) in ran | {""}]
    times = Counter((call.parent_index, call.path) for call in trace.calls if call.path)
    for path in idle:
        twice = [
            call
            for call in trace.calls
            if _parent(call.path) == _parent(path)
            and call.path != path
            and shapes.get(call.path) == shapes[path]
            and times[call.parent_index, call.path] > 1
        ]
        if twice:
            first = twice[0]
            count = times[first.parent_index, first.path]
            yield found(
                first,
                f"runs {count} times, and {path}, which has weights of the same shapes, never does",
                rule="never called",
                severity=WARNING,
                measured=float(count),
                advice=f"Look whether one of these calls is meant for {path.rpartition('.')[2]}.",
            )


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
