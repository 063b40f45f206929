"""Measure one step of a training loop: what every call returns, its gradient, the weights and their updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import ForwardsOnly, Guard, Sites, members, named_tensors, special_tensors, untracked
from fxdebug.data.values import Stats
from fxdebug.features.shared.gradients import gradient_runs, open_calls
from fxdebug.features.shared.records.gradients import ParameterGradient, TensorGradient
from fxdebug.features.shared.records.training import NamedHistogram, ResultStatistics, StepHistograms
from fxdebug.stats.histogram import histogram
from fxdebug.stats.measure import Unmeasurable, elements_of, measure


class StepStatistics(ForwardsOnly):
    """An observer of a model's modules for one step. Calls that the backward makes (checkpoints) are left out."""

    def __init__(
        self,
        sites: Sites,
        ran_unregistered: Callable[[nn.Module], None],
        on_call: Callable[[str, nn.Module, Any, Any, Any], None],
    ) -> None:
        self._calls = open_calls.OpenCalls(sites)
        self._on_call = on_call
        self._ran_unregistered = ran_unregistered
        self.guard = Guard(self._calls.path)
        self._has_parts = False  # was a result distributed over ranks?
        self._results: list[ResultStatistics] = []
        self._gradients: dict[int, TensorGradient] = {}  # by position among the results
        self._before: dict[int, Tensor] = {}

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward, measure what it returns and put a hook on it."""
        call, output = self._calls.run(module, lambda: run(*args, **kwargs))
        if call is not None:
            self.guard(f"what {call.path or 'the model'} returned", self._measure, call, output)
            self.guard(f"a call of {call.path or 'the model'}", self._on_call, call.path, module, args, kwargs, output)
        return output

    def wants(self, module: nn.Module) -> bool:
        """Leave modules that were not in the model without a wrapper, and tell of them."""
        self._ran_unregistered(module)
        return False

    def _measure(self, call: open_calls.NumberedCall, output: Any) -> None:
        for place, tensor in named_tensors(output):
            with untracked():
                described = special_tensors.description_of(tensor)
                stats = _measured(described)
            self._has_parts = self._has_parts or described.sharding is not None
            if tensor.requires_grad:
                gradient_runs.note_gradient(tensor, len(self._results), self._gradients, self.guard)
            self._results.append(ResultStatistics(*call, place, described.shape, stats, None))

    def before_step(self, model: nn.Module) -> None:
        """Copy the weights: the optimizer is about to change them."""
        with untracked():
            self._before = {
                id(p): special_tensors.local_part(p).detach().clone()
                for p in members.parameters_of(model)
                if p.grad is not None
            }

    def results(self) -> tuple[ResultStatistics, ...]:
        """Return what was measured of the calls, in the order in which they began."""
        found = [replace(result, gradient=self._gradients.get(i)) for i, result in enumerate(self._results)]
        return tuple(sorted(found, key=lambda result: result.position))

    def notes(self) -> list[str]:
        """Return what was not looked at, or only in part."""
        return [*([special_tensors.PARTS] if self._has_parts else []), *self.guard.texts()]

    def parameters(
        self, model: nn.Module, rates: Mapping[int, float | None], optimised: Collection[int]
    ) -> tuple[ParameterGradient, ...]:
        """Return the gradients of the parameters and their updates; the optimizer has made its step.

        ``rates`` are the learning rates of the parameters that this optimizer has, by id: others have no update.
        ``optimised`` are the ids of those that some optimizer has.
        """
        found = []
        for name, parameter in members.named_parameters_of(model):
            before = self._before.get(id(parameter)) if id(parameter) in rates else None
            with untracked():
                update = (
                    None
                    if before is None
                    else gradient_runs.norm_of_tensor(special_tensors.local_part(parameter).detach() - before)
                )
            is_optimised, rate = id(parameter) in optimised, rates.get(id(parameter))
            found.append(
                gradient_runs.parameter_gradient(
                    name, parameter, self._calls.ran, update, self.guard, is_optimised, rate
                )
            )
        return tuple(found)


def step_histograms(number: int, model: nn.Module) -> StepHistograms:
    """Count the elements of every weight and of its gradient, after the optimizer's step; complex ones are left out."""
    weights: list[NamedHistogram] = []
    gradients: list[NamedHistogram] = []
    with untracked():
        for name, parameter in members.named_parameters_of(model):
            for tensor, found in ((parameter, weights), (parameter.grad, gradients)):
                if tensor is None or tensor.is_sparse or tensor.is_complex():
                    continue
                found.append(NamedHistogram(name, histogram(elements_of(special_tensors.local_part(tensor).detach()))))
    return StepHistograms(number, tuple(weights), tuple(gradients))


def _measured(described: special_tensors.Description) -> Stats | None:
    try:
        return None if described.body is None else measure(described.body.detach())
    except (Unmeasurable, RuntimeError, torch.OutOfMemoryError):
        return None
