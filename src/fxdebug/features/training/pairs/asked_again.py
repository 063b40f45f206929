"""Ask a model again what it was asked in a step, with examples or places in another order, or one input of others."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors, untracked
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.recorder.held_forward import HeldForward

ASKED_AT = 20  # steps
FEWEST_ROWS, FEWEST_PLACES = 8, 4
MOST_NUMBERS, MOST_WEIGHTS = 1 << 22, 1 << 25  # of what it was given, and of its own
MOST_INPUTS = 6
ROUNDED = 1e-4  # of the largest number
APART, NOTHING = 1e-2, 1e-5
Change = Callable[[int, Tensor], Tensor]


def asked_again(model: nn.Module, held: HeldForward, method: str, target: tuple[int, ...] | None) -> list[Sign]:
    """Return what the answers to a changed question show; ``target`` are the sizes of the targets, where known.

    The model runs in eval mode and without gradients, and all that it has is as before. A model that draws at random,
    that somebody listens to with hooks, or that is large, is not asked.
    """
    given = [tensor for _, tensor in named_tensors((held.args, held.kwargs))]
    if not given or not _may_be_asked(model, given):
        return []
    asked = _Asked(model, held, method)
    found: list[Sign] = []
    try:
        first = asked.answers()
        if not first or not _are_alike(first, asked.answers(seed=1)):
            return []
    except Exception:  # of the model, in eval mode
        return []
    for look in (partial(_order_of_examples, target=target), _order_of_places, _unread, _ahead):
        with contextlib.suppress(Exception):  # of the model: it may take no other question
            found += look(asked, given, first)
    return found


def _may_be_asked(model: nn.Module, given: list[Tensor]) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    if any(vars(module).get(name) for module in members.modules_of(model) for name in hooks):
        return False
    if sum(p.numel() for p in members.parameters_of(model)) > MOST_WEIGHTS:
        return False
    rows = len(given[0]) if given[0].dim() else 0
    is_plain = all(type(one) is Tensor and one.layout is torch.strided and not one.is_meta for one in given)
    return is_plain and rows >= FEWEST_ROWS and sum(one.numel() for one in given) <= MOST_NUMBERS


class _Asked:
    """A model that can be asked what it was asked in a step."""

    def __init__(self, model: nn.Module, held: HeldForward, method: str) -> None:
        self.model, self._held = model, held
        self._run = model if method == "forward" else getattr(model, method)

    def places(self) -> list[str]:
        """Return what the forward calls the tensors that it is given."""
        run = self.model.forward if isinstance(self._run, nn.Module) else self._run
        called = list(inspect.signature(run).parameters)
        some = [
            f"{called[i] if i < len(called) else f'input {i}'}{place}"
            for i, one in enumerate(self._held.args)
            for place, _ in named_tensors(one)
        ]
        return some + [place for place, _ in named_tensors(self._held.kwargs)]

    def answers(self, change: Change | None = None, *, seed: int | None = None, trains: bool = False) -> list[Tensor]:
        """Return the numbers that the model returns where each tensor that it is given, by its place, is changed."""
        count = iter(range(1 << 20))

        def walk(one: Any) -> Any:
            if isinstance(one, Tensor):
                number = next(count)
                return one.clone() if change is None else change(number, one)
            if isinstance(one, tuple) and not hasattr(one, "_fields"):
                return tuple(walk(each) for each in one)
            if isinstance(one, list):
                return [walk(each) for each in one]
            return {key: walk(each) for key, each in one.items()} if type(one) is dict else one

        with self._held.as_it_began(), untracked(), torch.no_grad():
            for module in members.modules_of(self.model) if not trains else ():
                module.training = False
            if seed is not None:
                torch.manual_seed(seed)
            args, kwargs = walk((self._held.args, self._held.kwargs))
            made = self._run(*args, **kwargs)
            return [t.detach().clone() for _, t in named_tensors(made) if t.is_floating_point()]


def _are_alike(some: list[Tensor], others: list[Tensor]) -> bool:
    """Are answers the same, up to rounding?"""
    if [one.shape for one in some] != [one.shape for one in others]:
        return False
    return all(_apart(a, b) < ROUNDED for a, b in zip(some, others, strict=True))


def _apart(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of answers, over their own size."""
    if not a.numel() or not bool(a.isfinite().all()) or not bool(b.isfinite().all()):
        return 0.0
    size = float(a.abs().max())
    return float((a - b).abs().max()) / size if size else float((a - b).abs().max() > 0)


def _drawn(count: int) -> Tensor:
    """Return an order of places that leaves few where they are."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(1))


def _order_of_examples(
    asked: _Asked, given: list[Tensor], first: list[Tensor], target: tuple[int, ...] | None
) -> Iterator[Sign]:
    """Yield that the answer to an example depends on where it stands in the batch, or on the others.

    It is asked with a few examples less, which a model that has something for each row of the data cannot take.
    """
    rows = len(given[0])
    if any(one.dim() and one.numel() > 1 and len(one) != rows for one in given):
        return
    made = [place for place, one in enumerate(first) if one.dim() > 1 and len(one) == rows]
    if not made or target is None or target[:1] != (rows,) or given[0].dim() < 2:
        return
    order = _drawn(rows - 1)
    before, after = (asked.answers(partial(_some_of, some)) for some in (torch.arange(rows - 1), order))
    if any(len(before[place]) != rows - 1 for place in made):
        return
    apart = max(_apart(_some_of(order, 0, before[place]), after[place]) for place in made)
    if apart < APART:
        return
    if len(target) > 1 or (given[0].dim() > 1 and first[made[0]].dim() > 2):
        other = given[0].shape[1]  # it may be the batch
        if other == rows or _follows(asked, given, first, 1):
            return
    yield Sign("place in batch", (), (apart, float(rows)))


def _some_of(some: Tensor, _: int, one: Tensor) -> Tensor:
    """Return some rows of a tensor, if it has rows."""
    return one[some.to(one.device)] if one.dim() else one.clone()


def _follows(asked: _Asked, given: list[Tensor], first: list[Tensor], dimension: int) -> bool:
    """Do answers come in the other order, or stay as they are, where what is asked comes in another order?"""
    size = given[0].shape[dimension]
    order = _drawn(size)

    def change(_: int, one: Tensor) -> Tensor:
        is_along = one.dim() > dimension and one.shape[: dimension + 1] == given[0].shape[: dimension + 1]
        return one.index_select(dimension, order.to(one.device)) if is_along else one.clone()

    found = asked.answers(change)
    for a, b in zip(first, found, strict=True):
        is_along = a.dim() > dimension and a.shape[: dimension + 1] == given[0].shape[: dimension + 1]
        expected = a.index_select(dimension, order.to(a.device)) if is_along else a
        if a.dim() and _apart(expected, b) > ROUNDED:
            return False
    return True


def _order_of_places(asked: _Asked, given: list[Tensor], first: list[Tensor]) -> Iterator[Sign]:
    """Yield that a model that is given sequences does not know their order."""
    x = given[0]
    is_sequence = x.dim() == 2 and not x.is_floating_point()  # of numbers it may be a set
    is_asked = is_sequence and x.shape[1] >= FEWEST_PLACES and bool((x != x[:, :1]).any())
    if is_asked and _follows(asked, given, first, 1):
        yield Sign("order unknown", (), (float(x.shape[1]),))


def _unread(asked: _Asked, given: list[Tensor], first: list[Tensor]) -> Iterator[Sign]:
    """Yield inputs that may be those of other examples, and the answer stays what it was."""
    rows = len(given[0])
    places, names = asked.places(), []
    for number, one in enumerate(given[:MOST_INPUTS] if len(given) > 1 else ()):  # one alone: its answers are alike
        if not one.dim() or len(one) != rows or not bool((one != one[:1]).any()):
            continue

        def change(place: int, tensor: Tensor, number: int = number) -> Tensor:
            return tensor.roll(1, 0) if place == number else tensor.clone()

        if all(_apart(a, b) < NOTHING for a, b in zip(first, asked.answers(change), strict=True)):
            trained, again = asked.answers(trains=True), asked.answers(change, trains=True)
            if trained and all(_apart(a, b) < NOTHING for a, b in zip(trained, again, strict=True)):
                names.append(places[number] if number < len(places) else "")
    if names:
        yield Sign("input unread", tuple(names), (float(len(given)),))


def _ahead(asked: _Asked, given: list[Tensor], first: list[Tensor]) -> Iterator[Sign]:
    """Yield that the answers at places change with a token that follows them."""
    x = given[0]
    made = [place for place, one in enumerate(first) if one.dim() == 3 and one.shape[:2] == x.shape[:2]]
    if x.dim() != 2 or x.is_floating_point() or x.shape[1] < FEWEST_PLACES or not made:
        return

    def change(place: int, one: Tensor) -> Tensor:
        found = one.clone()
        if not place:
            found[:, -1] = one[:, -1].roll(1, 0)
        return found

    found = asked.answers(change)
    if any(_apart(first[place][:, :-1], found[place][:, :-1]) > APART for place in made):
        yield Sign("asked ahead")
