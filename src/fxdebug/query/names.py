"""Names in queries: which ones exist, and the error with the nearest ones for those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fxdebug.data.calls import Call, Parameter
from fxdebug.data.trace import TraceData
from fxdebug.errors import NotFound, UsageError, nearest

WILDCARDS = frozenset("*?[")


def names_of_call(call: Call) -> tuple[str, ...]:
    """Return every path under which the module of a call is registered."""
    return call.aliases or (call.path,)


def shown_ids(trace: TraceData, ids: Iterable[str]) -> list[str]:
    """Return ids of calls and operations as the tree names them: with a call number where a module has several calls.

    >>> import torch, fxdebug
    >>> trace = fxdebug.fx_debug(torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU()), torch.ones(2))
    >>> shown_ids(trace, ["1#0", "1#0/relu", "#0"])
    ['1', '1/relu', 'Sequential']
    """
    calls = Counter(call.path for call in trace.calls)
    shown = []
    for id in ids:
        path, _, rest = id.rpartition("#")
        number, slash, op = rest.partition("/")
        times = "" if calls[path] == 1 else f"#{number}"
        shown.append(f"{path or trace.model}{times}{slash}{op}")
    return shown


def parameters_by_module(trace: TraceData) -> dict[str, list[Parameter]]:
    """Return the parameters and buffers by the path of the module that holds them."""
    held: dict[str, list[Parameter]] = {}
    for parameter in trace.parameters:
        for name in parameter.names:
            held.setdefault(name.rpartition(".")[0], []).append(parameter)
    return held


def own_parameters(trace: TraceData, call: Call) -> list[Parameter]:
    """Return the parameters and buffers of the module of a call, without those of the modules below it."""
    held = parameters_by_module(trace)
    found = [parameter for path in names_of_call(call) for parameter in held.get(path, ())]
    return [parameter for i, parameter in enumerate(found) if parameter not in found[:i]]


def require_graphs(trace: TraceData, what: str) -> None:
    """Raise ``UsageError`` for a run without graphs, which has no ``what`` (status, operations)."""
    if trace.graph_source is None:
        raise UsageError(f"this run has no {what}: it was made with graph=False")


def require_one_of(what: str, name: str, known: Sequence[str]) -> None:
    """Raise ``UsageError`` unless the argument ``what`` is one of the known words."""
    if name not in known:
        raise UsageError(f"{what}={name!r}: use one of {', '.join(map(repr, known))}")


def require_known(what: str, name: str, known: set[str]) -> None:
    """Raise ``NotFound`` unless the name exists; a registered module that was never called exists, too."""
    if name not in known:
        shown = sorted(known - {""})
        examples = ", ".join(shown[:5]) + (", …" if len(shown) > 5 else "")
        raise NotFound(f"no {what} {name!r} in this trace of {len(known)}: {examples}.{nearest(name, shown)}")
