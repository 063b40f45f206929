"""Run a model on one or several inputs, unrecorded, and hand over what every call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.probe import Attached, Sites, deep_copy
from fxdebug.data.calls import Note
from fxdebug.features.shared.times.call_times import CallTimes, CpuClock
from fxdebug.features.shared.units.activation_outputs import ActivationOutputs
from fxdebug.features.shared.units.origins import Origin

Seen = Callable[[str, str, str, Tensor, "Tensor | None", Origin], None]


def run_with_activations(
    target: Callable[..., Any],
    model: nn.Module,
    batches: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]],
    seen: Seen,
) -> tuple[list[Note], int, set[tuple[str, str]]]:
    """Call ``target`` on a copy of each batch; return notes, how many batches there were, and what weights read.

    The last are functions with bounds, by the path of the module and the operation's name, as ``seen`` gets them.

    ``seen`` gets the path of the module, its class or the operation, the operation's name or nothing, the result, the
    first tensor among the arguments, and the units of the result. Exceptions of the model pass through.
    """
    sites = Sites(model)
    notes: dict[tuple[str, str], None] = {}
    read: set[tuple[str, str]] = set()
    count = elsewhere = 0
    for args, kwargs in batches:
        calls = CallTimes(sites, CpuClock())

        def found(
            call: int,
            kind: str,
            name: str,
            result: Tensor,
            given: Tensor | None,
            origin: Origin,
            calls: CallTimes = calls,
        ) -> None:
            seen(calls.calls[call].path, kind, name, result, given, origin)

        probe = ActivationOutputs(calls, found)
        calls.around = probe.around
        given_args, keywords = deep_copy((args, dict(kwargs)))
        with Attached(calls, sites), probe:
            target(*given_args, **keywords)
        count += 1
        elsewhere = max(elsewhere, calls.elsewhere)
        read |= probe.read
        notes.update(dict.fromkeys(probe.guard.notes))
    all_notes = [Note(what, where) for where, what in notes]
    if elsewhere:
        all_notes.append(Note(f"{elsewhere} calls ran in other threads: they are not measured"))
    return all_notes, count, read
