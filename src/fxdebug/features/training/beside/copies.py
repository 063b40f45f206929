"""Copies of the model that the loop computes with: teachers and target networks that do not follow as they should."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors, root_forward, untracked
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.beside.ends import FEWEST_ROWS, SHARE, Ends, ratios_between
from fxdebug.features.training.recorder.samples import joined, sample

STAYS = "copy stays"
MOST_COPIES = 4
MOST_NUMBERS = 1 << 16  # of an answer that is kept
FEW = 32  # elements of each tensor that are compared
FEWEST_LOOKS = 5  # at targets
FEWEST_RUNS = 10
SAME = 1e-4  # relative: how near ratios are to one another


class Copies:
    """Copies of a model, or of a part of it, that run in its training and are no part of what learns."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._copies: list[_Copy] = []
        self._own: list[Tensor] = []  # what the model returned in this step
        self._ends = Ends()

    def search(self, optimised: Set[int]) -> None:
        """Look for modules like the model or a part of it, with weights of the same sizes, that no optimizer has."""
        kind, sizes = type(self._model), _sizes(self._model)
        inside = set(map(id, members.modules_of(self._model)))
        children = [(path, one) for path, one in members.named_modules_of(self._model) if path.count(".") < 2 and path]
        like = {id(type(one)) for _, one in children if len(_sizes(one)) > 2}
        is_own = kind.__module__.partition(".")[0] != "torch" or len(sizes) > 2  # else any layer of torch is like it
        kinds = like | ({id(kind)} if is_own else set())
        others = [one for one in members.modules_in_memory() if id(type(one)) in kinds] if kinds else []
        others = [one for one in others if id(one) not in inside]
        whole = [one for one in others if is_own and type(one) is kind]
        pairs: list[tuple[nn.Module, nn.Module, str]] = [(one, self._model, "") for one in whole]
        inside |= {id(part) for one in whole for part in members.modules_of(one)}
        for path, one in children:
            other = next((it for name, it in children if it is not one and _is_alike(it, one)), None)
            if other is not None:
                pairs.append((one, other, path))
        parts = [part for _, part in children]
        for one in others:
            part = None if id(one) in inside else next((part for part in parts if _is_alike(part, one)), None)
            if part is not None:
                pairs.append((one, part, ""))
        for one, source, path in pairs:
            own = members.parameters_of(one)
            is_still = own and not any(id(p) in optimised for p in own)
            follows = any(id(p) in optimised for p in members.parameters_of(source))
            if len(self._copies) < MOST_COPIES and is_still and follows and _sizes(one) == _sizes(source):
                self._copies.append(_Copy(one, source, path))

    def remove(self) -> None:
        """Look at copies no more; they are as before."""
        for one in self._copies:
            one.front.restore()

    def put(self) -> None:
        """Look at copies that are known already."""
        for one in self._copies:
            one.front.put()

    def end_step(self) -> None:
        """Forget what copies returned in a step."""
        self._own = []
        for one in self._copies:
            one.answers = []

    def note_target(self, target: Tensor) -> None:
        """Note whether the targets of a loss are made of what a copy returned."""
        if target.is_floating_point() and target.numel() >= FEWEST_ROWS:
            for one in self._copies:
                one.note_target(target)
            answers = [*(answer for one in self._copies for answer in one.answers), *self._own]
            self._ends.note(target.detach().reshape(-1), [one for one in answers if len(one) == target.numel()])

    def note_own(self, answer: Tensor) -> None:
        """Note what the model itself returned: targets may be made of it."""
        if len(self._own) < MOST_COPIES and answer.numel() <= MOST_NUMBERS:
            self._own.append(answer.detach())

    def signs(self) -> Iterator[Sign]:
        """Yield copies of which weights, or statistics, stay as they were."""
        found = [sign for one in self._copies for sign in one.signs()]
        yield from found
        if not any(sign.name == STAYS for sign in found):  # else values are always the same, and look like rewards
            yield from self._ends.signs()


class _Copy:
    """One copy, and what it is a copy of."""

    def __init__(self, module: nn.Module, source: nn.Module, path: str) -> None:
        self._module, self._source = weakref.ref(module), weakref.ref(source)
        self._path, self._name = path, type(module).__name__
        self.front = root_forward(module, "forward", self._around)
        self.front.put()
        self.answers: list[Tensor] = []
        self._first = _state(module), _state(source)
        self._runs = self._in_eval = self._looks = self._made_of = 0

    def _around(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = run(*args, **kwargs)
        module = self._module()
        self._runs += 1
        self._in_eval += int(module is not None and not module.training)
        made = next((tensor for _, tensor in named_tensors(output) if tensor.is_floating_point()), None)
        if made is not None and len(self.answers) < MOST_COPIES and made.numel() <= MOST_NUMBERS:
            self.answers.append(made.detach())
        return output

    def note_target(self, target: Tensor) -> None:
        """Note whether many targets are one number times what the copy returned, as those of rewards of 0 are."""
        if not self.answers:
            return
        self._looks += 1
        with untracked():
            told = target.detach().reshape(-1).double()
            self._made_of += int(any(_is_multiple(told, value) for one in self.answers for value in _values(one)))

    def signs(self) -> Iterator[Sign]:
        module, source = self._module(), self._source()
        if module is None or source is None or self._runs < FEWEST_RUNS:
            return
        (weights, statistics), (its_weights, its_statistics) = _state(module), _state(source)
        (first, first_statistics), (its_first, its_first_statistics) = self._first
        if not _differs(its_weights, its_first):
            return
        moves = _differs(weights, first)
        names = (self._name, self._path)
        stays = statistics is not None and not _differs(statistics, first_statistics)
        if moves and stays and _differs(its_statistics, its_first_statistics) and self._in_eval == self._runs:
            yield Sign("statistics of a copy", names, (float(self._runs),))
        if not moves and self._looks >= FEWEST_LOOKS and self._made_of > SHARE * self._looks:
            yield Sign(STAYS, names, (float(self._runs),))


def _sizes(module: nn.Module) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for p in members.parameters_of(module)]


def _is_alike(one: nn.Module, other: nn.Module) -> bool:
    return type(one) is type(other) and bool(sizes := _sizes(one)) and sizes == _sizes(other) and len(sizes) > 2


def _state(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """Return samples of the weights of a module, and of its running statistics."""
    with untracked(), torch.no_grad():
        weights = [sample(p, FEW).clone() for p in members.parameters_of(module)]
        named = [b for name, b in members.named_buffers_of(module) if name.endswith(("running_mean", "running_var"))]
        statistics = [sample(b, FEW).clone() for b in named]
        return joined(weights) if weights else None, joined(statistics) if statistics else None


def _differs(one: Tensor | None, other: Tensor | None) -> bool:
    return one is not None and other is not None and not torch.equal(one, other)


def _values(answer: Tensor) -> Sequence[Tensor]:
    """Return what targets may be made of: the answers themselves, or the largest of each example."""
    flat = answer.reshape(-1).double()
    return [flat, answer.amax(-1).reshape(-1).double()] if answer.dim() > 1 and answer.shape[-1] > 1 else [flat]


def _is_multiple(told: Tensor, value: Tensor) -> bool:
    """Are many numbers one and the same discount times others?

    >>> value = torch.rand(16) + 1
    >>> told = 0.9 * value.double() + torch.tensor([0.0, 1.0] * 8)
    >>> _is_multiple(told, value.double()), _is_multiple(value.double(), value.double())
    (True, False)
    """
    if len(told) != len(value) or len(told) < FEWEST_ROWS or not bool(value.isfinite().all()):
        return False
    ratios = ratios_between(told, value)
    if ratios is None:
        return False
    middle = ratios.sort().values[len(ratios) // 2]
    alike = int(((ratios - middle).abs() < SAME).sum())
    return alike > SHARE * len(told) and math.isfinite(float(middle)) and bool((value.std() > SAME).item())
