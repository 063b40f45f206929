"""Run one step of a model, forward and backward, and note its gradients; the model is then as before."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fxdebug.capture.probes.value_gradients import ValueGradients, gradient_numbers
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.same_start import copied_inputs, gradients_restored, state_restored
from fxdebug.capture.runs.timed_runs import Loss, scalar_loss
from fxdebug.capture.tensors.special_tensors import SHARDED, has_sharded_weights, local_part
from fxdebug.capture.torch_state.module_members import named_parameters_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.measured.gradients import GradientRecord, ParameterGradient, Reach, norm_of
from fxdebug.errors import UsageError, first_line
from fxdebug.stats.measure import measure


def run_with_gradients(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss: Loss,
    optimizer: Optimizer | None = None,
    method: str = "forward",
) -> GradientRecord:
    """Run one forward, or another method, and backward on copies of the inputs and return the gradients.

    The optimizer's step is taken on a copy of the parameters. Parameters, gradients, buffers, random numbers and the
    optimizer are then as before. Exceptions of the model and of the loss pass through.
    Raises ``UsageError`` for a loss that is no scalar with a gradient, and for a model without data.
    """
    if any(parameter.is_meta for parameter in parameters_of(model)):
        raise UsageError("the model is on the meta device: its gradients have no numbers; give it data (to_empty)")
    sites = Sites(model)
    probe = ValueGradients(sites)
    inputs, keywords = copied_inputs((args, dict(kwargs)))
    with torch.enable_grad(), state_restored(model), gradients_restored(model):
        try:
            with Attached(probe, sites), probe:
                output = (model if method == "forward" else getattr(model, method))(*inputs, **keywords)
            with probe:
                scalar = scalar_loss(loss, output)
                if scalar.is_meta:
                    raise UsageError("the loss is on the meta device: gradients have no numbers there")
            scalar.backward()
        finally:
            probe.forget()
        updates, notes = _updates(model, optimizer)
        notes = [*notes, SHARDED] if has_sharded_weights(model) else notes
        parameters = tuple(
            [parameter_gradient(name, p, probe.ran, updates.get(p)) for name, p in named_parameters_of(model)]
        )
        return GradientRecord(
            loss=float(scalar.detach()),
            results=probe.results(),
            parameters=parameters,
            bad=probe.bad,
            optimizer=None if optimizer is None else type(optimizer).__name__,
            notes=tuple(notes),
        )


def parameter_gradient(name: str, parameter: Tensor, ran: set[str], update: float | None) -> ParameterGradient:
    """Return the gradient of one parameter; ``ran`` are the paths of modules that were called."""
    path = name.rpartition(".")[0]
    reach: Reach = "trained"
    if not parameter.requires_grad:
        reach = "frozen"
    elif parameter.grad is None:
        reach = "not reached" if path in ran else "not called"
    return ParameterGradient(
        name=name,
        path=path,
        shape=tuple(parameter.shape),
        dtype=str(parameter.dtype)[6:],
        reach=reach,
        weight_norm=norm_of_tensor(parameter),
        gradient=None if parameter.grad is None else gradient_numbers(parameter.grad),
        update_norm=update if reach == "trained" else None,
    )


def norm_of_tensor(tensor: Tensor) -> float:
    """Return the 2-norm of a tensor, summed in float64; of a distributed tensor, that of this rank's part."""
    with untracked():
        return norm_of(measure(local_part(tensor).detach()))


def _updates(model: nn.Module, optimizer: Optimizer | None) -> tuple[dict[Tensor, float], list[str]]:
    """Take the optimizer's step on a copy of it and of the parameters; return the norm of each change."""
    if optimizer is None:
        return {}, []
    own = {id(parameter) for parameter in parameters_of(model)}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    twins = {parameter: _twin(parameter) for parameter in parameters}
    notes = []
    if not any(id(parameter) in own for parameter in parameters):
        notes.append("the optimizer has none of the model's parameters: it was made for another model")
    try:
        memo: dict[int, Any] = {id(parameter): twin for parameter, twin in twins.items()}
        twin_optimizer = copy.deepcopy(optimizer, memo)
        type(twin_optimizer).step(twin_optimizer)  # of the class: a scheduler's wrapper steps the original
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        return {}, [*notes, f"updates: n/a, {type(optimizer).__name__} takes no step on a copy of itself ({reason})"]
    changes: Iterable[tuple[Tensor, Tensor]] = ((p, twin - p.detach()) for p, twin in _detached(twins))
    return {parameter: norm_of_tensor(change) for parameter, change in changes if id(parameter) in own}, notes


def _twin(parameter: Tensor) -> Tensor:
    twin = parameter.detach().clone().requires_grad_(parameter.requires_grad)
    twin.grad = None if parameter.grad is None else parameter.grad.detach().clone()
    return twin


def _detached(twins: Mapping[Tensor, Tensor]) -> Iterable[tuple[Tensor, Tensor]]:
    return ((parameter, twin.detach()) for parameter, twin in twins.items())
