"""Weights that no checkpoint filled: matrices that are zero, or as they were drawn, among others that are trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors
from fxdebug.data.findings import WARNING, Finding

LEAST = 500  # elements of a matrix of which its distribution tells
NORMAL_ERRORS = 3.0  # standard errors of a deviation
LEARNED = 0.03  # deviation of the weights of a norm: some models draw them around 0 or 1 with 0.02
EDGE = 20.0  # gaps between neighbours that the largest of uniform numbers may lie below their bound
LAYERS = (nn.Linear, nn.Embedding, nn.EmbeddingBag, nn.Conv1d, nn.Conv2d, nn.Conv3d)
ADAPTERS = ("lora", "adapter")


@dataclass(frozen=True)
class _Layer:
    path: str
    module: nn.Module
    weight: Tensor
    zero: bool
    drawn: str


def find_not_loaded(model: nn.Module) -> Iterator[Finding]:
    """Yield layers whose weights are zero or as drawn, where the rest of the model is trained.

    In a model whose norms and biases are as at their start nothing is trained, and nothing is found. A zero matrix that
    asks for gradients in a model most of which does not is that of an adapter that is about to learn.
    """
    if not is_trained(model):
        return
    spread = _initializer_range(model)
    layers = [*_layers(model, spread)]
    as_at_start = [layer for layer in layers if layer.zero or layer.drawn]
    if 2 * len(as_at_start) >= len(layers):
        return
    frozen = sum(not layer.weight.requires_grad for layer in layers)
    for layer in as_at_start:
        name = members.join(layer.path, "weight")
        if layer.weight.requires_grad and 2 * frozen > len(layers):
            continue
        if any(word in name.lower() for word in ADAPTERS):
            continue
        rest = f"{len(layers) - len(as_at_start)} of {len(layers)} matrices of the model are trained"
        yield Finding(
            rule="not loaded",
            severity=WARNING,
            path=layer.path,
            call=f"{layer.path}#0",
            op=type(layer.module).__name__,
            what=f"{name} is all zero: {rest}" if layer.zero else f"{name} is as it was drawn ({layer.drawn}): {rest}",
            advice="Look whether the checkpoint has it under another name (fxdebug weights FILE MODEL), or whether it "
            "is to be tied to another weight.",
        )


def _layers(model: nn.Module, spread: float | None) -> Iterator[_Layer]:
    seen: set[int] = set()
    for path, module in members.named_modules_of(model):
        weight = _own(module, "weight") if isinstance(module, LAYERS) else None
        if weight is None or id(weight) in seen or not _is_readable(weight) or min(weight.shape[:2]) < 2:
            continue
        seen.add(id(weight))
        numbers = weight.detach()
        if not bool(numbers.any()):
            yield _Layer(path, module, weight, True, "")
        elif numbers.numel() >= LEAST:
            yield _Layer(path, module, weight, False, _drawn(module, numbers, spread))


def _own(module: nn.Module, name: str) -> Tensor | None:
    """Return a parameter of a module itself; none of what a script compiled."""
    return None if isinstance(module, torch.jit.ScriptModule) else module._parameters.get(name)


def _is_readable(weight: Tensor) -> bool:
    return (
        weight.is_floating_point()
        and not weight.is_meta
        and not special_tensors.is_uninitialised(weight)
        and type(weight) in (Tensor, nn.Parameter)
        and weight.numel() > 0
    )


def _drawn(module: nn.Module, weight: Tensor, spread: float | None) -> str:
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


def is_trained(model: nn.Module) -> bool:
    """Have most norms weights that are spread wider than any are drawn; where there are no norms, most biases?"""
    norms: list[bool] = []
    biases: list[bool] = []
    for _, module in members.named_modules_of(model):
        weight, bias = _own(module, "weight"), _own(module, "bias")
        if weight is not None and weight.ndim == 1 and weight.numel() > 1 and _is_readable(weight):
            norms.append(bool(weight.detach().double().std() > LEARNED))
        elif weight is not None and bias is not None and bias.numel() > 1 and _is_readable(bias):
            fan_in = max(math.prod(weight.shape[1:]), 1)
            biases.append(not _is_constant(bias) and float(bias.detach().abs().max()) > 1.001 / math.sqrt(fan_in))
    told = norms or biases
    return bool(told) and 2 * sum(told) > len(told)


def _is_constant(vector: Tensor) -> bool:
    return bool((vector.detach() == vector.detach()[0]).all())


def _initializer_range(model: nn.Module) -> float | None:
    value = getattr(getattr(model, "config", None), "initializer_range", None)
    return float(value) if isinstance(value, float) and value > 0 else None
