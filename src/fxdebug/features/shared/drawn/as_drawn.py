"""Matrices as they were drawn, by torch's default or by the range of a configuration, and models that are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors

LEAST = 500  # elements of a matrix of which its distribution tells
SMALL = 64  # elements of one matrix that tells with others
ROUNDED = 1 / 128  # by which a narrow dtype may round the largest number up
NORMAL_ERRORS = 3.0  # standard errors of a deviation
LEARNED = 0.03  # deviation of the weights of a norm: some models draw them around 0 or 1 with 0.02
EDGE = 20.0  # gaps between neighbours that the largest of uniform numbers may lie below their bound
LAYERS = (nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def are_as_drawn(model: nn.Module, others: Mapping[str, Callable[[], Tensor]]) -> list[str]:
    """Return the names of the matrices of a model that can tell, if all of them are as drawn, and ``others`` are not.

    Together they have enough elements; each alone may be small.
    """
    here: list[Tensor] = []
    beside: list[Tensor] = []
    names = []
    for path, module in members.named_modules_of(model):
        name = members.join(path, "weight")
        weight = own(module, "weight") if isinstance(module, LAYERS) else None
        if weight is None or isinstance(module, (nn.Embedding, nn.EmbeddingBag)) or not is_readable(weight):
            continue
        other = others[name]() if name in others else None
        if weight.numel() < SMALL or other is None or other.shape != weight.shape:
            continue
        bound = 1 / math.sqrt(weight[0].numel())
        here.append(weight.detach().flatten().double() / bound)
        beside.append(other.flatten().double() / bound)
        names.append(name)
    if len(names) < 2 or sum(each.numel() for each in here) < LEAST or not _are_uniform(torch.cat(here), here):
        return []
    return [] if _are_uniform(torch.cat(beside), beside) else names


def _are_uniform(numbers: Tensor, parts: Sequence[Tensor]) -> bool:
    """Are numbers within -1 and 1, each part up to nearly these bounds, and all together even?"""
    largest = [float(part.abs().max()) for part in parts]
    edges = [1 - EDGE / part.numel() <= one <= 1 + ROUNDED for one, part in zip(largest, parts)]
    return all(edges) and _is_even(numbers)


def is_trained(model: nn.Module) -> bool:
    """Have most norms weights that are spread wider than any are drawn; where there are no norms, most biases?"""
    norms: list[bool] = []
    biases: list[bool] = []
    for _, module in members.named_modules_of(model):
        weight, bias = own(module, "weight"), own(module, "bias")
        if weight is not None and weight.ndim == 1 and weight.numel() > 1 and is_readable(weight):
            norms.append(bool(weight.detach().double().std() > LEARNED))
        elif weight is not None and bias is not None and bias.numel() > 1 and is_readable(bias):
            fan_in = max(math.prod(weight.shape[1:]), 1)
            biases.append(not _is_constant(bias) and float(bias.detach().abs().max()) > 1.001 / math.sqrt(fan_in))
    told = norms or biases
    return bool(told) and 2 * sum(told) > len(told)


def _is_constant(vector: Tensor) -> bool:
    return bool((vector.detach() == vector.detach()[0]).all())


def drawn_as(module: nn.Module, weight: Tensor, spread: float | None) -> str:
    """Return the scheme of torch or of the configuration that a weight was drawn by, if no step was taken since.

    A table of embeddings is drawn so wide that steps of training do not show.
    """
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return ""
    numbers = weight.flatten(1).double()
    bound = 1 / math.sqrt(numbers.shape[1])
    step = torch.finfo(weight.dtype).eps * bound
    largest = float(numbers.abs().max())
    # the largest of n uniform numbers lies a few n-ths below the bound: one step of training takes some beyond it
    if bound * (1 - EDGE / numbers.numel()) - step <= largest <= bound + step and _is_even(numbers / bound):
        return f"uniform within ±{bound:.3g}, torch's default"
    if spread is not None and _is_normal(numbers, spread):
        return f"normal, deviation {spread:g}, initializer_range"
    return ""


def _is_even(numbers: Tensor) -> bool:
    """Are the numbers as many in each tenth of -1 to 1 (Pearson's test, a thousandth)?"""
    counts = torch.histc(numbers.float(), 10, -1.0, 1.0).double()
    expected = numbers.numel() / 10
    return float(((counts - expected) ** 2 / expected).sum()) < 27.9


def _is_normal(numbers: Tensor, std: float) -> bool:
    """Has every row and every column the length that independent normal numbers give it?"""
    rows, columns = numbers.shape
    if abs(float(numbers.std()) / std - 1) > NORMAL_ERRORS / math.sqrt(2 * numbers.numel()):
        return False
    for sums, count in ((numbers.square().sum(1), columns), (numbers.square().sum(0), rows)):
        # a sum of n squares has the variance 2 n: the spread over rows is as known as their number
        spread = float(((sums / std**2 - count) / math.sqrt(2 * count)).square().mean())
        if abs(spread - 1) > NORMAL_ERRORS * math.sqrt((2 + 12 / count) / len(sums)):
            return False
    return True


def own(module: nn.Module, name: str) -> Tensor | None:
    """Return a parameter of a module itself; none of what a script compiled."""
    return None if isinstance(module, torch.jit.ScriptModule) else module._parameters.get(name)


def is_readable(weight: Tensor) -> bool:
    """Has a weight numbers of floating point that can be read?"""
    return (
        weight.is_floating_point()
        and not weight.is_meta
        and not special_tensors.is_uninitialised(weight)
        and type(weight) in (Tensor, nn.Parameter)
        and weight.numel() > 0
    )
