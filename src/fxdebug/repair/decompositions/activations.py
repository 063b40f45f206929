"""Write out torch's activations that people write out themselves."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """Return what ``F.gelu`` returns.

    >>> x = torch.randn(2, 8)
    >>> torch.allclose(torch.nn.functional.gelu(x, approximate="tanh"), gelu(x, approximate="tanh"), atol=1e-5)
    True
    """
    if approximate == "tanh":
        inner = math.sqrt(2.0 / math.pi) * (input + 0.044715 * torch.pow(input, 3.0))
        return 0.5 * input * (1.0 + torch.tanh(inner))
    return input * 0.5 * (1.0 + torch.erf(input / math.sqrt(2.0)))


def silu(input: Tensor, inplace: bool = False) -> Tensor | None:
    """Return what ``F.silu`` returns; ``None`` in place.

    >>> x = torch.randn(2, 8)
    >>> torch.allclose(torch.nn.functional.silu(x), silu(x), atol=1e-5)
    True
    """
    return None if inplace else input * torch.sigmoid(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return what ``F.glu`` returns.

    >>> x = torch.randn(2, 8)
    >>> torch.allclose(torch.nn.functional.glu(x), glu(x), atol=1e-5)
    True
    """
    value, gate = input.chunk(2, dim)
    return value * torch.sigmoid(gate)
