"""The memory that a training holds between its steps, for the note on one that ended for want of memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor, nn
from torch.optim import Optimizer

from fxdebug.analyses.cost.no_memory import HOW_TO_SEE, NoMemory
from fxdebug.capture.probe import members
from fxdebug.data.measures import quantity


def note_on_memory(model: nn.Module, optimizer: Optimizer | None, lacking: NoMemory) -> str:
    """Return what a training held when there was no memory; activations are n/a where the device counts none."""
    parameters = members.parameters_of(model)
    held = {
        "parameters": _bytes(parameters),
        "gradients": _bytes(p.grad for p in parameters if p.grad is not None),
        "buffers": _bytes(members.buffers_of(model)),
        "state of the optimizer": _bytes(_state(optimizer)),
    }
    asked = "" if lacking.bytes is None else f" for {quantity(lacking.bytes, 'B')}"
    line = "" if lacking.line is None else f" at {lacking.line.rpartition('/')[2]}"
    parts = ", ".join(f"{quantity(size, 'B')} {name}" for name, size in held.items() if size)
    rest = "activations are not counted on a CPU"
    if lacking.in_use is not None:
        others = quantity(max(0, lacking.in_use - sum(held.values())), "B")
        rest = f"{others} activations and all else, of {quantity(lacking.in_use, 'B')} in use"
    return f"fxdebug: no memory{asked}{line}. In use were {parts or 'no weights'}; {rest}. {HOW_TO_SEE}."


def _state(optimizer: Optimizer | None) -> Iterator[Tensor]:
    states = {} if optimizer is None else optimizer.state
    return (one for state in states.values() for one in state.values() if isinstance(one, Tensor))


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
