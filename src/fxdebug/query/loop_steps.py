"""The steps of a loop over a model, such as ``generate``: their numbers, and whether they are prefill or decode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Group, Item, Thing, Value

Phase: TypeAlias = Literal["prefill", "decode", ""]

_CACHE = re.compile("past|cache")  # in the name of an argument, or in the class of its object


class LoopStep(NamedTuple):
    """One step: its number, counted from 0, and its phase; the phase is empty if no step continues another."""

    number: int
    phase: Phase

    def __str__(self) -> str:
        return f"step {self.number}" + (f" · {self.phase}" if self.phase else "")


def loop_steps(trace: TraceData) -> dict[int, LoopStep]:
    """Return the steps of the run by the index of their call.

    Steps are the forwards of the model inside one of its other methods, and repeated calls of one module that is given
    a cache. Phases are told apart by what a step is given: ``decode`` is given what an earlier step has left.
    """
    steps: dict[int, LoopStep] = {}
    for calls in _loops(trace):
        for number, (call, phase) in enumerate(zip(calls, _phases(calls), strict=True)):
            steps[call.index] = LoopStep(number, phase)
    return steps


def _loops(trace: TraceData) -> Iterator[list[Call]]:
    """Yield the calls of each loop, in execution order."""
    loops: dict[tuple[int, str], list[Call]] = {}
    for call in trace.calls[1:]:
        assert call.parent_index is not None
        if call.has_submodules:
            loops.setdefault((call.parent_index, call.path), []).append(call)
    for (parent, path), calls in loops.items():
        if (
            len(calls) > 1 and any(_is_cache(*named) for named in _arguments(calls[-1]))
            if path
            else (parent == 0 and trace.root.method != "forward")
        ):
            yield calls


def _phases(calls: list[Call]) -> list[Phase]:
    lengths = [_length(call) for call in calls]
    left: set[tuple[str, int]] = set()  # tensors and objects that the steps so far returned or were given as a cache
    continued = []
    for call, length in zip(calls, lengths, strict=True):
        given = [item for _, item in _arguments(call)]
        shorter = length == 1 and lengths[0] not in (None, 1)  # its cache may be in the model
        continued.append(shorter or not left.isdisjoint(_identities(given)) or len(call.inputs) > len(calls[0].inputs))
        left |= _identities([item for name, item in _arguments(call) if _is_cache(name, item)])
        left |= _identities([] if call.outputs is None else [call.outputs.item])
    if not any(continued):
        return [""] * len(calls)
    # A prompt may be read in chunks: these are given a cache, too, and stand before the first step of one position.
    single = next((i for i, length in enumerate(lengths) if length == 1 and continued[i]), 0)
    return ["decode" if goes_on and i >= single else "prefill" for i, goes_on in enumerate(continued)]


def _arguments(call: Call) -> Iterator[tuple[str, Item]]:
    yield from (("", item) for item in call.inputs.args)
    yield from call.inputs.kwargs.items()


def _is_cache(name: str, item: Item) -> bool:
    return bool(_CACHE.search(name)) or (isinstance(item, (Group, Thing)) and bool(_CACHE.search(item.type.lower())))


def _identities(items: Iterable[Item]) -> set[tuple[str, int]]:
    """Return what tells two uses of one thing: the numbers of tensors, of their memory, and of objects."""
    found: set[tuple[str, int]] = set()
    pending = list(items)
    while pending:
        item = pending.pop()
        if isinstance(item, Value):
            found.add(("value", item.number))
            if item.storage is not None:
                found.add(("memory", item.storage))
        elif isinstance(item, (Group, Thing)):
            if item.number is not None:
                found.add(("object", item.number))
            if isinstance(item, Group):
                pending.extend(item.items)
    return found


def _length(call: Call) -> int | None:
    """Return the number of positions that a step is given: the second size of its first tensor that has two."""
    return next((value.shape[1] for value in call.inputs if len(value.shape) > 1), None)
