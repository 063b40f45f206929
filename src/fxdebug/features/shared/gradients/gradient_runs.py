"""Run one step of a model, forward and backward, and note its gradients; the model is then as before."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fxdebug.capture.probe import Attached, Guard, Sites, deep_copy, members, special_tensors, state_restored, untracked
from fxdebug.errors import UsageError, first_line
from fxdebug.features.shared.gradients.gradient_stops import GradientStops
from fxdebug.features.shared.gradients.loss_inputs import function_of_loss, loss_inputs
from fxdebug.features.shared.gradients.recomputations import Recomputations
from fxdebug.features.shared.gradients.unregistered_leaves import Found, UnregisteredLeaves, outside_of
from fxdebug.features.shared.gradients.value_gradients import ValueGradients, gradient_numbers, note_gradient
from fxdebug.features.shared.records.gradients import (
    Cancelled,
    GradientRecord,
    GradientStop,
    ParameterGradient,
    Reach,
    norm_of,
)
from fxdebug.features.shared.times.timed_runs import Loss, scalar_loss
from fxdebug.stats.measure import measure

__all__ = [  # with what else is asked about the gradients of one step
    "Found",
    "UnregisteredLeaves",
    "function_of_loss",
    "loss_inputs",
    "norm_of_tensor",
    "note_gradient",
    "outside_of",
    "parameter_gradient",
    "rates_of",
    "run_with_gradients",
]


def run_with_gradients(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss: Loss,
    optimizer: Optimizer | None = None,
    method: str = "forward",
    keep: dict[str, Tensor] | None = None,
) -> GradientRecord:
    """Run one forward, or another method, and backward on copies of the inputs and return the gradients.

    The optimizer's step is taken on a copy of the parameters. Parameters, gradients, buffers, random numbers and the
    optimizer are then as before. Exceptions of the model and of the loss pass through.
    ``keep`` is given the gradients of parameters, by name.
    Where the loss of a model that asks for gradients has none, no gradient reaches any parameter.
    Raises ``UsageError`` for another loss that is no scalar with a gradient, and for a model without data.

    >>> from torch import nn
    >>> record = run_with_gradients(nn.Linear(2, 1, bias=False), (torch.ones(1, 2),), {}, lambda out: out.sum())
    >>> record.loss is None, [(each.name, each.reach) for each in record.parameters]
    (False, [('weight', 'trained')])
    """
    if any(parameter.is_meta for parameter in members.parameters_of(model)):
        raise UsageError("the model is on the meta device: its gradients have no numbers; give it data (to_empty)")
    sites = Sites(model)
    inputs, keywords = deep_copy((args, dict(kwargs)))
    unregistered = UnregisteredLeaves(model, (inputs, keywords))
    probe, again = ValueGradients(sites, unregistered.ran), Recomputations(sites)
    with torch.enable_grad(), state_restored(model):
        try:
            with Attached(again, sites), Attached(probe, sites), probe:
                output = (model if method == "forward" else getattr(model, method))(*inputs, **keywords)
            strays = unregistered.found(output)
            with probe:
                scalar = scalar_loss(loss, output, cut=any(p.requires_grad for p in members.parameters_of(model)))
                if scalar.is_meta:
                    raise UsageError("the loss is on the meta device: gradients have no numbers there")
            probe.stops.end(scalar)
            operands = probe.guard("the loss", loss_inputs, scalar) or ()
            if scalar.requires_grad:
                again.in_backward = True
                with Attached(again, sites):
                    scalar.backward()
            missing = {name: p for name, p in members.named_parameters_of(model) if p.requires_grad and p.grad is None}
            stops = probe.guard("where gradients stop", probe.stops.of, missing) or ()
            flat, cancelled = probe.guard("where gradients are 0", _zeros, probe.stops, model) or ((), ())
        finally:
            probe.forget()
        if keep is not None:
            keep |= {name: p.grad.detach() for name, p in members.named_parameters_of(model) if p.grad is not None}
        updates, notes = _updates(model, optimizer)
        rates = {} if optimizer is None else rates_of(optimizer)
        optimised: Collection[int] | None = None if optimizer is None else rates
        notes = [*notes, special_tensors.SHARDED] if special_tensors.has_sharded_weights(model) else notes
        parameters = tuple(
            [
                parameter_gradient(
                    name, p, probe.ran, updates.get(p), probe.guard,
                    None if optimised is None else id(p) in optimised, rates.get(id(p)),
                )
                for name, p in members.named_parameters_of(model)
            ]
        )  # fmt: skip
        return GradientRecord(
            loss=float(scalar.detach()),
            results=probe.results(),
            parameters=parameters,
            bad=probe.bad,
            optimizer=None if optimizer is None else type(optimizer).__name__,
            notes=(*notes, *probe.guard.texts()),
            unregistered=outside_of(strays, rates),
            checkpointed=tuple(sorted(probe.checkpointed)),
            loss_inputs=operands,
            stops=stops,
            flat=flat,
            recomputed=tuple(again.found),
            moved_again=tuple(again.moved),
            cancelled=cancelled,
            foreign=optimised is not None and bool(parameters) and not any(p.optimised for p in parameters),
        )


def _zeros(stops: GradientStops, model: nn.Module) -> tuple[tuple[GradientStop, ...], tuple[Cancelled, ...]]:
    """Return the operations with the derivative 0, and where gradients cancel, behind parameters of gradient 0."""
    if not stops.makes_zeros:
        return (), ()
    with untracked():
        zero = {
            name: p for name, p in members.named_parameters_of(model) if p.grad is not None and not bool(p.grad.any())
        }
    return stops.flat_of(zero), stops.cancelled_of(zero)


def rates_of(optimizer: Optimizer) -> dict[int, float | None]:
    """Return the learning rate of each parameter that an optimizer has, by its id; ``None`` where it has none.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> list(rates_of(torch.optim.SGD(layer.parameters(), lr=0.5)).values())
    [0.5]
    """
    found: dict[int, float | None] = {}
    for group in optimizer.param_groups:
        rate, known = group.get("lr"), None
        if isinstance(rate, (int, float, Tensor)):
            with untracked(), contextlib.suppress(TypeError, ValueError, RuntimeError):  # a rate of each element
                known = float(rate)
        found |= dict.fromkeys(map(id, group["params"]), known)
    return found


def parameter_gradient(
    name: str,
    parameter: Tensor,
    ran: set[str],
    update: float | None,
    guard: Guard,
    optimised: bool | None = None,
    rate: float | None = None,
) -> ParameterGradient:
    """Return the gradient of one parameter; ``ran`` are the paths of modules that were called.

    >>> parameter_gradient("weight", torch.ones(4, requires_grad=True), set(), None, Guard()).reach
    'not called'
    """
    path = name.rpartition(".")[0]
    reach: Reach = "trained"
    if not parameter.requires_grad:
        reach = "frozen"
    elif parameter.grad is None:
        reach = "not reached" if path in ran else "not called"
    norm, gradient = guard(f"the weight {name}", norm_of_tensor, parameter), None
    if parameter.grad is not None:
        gradient = guard(f"the gradient of {name}", gradient_numbers, parameter.grad)
    return ParameterGradient(
        name=name,
        path=path,
        shape=special_tensors.shape_of(parameter),
        dtype=str(parameter.dtype)[6:],
        reach=reach,
        weight_norm=math.nan if norm is None else norm,
        gradient=gradient,
        update_norm=update if reach == "trained" else None,
        optimised=optimised,
        rate=rate,
    )


def norm_of_tensor(tensor: Tensor) -> float:
    """Return the 2-norm of a tensor, summed in float64; of a distributed tensor, that of this rank's part.

    Raises ``Unmeasurable`` for one without data.

    >>> norm_of_tensor(torch.tensor([3.0, 4.0]))
    5.0
    """
    with untracked():
        return norm_of(measure(special_tensors.local_part(tensor).detach()))


def _updates(model: nn.Module, optimizer: Optimizer | None) -> tuple[dict[Tensor, float], list[str]]:
    """Take the optimizer's step on a copy of it and of the parameters; return the norm of each change."""
    if optimizer is None:
        return {}, []
    own = {id(parameter) for parameter in members.parameters_of(model)}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(id(parameter) in own for parameter in parameters):
        return {}, []
    twins = {parameter: _twin(parameter) for parameter in parameters}
    try:
        memo: dict[int, Any] = {id(parameter): twin for parameter, twin in twins.items()}
        twin_optimizer = copy.deepcopy(optimizer, memo)
        type(twin_optimizer).step(twin_optimizer)  # of the class: a scheduler's wrapper steps the original
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        return {}, [f"updates: n/a, {type(optimizer).__name__} takes no step on a copy of itself ({reason})"]
    changes: Iterable[tuple[Tensor, Tensor]] = ((p, twin - p.detach()) for p, twin in _detached(twins))
    return {parameter: norm_of_tensor(change) for parameter, change in changes if id(parameter) in own}, []


def _twin(parameter: Tensor) -> Tensor:
    twin = parameter.detach().clone().requires_grad_(parameter.requires_grad)
    twin.grad = None if parameter.grad is None else parameter.grad.detach().clone()
    return twin


def _detached(twins: Mapping[Tensor, Tensor]) -> Iterable[tuple[Tensor, Tensor]]:
    return ((parameter, twin.detach()) for parameter, twin in twins.items())
