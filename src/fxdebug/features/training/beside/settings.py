"""Settings that nothing reads: a module that is told to freeze, a misspelt name, a rate or a schedule of nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from difflib import SequenceMatcher
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from fxdebug.capture.probe import members
from fxdebug.features.shared.records.learning import Sign

MEANT = "requires_grad"
ALIKE = 0.85  # of the letters
RATES = ("lr", "learning_rate")
FEWEST = 3  # steps of a schedule


class Settings:
    """Settings of one training that have no effect."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._schedules: dict[int, tuple[Any, str, int]] = {}  # by the optimizer that they are for, with their steps
        self._stepped: dict[int, str] = {}  # optimizers of the model's parameters that made steps
        self._beside: Counter[tuple[str, float, float]] = Counter()  # rates that an optimizer has as an attribute

    def on_step(self, optimizer: Optimizer) -> None:
        """Note an optimizer that made a step, and whether a rate was set beside that of its groups."""
        self._stepped[id(optimizer)] = type(optimizer).__name__
        for name in RATES if type(optimizer).__module__.startswith("torch.") else ():
            told = vars(optimizer).get(name)
            used = {rate if type(rate := group.get("lr")) is float else None for group in optimizer.param_groups}
            one = next(iter(used), None)
            if type(told) is float and len(used) == 1 and one is not None and told != one:
                self._beside[name, told, one] += 1

    def on_schedule(self, scheduler: Any, own: Set[int]) -> None:
        """Note a step of a schedule; ``own`` are the ids of the model's parameters."""
        optimizer = getattr(scheduler.optimizer, "optimizer", scheduler.optimizer)
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            _, _, count = self._schedules.get(id(optimizer), (None, "", 0))
            self._schedules[id(optimizer)] = optimizer, type(scheduler).__name__, count + 1

    def signs(self, steps: int, learning: Set[int]) -> Sequence[Sign]:
        """Return what has no effect after so many steps; ``learning`` are the ids of parameters that change."""
        return [*self._frozen(learning), *self._rates(steps), *self._of_others()]

    def _frozen(self, learning: Set[int]) -> Iterator[Sign]:
        for path, module in members.named_modules_of(self._model):
            slip = next((name for name, told in vars(module).items() if told is False and _is_meant(name)), None)
            own = [p for p in members.parameters_of(module) if p.requires_grad and id(p) in learning]
            if slip is not None and own:
                yield Sign("freezes nothing", (slip, path), (float(len(own)),))
                return
        slips = [
            (name, slip)
            for name, p in members.named_parameters_of(self._model)
            for slip, told in vars(p).items()
            if told is False and _is_meant(slip) and p.requires_grad and id(p) in learning
        ]
        if slips:
            yield Sign("freezes nothing", (slips[0][1], slips[0][0]), (float(len(slips)),))

    def _rates(self, steps: int) -> Iterator[Sign]:
        """Yield a rate that an optimizer has as an attribute, where that of its groups never changed."""
        if len(self._beside) == 1:
            (name, told, used), count = next(iter(self._beside.items()))
            if count >= steps - 1 > FEWEST:
                yield Sign("rate beside", (name,), (told, used))

    def _of_others(self) -> Iterator[Sign]:
        """Yield a schedule of an optimizer that never made a step, where another one of the same parameters did."""
        for key, (optimizer, name, count) in self._schedules.items():
            if key not in self._stepped and self._stepped and count >= FEWEST:
                rate = optimizer.param_groups[0].get("lr")
                yield Sign("schedule of others", (name,), (float(count), float(rate) if type(rate) is float else 0.0))
                return


def _is_meant(name: str) -> bool:
    """Is this what a setting of parameters is called, or nearly so, on something that has no such setting?

    >>> [_is_meant(name) for name in ("requires_grad", "require_grad", "required_grad", "training", "grad")]
    [True, True, True, False, False]
    """
    return name not in _KNOWN and SequenceMatcher(None, name, MEANT).ratio() > ALIKE


_KNOWN = frozenset(dir(Tensor)) - {MEANT} | {"requires_grad_"}
