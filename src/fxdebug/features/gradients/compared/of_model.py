"""The gradients that the parameters of a model have, after a backward."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors, untracked
from fxdebug.errors import UsageError
from fxdebug.features.gradients.compared.facing import OneGradient, Step
from fxdebug.features.shared.records.gradients import norm_of
from fxdebug.stats.measure import Unmeasurable, measure


def step_of_grads(model: nn.Module) -> Step:
    """Return the gradients that are in ``.grad`` of a model's parameters."""
    kinds = tables_of(model)
    return Step(
        type(model).__name__,
        {
            name: replace(one_gradient(p.grad, p, "" if p.requires_grad else "frozen"), is_table=kinds.get(name))
            for name, p in members.named_parameters_of(model)
        },
    )


def tables_of(model: nn.Module) -> dict[str, bool]:
    """Say of the parameters of torch's modules whether they are tables whose rows are looked up.

    >>> tables_of(nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 1)))
    {'0.weight': True, '1.weight': False, '1.bias': False}
    """
    return {
        members.join(path, name): isinstance(module, (nn.Embedding, nn.EmbeddingBag))
        for path, module in members.named_modules_of(model)
        if type(module).__module__.startswith("torch.nn.")
        for name in module._parameters
    }


def one_gradient(tensor: Tensor | None, weight: Tensor | None = None, why: str = "") -> OneGradient:
    """Return a gradient; of a distributed one, the part of this rank. Raises ``UsageError`` for one without numbers."""
    like = tensor if tensor is not None else weight
    shape, dtype = (() if like is None else tuple(like.shape)), "float32" if like is None else str(like.dtype)[6:]
    if tensor is None:
        return OneGradient(shape, dtype, None, why=why)
    with untracked():
        part = special_tensors.local_part(tensor).detach()
        try:
            norm = norm_of(measure(part))
        except Unmeasurable as error:
            raise UsageError(f"a gradient has no numbers: {error}") from None
        own = None if weight is None else special_tensors.local_part(weight).detach()
        return OneGradient(tuple(part.shape), dtype, norm, part, own, why)
