"""The knob that computes calls again in the backward: those that save the most memory for a second of work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from fxdebug.capture.probe import internals, members
from fxdebug.data.measures import counted
from fxdebug.features.shared.tried_settings.knobs import Try, knob
from fxdebug.features.shared.tried_settings.subject import NotHere, Subject

HALF = 0.5  # of what checkpoints can save: the cheapest calls that save as much are tried, and then all of them
NEARLY = 0.8  # of what a call saves: from here on those in it are enough, and each computes less again
SHOWN = 3  # paths in a line of code


@dataclass
class _Call:
    """The one call of a module in a forward: its seconds, and the memory of tensors that it is given and returns."""

    path: str
    module: nn.Module
    count: int = 0
    seconds: float = 0.0
    given: set[int] = field(default_factory=set)
    saved: dict[int, int] = field(default_factory=dict)  # bytes of each storage that its backward needs
    times: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # that each is saved in it

    def saves(self, of_all: dict[int, int]) -> int:
        """Return the bytes that its checkpoint saves: what its backward alone needs, and nobody gave it.

        ``of_all`` tells how many times each storage is saved in the whole forward.
        """
        return sum(size for one, size in self.saved.items() if one not in self.given and of_all[one] == self.times[one])


def measured_calls(subject: Subject) -> list[tuple[str, int, float]]:
    """Return the path of each module that is called once, the bytes that its checkpoint saves, and its seconds."""
    calls = {id(module): _Call(path, module) for path, module in members.named_modules_of(subject.model) if path}
    open_calls: list[_Call] = []
    of_all: defaultdict[int, int] = defaultdict(int)
    kept: list[Any] = [
        one.untyped_storage() for one in members.parameters_of(subject.model)
    ]  # alive: no two share an id
    weights = {storage.data_ptr() for storage in kept}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if place not in weights:
            kept.append(storage)
            of_all[place] += 1
            for call in open_calls:
                call.saved[place] = size
                call.times[place] += 1
        return tensor

    def begins(module: nn.Module, args: Any, kwargs: Any) -> None:
        call = calls[id(module)]
        call.count += 1
        call.given |= {
            one.untyped_storage().data_ptr() for one in internals.tree_leaves((args, kwargs)) if _has_memory(one)
        }
        call.seconds -= time.perf_counter()
        open_calls.append(call)

    def ends(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        calls[id(module)].seconds += time.perf_counter()
        open_calls.remove(calls[id(module)])

    handles = []
    for call in calls.values():
        handles.append(call.module.register_forward_pre_hook(begins, with_kwargs=True))
        handles.append(call.module.register_forward_hook(ends, with_kwargs=True))
    args, kwargs = subject.inputs()
    try:
        with torch.enable_grad(), subject.settings(), saved_tensors_hooks(save, lambda tensor: tensor):
            subject.model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return [(call.path, call.saves(of_all), call.seconds) for call in calls.values() if call.count == 1]


def _has_memory(one: Any) -> bool:
    return isinstance(one, Tensor) and one.layout is torch.strided


def worth_most(calls: Sequence[tuple[str, int, float]]) -> list[tuple[str, int, float]]:
    """Return the calls to compute again, none inside another, those first that save the most bytes for a second.

    One that keeps more than half of all bytes is left to the calls in it: its own backward would need as many at once.

    >>> worth_most([("a", 10, 4.0), ("a.up", 6, 1.0), ("a.down", 3, 2.0), ("b", 5, 1.0), ("b.drop", 1, 0.1)])
    [('a.up', 6, 1.0), ('b', 5, 1.0), ('a.down', 3, 2.0)]
    """
    most = sum(size for path, size, _ in calls if not _inside(path, calls)) / 2
    found = [one for call in calls if not _inside(call[0], calls) for one in _best(call, calls, most)]
    return sorted(found, key=lambda call: -call[1] / max(call[2], 1e-9))


def _inside(path: str, calls: Sequence[tuple[str, int, float]]) -> bool:
    return any(path.startswith(f"{other}.") for other, _, _ in calls)


def _best(
    call: tuple[str, int, float], calls: Sequence[tuple[str, int, float]], most: float
) -> list[tuple[str, int, float]]:
    """Return a call, or those in it where they save nearly as much, or where it is too large."""
    within = [one for one in calls if one[0].startswith(f"{call[0]}.")]
    inner = [best for one in within if not _inside(one[0], within) for best in _best(one, within, most)]
    if inner and (call[1] > most or sum(size for _, size, _ in inner) > NEARLY * call[1]):
        return inner
    return [call] if call[1] > 0 else []


@knob("checkpointing", asked_for=True)
def checkpointing(subject: Subject) -> Iterator[Try]:
    """Compute calls again in the backward, those first that save the most memory for a second of work."""
    if subject.loss is None:
        return
    with subject.unchanged() as restore:
        restore()
        copy = subject.changeable()
        best = worth_most(measured_calls(copy))
    whole, cheapest, size = sum(size for _, size, _ in best), [], 0
    for path, saved, _ in best:
        if size < HALF * whole:
            cheapest.append(path)
            size += saved
    for paths in ([path for path, _, _ in best], cheapest):
        if paths:
            yield _try(paths, all_of_them=len(paths) == len(best))
        if len(cheapest) == len(best):
            return


def _try(paths: list[str], *, all_of_them: bool) -> Try:
    from torch.utils.checkpoint import checkpoint

    def prepare(subject: Subject) -> Subject:
        subject = subject.changeable()
        modules = dict(members.named_modules_of(subject.model))
        if not paths:
            raise NotHere("no call saves memory when it is computed again")
        for path in paths:
            modules[path].forward = _checkpointed(modules[path].forward, checkpoint)
        return subject

    shown = ", ".join(paths[:SHOWN]) + (", …" if len(paths) > SHOWN else "")
    which = "" if all_of_them else f" that save{'s' if len(paths) == 1 else ''} most for the time"
    return Try(
        f"checkpointing, {counted(len(paths), 'call')}{which}",
        f"torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False) for {shown}",
        prepare,
    )


def _checkpointed(forward: Callable[..., Any], checkpoint: Callable[..., Any]) -> Callable[..., Any]:
    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return again
