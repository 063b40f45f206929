"""Run a model once, unrecorded, and hand over the weights of each of its attentions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from fxdebug.capture.probe import Attached, Sites, deep_copy
from fxdebug.data.calls import Note
from fxdebug.features.attention.seen.probe import AttentionInputs, SeenAttention
from fxdebug.features.shared.times import timed_runs


@dataclass(frozen=True)
class AttentionRun:
    """Facts about a run that is over: notes, the bytes of all queries, keys, values and masks, and the run's calls."""

    notes: tuple[Note, ...]
    bytes: int
    called: tuple[str, ...]  # paths of the modules that were called, in order


def run_with_attention(
    target: Callable[..., Any],
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    found: Callable[[str, int, SeenAttention], None],
) -> AttentionRun:
    """Call ``target`` on a copy of the inputs; ``found`` gets each attention with its module's path and call number.

    Exceptions of the model pass through. Nothing is kept of what the model returns.
    """
    sites = Sites(model)
    calls = timed_runs.CallTimes(sites)

    def place(seen: SeenAttention) -> None:
        call = calls.calls[seen.call]
        found(call.path, call.number, seen)

    probe = AttentionInputs(calls, place)
    calls.around = probe.around
    given, keywords = deep_copy((args, dict(kwargs)))
    with Attached(calls, sites), probe:
        target(*given, **keywords)
    probe.flush()
    notes = [Note(what, where) for where, what in probe.guard.notes]
    if calls.elsewhere:
        notes.append(Note(f"{calls.elsewhere} calls ran in other threads: their attentions are not seen"))
    return AttentionRun(tuple(notes), probe.bytes, tuple(dict.fromkeys(call.path for call in calls.calls)))
