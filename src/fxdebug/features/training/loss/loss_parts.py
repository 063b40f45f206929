"""Read in its graph what the parts of a loss are for: rewarded actions, entropies, codes, overlaps, margins."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.learning import PartFacts
from fxdebug.features.training.loss.loss_graph import (
    PASSED,
    behind_views,
    computed_again,
    elements_of,
    ends_of,
    name_of,
    read_function,
    scalar_of,
    written_out,
)
from fxdebug.features.training.loss.loss_terms import MOST_REACHED, Term, first_of, inputs_of

MOST_PARTS = 64
MOST_STEPS = 400  # nodes on the way to them
DEPTH = 8  # operations inside of a margin
FEWEST = 8  # numbers
FEWEST_LOOKS = 3
ALIKE, STEADY = 0.15, 0.1  # of the mean: how far margins differ from one another, and from look to look
LEAST_REST, MOSTLY = 0.05, 0.8  # of the loss, and of the looks
_GATHERED = frozenset("Mean Sum Stack Cat Expand Squeeze".split())
_MARGINS = frozenset("Relu ClampMin Clamp Softplus Log1P Log LogSigmoid".split())
_INSIDE = _MARGINS | frozenset("Rsub Add Sub Neg Exp Mul Div Pow".split())
_PROBABILITIES = frozenset("Softmax Exp".split())
_CHOSEN = frozenset("Gather Index Select".split())


@dataclass(frozen=True)
class Part:
    """A part of a loss: the node that made it, and the sign with which it is added up."""

    node: Any
    sign: float


@dataclass(frozen=True)
class Action:
    """Log-probabilities of what was drawn, times ``weights`` (``None`` where these learn, too); ``sign`` is of both.

    ``may_be_labels``: they are picked as those of labels are in a cross entropy, which masks of 0 and 1 are for.
    """

    sign: float
    weights: Tensor | None
    may_be_labels: bool = False


def parts_of(root: Any, ends: Set[Any] = frozenset()) -> list[Part]:
    """Return what a loss adds up, element by element, with the sign of each; ``root`` is its node.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> [(name_of(part.node), part.sign) for part in parts_of((x.exp() - 0.5 * x.square()).mean().grad_fn)]
    [('Exp', 1.0), ('Pow', -1.0)]
    """
    found, pending, steps = list[Part](), [(root, 1.0)], 0
    while pending and len(found) < MOST_PARTS and steps < MOST_STEPS:
        steps += 1
        node, sign = pending.pop()
        name, inputs = name_of(node), inputs_of(node)
        passes = 0.0 if node in ends or not name or action_of(node) is not None else _passes(node, name, inputs)
        if not passes:
            found += [] if node is None else [Part(node, sign)]
        elif name == "Sub" and len(node.next_functions) == 2:
            first, second = (one for one, _ in node.next_functions)
            pending += [(one, each) for one, each in ((second, -sign), (first, sign)) if one is not None]
        else:
            pending += [(one, sign * passes) for one in reversed(inputs)]
    return found


def _passes(node: Any, name: str, inputs: Sequence[Any]) -> float:
    """Return the sign that an operation gives to what it takes, where it only adds up, scales or moves; else 0."""
    if name in ("Neg", "Rsub"):
        return -1.0
    if name in ("Add", "Sub") or name in PASSED or name in _GATHERED:
        return 1.0
    if name in ("Mul", "Div") and len(inputs) == 1:
        other = _constant(node)
        if other is None:
            return 0.0
        number = scalar_of(other)
        if number is not None:
            return math.copysign(1.0, number) if number else 0.0
        if isinstance(other, Tensor) and other.numel() and not other.is_complex():
            with untracked():
                low, high = (float(one) for one in torch.aminmax(other.detach().float()))
            return 1.0 if low >= 0 < high else -1.0 if high <= 0 > low else 0.0
    return 0.0


def action_of(node: Any) -> Action | None:
    """Return the log-probabilities of what was drawn, with what they are multiplied by; ``None`` of another operation.

    >>> import torch
    >>> logits, reward = torch.zeros(8, 4, requires_grad=True), torch.arange(8.0)
    >>> drawn = torch.distributions.Categorical(logits=logits)
    >>> loss = drawn.log_prob(drawn.sample()) * reward
    >>> action_of(loss.grad_fn).sign, action_of(loss.grad_fn).weights.tolist() == reward.tolist()
    (1.0, True)
    """
    if name_of(node) != "Mul" or elements_of(node) < 2:
        return None
    inputs = inputs_of(node)
    if len(inputs) == 1:
        sign, weights = log_probability(inputs[0]), _constant(node)
        is_each = isinstance(weights, Tensor) and weights.numel() > 1
        return Action(sign, weights, is_of_labels(inputs[0])) if sign and is_each else None
    signs = [log_probability(one) for one in inputs]
    if len(inputs) == 2 and signs.count(0.0) == 1 and not entropy_in(node):
        drawn, weight = inputs if signs[0] else reversed(inputs)
        is_other = reaches([weight], _answer_behind(drawn)) is False  # else the weight is of the same answer (focal)
        return Action(max(signs, key=abs), None) if is_other else None
    return None


def _answer_behind(node: Any) -> Any:
    """Return the node of the answer that a log-probability is of."""
    for _ in range(DEPTH * 2):
        inputs = inputs_of(node)
        if not inputs:
            break
        if name_of(node) in ("LogSoftmax", "Softmax", "BinaryCrossEntropyWithLogits"):
            return behind_views(inputs[0])
        if name_of(node) == "Sub" and len(inputs) == 2 and name_of(inputs[1]) == "Logsumexp":
            return behind_views(inputs[0])
        node = inputs[0]
    return node


def log_probability(node: Any) -> float:
    """Return 1 of the log-probability of something that was drawn, -1 of its negative, 0 of anything else."""
    sign, is_chosen = 1.0, False
    for _ in range(DEPTH * 2):
        name, inputs = name_of(node), inputs_of(node)
        if name == "Neg":
            sign = -sign
        elif name in ("NllLoss", "NllLoss2D") and elements_of(node) > 1:
            return -sign
        elif name == "LogSoftmax" or (name == "Sub" and len(inputs) == 2 and name_of(inputs[1]) == "Logsumexp"):
            return sign if is_chosen else 0.0
        elif name == "Log":
            inner = behind_views(inputs[0]) if inputs else None
            was = is_chosen
            while name_of(inner) in ("Clamp", "Gather", "Add", "Div") and inputs_of(inner):
                was = was or name_of(inner) == "Gather"
                inner = behind_views(inputs_of(inner)[0])
            is_picked = was or (bool(inputs) and behind_views(inputs[0]) is not inputs[0])
            return sign if is_picked and name_of(inner) == "Softmax" else 0.0
        elif name == "Sub" and _is_normal(node):
            return sign
        elif name not in PASSED and name not in _GATHERED and name not in (*_CHOSEN, "Clamp"):
            return 0.0
        is_chosen = is_chosen or name in _CHOSEN
        if not inputs:
            return 0.0
        node = inputs[0]
    return 0.0


def is_of_labels(node: Any) -> bool:
    """Is it made by a cross entropy, or picked from a log_softmax, and not by a distribution's log_prob()?"""
    for _ in range(DEPTH * 2):
        if name_of(node) in ("NllLoss", "NllLoss2D", "LogSoftmax"):
            return True
        if name_of(node) in ("Log", "Sub") or not inputs_of(node):
            return False
        node = inputs_of(node)[0]
    return False


def _is_normal(node: Any) -> bool:
    """Is it the log-density of a normal distribution: -(x - mean)² / (2 · variance) - …?"""
    for _ in range(3):
        inputs = inputs_of(node)
        if name_of(node) != "Sub" or not inputs:
            break
        node = inputs[0]
    for name in ("Div", "Neg", "Pow", "Sub"):
        if name_of(node) != name or not inputs_of(node):
            return False
        node = inputs_of(node)[0]
    return True


def entropy_in(node: Any) -> bool:
    """Is it probabilities times their logarithms?

    >>> import torch
    >>> logits = torch.zeros(8, 4, requires_grad=True)
    >>> entropy = torch.distributions.Categorical(logits=logits).entropy()
    >>> [(entropy_in(part.node), part.sign) for part in parts_of(entropy.grad_fn)]
    [(True, -1.0)]
    """
    inputs = [_behind_clamp(one) for one in inputs_of(node)]
    if name_of(node) != "Mul" or len(inputs) != 2:
        return False
    return any(
        _is_probability(one) and _is_logarithm(other) for one, other in (inputs, reversed(inputs))
    )  # fmt: skip


def _is_probability(node: Any) -> bool:
    name = name_of(node)
    return name in _PROBABILITIES or (name == "Div" and name_of(behind_views(inputs_of(node)[0])) == "Softmax")


def _is_logarithm(node: Any) -> bool:
    inputs = inputs_of(node)
    return name_of(node) in ("LogSoftmax", "Log") or (
        name_of(node) == "Sub" and len(inputs) == 2 and name_of(inputs[1]) == "Logsumexp"
    )


def _behind_clamp(node: Any) -> Any:
    node = behind_views(node)
    return behind_views(inputs_of(node)[0]) if name_of(node) == "Clamp" else node


@dataclass(frozen=True)
class Code:
    """A code's distance from its prior: the nodes of its mean and of its variance, the sign, and all of its parts."""

    mean: Any
    variance: Any
    sign: float
    nodes: frozenset[Any]


def code_in(parts: Sequence[Part]) -> Code | None:
    """Return the distance of a normal distribution from the usual one, v - log v + mean², where a loss adds it up.

    >>> import torch
    >>> m, v = torch.ones(4, 3, requires_grad=True), torch.zeros(4, 3, requires_grad=True)
    >>> code_in(parts_of((-0.5 * (1 + v - m.pow(2) - v.exp())).sum().grad_fn)).sign
    1.0
    """
    for part in parts:
        inner = behind_views(inputs_of(part.node)[0]) if inputs_of(part.node) else None
        size = elements_of(part.node)
        if name_of(part.node) not in ("Exp", "Pow") or inner is None:
            continue
        against = [one for one in parts if one.sign == -part.sign and elements_of(one.node) == size]
        log = next((one for one in against if _is_log_of(one.node, part.node, inner)), None)
        squares = [one for one in parts if one.sign == part.sign and is_square(one.node) and one is not part]
        square = next((one for one in squares if elements_of(one.node) == size), None)
        if log is not None and square is not None:
            mean = behind_views(inputs_of(square.node)[0])
            return Code(mean, inner, part.sign, frozenset([part.node, log.node, square.node]))
    return None


def _is_log_of(node: Any, variance: Any, inner: Any) -> bool:
    """Is it the logarithm of a variance, or what the variance is the exponential of?"""
    if name_of(node) == "Log":
        return bool(inputs_of(node)) and behind_views(inputs_of(node)[0]) is variance
    return name_of(variance) == "Exp" and behind_views(node) is inner


def is_square(node: Any) -> bool:
    """Is it something times itself?"""
    inputs = inputs_of(node)
    if name_of(node) == "Pow":
        return scalar_of(node._saved_exponent) == 2
    return name_of(node) == "Mul" and len(inputs) == 2 and inputs[0] is inputs[1]


def reaches(begin: Sequence[Any], end: Any) -> bool | None:
    """Does a graph lead from some nodes to another? ``None`` where it is too large to say."""
    pending, known = list(begin), set[Any]()
    while pending:
        node = pending.pop()
        if node is None or node in known:
            continue
        if node is end:
            return True
        known.add(node)
        if len(known) > MOST_REACHED:
            return None
        pending += [inner for inner, _ in node.next_functions]
    return False


def overlap_of(node: Any) -> float:
    """Return the targets beside 0 of an overlap with answers, over the size of both (Dice, Jaccard); 0 of others.

    >>> import torch
    >>> p, t = torch.rand(16, requires_grad=True).sigmoid(), torch.tensor([0.0, 1.0] * 8)
    >>> [overlap_of((2 * (p * t).sum() / (p.sum() + t.sum())).grad_fn) for t in (t, 255 * t)]
    [1.0, 255.0]
    """
    inputs = inputs_of(node)
    if name_of(node) != "Div" or len(inputs) != 2:
        return 0.0
    below = {behind_views(part) for part in _inner_parts(inputs[1])}
    below |= {behind_views(inputs_of(part)[0]) for part in _inner_parts(inputs[1]) if is_square(part)}
    for part in _inner_parts(inputs[0]):
        is_shared = name_of(part) == "Mul" and len(inputs_of(part)) == 1 and behind_views(inputs_of(part)[0]) in below
        if is_shared and (highest := _only_other(_constant(part))):
            return highest
    return 0.0


def _only_other(numbers: object) -> float:
    """Return the size that numbers have which are not 0, where both are there; else 0."""
    if not isinstance(numbers, Tensor) or numbers.numel() < FEWEST or numbers.is_complex():
        return 0.0
    with untracked():
        sizes = numbers.detach().abs()
        highest = float(sizes.amax())
        are_two = bool(((sizes == 0) | (sizes == highest)).all()) and bool((sizes == 0).any())
    return highest if are_two and math.isfinite(highest) else 0.0


def is_unlikely(root: Any, parts: Sequence[Part]) -> bool:
    """Is all that is minimised the log-probability of what is asked for, which then becomes rarer?

    A number below 0 that it is multiplied with may be a return.

    >>> import torch
    >>> p, labels = torch.zeros(8, 4, requires_grad=True).softmax(1), torch.zeros(8, 1, dtype=torch.long)
    >>> losses = [sign * p.gather(1, labels).log().mean() for sign in (1, -1)]
    >>> [is_unlikely(loss.grad_fn, parts_of(loss.grad_fn)) for loss in losses]
    [True, False]
    """
    if not parts or any(part.sign * log_probability(part.node) <= 0 for part in parts):
        return False
    if max(elements_of(part.node) for part in parts) < FEWEST:
        return False
    pending, ends = [root], {part.node for part in parts}
    while pending:
        node = pending.pop()
        number = scalar_of(_constant(node)) if name_of(node) in ("Mul", "Div") else None
        if number is not None and number < 0:
            return False
        pending += [one for one in inputs_of(node) if node not in ends]
    return True


def _inner_parts(node: Any) -> Iterator[Any]:
    """Yield what a sum adds up, where products with targets count as parts."""
    pending, steps = [node], 0
    while pending and steps < MOST_STEPS:
        steps += 1
        node = pending.pop()
        name, inputs = name_of(node), inputs_of(node)
        is_scaled = name in ("Mul", "Div") and len(inputs) == 1 and scalar_of(_constant(node)) is not None
        if name in ("Add", "Sub", "Neg", "Rsub") or name in _GATHERED or name in PASSED or is_scaled:
            pending += inputs
            if not any(name == one for one in ("Add", "Sub")):
                yield node
        else:
            yield node


def margin_of_bits(node: Any) -> tuple[str, float] | None:
    """Return the function of a margin that is given labels of 0 and 1 for -1 and 1, with the share of zeros.

    A product by itself is no margin: zeros may only choose what counts, as a mask does in front of a clamp.

    >>> import torch
    >>> x, t = torch.zeros(8, requires_grad=True), torch.tensor([0.0, 1.0] * 4)
    >>> margin_of_bits((1 - x * t).relu().grad_fn), margin_of_bits((1 - x * (2 * t - 1)).relu().grad_fn)
    (('relu', 0.5), None)
    """
    name = name_of(node)
    if name == "SoftMarginLoss":
        bits = node._saved_target
        return ("soft_margin_loss", _share_of_zeros(bits)) if _are_bits(bits) else None
    if name == "Pow" and inputs_of(node):
        return margin_of_bits(inputs_of(node)[0])
    if name not in _MARGINS:
        return None
    pending = [(inner, 1, False) for inner in inputs_of(node)]
    while pending:
        inner, depth, is_less = pending.pop()
        kind, inputs = name_of(inner), inputs_of(inner)
        is_product = kind == "Mul" and len(inputs) == 1 and (is_less or name_of(inputs[0]) == "Neg")
        if is_product and _are_bits(bits := _constant(inner)):
            return name.lower(), _share_of_zeros(bits)
        if depth < DEPTH and (kind in _INSIDE or kind in PASSED):
            pending += [(one, depth + 1, is_less or kind not in PASSED) for one in inputs]
    return None


def _are_bits(numbers: object) -> bool:
    """Are numbers 0 and 1 (or 0 and -1), and are there both?"""
    return _only_other(numbers) == 1


def _share_of_zeros(numbers: Any) -> float:
    with untracked():
        return 1 - int(numbers.detach().count_nonzero()) / numbers.numel()


def ratio_in(node: Any) -> Tensor | None:
    """Return the ratio of probabilities that a clipped surrogate takes; ``None`` of another operation.

    >>> import torch
    >>> ratio, gain = torch.zeros(4, requires_grad=True).exp(), torch.ones(4)
    >>> ratio_in(torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).grad_fn).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    if name_of(node) not in ("Minimum", "Maximum"):
        return None
    pending = list(inputs_of(node))
    for _ in range(DEPTH * 2):
        if not pending:
            break
        inner = pending.pop(0)
        if name_of(inner) == "Exp":
            return inner._saved_result  # type: ignore[no-any-return]
        if name_of(inner) in ("Mul", "Clamp", "Neg") or name_of(inner) in PASSED:
            pending += inputs_of(inner)
    return None


def cosine_scale(prediction: Any) -> float | None:
    """Return by what cosines are multiplied, where a prediction is cosines of vectors and classes, or of two vectors.

    >>> import torch
    >>> one, other = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    >>> unit = torch.nn.functional.normalize
    >>> cosine_scale((unit(one) @ unit(other).T / 0.5).grad_fn), cosine_scale((one @ other.T).grad_fn)
    (2.0, None)
    """
    node, scale = behind_views(prediction), 1.0
    for _ in range(DEPTH):
        if name_of(node) in ("MaskedFill", "Where") and len(inputs_of(node)) == 1:  # own pairs are left out
            node = behind_views(inputs_of(node)[0])
            continue
        if name_of(node) not in ("Mul", "Div") or len(inputs_of(node)) != 1:
            break
        number = scalar_of(_constant(node))
        if not number:
            return None
        scale = scale * number if name_of(node) == "Mul" else scale / number
        node = behind_views(inputs_of(node)[0])
    inputs = [behind_views(one) for one in inputs_of(node)]
    if name_of(node) == "Sum" and len(inputs) == 1 and name_of(inputs[0]) == "Mul":
        inputs = inputs_of(inputs[0])
    elif name_of(node) not in ("Mm", "Bmm"):
        return None
    return abs(scale) if len(inputs) == 2 and all(_is_unit(one) for one in inputs) else None


def _is_unit(node: Any) -> bool:
    """Is it something divided by its norm?"""
    node = _behind_expand(node)
    inputs = inputs_of(node)
    if name_of(node) != "Div" or len(inputs) != 2:
        return False
    norm = _behind_expand(inputs[1])
    for _ in range(3):
        if name_of(norm) in ("ClampMin", "Clamp", "Add") and inputs_of(norm):
            norm = _behind_expand(inputs_of(norm)[0])
    return name_of(norm) in ("LinalgVectorNorm", "Norm", "Sqrt")


def _behind_expand(node: Any) -> Any:
    node = behind_views(node)
    while name_of(node) == "Expand" and inputs_of(node):
        node = behind_views(inputs_of(node)[0])
    return node


def _is_margin(node: Any) -> bool:
    """Is it something that is clamped at 0 from below?"""
    is_open = name_of(node) == "Clamp" and node._saved_min == 0 and node._saved_max is None
    return name_of(node) in ("Relu", "ClampMin") or is_open


def _level_of(margin: Any) -> float | None:
    """Return the mean of what was clamped at 0, where all of it comes to about the same."""
    saved = margin._saved_result if name_of(margin) == "Relu" else margin._saved_self
    with untracked():
        numbers = saved.detach().float()
        mean, deviation = float(numbers.mean()), float(numbers.std())
    return mean if 0 <= deviation < ALIKE * mean else None


def rest_without_gradient(root: Tensor) -> float | None:
    """Return what a loss adds that has no gradient, where all else in it is known; ``None`` where it adds nothing so.

    >>> import torch
    >>> x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
    >>> rest_without_gradient(2 * torch.nn.functional.mse_loss(x, y) + torch.tensor(5.0))
    5.0
    """
    terms, others = known_terms(root)
    if others or not adds_constants(root):
        return None
    with untracked():
        return round(float(root.detach()) - sum(share for _, share in terms), 6)


def known_terms(root: Tensor) -> tuple[list[tuple[str, float]], int]:
    """Return the terms of a loss that torch's functions made, with what they add to it, and the number of others."""
    found, others = list[tuple[str, float]](), 0
    for node, factor in _summands(root):
        kind, value = _known_loss(node)
        found += [] if value is None else [(kind, factor * value)]
        others += value is None
    return found, others


def adds_constants(root: Tensor) -> bool:
    """Does a loss add something that has no gradient?"""
    pending = [root.grad_fn]
    while pending:
        node = pending.pop()
        name, inputs = name_of(node), inputs_of(node)
        if name in ("Add", "Sub") and elements_of(node) == 1:
            if len(inputs) == 1:
                return True
            pending += inputs
        elif name == "Neg" or (name in ("Mul", "Div") and len(inputs) == 1):
            pending += inputs
    return False


def _summands(root: Tensor) -> Iterator[tuple[Any, float]]:
    """Yield what a loss adds up, with the factor on each."""
    pending = [(root.grad_fn, 1.0)]
    for _ in range(MOST_PARTS):
        if not pending:
            return
        node, factor = pending.pop()
        name, inputs = name_of(node), inputs_of(node)
        if name in ("Add", "Sub") and elements_of(node) == 1:
            pending += [
                (one, factor * (-1 if place and name == "Sub" else 1))
                for place, (one, _) in enumerate(node.next_functions)
                if one is not None
            ]
        elif name == "Neg":
            pending.append((inputs[0], -factor))
        elif name in ("Mul", "Div") and len(inputs) == 1 and (number := scalar_of(_constant(node))):
            pending.append((inputs[0], factor * number if name == "Mul" else factor / number))
        else:
            yield node, factor


def meets_each(node: Any) -> int:
    """Return the examples, where numbers of each are multiplied with what learns of all others; else 0.

    >>> import torch
    >>> ratio, advantage = torch.ones(8, requires_grad=True) * 1, torch.ones(8, 1)
    >>> meets_each((ratio * advantage).grad_fn), meets_each((ratio * advantage[:, 0]).grad_fn)
    (8, 0)
    """
    for _ in range(DEPTH * 2):
        inputs = inputs_of(node)
        if name_of(node) == "Mul" and len(inputs) == 1:
            other, count = _constant(node), elements_of(inputs[0])
            if (
                isinstance(other, Tensor)
                and tuple(other.shape) in ((count, 1), (count, count))
                and elements_of(node) == count * count > 1
            ):
                return count
        if not inputs:
            return 0
        node = inputs[0]
    return 0


def _known_loss(node: Any) -> tuple[str, float | None]:
    """Return a loss that one of torch's functions gave, or that was written out: which, and what it is.

    It is computed again. Of a mean or a sum of one number for each term these are known, too.

    >>> import torch
    >>> x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
    >>> [_known_loss(one.grad_fn) for one in ((x - y).abs().mean(), torch.nn.functional.cosine_similarity(x, y, 0))]
    [('l1_loss', 1.0), ('', None)]
    """
    read = read_function(node)
    divisor, made = getattr(node, "_saved_reduction", 0), node
    if read is None and name_of(node) in ("Mean", "Sum") and elements_of(node) == 1:
        made, divisor = first_of(node), 1 if name_of(node) == "Mean" else 2
        read = read_function(made) or written_out(made, name_of(made), 1.0)
        read = None if read is None or not read.kind or elements_of(made) < 2 else read
    found = None if read is None else computed_again(read)
    count = {1: found[1] if made is node else elements_of(made), 2: 1}.get(divisor) if found else None
    return ("", None) if read is None else (read.kind, read.factor * found[0] / count if found and count else None)


def _constant(node: Any) -> Any:
    """Return what a product or quotient takes beside what learns."""
    other = getattr(node, "_saved_other", None)
    return getattr(node, "_saved_self", None) if other is None else other


class LossParts:
    """The purpose of the parts of a training's losses, of which some are looked at."""

    def __init__(self) -> None:
        self._looks = 0
        self._seen: dict[str, int] = {}  # what showed, and at how many looks
        self._weights: list[float] = []  # their means
        self._again = 0  # looks at a clipped surrogate with examples that came before
        self._bits: tuple[str, float] | None = None
        self._scale: float | None = None
        self._margins: list[float | None] = []
        self._rests: list[tuple[float, float]] = []
        self._each_with_each = 0
        self._overlap_of: float | None = None

    def look(self, root: Tensor, outputs: Sequence[Tensor], *, is_again: bool) -> None:
        """Look at the parts of one loss; ``is_again``: its examples came before."""
        self._looks += 1
        parts = parts_of(root.grad_fn, ends_of(outputs))
        actions = [(one, action) for one in parts if (action := action_of(one.node)) is not None]
        ratios = [ratio for one in parts if (ratio := ratio_in(one.node)) is not None]
        for part, action in actions:
            self._note_action(part.sign * action.sign, action)
        if ratios and is_again:
            self._again += 1
            with untracked():
                self._note("ratio of one", all(bool((one.detach() == 1).all()) for one in ratios))
        is_of_actions = bool(actions or ratios)
        each = max([meets_each(one.node) for one in parts], default=0) if is_of_actions else 0
        self._note("each with each", each > 0)
        self._note("of actions", is_of_actions)
        self._each_with_each = each or self._each_with_each
        self._note("entropy sunk", is_of_actions and any(one.sign < 0 and entropy_in(one.node) for one in parts))
        overlaps = [(one.sign, highest) for one in parts if (highest := overlap_of(one.node))]
        self._note("overlap", any(sign > 0 and highest == 1 for sign, highest in overlaps))
        self._note("overlap of more", any(sign < 0 and highest > 1 for sign, highest in overlaps))
        self._overlap_of = max([highest for _, highest in overlaps], default=self._overlap_of)
        self._note("unlikely", not actions and is_unlikely(root.grad_fn, parts))
        self._note("repels", any(one.sign < 0 and Term(one.node, 1.0).repels_freely for one in parts))
        bits = next((found for one in parts if (found := margin_of_bits(one.node)) is not None), None)
        self._note("bits", bits is not None)
        self._bits = bits or self._bits
        margins = [one.node for one in parts if _is_margin(one.node) and elements_of(one.node) >= FEWEST]
        if margins:
            self._margins.append(_level_of(margins[0]))
        rest = rest_without_gradient(root)
        if rest is not None:
            self._rests.append((rest, float(root.detach())))
        code = code_in(parts)
        if code is not None:
            self._note("code upside down", code.sign < 0)
            others = [one.node for one in parts if one.node not in code.nodes]
            self._note("code cut", bool(others) and reaches(others, code.mean) is False)

    @property
    def _margin(self) -> float | None:
        """The size to which margins have come in the last looks, where all of them come to about the same."""
        last = self._margins[-FEWEST_LOOKS:]
        if len(self._margins) < 2 * FEWEST_LOOKS or None in last:
            return None
        known = [one for one in last if one is not None]
        return fmean(known) if max(known) - min(known) < STEADY * fmean(known) else None

    @property
    def _without_gradient(self) -> tuple[float, float] | None:
        """The part of the loss that has no gradient, where it changes, and the whole."""
        if len(self._rests) < FEWEST_LOOKS:
            return None
        rests = [rest for rest, _ in self._rests]
        large = sum(abs(rest) > LEAST_REST * abs(whole) for rest, whole in self._rests)
        is_large = large > MOSTLY * len(rests)
        changes = max(rests) - min(rests) > LEAST_REST * fmean(map(abs, rests))
        return (fmean(map(abs, rests)), fmean(abs(whole) for _, whole in self._rests)) if is_large and changes else None

    def look_at_logits(self, prediction: Any) -> None:
        """Note by what cosines are multiplied, where a loss takes such."""
        self._scale = cosine_scale(prediction)

    def _note(self, what: str, holds: bool) -> None:
        self._seen[what] = self._seen.get(what, 0) + int(holds)

    def _note_action(self, sign: float, action: Action) -> None:
        self._note("actions", True)
        self._note("learned weights", action.weights is None)
        if action.weights is None:
            return
        with untracked():
            weights = action.weights.detach().float()
            low, high = (float(one) for one in torch.aminmax(weights))
            self._note("rare", sign > 0)
            is_mask = action.may_be_labels and low == high and low in (0, 1)
            self._note("weights alike", weights.numel() >= FEWEST and low == high and not is_mask)
            self._weights.append(float(weights.mean()))

    def _always(self, what: str, of: int | None = None) -> bool:
        """Did something show at every look, and at several?"""
        return self._seen.get(what, 0) >= max(self._looks if of is None else of, FEWEST_LOOKS)

    def facts(self) -> PartFacts:
        """Return what showed at every look."""
        actions = self._seen.get("actions", 0)
        size = max(1, len(self._weights) // 4)
        means = (fmean(self._weights[:size]), fmean(self._weights[-size:])) if self._weights else None
        return PartFacts(
            rarer=means if self._always("rare", actions) else None,
            weights_alike=means[0] if means is not None and self._always("weights alike", actions) else None,
            learned_weights=self._always("learned weights", actions),
            entropy_sunk=self._always("entropy sunk"),
            overlap=self._always("overlap"),
            overlap_of=self._overlap_of if self._always("overlap of more") else None,
            unlikely=self._always("unlikely"),
            repels=self._always("repels"),
            bits=self._bits if self._always("bits") else None,
            code_upside_down=self._always("code upside down"),
            code_cut=self._always("code cut"),
            ratio_of_one=self._again if self._always("ratio of one", self._again) else 0,
            cosine_scale=self._scale,
            margin=self._margin,
            without_gradient=self._without_gradient,
            each_with_each=self._each_with_each
            if self._always("each with each", self._seen.get("of actions", 0))
            else 0,
        )
