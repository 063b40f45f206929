"""Look at what a run is given: padding of the inputs, subnormal weights, threads and cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors
from fxdebug.features.profile.kept_graphs import kept_graphs
from fxdebug.features.profile.wasted.surroundings import SMALLEST, Surroundings
from fxdebug.features.shared.tried_settings.anomalies import finds_anomalies
from fxdebug.features.shared.tried_settings.padded_inputs import padded_inputs
from fxdebug.features.shared.tried_settings.process_knobs import cores
from fxdebug.features.shared.tried_settings.recomputed import recomputed
from fxdebug.features.shared.tried_settings.subject import Subject

LARGE = 1 << 16  # elements of a matrix that is looked at for zeros
MOSTLY = 0.9  # of them are zeros: from here on a sparse product may be faster
LEAST_KERNEL = 5  # elements in each direction: of 3 by 3, two passes gain little
CLOSE = 1e-5  # of the largest element: a kernel of float32 is no more exactly a column times a row
MANY = 0.01  # of the numbers of a parameter are subnormal: fewer cost nothing


def surroundings(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    device: torch.device,
    loss: Callable[[Any], Tensor] | None,
) -> Surroundings:
    """Return what a run is given besides the operations of the model."""
    has_loss = loss is not None
    if device.type == "meta":
        return Surroundings(device="meta", has_loss=has_loss)
    own = [(name, tensor) for path, module in members.named_modules_of(model) for name, tensor in _own(path, module)]
    given = {**{f"args[{i}]": one for i, one in enumerate(args)}, **kwargs}
    inputs = [(slot + name, tensor) for slot, one in given.items() for name, tensor in named_tensors(one)]
    return Surroundings(
        device=device.type,
        threads=torch.get_num_threads(),
        cores=cores(),
        has_loss=has_loss,
        padded=tuple(padded_inputs(args, kwargs)),
        finds_anomalies=finds_anomalies(Subject(model, args, kwargs, loss)),
        zeros=tuple([(name, share) for name, tensor in (*own, *inputs) if (share := _zeros(tensor)) >= MOSTLY]),
        separable=tuple([name for name, tensor in own if _is_separable(tensor)]),
        kept_graphs=kept_graphs(Subject(model, args, kwargs, loss)),
        recomputed=recomputed(Subject(model, args, kwargs, loss)) if has_loss else None,
        subnormal=tuple([name for name, tensor in own if _is_subnormal(tensor)]) if device.type == "cpu" else (),
    )


def _zeros(tensor: Tensor) -> float:
    """Return the share of zeros of a large matrix of floats or booleans; 0 for any other tensor."""
    try:
        is_known = tensor.is_floating_point() or tensor.dtype is torch.bool
        is_large = tensor.dim() > 1 and tensor.numel() >= LARGE and is_known
        if not is_large or tensor.layout is not torch.strided:
            return 0.0
        with torch.no_grad():
            return 1 - torch.count_nonzero(tensor.detach()).item() / tensor.numel()
    except Exception:  # a tensor of a class of its own, or without memory
        return 0.0


def _is_separable(tensor: Tensor) -> bool:
    """Is a tensor of kernels for single channels, each of them a column times a row: blurs, and edges?"""
    try:
        if tensor.dim() != 4 or tensor.shape[1] != 1 or min(tensor.shape[2:]) < LEAST_KERNEL or tensor.numel() > LARGE:
            return False
        with torch.no_grad():
            kernels = tensor.detach().double().flatten(0, 1)
            top = kernels.abs().flatten(1).argmax(-1)
            each, row, column = torch.arange(len(kernels)), top // kernels.shape[2], top % kernels.shape[2]
            outer = (
                kernels[each, :, column][:, :, None]
                * kernels[each, row][:, None]
                / kernels[each, row, column][:, None, None]
            )
            return bool(((outer - kernels).abs() <= CLOSE * kernels.abs().amax((1, 2), keepdim=True)).all())
    except Exception:  # a tensor of a class of its own, or without memory
        return False


def _own(path: str, module: nn.Module) -> list[tuple[str, Tensor]]:
    registries = (module._parameters, module._buffers)
    return [
        (f"{path}.{name}" if path else name, tensor)
        for registry in registries
        for name, tensor in registry.items()
        if tensor is not None
    ]


def _is_subnormal(tensor: Tensor) -> bool:
    try:
        if tensor.dtype is not torch.float32 or tensor.layout is not torch.strided or not tensor.numel():
            return False
        with torch.no_grad():
            size = tensor.detach().abs()
            return ((size > 0) & (size < SMALLEST)).sum().item() > MANY * tensor.numel()
    except Exception:  # a tensor of a class of its own, or without memory
        return False
