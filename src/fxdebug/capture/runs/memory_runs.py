"""Run a model step by step with its memory followed: forward, and backward where there is a loss."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from fxdebug.capture.probes.allocations import Allocations
from fxdebug.capture.probes.referrers import holder_of
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.runs.same_start import copied_inputs
from fxdebug.capture.runs.timed_runs import Loss, scalar_loss
from fxdebug.data.allocations import MemoryRecord


def run_with_memory(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], loss: Loss | None, steps: int
) -> tuple[MemoryRecord, BaseException | None]:
    """Run ``steps`` equal steps and return the record of their memory, and the model's exception if one ended them.

    What a step returns is let go before the next begins. Gradients are set to ``None`` between steps.
    """
    sites = Sites(model)
    probe = Allocations(sites)
    probe.register(model.named_parameters(remove_duplicate=False), "parameters")
    probe.register(model.named_buffers(remove_duplicate=False), "buffers")
    raised: BaseException | None = None
    gc.collect()  # earlier garbage must not be freed, and counted, in the middle of the run
    for step in range(steps):
        probe.step = step
        inputs = copied_inputs((args, dict(kwargs)))
        probe.register(named_tensors(inputs), "inputs")
        try:
            _step(model, probe, sites, inputs, loss)
        except Exception as error:
            raised = error
            break
        finally:
            del inputs
            probe.phase = "before"
        _end_of_step(model, probe, step, steps)
    if steps > 1 and raised is None:
        _name_referrers(probe)
    return probe.finish(), raised


def _step(model: nn.Module, probe: Allocations, sites: Sites, inputs: Any, loss: Loss | None) -> None:
    args, kwargs = inputs
    parameters = list(model.parameters())
    probe.phase = "forward"
    probe.mark("forward")
    with Attached(probe, sites), probe:
        output = model(*args, **kwargs)
    for allocation in probe.alive():
        if allocation.category == "activations" and allocation.step == probe.step and allocation.phase == "forward":
            allocation.category = "saved for backward"
    for allocation in probe.of(tensor for _, tensor in named_tensors(output)):
        if allocation.phase == "forward":
            allocation.category = "outputs"
    if loss is None:
        del output
        return
    probe.phase = "backward"
    probe.mark("backward")
    with probe:
        scalar = scalar_loss(loss, output)
        scalar.backward()
    del scalar, output  # the output lives until here, as in most training loops
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for allocation in probe.of(gradients):
        allocation.category = "gradients"


def _end_of_step(model: nn.Module, probe: Allocations, step: int, steps: int) -> None:
    probe.mark(f"end of step {step}")
    if steps > 1:
        for parameter in model.parameters():
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


def named_tensors(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in arguments or results with their places, in order."""
    pending = [(name, content)]
    seen: set[int] = set()
    while pending:
        place, item = pending.pop()
        if isinstance(item, Tensor):
            yield place, item
            continue
        if id(item) in seen or isinstance(item, (str, bytes, int, float, complex, type(None), nn.Module)):
            continue
        seen.add(id(item))
        inside: list[tuple[str, Any]] = []
        if isinstance(item, Mapping):
            inside = [(f"{place}.{key}" if place else str(key), inner) for key, inner in item.items()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            inside = [(f"{place}[{i}]", inner) for i, inner in enumerate(item)]
        elif hasattr(item, "__dict__") and not isinstance(item, (type, types.FunctionType, types.ModuleType)):
            inside = [(f"{place}.{key}" if place else key, inner) for key, inner in vars(item).items()]
        pending += reversed(inside)


# Memory that a step leaves behind ----------------------------------------------------------------


def _name_referrers(probe: Allocations) -> None:
    """Name the objects that refer to tensors which outlived their step."""
    lasting = {"parameters", "buffers", "gradients"}
    for allocation in probe.alive():
        if allocation.category in lasting:
            continue
        tensors = [tensor for reference in probe.tensors[allocation.number] if (tensor := reference()) is not None]
        tensors.reverse()  # the latest use first
        probe.record.held[allocation.number] = next(filter(None, map(holder_of, tensors)), "")
