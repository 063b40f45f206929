"""Is what a loss compares with among what the first layers take, with no narrow place between: is it only copied?"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.training.loss.loss_graph import elements_of, name_of
from fxdebug.features.training.loss.loss_terms import inputs_of

GIVEN = {"Addmm": "_saved_mat1", "Mm": "_saved_self", "Convolution": "_saved_input"}
MOST_NODES = 5000
FEWEST, MOST = 4, 4096  # numbers of a target, and of an example


def copied_input(root: Any, target: Tensor, products: Sequence[Any], others: int) -> tuple[int, int] | None:
    """Return the numbers of a target that a product takes beside others, and all that it takes; ``None`` of no such.

    ``others`` is how many tensors the model is given besides. No operation on the way to the loss returns fewer
    numbers than the target has: what has to pass a narrow place is not only copied.

    >>> x, c = torch.randn(8, 6), torch.randn(8, 2)
    >>> wide, narrow = torch.randn(8, 6, requires_grad=True), torch.randn(8, 2, requires_grad=True)
    >>> made = torch.cat([x, c], 1) @ wide
    >>> copied_input((made - x).square().mean().grad_fn, x, [made.grad_fn], 0)
    (6, 8)
    >>> made = torch.cat([x, c], 1) @ narrow
    >>> copied_input((made @ wide[:2] - x).square().mean().grad_fn, x, [made.grad_fn], 0) is None
    True
    """
    rows = len(target) if target.dim() else 0
    if rows < 2 or not FEWEST <= target.numel() // rows <= MOST:
        return None
    found = None
    with untracked():
        for node in products:
            given = getattr(node, GIVEN[name_of(node)], None)
            size = None if given is None else _part_of(target.detach(), given.detach())
            if size is not None and (size > target.numel() // rows or others):
                found = node, size
                break
    if found is None or _width(root, found[0], target.numel()) < target.numel():
        return None
    return target.numel() // rows, found[1]


def _part_of(target: Tensor, given: Tensor) -> int | None:
    """Return how many numbers an example has that are given, where those of the target are among them."""
    if len(given) != len(target) or given.is_complex() or given.dtype != target.dtype or given.dim() < 2:
        return None
    if given.dim() > 2:  # pictures: some of the channels
        if given.shape[2:] != target.shape[2:] or target.dim() != given.dim() or target.shape[1] > given.shape[1]:
            return None
        width, places = target.shape[1], range(given.shape[1] - target.shape[1] + 1)
    else:
        target = target.reshape(len(target), -1)
        width = target.shape[1]
        if width > given.shape[1]:
            return None
        places = (given[0, : given.shape[1] - width + 1] == target[0, 0]).nonzero().reshape(-1).tolist()
    is_there = any(torch.equal(given[:, place : place + width], target) for place in places)
    return given[0].numel() if is_there else None


def _width(root: Any, end: Any, size: int) -> int:
    """Return the fewest numbers that an operation returns on the widest way from the prediction back to a product."""
    best: dict[tuple[Any, bool], int] = {}
    pending: list[tuple[int, int, Any, bool]] = [(-size, 0, root, False)]  # the widest first
    count = 0
    while pending and count < MOST_NODES:
        width, _, node, is_inside = heapq.heappop(pending)
        if node is end:
            return -width
        for inner in inputs_of(node):
            elements = elements_of(inner)
            inside = is_inside or elements >= size
            through = min(-width, elements) if inside else -width
            if through > best.get((inner, inside), -1):
                best[inner, inside] = through
                count += 1
                heapq.heappush(pending, (-through, count, inner, inside))
    return 0
