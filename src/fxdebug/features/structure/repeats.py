"""One module where several were meant: ``[layer] * n``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fxdebug.data.calls import Call
from fxdebug.data.findings import WARNING, Finding
from fxdebug.plugins import found
from fxdebug.query.names import parameters_by_module
from fxdebug.query.network import Network


def find_repeats(net: Network) -> Iterator[Finding]:
    """Yield modules that stand several times in one list, and whose calls each take what the one before returned."""
    trace = net.trace
    weights = [path for path, held in parameters_by_module(trace).items() if held]
    calls: dict[str, list[Call]] = {}
    for call in trace.calls:
        if len(call.aliases) > 1:
            calls.setdefault(call.path, []).append(call)
    told: list[str] = []
    for path, several in calls.items():
        entries = [name for name in several[0].aliases if _list_of(name) == _list_of(path) and _list_of(name)]
        if len(entries) < 2 or len(several) < 2 or any(path.startswith(f"{outer}.") for outer in told):
            continue
        has_weights = any(name == path or name.startswith(f"{path}.") for name in weights)
        if has_weights and all(_feeds(one, other) for one, other in pairwise(several)):
            told.append(path)
            yield found(
                several[0],
                f"runs {len(several)} times in a row, each time on its own result: {len(entries)} entries of "
                f"{_list_of(path)} are one module, with one set of weights",
                rule="repeated module",
                severity=WARNING,
                measured=float(len(several)),
                advice="[layer] * n repeats one module: make each, [Layer() for _ in range(n)], or copy.deepcopy.",
            )


def _list_of(path: str) -> str:
    """Return the path of the list that a numbered module stands in; nothing for others."""
    outer, _, last = path.rpartition(".")
    return (outer or "the model") if last.isdigit() else ""


def _feeds(one: Call, other: Call) -> bool:
    """Does a call take what an earlier one returned?"""
    returned = {value.number for value in one.outputs or ()}
    return any(value.number in returned for value in other.inputs)
