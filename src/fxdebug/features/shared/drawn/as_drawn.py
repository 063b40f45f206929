"""Matrices as they were drawn, by torch's default or by the range of a configuration, and models that are trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors

LEAST = 500  # elements of a matrix of which its distribution tells
SMALL = 64  # elements of one matrix that tells with others
ROUNDED = 1 / 128  # by which a narrow dtype may round the largest number up
NORMAL_ERRORS = 3.0  # standard errors of a deviation
LEARNED = 0.03  # deviation of the weights of a norm: some models draw them around 0 or 1 with 0.02
MOST = 1 << 16  # elements of a layer by which it is looked whether they are even
GROUP = 150  # elements of the layers of one part that tell together
SCALED = 1e-2  # by which a length was trained
NEAR = 5.0  # as EDGE, where small layers tell together: the largest lies farther off once in 150
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


@dataclass(frozen=True)
class DrawnPart:
    """A part of a model all ``layers`` of which are as torch draws them, beside ``others`` that are trained.

    Of ``scaled`` of its layers the length is trained, and the direction is not.
    """

    path: str
    layers: int
    others: int
    scaled: int


def parts_as_drawn(model: nn.Module) -> list[DrawnPart]:
    """Return the parts of a model all layers of which are as torch draws them, beside others that are trained.

    What is trained is told by norms and biases. Each layer may be small: a part has at least two, with enough elements
    together. The length of a weight that was trained apart from its direction counts as one of the others. Nothing is
    told where training shows in less than two others, or not in most of them.
    """
    drawn: dict[str, Tensor] = {}
    learned: dict[str, bool] = {}
    scaled: set[str] = set()  # layers whose length is not that of their direction, as it is where torch makes both
    for path, module in members.named_modules_of(model):
        weight, bias = own(module, "weight"), own(module, "bias")
        if isinstance(module, LAYERS) and not isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            if weight is None and (parts := _length_and_direction(module)) is not None:
                length, weight = parts
                if is_readable(weight) and _is_scaled(length, weight):
                    scaled.add(path)
                    bias = None  # it may be loaded, as the length is
            if weight is None or weight.ndim < 2 or not is_readable(weight):
                continue
            bound = 1 / math.sqrt(max(weight[0].numel(), 1))
            both = [one.detach().flatten() for one in (weight, bias) if one is not None]
            largest = [float(one.abs().max().double() / bound) for one in both]
            gap = NEAR / both[0].numel()
            fits = 1 - gap <= largest[0] and all(one <= 1 + ROUNDED for one in largest)
            kept = [one[:: math.ceil(one.numel() / MOST)].double() / bound for one in both]  # of billions, a part tells
            drawn[path] = torch.cat(kept) if fits and weight.requires_grad else torch.empty(0)
            if bias is not None and bias.numel() > 1:
                learned[path] = largest[1] > 1.001 and not _is_constant(bias)
        elif weight is not None and weight.ndim == 1 and weight.numel() > 1 and is_readable(weight):
            learned[path] = bool(weight.detach().double().std() > LEARNED)
    found: list[DrawnPart] = []
    for path, _ in members.named_modules_of(model):
        inside = [numbers for name, numbers in drawn.items() if name.startswith(f"{path}.")]
        if not path or len(inside) < 2 or any(path.startswith(f"{outer.path}.") for outer in found):
            continue
        others = [told for name, told in learned.items() if not name.startswith(f"{path}.")]
        lengths = [True for name in scaled if name.startswith(f"{path}.")]
        others += lengths
        together = torch.cat(inside)
        if (
            min(map(len, inside))
            and len(together) >= GROUP
            and _is_even(together)
            and 2 <= sum(others) > len(others) / 2
        ):
            found.append(DrawnPart(path, len(inside), sum(others), len(lengths)))
    return found


def _length_and_direction(module: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Return the two that a weight is kept as under ``weight_norm``."""
    kept = module._modules.get("parametrizations")
    one = None if kept is None else kept._modules.get("weight")
    length = own(module, "weight_g") if one is None else own(one, "original0")
    direction = own(module, "weight_v") if one is None else own(one, "original1")
    return None if length is None or direction is None else (length, direction)


def _is_scaled(length: Tensor, direction: Tensor) -> bool:
    """Is a length another than that of its direction, in most of the rows that it scales?"""
    if length.numel() != len(direction):
        return False
    of_rows = direction.detach().flatten(1).double().norm(dim=1)
    return bool(((length.detach().flatten().double() / of_rows - 1).abs() > SCALED).double().mean() > 0.5)


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
