"""Run a model step by step with its memory followed: forward, and backward where there is a loss."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import Attached, Sites, deep_copy, members, named_tensors
from fxdebug.errors import UsageError, came_through, first_line
from fxdebug.features.memory.following.allocations import Allocations
from fxdebug.features.memory.following.allocator import segments_of
from fxdebug.features.memory.following.kept_graphs import KeptGraphs
from fxdebug.features.memory.following.referrers import holder_of
from fxdebug.features.memory.record import MemoryRecord
from fxdebug.features.shared.times import timed_runs


def run_with_memory(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    loss: Callable[[Any], Tensor] | None,
    steps: int,
    limit: int | None = None,
) -> tuple[MemoryRecord, BaseException | None]:
    """Run ``steps`` equal steps and return the record of their memory, and the model's exception if one ended them.

    With more than ``limit`` bytes a run ends. What a step returns is let go before the next begins. Gradients are set
    to ``None`` between steps.
    """
    sites = Sites(model)
    probe, graphs = Allocations(sites, limit), KeptGraphs()
    modules = list(members.named_modules_of(model))  # each once: models may contain themselves
    probe.register(_named([(path, module._parameters) for path, module in modules]), "parameters")
    probe.register(_named([(path, module._buffers) for path, module in modules]), "buffers")
    raised: BaseException | None = None
    if steps > 1:
        gc.collect()  # what the steps leave behind is told from earlier garbage
    for step in range(steps):
        probe.step = step
        inputs = deep_copy((args, dict(kwargs)))
        probe.register(named_tensors(inputs), "inputs")
        try:
            _step(model, probe, graphs, sites, inputs, loss, steps)
        except UsageError:
            raise
        except Exception as error:
            if came_through(error, (inspect.unwrap(torch.jit.trace).__code__,)):
                raise UsageError("memory: n/a, the model calls torch.jit.trace, which fails under any mode") from error
            raised, probe.record.error = error, f"{type(error).__name__}: {first_line(error)}"
            break
        finally:
            del inputs
            probe.phase = "before"
        _end_of_step(model, probe, step, steps)
    if steps > 1 and raised is None:
        _name_referrers(probe)
        probe.record.graphs = graphs.left()
        if all(probe.record.graphs[1:]):
            probe.record.graph_holder = graphs.holder()
    return probe.finish(), raised


def _named(registries: Iterable[tuple[str, Mapping[str, Tensor | None]]]) -> Iterator[tuple[str, Tensor]]:
    for path, registry in registries:
        for name, tensor in registry.items():
            if tensor is not None:
                yield f"{path}.{name}" if path else name, tensor


def _step(
    model: nn.Module,
    probe: Allocations,
    graphs: KeptGraphs,
    sites: Sites,
    inputs: Any,
    loss: Callable[[Any], Tensor] | None,
    steps: int,
) -> None:
    args, kwargs = inputs
    parameters = list(members.parameters_of(model))
    probe.phase = "forward"
    probe.mark("forward")
    with Attached(probe, sites), probe:
        output = model(*args, **kwargs)
    if steps > 1:
        graphs.watch([tensor for _, tensor in named_tensors(output)], probe.step)
    for allocation in probe.alive():
        if allocation.category == "activations" and allocation.step == probe.step and allocation.phase == "forward":
            allocation.category = "saved for backward"
    for allocation in probe.of(tensor for _, tensor in named_tensors(output)):
        if allocation.phase == "forward":
            allocation.category = "outputs"
    if loss is None:
        probe.record.segments = segments_of(members.device_of(model, inputs))
        del output
        return
    probe.phase = "backward"
    probe.mark("backward")
    with Attached(probe, sites), probe:
        scalar = timed_runs.scalar_loss(loss, output)
        if steps > 1:
            graphs.watch([scalar], probe.step)
        scalar.backward()
    probe.record.segments = segments_of(members.device_of(model, inputs))
    del scalar, output  # the output lives until here, as in most training loops
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for allocation in probe.of(gradients):
        allocation.category = "gradients"


def _end_of_step(model: nn.Module, probe: Allocations, step: int, steps: int) -> None:
    probe.mark(f"end of step {step}")
    if steps > 1:
        for parameter in members.parameters_of(model):
            parameter.grad = None
        gc.collect()
    lasting = {"parameters", "buffers", "inputs", "gradients"}
    for allocation in probe.record.allocations:
        made_by = allocation.call
        if allocation.step != step or allocation.category in lasting or made_by is None or allocation.freed is None:
            if allocation.step == step and allocation.phase == "backward" and allocation.category not in lasting:
                allocation.category = "temporary"
            continue
        if allocation.category == "activations" and allocation.freed <= probe.record.calls[made_by].end:
            allocation.category = "temporary"


# Memory that a step leaves behind ----------------------------------------------------------------


def _name_referrers(probe: Allocations) -> None:
    """Name the objects that refer to tensors which outlived their step."""
    lasting = {"parameters", "buffers", "gradients"}
    for allocation in probe.alive():
        if allocation.category in lasting:
            continue
        tensors = [tensor for reference in probe.tensors[allocation.number] if (tensor := reference()) is not None]
        tensors.reverse()  # the latest use first
        probe.record.held[allocation.number] = next(filter(None, [holder_of(one, tensors) for one in tensors]), "")
