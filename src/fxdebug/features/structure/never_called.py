"""A module that never runs: beside one of the same weights that runs in its place, or amid others that all run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.features.structure.repeats import list_of
from fxdebug.plugins import found
from fxdebug.query.names import names_of_call, parameters_by_module
from fxdebug.query.network import Network

LEAST = 3  # modules of one numbered name


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
    yield from _amid_others(net, set(shapes), ran | used)
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


def _amid_others(net: Network, holders: Set[str], ran: Set[str]) -> Iterator[Finding]:
    """Yield a module with weights and a numbered name, where all others of that name run, before it and behind it."""
    by_name: dict[tuple[str, str], dict[int, str]] = {}
    for path in net.trace.modules:
        parent, _, own = path.rpartition(".")
        stem = own.rstrip("0123456789")
        if stem and stem != own and parent in ran | {""}:
            by_name.setdefault((parent, stem), {})[int(own[len(stem) :])] = path
    calls = {call.path: call for call in reversed(net.trace.calls)}
    for (parent, _), numbered in by_name.items():
        idle = [number for number, path in numbered.items() if not _is_any_inside(path, ran)]
        if len(idle) != 1 or len(numbered) < LEAST or not min(numbered) < idle[0] < max(numbered):
            continue
        path = numbered[idle[0]]
        if _is_any_inside(path, holders):
            rest = ", ".join(other.rpartition(".")[2] for _, other in sorted(numbered.items()) if other != path)
            yield found(
                calls.get(parent, net.trace.root),
                f"{path}, which has weights, never runs, and {rest} do",
                rule="never called",
                severity=ADVICE,
                measured=1.0,
                advice="Look whether its call was left out; if it is meant to rest, its weights get no gradient.",
            )


def _is_any_inside(path: str, paths: Set[str]) -> bool:
    """Is a module among some, or one inside of it?"""
    return any(other == path or other.startswith(f"{path}.") for other in paths)


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
