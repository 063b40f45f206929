"""How far the graphs of a zoo entry can be trusted: what ``make zoo`` counts besides parity.

:func:`trust` runs an entry plainly, with graphs, and once more under the independent judge (``audit``).
"""

from __future__ import annotations

import contextlib
import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from fxdebug import Trace, fx_debug
from fxdebug.capture.graphs.placeholder_tensor import count_placeholders
from support import audit
from support.other_inputs import Others, others, own_inputs
from support.same import difference
from zoo import traps

Build = Callable[[], Any]  # makes (model, its arguments: a dict by name, or a tuple) anew

DEFAULT, NO_CACHE, GRAD = "default", "caches off", "grad on"

# Executing a graph alone cannot judge this one.
NOT_ALONE = {"trap/generator_": "works on a torch.Generator it makes"}


@dataclass
class Trust:
    """The graphs of one entry in one setting."""

    name: str
    setting: str
    stopped: str | None = None  # what the model itself raises in this setting
    failed: str | None = None  # what we raised instead of counting
    output: str | None = None  # how the user's result differs from that of the plain run
    calls: int = 0
    verified: int = 0
    ops: int = 0
    ops_verified: int = 0
    unexplained: list[str] = field(default_factory=list)  # calls with neither a graph nor a reason
    audited: int = 0
    wrong: list[str] = field(default_factory=list)  # verified graphs that compute something else
    not_audited: list[str] = field(default_factory=list)
    unjudged: int = 0  # verified graphs that cannot be executed on what the call was given: inside torch.vmap
    left: int = 0  # placeholders that are alive when the trace is gone
    reasons: Counter[str] = field(default_factory=Counter)  # status, type and reason → calls
    reason_ops: Counter[str] = field(default_factory=Counter)  # the same → operations in these calls
    others: list[Others] = field(default_factory=list)
    own: Others | None = None  # call.fx of every graph, on what its call was given


def trust(
    name: str, build: Build, setting: str = DEFAULT, *, other_inputs: bool = False, own: bool = False
) -> Trust | None:
    """Count one entry; ``None`` where the setting does not apply (an entry without caches).

    ``other_inputs`` runs its graphs on inputs of other sizes, too, ``own`` on those they were made with.
    """
    found = Trust(name, setting)
    if setting == NO_CACHE and not _caches_off(build()[0]):
        return None
    gc.collect()
    before = count_placeholders()
    try:
        with torch.set_grad_enabled(setting == GRAD):
            _count(found, build, other_inputs, own)
    except Exception as error:  # a count is owed for every entry
        found.failed = f"{type(error).__name__}: {error}"
    gc.collect()
    found.left = count_placeholders() - before
    return found


def _count(found: Trust, build: Build, other_inputs: bool, own: bool) -> None:
    plain = _built(build, found.setting)
    try:
        with _seeded():
            expected = called(*plain)
    except Exception as error:
        found.stopped = f"{type(error).__name__}: {error}"
        return
    model, inputs = _built(build, found.setting)
    with _seeded():
        trace = fx_debug(model, inputs, graph=True)
    found.output = difference(expected, trace.output)
    _statuses(found, trace)
    _audit(found, build, trace, own)
    if other_inputs:
        found.others = others(model, inputs, trace)


def called(model: Any, inputs: Any) -> Any:
    """The model on its inputs."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def _built(build: Build, setting: str) -> tuple[Any, Any]:
    model, inputs = build()
    if setting == NO_CACHE:
        _caches_off(model)
    return model, inputs


def _caches_off(model: Any) -> bool:
    """Switch off ``use_cache`` in every configuration of a model; was it on in any?"""
    found = False
    pending = [getattr(model, "config", None)]
    while pending:
        config = pending.pop()
        if hasattr(config, "to_dict"):
            pending += vars(config).values()
            if getattr(config, "use_cache", False):
                found = True
                config.use_cache = False
    return found


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """A block with random numbers, and globals of the traps, that are the same every time."""
    traps.fresh_globals()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        random.seed(1)
        yield


def _statuses(found: Trust, trace: Trace) -> None:
    live: Any = trace.graph_source
    for call in trace.calls:
        explained = live.verified_call(call.index)
        ops = 0 if explained is None else sum(entry.tape is None for entry in explained.tape.entries)
        found.calls += 1
        found.ops += ops
        if call.status == "verified" and call.graph is not None:
            found.verified += 1
            found.ops_verified += ops
            continue
        why = f"{call.status}, {call.type}: {call.reason}"
        found.reasons[why] += 1
        found.reason_ops[why] += ops
        if not call.reason or (call.status != "opaque" and call.graph is None):
            found.unexplained.append(f"{call.id} {call.type}: {call.status}, {call.reason or 'no reason'}")


def _audit(found: Trust, build: Build, trace: Trace, own: bool) -> None:
    """Execute every verified graph, with the judge's copies in the place of what the program keeps."""
    model, inputs = _built(build, found.setting)
    with _seeded(), audit.keeping() as kept:
        second = fx_debug(model, inputs, graph=True)
    live: Any = second.graph_source
    live._tape.kept = frozenset()  # the judge itself keeps every tensor
    for call, again in zip(trace.calls, second.calls, strict=True):
        if call.status != "verified" or found.name in NOT_ALONE:
            continue
        explained = live.verified_call(again.index)
        if explained is None or explained.status != "verified":
            found.not_audited.append(f"{call.id}: {None if explained is None else explained.reason}")
            continue
        if kept[explained.tape.index].in_vmap:
            found.unjudged += 1
            continue
        try:
            problem = audit.problem_with(explained, kept)
        except Exception as error:
            problem = f"it cannot be executed: {type(error).__name__}: {error}"
        found.audited += 1
        if problem is not None:
            found.wrong.append(f"{call.id} {call.type}: {problem}")
    if own:
        found.own = own_inputs(second, kept)


def trap_entries() -> Iterator[tuple[str, Build]]:
    """The micro cases, each a model that tries to make a graph wrong, in the form of the zoo."""
    for name, (kind, train) in traps.TRAPS.items():
        yield f"trap/{name}", _trap(kind, train)


def _trap(kind: Any, train: bool) -> Build:
    def build() -> Any:
        torch.manual_seed(0)
        return kind().train(train), (torch.randn(3, 8),)

    return build
