"""Which sizes of a model's inputs are free in the file that was exported: those at which it was seen to run right.

Torch's exporter names every size that it was asked to leave open, also those that the model's code fixes. So the model
and the file run at other sizes, and a size at which they do not agree, or at which the model itself does not run, has
its number in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.errors import first_line


@dataclass(frozen=True, slots=True)
class OpenSize:
    """A size that the file leaves open, by its name there, with the inputs and dimensions that have it."""

    name: str
    size: int
    places: tuple[tuple[int, int], ...]


def open_sizes(wanted: Sequence[Any], given: Sequence[Tensor]) -> list[OpenSize]:
    """Return the sizes that are open in the inputs of a session."""
    places: dict[str, list[tuple[int, int]]] = {}
    for number, one in enumerate(wanted):
        for dim, size in enumerate(one.shape):
            if isinstance(size, str):
                places.setdefault(size, []).append((number, dim))
    return [OpenSize(name, given[at[0][0]].shape[at[0][1]], tuple(at)) for name, at in places.items()]


def why_fixed(
    one: OpenSize,
    given: Sequence[Tensor],
    model: Callable[[Sequence[Tensor]], Any],
    session: Any,
    allowed: float,
) -> str:
    """Return the reason why a size is not free, empty where it is.

    ``model`` runs the model on other tensors; ``allowed`` is the relative difference that counts as none.
    """
    proven, refused = False, ""
    for size in _others(one.size):
        tensors = [_resized(tensor, one, number, size) for number, tensor in enumerate(given)]
        try:
            wanted = [tensor for _, tensor in named_tensors(model(tensors))]
        except Exception as error:  # the model's code does not take this size
            refused = refused or f"at {size} the model raises {type(error).__name__}"
            continue
        reason = _difference(session, tensors, wanted, allowed)
        if reason:
            return f"at {size} {reason}"
        proven = True
    return "" if proven else refused


def _others(size: int) -> Iterator[int]:
    """Yield sizes to try beside one: a neighbour, and one that halvings in a model divide as well."""
    yield from dict.fromkeys([size + 1, 2 * size, *([size - 1] if size > 2 else ())] if size else [1, 2])


def _resized(tensor: Tensor, one: OpenSize, number: int, size: int) -> Tensor:
    """Return a tensor with elements of its own repeated, or left out, so that a dimension has another size."""
    for place, dim in one.places:
        if place == number:
            before = tensor.shape[dim]
            if before == 0:
                return tensor.new_zeros([size if at == dim else each for at, each in enumerate(tensor.shape)])
            tensor = tensor.index_select(dim, torch.arange(size, device=tensor.device) % before)
    return tensor


def _difference(session: Any, tensors: Sequence[Tensor], wanted: Sequence[Tensor], allowed: float) -> str:
    """Return how the file differs from what the model returned; empty where it does not."""
    try:
        feeds = {one.name: tensor.detach().cpu().numpy() for one, tensor in zip(session.get_inputs(), tensors)}
        results = session.run(None, feeds)
    except Exception as error:
        return f"onnxruntime raises {type(error).__name__}: {first_line(error)[:120]}"
    for result, tensor in zip(map(np.asarray, results), wanted):
        if result.shape != tuple(tensor.shape):
            shapes = ["×".join(map(str, shape)) for shape in (result.shape, tensor.shape)]
            return f"the exported model returns {shapes[0]}, the model {shapes[1]}"
        error_, largest = distance(result, tensor)
        if error_ > allowed * (largest or 1):
            return "the exported model returns other numbers than the model"
    return ""


def distance(result: Any, tensor: Tensor) -> tuple[float, float]:
    """Return the largest difference of a result from a tensor, and the largest magnitude of the tensor."""
    wide = tensor.detach().cpu().double().numpy()
    apart = np.abs(result.astype(np.float64) - wide)
    error = float(apart[~((np.isnan(wide) & np.isnan(result)) | (wide == result))].max(initial=0.0))
    return error, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def fix_sizes(model: Any, sizes: Mapping[str, int]) -> None:
    """Write numbers in the place of open sizes into a model of ``onnx_ir``, wherever their names stand alone."""
    values = [*model.graph.inputs, *[out for node in model.graph.all_nodes() for out in node.outputs]]
    for value in values:
        if value is not None and value.shape is not None:
            for dim, size in enumerate(value.shape):
                name = getattr(size, "value", None)
                if isinstance(name, str) and name in sizes:
                    value.shape[dim] = sizes[name]
