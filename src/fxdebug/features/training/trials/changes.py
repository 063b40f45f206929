"""The changes that advice on a training can be tried by, for each rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members
from fxdebug.data.findings import Finding
from fxdebug.features.shared.records.training import TrainingRecord
from fxdebug.features.training.verdict.of_loop import norms_of_clipping
from fxdebug.features.training.verdict.of_rates import A_RATE, USUAL

Groups = list[dict[str, Any]]
Inputs = Callable[[Tensor], Tensor]
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
USUAL_DROP = 0.1
WARM = 20  # steps: half of those of a trial


@dataclass(frozen=True, eq=False)
class Change:
    """One change: ``model`` and ``groups`` (of the optimizer) are changed in place.

    ``from_first``: both begin with the weights that the training began with, else with those of now. ``standardises``:
    the first input is mapped. ``clips`` is the norm to which gradients are cut down, as the training has it and as the
    change has it. ``warms`` are the steps in which the learning rates rise to what they are.
    """

    text: str
    from_first: bool = False
    model: Callable[[nn.Module], None] = lambda model: None
    groups: Callable[[Groups], None] = lambda groups: None
    standardises: bool = False
    clips: tuple[float | None, float | None] = (None, None)
    warms: int = 0

    @property
    def control(self) -> Change:
        """The training as it is, from the same weights: the change is compared with it."""
        return Change("", self.from_first, clips=(self.clips[0], self.clips[0]))


def changes_for(finding: Finding, record: TrainingRecord) -> list[Change]:
    """Return the changes that a finding advises, the likeliest first; none where none can be tried."""
    make = _CHANGES.get(finding.rule)
    return [] if make is None else list(make(record))


def _top(record: TrainingRecord) -> float:
    return max((max(step.rates) for step in record.steps if step.rates), default=0.0)


def times(factor: float) -> Callable[[Groups], None]:
    """Return a change of the learning rates of all groups."""

    def change(groups: Groups) -> None:
        for group in groups:
            group["lr"] = group["lr"] * factor

    return change


def back_to(top: float) -> Callable[[Groups], None]:
    """Return a change that raises all learning rates until the highest is ``top`` again."""

    def change(groups: Groups) -> None:
        highest = max(float(group["lr"]) for group in groups)
        for group in groups:
            group["lr"] = float(group["lr"]) * top / highest if highest else top

    return change


def _without_decay(groups: Groups) -> None:
    for group in groups:
        group["weight_decay"] = 0.0


def _drop_less(model: nn.Module) -> None:
    for module in members.modules_of(model):
        if isinstance(module, DROPOUTS) and module.p > 0.5:
            module.p = USUAL_DROP


def _thaw(model: nn.Module) -> None:
    for parameter in members.parameters_of(model):
        if parameter.is_floating_point():
            parameter.requires_grad_(True)


def _lower(record: TrainingRecord) -> Iterator[Change]:
    top = _top(record)
    for factor in (0.1, 0.01):
        yield Change(f"{A_RATE}{top * factor:.3g}", True, groups=times(factor))
    yield Change(f"a rate that rises to {top:.3g} in {WARM} steps", True, warms=WARM)


def _higher(record: TrainingRecord) -> Iterator[Change]:
    """Yield the rate at which a step changes weights by the usual share, and ten times that."""
    updates = [one.update for one in record.signs if one.update]
    if updates:
        factor = 10.0 ** round(math.log10(USUAL / median(updates)))
        for more in (factor, 10 * factor):
            yield Change(f"{A_RATE}{_top(record) * more:.3g}", groups=times(more))


def _restored(record: TrainingRecord) -> Iterator[Change]:
    yield Change(f"the learning rate of {_top(record):.3g} again", groups=back_to(_top(record)))


def _summed(record: TrainingRecord) -> Iterator[Change]:
    elements = record.learning.loss.elements if record.learning is not None else 0
    if elements > 1:
        yield Change(f"a learning rate divided by {elements}", True, groups=times(1 / elements))


def _standard(record: TrainingRecord) -> Iterator[Change]:
    yield Change("inputs with mean 0 and deviation 1", True, standardises=True)


def _clipped_less(record: TrainingRecord) -> Iterator[Change]:
    norms = norms_of_clipping(record)
    if norms is not None:
        yield Change(f"gradients clipped at {norms[1]:.3g}", True, clips=norms)


def _drawn(model: nn.Module) -> None:
    """Draw the weights of all layers as their classes do."""
    for module in members.modules_of(model):
        draw = getattr(type(module), "reset_parameters", None)
        if draw is not None and any(p.dim() >= 2 for p in module._parameters.values() if p is not None):
            draw(module)


def _drawn_again(record: TrainingRecord) -> Iterator[Change]:
    yield Change("weights drawn as torch draws them", True, model=_drawn)


_CHANGES: Mapping[str, Callable[[TrainingRecord], Iterator[Change]]] = {
    "learning rate too high": _lower,
    "learning rate too low": _higher,
    "rate spent early": _restored,
    "clipped away": _clipped_less,
    "weights too large": _drawn_again,
    "weights too small": _drawn_again,
    "units alike": _drawn_again,
    "weight decay": lambda record: iter([Change("no weight decay", True, groups=_without_decay)]),
    "loss is a sum": _summed,
    "inputs not normalised": _standard,
    "dropout too strong": lambda record: iter([Change(f"dropout of {USUAL_DROP:g}", model=_drop_less)]),
    "frozen at random": lambda record: iter([Change("nothing frozen", model=_thaw)]),
}


def floating(tree: Any, change: Inputs) -> Any:
    """Return arguments of a forward with its first tensor of floating point changed."""
    done = False

    def walk(one: Any) -> Any:
        nonlocal done
        if isinstance(one, Tensor) and one.is_floating_point() and not done:
            done = True
            return change(one)
        if isinstance(one, tuple) and not hasattr(one, "_fields"):
            return tuple(walk(each) for each in one)
        if isinstance(one, list):
            return [walk(each) for each in one]
        return {key: walk(each) for key, each in one.items()} if type(one) is dict else one

    return walk(tree)


def standardising(examples: list[Tensor]) -> Inputs:
    """Return a map of inputs to mean 0 and deviation 1, of each column of rows, as these examples have them."""
    rows = torch.cat([one.detach().float() for one in examples])
    over = 0 if rows.dim() == 2 else tuple(range(rows.dim()))
    mean, deviation = rows.mean(over), rows.std(over)
    deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return lambda x: ((x.float() - mean) / deviation).to(x.dtype)
