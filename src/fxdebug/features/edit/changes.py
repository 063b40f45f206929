"""Changes that ``edit`` makes: the place that a text names, a result set to a number or its mean, heads left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fxdebug.errors import UsageError, with_article

_SLOT = re.compile(r"(out|args|kwargs)((?:\[(?:\d+|'[^']*')\]|\.\w+)*)\Z")
_STEP = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\.(\w+)")


def slot_of(text: str) -> tuple[str, tuple[int | str, ...]] | None:
    """Return the slot and the keys that a text names; ``None`` if it names none.

    >>> slot_of("args[0]"), slot_of("out.logits"), slot_of("kwargs['mask']"), slot_of("h.3")
    (('args', (0,)), ('out', ('logits',)), ('kwargs', ('mask',)), None)
    """
    found = _SLOT.match(text)
    if found is None:
        return None
    steps = [int(index) if index else key or name for index, key, name in _STEP.findall(found[2])]
    return found[1], tuple(steps)


def without_heads(heads: Sequence[int], to: float | str, result: Tensor) -> Tensor:
    """Return attention weights, or outputs by head, with some heads (the third dimension from the end) set.

    >>> without_heads([1], 0.0, torch.ones(1, 2, 2, 2)).sum(dim=(-1, -2)).tolist()
    [[4.0, 0.0]]
    """
    if result.dim() < 4:
        raise UsageError(f"heads are the third dimension from the end, and this attention made {tuple(result.shape)}")
    count = result.shape[-3]
    wrong = [head for head in heads if not -count <= head < count]
    if wrong:
        raise UsageError(f"there is no head {wrong[0]}: this attention has {count}, 0 to {count - 1}")
    chosen = torch.zeros(count, dtype=torch.bool, device=result.device)
    chosen[list(heads)] = True
    return torch.where(chosen.view(-1, 1, 1), _constant(result, to), result)


def constant_like(out: Any, to: float | str) -> Any:
    """Return a tensor of the same form that holds a number or, with ``"mean"``, its own mean over all but the last dim.

    >>> constant_like(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "mean")
    tensor([[2., 3.],
            [2., 3.]])
    """
    if not isinstance(out, Tensor):
        raise UsageError(f"only a tensor can be ablated, and this is {with_article(type(out).__name__)}")
    return _constant(out, to).expand_as(out).clone()


def _constant(out: Tensor, to: float | str) -> Tensor:
    if to == "mean":
        dims = tuple(range(out.dim() - 1))
        return out.mean(dims, keepdim=True) if dims else out.mean()
    if isinstance(to, str):
        raise UsageError(f"to={to!r}: use a number, or 'mean'")
    return out.new_tensor(to)
