"""Write out torch's norms: mean, variance, quotient, weight, bias."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return what ``F.layer_norm`` returns.

    >>> x, weight = torch.randn(2, 3, 8), torch.randn(8)
    >>> torch.allclose(torch.nn.functional.layer_norm(x, (8,), weight), layer_norm(x, (8,), weight), atol=1e-5)
    True
    """
    over = _last(normalized_shape)
    return _scaled(_normalized(input, over, eps), weight, bias)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return what ``F.rms_norm`` returns.

    >>> x, weight = torch.randn(2, 3, 8), torch.randn(8)
    >>> torch.allclose(torch.nn.functional.rms_norm(x, (8,), weight), rms_norm(x, (8,), weight), atol=1e-5)
    True
    """
    over = _last(normalized_shape)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    normal = input * torch.rsqrt(input.pow(2).mean(over, keepdim=True) + eps)
    return normal if weight is None else normal * weight


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Return what ``F.group_norm`` returns.

    >>> x, weight = torch.randn(2, 6, 5), torch.randn(6)
    >>> torch.allclose(torch.nn.functional.group_norm(x, 3, weight), group_norm(x, 3, weight), atol=1e-5)
    True
    """
    groups = input.reshape(input.shape[0], num_groups, -1)
    normal = _normalized(groups, -1, eps).reshape(input.shape)
    return _by_channel(normal, weight, bias)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    folded: bool = False,
) -> Tensor | None:
    """Return what ``F.batch_norm`` returns in evaluation; ``None`` in training, where it moves its statistics.

    ``folded``: by one factor and one summand per channel.

    >>> x, mean, variance = torch.randn(2, 6, 5), torch.randn(6), torch.rand(6)
    >>> torch.allclose(torch.nn.functional.batch_norm(x, mean, variance), batch_norm(x, mean, variance), atol=1e-5)
    True
    """
    if training or running_mean is None or running_var is None:
        return None
    if folded:
        root = torch.sqrt(running_var + eps)
        scale = 1 / root if weight is None else weight / root
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return _by_channel(input, scale, shift)
    shape = _channels(input)
    normal = (input - running_mean.view(shape)) / torch.sqrt(running_var.view(shape) + eps)
    return _by_channel(normal, weight, bias)


def _last(shape: Sequence[int]) -> int | tuple[int, ...]:
    """Return the last dimensions, as many as a shape has; one as people write it."""
    return -1 if len(shape) == 1 else tuple(range(-len(shape), 0))


def _normalized(x: Tensor, over: int | tuple[int, ...], eps: float) -> Tensor:
    mean = x.mean(over, keepdim=True)
    variance = x.var(over, unbiased=False, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps)


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _by_channel(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = _channels(x)
    return _scaled(x, None if weight is None else weight.view(shape), None if bias is None else bias.view(shape))


def _channels(x: Tensor) -> tuple[int, ...]:
    return (1, -1, *[1] * (x.dim() - 2))
