"""Read in a loss's graph how much each thing counts in it: volumes of flows, codes against what is told back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import Sign
from fxdebug.features.training.loss.loss_graph import (
    PASSED,
    Edge,
    LossRead,
    behind_views,
    bounds_of,
    elements_of,
    ends_of,
    name_of,
    origin_of,
    scalar_of,
)
from fxdebug.features.training.loss.loss_parts import action_of, code_in, entropy_in, is_square, parts_of
from fxdebug.features.training.loss.loss_terms import inputs_of

MOST, MOST_MODEL = 600, 4000  # nodes of the loss, and of what it is made of
FEWEST_LOOKS, CLOSE = 3, 0.01
FEWEST_REWARDS, LEEWAY = 8, 0.5
FEWEST = 4  # numbers of an example, that are told back, for each that a code has
_ERRORS = frozenset("MseLoss BinaryCrossEntropy BinaryCrossEntropyWithLogits".split())
_SUMMED = frozenset("Sum Stack Cat Expand Add Sub Neg Rsub Mean Div Mul".split()) | PASSED


@dataclass(frozen=True)
class Amount:
    """The times that an element counts in a loss, with its sign, and over how many elements means were taken."""

    each: float
    averaged: float


def amounts_in(root: Tensor) -> dict[Edge, Amount]:
    """Return what a loss adds up, by the node that made it and which of its results it is.

    >>> import torch
    >>> x, y = torch.ones(2, 4, requires_grad=True), torch.ones(2, 4, requires_grad=True)
    >>> found = amounts_in(3 * x.exp().mean(1).mean() - y.sin().sum(1).mean())
    >>> {name_of(node): one for (node, _), one in found.items() if name_of(node) in ("Exp", "Sin")}
    {'Sin': Amount(each=-0.5, averaged=2.0), 'Exp': Amount(each=0.375, averaged=8.0)}
    """
    found, pending = dict[Edge, Amount](), [((root.grad_fn, 0), Amount(1.0, 1.0))]
    while pending and len(found) < MOST:
        edge, amount = pending.pop()
        if edge[0] is None or edge in found:
            continue
        found[edge] = amount
        node, name = edge[0], name_of(edge[0])
        for place, inner in enumerate(node.next_functions if name in _SUMMED else ()):
            factor = _factor(node, name, place)
            averaged = elements_of(inner[0]) / max(elements_of(node), 1) if name == "Mean" else 1.0
            if inner[0] is not None and factor and averaged:
                pending.append((inner, Amount(amount.each * factor / averaged, amount.averaged * averaged)))
    return found


def _factor(node: Any, name: str, place: int) -> float:
    """Return by what an operation multiplies one of the things that it takes; 0 where it does more."""
    if name in ("Neg", "Rsub"):
        return -1.0
    if name == "Sub":
        return -1.0 if place else 1.0
    if name not in ("Mul", "Div"):
        return 1.0
    number = scalar_of(_beside(node)) if len(inputs_of(node)) == 1 else None
    return 0.0 if not number else number if name == "Mul" else 1 / number


def _beside(node: Any) -> Any:
    other = getattr(node, "_saved_other", None)
    return getattr(node, "_saved_self", None) if other is None else other


def _walk(begin: Sequence[Any]) -> Iterator[Any]:
    pending, known = list(begin), set[Any]()
    while pending and len(known) < MOST_MODEL:
        node = pending.pop(0)
        if node is None or node in known:
            continue
        known.add(node)
        yield node
        pending += inputs_of(node)


def volumes_of(root: Tensor) -> tuple[int, int]:
    """Return how many factors of a normalising flow have the logarithm with the right sign in a loss, and the wrong.

    Of −log p(x) = z² / 2 − log |dz / dx| what multiplies x on its way to z is to be subtracted.

    >>> import torch
    >>> x, s = torch.randn(8, 2), torch.zeros(8, 2, requires_grad=True) * 1
    >>> z = x * s.exp()
    >>> [volumes_of(0.5 * z.square().sum(1).mean() + sign * s.sum(1).mean()) for sign in (-1, 1)]
    [(1, 0), (0, 1)]
    """
    amounts, right, wrong = amounts_in(root), 0, 0
    logs = {origin_of(edge): one.each for edge, one in amounts.items()}
    factors = dict[Edge, float]()
    for (node, _), one in amounts.items():
        if name_of(node) == "Log" and node.next_functions:
            inner = origin_of(node.next_functions[0])
            factors[origin_of(inner[0].next_functions[0]) if name_of(inner[0]) == "Abs" else inner] = one.each
    squares = {node: one.each for (node, _), one in amounts.items() if one.each > 0 and is_square(node)}
    for node in _walk([*squares]) if logs else ():
        if name_of(node) not in ("Mul", "Div") or elements_of(node) < 2:
            continue
        for place, operand in enumerate(node.next_functions):
            way = 1.0 if name_of(node) == "Mul" else -1.0 if place else 0.0
            found = _logarithm(origin_of(operand), logs, factors)
            if found is None or not way:
                continue
            if not any(abs(abs(found) - 2 * one) < CLOSE * one for one in squares.values()):
                continue  # a density has z² / 2 beside log |dz / dx|; a penalty on a scale has other weights
            right, wrong = right + (way * found < 0), wrong + (way * found > 0)
    return right, wrong


def _logarithm(factor: Edge, logs: dict[Edge, float], factors: dict[Edge, float]) -> float | None:
    """Return how often the logarithm of a factor counts in a loss; ``None`` where it does not."""
    if factor in factors:
        return factors[factor]
    if name_of(factor[0]) != "Exp":
        return None
    inner, sign = origin_of(factor[0].next_functions[0]), 1.0
    if inner not in logs and name_of(inner[0]) == "Neg":
        inner, sign = origin_of(inner[0].next_functions[0]), -1.0
    return sign * logs[inner] if inner in logs else None


@dataclass(frozen=True)
class Charged:
    """The charge of a code against what is told back: over how many numbers more the latter is averaged.

    ``noise`` is the variance that this takes for what cannot be told, ``variance`` that of the data, ``missed`` the
    share of it that is not told back.
    """

    more: float
    noise: float
    variance: float
    missed: float


def charged_in(root: Tensor, outputs: Sequence[Tensor], given: Sequence[Tensor]) -> Charged | None:
    """Return how a loss charges a code, where it adds up an error and the distance of a code from its prior."""
    code = code_in(parts_of(root.grad_fn, ends_of(outputs)))
    if code is None or code.sign < 0:
        return None
    amounts = {edge[0]: one for edge, one in amounts_in(root).items()}
    raised = next((one for one in code.nodes if name_of(one) == "Exp" and one in amounts), None)
    for node, one in amounts.items():
        read = None if raised is None or node in code.nodes or one.each <= 0 else _error_of(node, given)
        if read is None:
            continue
        error, variance, count = read
        ratio = amounts[raised].each / one.each * count  # half of the weight of the code, over that of each number
        noise = ratio if name_of(node) in ("MseLoss", "Pow") else 2 * ratio * variance
        return Charged(one.averaged * count / amounts[raised].averaged, noise, variance, error / variance)
    return None


def _error_of(node: Any, given: Sequence[Tensor]) -> tuple[float, float, int] | None:
    """Return a mean squared error, the variance of what is told back, and by how much it is averaged in one node."""
    name, count = name_of(node), 1
    if name in _ERRORS and isinstance(node._saved_target, Tensor):
        target, made = (each.detach().double() for each in (node._saved_target, node._saved_self))
        error = ((made.sigmoid() if name.endswith("WithLogits") else made) - target).square().mean()
        count = target.numel() if node._saved_reduction == 1 else 1
    elif name == "Pow" and is_square(node) and name_of(behind_views(inputs_of(node)[0])) == "Sub":
        difference = node._saved_self.detach().double()
        known = [one.detach().double() for one in given if one.numel() == difference.numel()]
        if not known or not given[0].is_floating_point():
            return None
        target, error = known[0], difference.square().mean()
    else:
        return None
    rows = target.reshape(len(target), -1) if target.dim() > 1 else target[None]
    variance = float(rows.var(0, unbiased=False).mean()) if len(rows) > 1 else 0.0
    return (float(error), variance, count) if variance > 0 and math.isfinite(float(error)) else None


def leeway_of(root: Tensor, outputs: Sequence[Tensor]) -> float | None:
    """Return how far rewards differ, over the weight of the entropy that a loss rewards beside them.

    With a weight of b the best policy has shares that go with exp(reward / b): well below 1 it is chance.

    >>> import torch
    >>> logits, gain = torch.zeros(64, 4, requires_grad=True), torch.tensor([1.0, -1.0] * 32)
    >>> drawn = torch.distributions.Categorical(logits=logits)
    >>> loss = -(drawn.log_prob(drawn.sample()) * gain).mean() - 4.0 * drawn.entropy().mean()
    >>> round(leeway_of(loss, ()), 2)
    0.25
    """
    parts = parts_of(root.grad_fn, ends_of(outputs))
    actions = [(one.node, action) for one in parts if (action := action_of(one.node)) is not None]
    entropies = [one.node for one in parts if entropy_in(one.node)]
    if len(actions) != 1 or len(entropies) != 1 or not isinstance(actions[0][1].weights, Tensor):
        return None
    amounts = {edge[0]: one.each for edge, one in amounts_in(root).items()}
    each, other = amounts.get(actions[0][0]), amounts.get(entropies[0])
    weights = actions[0][1].weights.detach().double()
    spread = float(weights.std()) if weights.numel() >= FEWEST_REWARDS else 0.0
    return spread * abs(each / other) if each and other and other * each < 0 and spread else None


class Amounts:
    """Volumes, codes and logits in the losses of a training, of which some are looked at."""

    def __init__(self) -> None:
        self._looks = self._wrong = self._right = self._twice = 0
        self._charged: list[Charged] = []
        self._leeways: list[float] = []  # of a policy, between what it is rewarded for and chance
        self._rectified: list[tuple[int, int]] = []  # classes that no example of a batch has, and all

    def look(self, root: Tensor, outputs: Sequence[Tensor], given: Sequence[Tensor], read: LossRead) -> None:
        """Look at one loss; ``read`` is what its graph tells of it."""
        self._looks += 1
        with untracked():
            right, wrong = volumes_of(root)
            self._right, self._wrong = self._right + bool(right), self._wrong + bool(wrong and not right)
            charged = charged_in(root, outputs, given)
            self._charged += [] if charged is None else [charged]
            self._note_rectified(outputs, read)
            leeway = leeway_of(root, outputs)
            self._leeways += [] if leeway is None else [leeway]

    def _note_rectified(self, outputs: Sequence[Tensor], read: LossRead) -> None:
        """Note logits that a rectifier made, and how many classes have 0 wherever they are asked for."""
        bounds = bounds_of(read) if read.kind == "cross_entropy" else None
        made = outputs[0].detach() if outputs else None
        if bounds is None or bounds[0] != "relu" or made is None or made.dim() != 2 or read.target is None:
            return
        target = read.target.detach().reshape(-1)
        if target.is_floating_point() or len(target) != len(made):
            return
        known = (target >= 0) & (target < made.shape[1])
        target, own = target[known], made[known].gather(1, target[known][:, None])[:, 0]
        asked = target.unique()
        self._rectified.append((len(asked) - len(target[own != 0].unique()), len(asked)))

    def signs(self) -> Iterator[Sign]:
        """Yield what is charged or rewarded the wrong way."""
        if self._wrong >= max(FEWEST_LOOKS, self._looks) and not self._right:
            yield Sign("volume upside down", (), (float(self._wrong),))
        late = self._charged[-FEWEST_LOOKS:]
        if len(self._charged) > FEWEST_LOOKS and all(one.more >= FEWEST and one.noise > one.variance for one in late):
            least = min(late, key=lambda one: one.missed)
            yield Sign("code overcharged", (), (least.more, least.noise, least.variance, least.missed))
        if len(self._leeways) > FEWEST_LOOKS and max(self._leeways) < LEEWAY:
            yield Sign("chance rewarded", (), (max(self._leeways),))
        last = self._rectified[-FEWEST_LOOKS:]
        if len(self._rectified) > FEWEST_LOOKS:
            yield Sign("logits rectified", (), (float(min(dead for dead, _ in last)), float(last[-1][1])))
