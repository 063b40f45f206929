"""Layers of a list that run beside each other on one input, of which only the last one's result is used."""

from __future__ import annotations

from collections.abc import Iterator

from fxdebug.data.calls import Call
from fxdebug.data.findings import WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.features.structure.repeats import list_of
from fxdebug.plugins import found
from fxdebug.query.names import parameters_by_module
from fxdebug.query.network import Network


def find_dropped_results(net: Network) -> Iterator[Finding]:
    """Yield lists whose layers are given the same as a later one, and whose results nothing takes but that one's."""
    weights = [path for path, held in parameters_by_module(net.trace).items() if held]
    lists: dict[str, list[Call]] = {}
    for call in net.trace.calls:
        if list_of(call.path) and any(name == call.path or name.startswith(f"{call.path}.") for name in weights):
            lists.setdefault(list_of(call.path), []).append(call)
    for path, calls in lists.items():
        last, given = calls[-1], _given(calls[-1])
        dropped = [call for call in calls[:-1] if given and _given(call) == given and not _is_taken(net, call)]
        if not dropped or len(dropped) != len(calls) - 1 or not _is_taken(net, last):
            continue
        yield found(
            dropped[0],
            f"its result is used by nothing, as that of {counted(len(dropped), 'layer')} of {path}: each is given what "
            f"{last.path} is given, and only {last.path} has an effect",
            rule="result dropped",
            severity=WARNING,
            measured=float(len(dropped)),
            advice="Give each layer what the one before returned: x = layer(x).",
        )


def _given(call: Call) -> list[int]:
    return [value.number for value in call.inputs]


def _is_taken(net: Network, call: Call) -> bool:
    return bool(net.out_of.get(net.call_id(call)))
