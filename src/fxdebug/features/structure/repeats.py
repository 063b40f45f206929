"""One module where several were meant: ``[layer] * n``, a list made of the modules of another, a loop of one layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fxdebug.data.calls import Call
from fxdebug.data.findings import ADVICE, WARNING, Finding
from fxdebug.data.measures import counted
from fxdebug.data.values import Value
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
        entries = [name for name in several[0].aliases if list_of(name) == list_of(path) and list_of(name)]
        if len(entries) < 2 or len(several) < 2 or any(path.startswith(f"{outer}.") for outer in told):
            continue
        has_weights = any(name == path or name.startswith(f"{path}.") for name in weights)
        if has_weights and all(_feeds(one, other) for one, other in pairwise(several)):
            told.append(path)
            yield found(
                several[0],
                f"runs {len(several)} times in a row, each time on its own result: {len(entries)} entries of "
                f"{list_of(path)} are one module, with one set of weights",
                rule="repeated module",
                severity=WARNING,
                measured=float(len(several)),
                advice="[layer] * n repeats one module: make each, [Layer() for _ in range(n)], or copy.deepcopy.",
            )
    yield from _in_two_lists(calls, weights)
    yield from _in_a_loop(trace.calls, weights)


def _in_a_loop(calls: Sequence[Call], weights: Sequence[str]) -> Iterator[Finding]:
    """Yield modules of one name that run several times on their own result, and are given nothing new each time."""
    by_path: dict[str, list[Call]] = {}
    for call in calls:
        if len(call.aliases) < 2 and call.path and not list_of(call.path):
            by_path.setdefault(call.path, []).append(call)
    told: list[str] = []
    for path, several in by_path.items():
        inner = [name for name in weights if name.startswith(f"{path}.")]
        if len(several) < LOOP or len(inner) < 2 or any(path.startswith(f"{outer}.") for outer in told):
            continue
        if all(_feeds(one, other) and not _new(one, other) for one, other in pairwise(several)):
            told.append(path)
            yield found(
                several[0],
                f"runs {len(several)} times in a row, each time on its own result alone, with one set of weights: "
                "these are one layer, not several",
                rule="repeated module",
                severity=ADVICE,
                measured=float(len(several)),
                advice="Right where layers share weights on purpose (ALBERT); else make one for each time.",
            )


def _new(one: Call, other: Call) -> list[Value]:
    """Return the numbers that a call is given and that the one before neither was given nor returned."""
    known = {value.number for value in (*one.inputs, *(one.outputs or ()))}
    return [value for value in other.inputs if value.number not in known]


def _in_two_lists(calls: dict[str, list[Call]], weights: Sequence[str]) -> Iterator[Finding]:
    """Yield lists with modules of another list, each of which runs for both."""
    common: dict[tuple[str, str], list[tuple[str, Call]]] = {}
    for path, several in calls.items():
        others = [name for name in several[0].aliases if name != path and list_of(name) not in ("", list_of(path))]
        has_weights = any(name == path or name.startswith(f"{path}.") for name in weights)
        is_inner = path.rpartition(".")[0] in calls  # of a module that is shared itself
        if list_of(path) and others and len(several) > 1 and has_weights and not is_inner:
            common.setdefault((list_of(path), list_of(others[0])), []).append((others[0], several[0]))
    for (one, other), shared in common.items():
        named = ", ".join([f"{name} is {call.path}" for name, call in shared[:NAMED]])
        yield found(
            shared[0][1],
            f"{other} and {one} have {counted(len(shared), 'module')} in common, which run for both with one set of "
            f"weights: {named}{', …' if len(shared) > NAMED else ''}",
            rule="repeated module",
            severity=ADVICE,
            measured=float(len(shared)),
            advice="If each list is to learn its own, make the layers of the second anew, or copy.deepcopy them.",
        )


NAMED = 3
LOOP = 3  # times: two may be a layer for each of two uses


def list_of(path: str) -> str:
    """Return the path of the list that a numbered module stands in; nothing for others."""
    outer, _, last = path.rpartition(".")
    return (outer or "the model") if last.isdigit() else ""


def _feeds(one: Call, other: Call) -> bool:
    """Does a call take what an earlier one returned?"""
    returned = {value.number for value in one.outputs or ()}
    return any(value.number in returned for value in other.inputs)
