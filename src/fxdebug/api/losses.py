"""The scalar that is differentiated where no loss is given: the loss or the mean of what a model returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fxdebug.capture.tensors.named_tensors import named_tensors
from fxdebug.errors import UsageError, with_article


def loss_of_output(output: Any) -> Tensor:
    """Return the ``loss`` of a model's output. Raises ``UsageError`` where it has none.

    >>> import torch
    >>> loss_of_output({"loss": torch.tensor(2.0)})
    tensor(2.)
    """
    loss = _loss_in(output)
    if loss is None:
        raise UsageError(
            f"the model returned {with_article(type(output).__name__)} without a loss: give one, such as "
            "loss=lambda output: output.mean(), or labels to a model of transformers"
        )
    return loss


def loss_or_mean(output: Any) -> Tensor:
    """Return the ``loss`` of a model's output, or the mean of the first floating tensor in it.

    Raises ``UsageError`` where there is neither.

    >>> import torch
    >>> loss_or_mean(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    loss = _loss_in(output)
    return mean_of_output(output) if loss is None else loss


def _loss_in(output: Any) -> Tensor | None:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return loss if isinstance(loss, Tensor) else None


def mean_of_output(output: Any) -> Tensor:
    """Return the mean of the first floating tensor in what a model returned: a loss where no other is known.

    Raises ``UsageError`` where there is none.

    >>> import torch
    >>> mean_of_output({"ids": torch.ones(2, dtype=torch.long), "scores": torch.tensor([1.0, 3.0])})
    tensor(2.)
    """
    for _, tensor in named_tensors(output):
        if tensor.is_floating_point() or tensor.is_complex():
            return tensor.abs().mean() if tensor.is_complex() else tensor.mean()
    raise UsageError("the model returned no floating tensor: there is no backward")
