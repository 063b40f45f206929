"""The subject of a trial: a model with its inputs, what makes a step of it, and the settings around each run."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import deep_copy, members, state_restored
from fxdebug.errors import UsageError, first_line
from fxdebug.features.shared.times.timed_runs import Loss, scalar_loss

Around = Callable[[], contextlib.AbstractContextManager[Any]]
Optimizers = Callable[[Any], torch.optim.Optimizer]


class NotHere(Exception):
    """A knob cannot be tried on this model, with these inputs or on this machine; the text says why."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, its inputs, the loss and the optimizer of a step, and what is set around each run.

    ``call`` runs the model: itself, or what compiled it. ``rows`` tells how many times the batch is that of the
    original. ``sets_to_none``: gradients are thrown away before each step, and not filled with zeros.
    ``untrained`` names the parameters that the optimizer does not have.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Loss | None = None
    make_optimizer: Optimizers | None = None
    around: tuple[Around, ...] = ()
    call: Callable[..., Any] | None = None
    rows: int = 1
    optimizer: torch.optim.Optimizer | None = None
    sets_to_none: bool = True
    untrained: frozenset[str] = frozenset()

    def changeable(self) -> Subject:
        """Return the same with a copy of the model; raises ``NotHere`` where it cannot be copied."""
        try:
            model = deep_copy(self.model, strict=True)
        except Exception as error:
            raise NotHere(f"the model cannot be copied: {type(error).__name__}: {first_line(error)}") from error
        for parameter in members.parameters_of(model):
            parameter.grad = None
        return self.with_optimizer(replace(self, model=model, call=None))

    @staticmethod
    def with_optimizer(subject: Subject) -> Subject:
        """Return the subject with an optimizer for the parameters of its model."""
        if subject.make_optimizer is None:
            return subject
        parameters = members.named_parameters_of(subject.model)
        trained = [parameter for name, parameter in parameters if name not in subject.untrained]
        return replace(subject, optimizer=subject.make_optimizer(trained))

    def within(self, *around: Around) -> Subject:
        """Return the subject with more settings around each run."""
        return replace(self, around=(*self.around, *around))

    def to_run(self) -> Subject:
        """Return a subject whose steps leave the model's weights alone: a copy where there is an optimizer."""
        return self if self.make_optimizer is None else self.changeable()

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Set what is set around a run."""
        with contextlib.ExitStack() as stack:
            for one in self.around:
                stack.enter_context(one())
            yield

    def inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of the inputs: the model may write into them."""
        args, kwargs = deep_copy((self.args, dict(self.kwargs)))
        return args, kwargs

    def step(self, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Any, Tensor | None]:
        """Run the model, and where there is a loss the backward and the optimizer; return the output and the loss."""
        args, kwargs = inputs
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=self.sets_to_none)
        elif self.loss is not None:
            self.model.zero_grad(set_to_none=self.sets_to_none)
        output = (self.model if self.call is None else self.call)(*args, **kwargs)  # compiled, it may have no truth
        if self.loss is None:
            return output, None
        loss = scalar_loss(self.loss, output)
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        return output, loss.detach()

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[Callable[[], None]]:
        """Restore random generators, buffers, attributes and gradients after the block; yield what does so before."""
        with state_restored(self.model) as restore:
            yield restore


def untrained_by(optimizer: Any, model: nn.Module) -> frozenset[str]:
    """Return the names of the parameters that an optimizer does not have; none where it has none of the model's."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return frozenset()
    has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    named = members.named_parameters_of(model)
    missing = frozenset([name for name, parameter in named if id(parameter) not in has])
    return missing if len(missing) < len(named) else frozenset()


def optimizers_like(optimizer: Any) -> Optimizers | None:
    """Return a function that makes an optimizer of parameters, from one, from a class, or from such a function.

    >>> make = optimizers_like(torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.5))
    >>> make([torch.ones(1, requires_grad=True)]).defaults["lr"]
    0.5
    """
    if optimizer is None:
        return None
    if isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer)
        known = inspect.signature(kind).parameters
        options = {name: value for name, value in optimizer.defaults.items() if name in known}
        return lambda parameters: kind(parameters, **options)
    if callable(optimizer):
        made: Optimizers = optimizer
        return made
    raise UsageError(f"optimizer={optimizer!r}: give an optimizer, or a function that makes one of parameters")
