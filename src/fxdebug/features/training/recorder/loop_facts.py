"""Facts about a training loop that no single step shows: optimizers, steps that are missing, what nobody trains."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fxdebug.capture.probe import members, special_tensors, untracked
from fxdebug.features.shared.gradients import gradient_runs
from fxdebug.features.shared.records.gradients import LossInput, Unregistered

SKIPS = 10  # in a row: a scale of 2^16 that is too high by far is found in fewer
SETTLED = 64  # steps after which every optimizer has made one, and forwards after which one is overdue
MANY = 5  # steps of an optimizer without parameters of the model, each after a backward of it
LOSSES = 3  # that are looked at: a loop may have one for each of its models
_LENGTHS = ("total_steps", "T_max", "total_iters")  # of schedulers
PLACES = 16  # elements of each weight that are compared


class LoopFacts:
    """The facts that the forwards, backwards and steps of one training show together.

    ``forwards`` and ``backwards`` are counted from the last step. ``others`` counts steps of optimizers that have none
    of the model's parameters, by class; ``foreign`` are the classes of those among them that were to be followed, or
    that made so many steps that no other will. ``ran`` and ``went_back`` tell whether the model ever ran with gradients
    on, and whether a backward followed, ``arrived`` whether a parameter ever had a gradient. ``optimised`` are the ids
    of parameters that some optimizer has, and ``unoptimised`` the names of those that had a gradient at a step and that
    none has. ``skipped`` counts steps in a row that a scaler left out: it halves its factor each time, from
    ``first_scale`` to ``scale``. ``loss_inputs`` are operands of the losses that these are not made for,
    ``loss_function`` is the function of torch that made one of them. ``maximizes`` tells whether the optimizer goes
    uphill. ``parameters`` are those of the model when the step began: a walk through all modules takes its time.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.parameters = members.parameters_of(model)
        self.steps = self.forwards = self.backwards = self.skipped = 0
        self.ran = self.went_back = self.arrived = False
        self.others: Counter[str] = Counter()
        self.foreign: dict[str, None] = {}
        self.optimised: set[int] = set()
        self.first_scale = self.scale = 1.0
        self.found: list[gradient_runs.Found] = []
        self.loss_inputs: dict[tuple[str, str], LossInput] = {}
        self.loss_function = ""
        self.maximizes = False
        self._losses_seen = 0
        self._gradients: dict[str, Tensor] = {}
        self.schedule: tuple[str, int, int] | None = None  # of the learning rate: its length, and how far it is
        self.schedules, self.scheduler = 0, ""  # steps of a schedule before any of an optimizer, and its class
        self.ahead: int | None = None  # steps that a schedule had made before any of the optimizer's
        self._first = self._sample()

    def on_backward(self, scale: float) -> bool:
        """Count a backward by the scaler's factor in its loss; return whether the step before it was skipped."""
        was_skipped = self.backwards > 0 and scale < self.scale
        if was_skipped:
            self.skipped += 1
        elif scale != self.scale or not self.skipped:
            self.skipped, self.first_scale = 0, scale
        self.scale = scale
        self.backwards += 1
        self.went_back = True
        return was_skipped

    def look_at_loss(self, loss: Tensor) -> None:
        """Look at what the first losses were made of; all later ones are made as these are."""
        if self._losses_seen < LOSSES:
            self._losses_seen += 1
            self.loss_inputs |= {(one.kind, one.op): one for one in gradient_runs.loss_inputs(loss)}
            self.loss_function = self.loss_function or gradient_runs.function_of_loss(loss)

    @property
    def uses(self) -> int:
        """The forwards since the last step, or the backwards of a container whose parts are called by themselves."""
        return max(self.forwards, 0 if self.ran else self.backwards)

    def on_forward(self) -> None:
        """Count a forward with gradients on."""
        if not self.forwards:
            self.parameters = members.parameters_of(self._model)
        self.forwards += 1
        self.ran = True

    def know_parameters(self) -> None:
        """Take the parameters of a model that is not called itself."""
        if not self.parameters:
            self.parameters = members.parameters_of(self._model)

    def look_for_gradients(self) -> None:
        """Note whether a parameter has a gradient, until one had."""
        self.arrived = self.arrived or any(parameter.grad is not None for parameter in self.parameters)

    def on_step(self, optimizer: Optimizer, rates: Mapping[int, float | None]) -> None:
        """Note a step of an optimizer that is followed; ``rates`` are those of its parameters, by id."""
        self.steps += 1
        self.forwards = self.backwards = self.skipped = 0
        self.optimised.update(rates)
        self.maximizes = any(group.get("maximize") is True for group in optimizer.param_groups)
        if not any(id(parameter) in rates for parameter in self.parameters):
            self.foreign[type(optimizer).__name__] = None

    def on_other(self, optimizer: Optimizer) -> None:
        """Note a step of an optimizer that is not followed, by the parameters that it has."""
        rates = gradient_runs.rates_of(optimizer)
        if any(id(parameter) in rates for parameter in self.parameters):
            self.optimised.update(rates)
            return
        name = type(optimizer).__name__
        self.others[name] += 1
        if self.backwards >= self.others[name] >= MANY and not self.steps:
            self.foreign[name] = None

    def on_schedule(self, scheduler: LRScheduler) -> None:
        """Note how far a schedule has gone, if its optimizer is one of the model's."""
        planned = next((n for name in _LENGTHS if isinstance(n := getattr(scheduler, name, None), int) and n > 1), None)
        given = [p for group in scheduler.optimizer.param_groups[:1] for p in group["params"][:1]]
        if not self.steps and any(id(p) in set(map(id, self.parameters)) for p in given):
            self.schedules, self.scheduler = self.schedules + 1, type(scheduler).__name__
        if not any(id(p) in self.optimised for p in given):
            return
        if self.ahead is None:
            self.ahead = int(scheduler.last_epoch) - self.steps
        if planned is not None:
            self.schedule = type(scheduler).__name__, planned, int(scheduler.last_epoch)

    def before_step(self) -> None:
        """Note which parameters have gradients; of a long training not at every step."""
        self.look_for_gradients()
        if self.steps & (self.steps - 1) == 0:
            own = members.named_parameters_of(self._model)  # a frozen one may have a gradient of an earlier training
            set_to_rest = self._set_to_rest()
            self._gradients |= {
                name: p
                for name, p in own
                if p.grad is not None and p.requires_grad and not name.startswith(set_to_rest)
            }

    def _set_to_rest(self) -> tuple[str, ...]:
        """Return the beginnings of names in parts of a training model that were set to eval mode: left out on purpose.

        Single normalisations are not meant: these are set so while their weights learn.
        """
        if not self._model.training:
            return ()
        modules = [(path, m) for path, m in members.named_modules_of(self._model) if path and not m.training]
        return tuple([f"{path}." for path, m in modules if len(list(members.named_modules_of(m))) > 2])

    @property
    def asks(self) -> bool:
        """Does a parameter ask for a gradient?"""
        return any(parameter.requires_grad for parameter in members.parameters_of(self._model))

    @property
    def unoptimised(self) -> tuple[list[str], int]:
        """The names of parameters that get gradients and are in no optimizer, and the number of their elements."""
        left = {name: p for name, p in self._gradients.items() if id(p) not in self.optimised}
        return list(left), sum(parameter.numel() for parameter in left.values())

    @property
    def unregistered(self) -> Sequence[Unregistered]:
        """Everything that gets gradients, is no parameter of the model, and is in no optimizer."""
        return gradient_runs.outside_of(self.found, self.optimised)

    def has_changed(self) -> bool:
        """Have weights changed since the beginning, whoever did it?"""
        return self._sample() != self._first

    def _sample(self) -> list[bytes]:
        found = []
        with untracked(), torch.no_grad():
            for parameter in members.parameters_of(self._model):
                with contextlib.suppress(Exception):  # one without data, or of a class that has no such operations
                    flat = special_tensors.local_part(parameter).detach().reshape(-1)
                    some = flat[:: max(1, len(flat) // PLACES)][:PLACES]
                    found.append(some.cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return found
