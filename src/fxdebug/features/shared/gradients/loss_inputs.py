"""Read in autograd's graph what a loss was made of, and find operands that it is not made for.

The graph behind a loss is there wherever the loss was computed: in the model, or in the loop around it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked
from fxdebug.features.shared.records.gradients import LossInput

MOST = 64  # nodes that are looked at: a loss is a few operations on what the model returned

TOLERANCE = 1e-3  # of a sum of shares, in half precision
_NUMBER = "_saved_self_sym_numel"  # of elements that a mean is of

# The names of autograd's nodes, without ``Backward`` and its number.
_PROBABILITIES = {"Softmax": "softmax", "Sigmoid": "sigmoid"}
_OF_ANY_SIGN = {"Addmm": "linear", "Mm": "matmul", "Bmm": "matmul", "Convolution": "a convolution"}
_OF_LOGITS = {
    "LogSoftmax": "cross_entropy",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits",
}
_OF_LOGARITHMS = {"NllLoss": "nll_loss", "NllLoss2D": "nll_loss"}
_DISTANCES = {"MseLoss": "mse_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss"}
_OF_PAIRS = {**_DISTANCES, "Sub": "sub"}
_LOSSES = {
    **_DISTANCES,
    **_OF_LOGARITHMS,
    "BinaryCrossEntropy": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogits": _OF_LOGITS["BinaryCrossEntropyWithLogits"],
}
_SAME_ELEMENTS = frozenset(
    "View UnsafeView ReshapeAlias Reshape Transpose T Permute Squeeze Unsqueeze Clone Alias ToCopy Select Slice Index "
    "Expand Contiguous".split()
)
_BY_ELEMENT = frozenset("Mean Sum Pow Abs Neg Sqrt Log Add Mul Div Sub Where Clamp MaskedFill".split())
_STEPS = _SAME_ELEMENTS | _BY_ELEMENT | _OF_LOGITS.keys() | _OF_LOGARITHMS.keys() | _OF_PAIRS.keys()


def loss_inputs(loss: Tensor) -> tuple[LossInput, ...]:
    """Return the operands of a loss that it is not made for, each kind once; empty where it has no gradient.

    >>> import torch
    >>> logits = torch.randn(4, 3, requires_grad=True)
    >>> loss_inputs(torch.nn.functional.cross_entropy(logits.softmax(-1), torch.tensor([0, 1, 2, 0])))
    (LossInput(kind='probabilities', op='cross_entropy', given='softmax', shape=(4, 3), result=(4, 3)),)
    """
    found: dict[tuple[str, str], LossInput] = {}
    for node in _steps(loss.grad_fn):
        for one in _wrong_in(node):
            found.setdefault((one.kind, one.op), one)
    divergence = _divergence(loss)
    return (*found.values(), *([] if divergence is None else [divergence]))


def function_of_loss(loss: Tensor) -> str:
    """Return the function of torch that made a loss, such as ``mse_loss``; empty for any other, and for a negative.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> loss = torch.nn.functional.mse_loss(x, torch.zeros(2))
    >>> function_of_loss(loss / 4), function_of_loss(-loss), function_of_loss(x.sum())
    ('mse_loss', '', '')
    """
    node = loss.grad_fn
    for _ in range(MOST):
        name = "" if node is None else _name(node)
        if name in _LOSSES:
            return _LOSSES[name]
        factor = getattr(node, "_saved_other", None) if name in ("Mul", "Div") else None
        is_positive = factor is None or (getattr(factor, "numel", lambda: 1)() == 1 and float(factor) > 0)
        if name not in ("Mean", "Sum", "Mul", "Div") or not is_positive:
            break
        node = node.next_functions[0][0]
    return ""


def _steps(node: Any) -> Iterator[Any]:
    """Yield the nodes of a loss, from its end to what it is computed of."""
    pending: list[Any] = [node]
    known: set[Any] = set()
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known or _name(node) not in _STEPS:
            continue
        known.add(node)
        yield node
        pending += [inner for inner, _ in node.next_functions]


def _name(node: Any) -> str:
    """Return the name of a node, such as ``NllLoss`` for ``NllLossBackward0``."""
    name, backward, number = node.name().partition("Backward")
    return name if backward and number.isdigit() else ""


def _shape(node: Any) -> tuple[int, ...] | None:
    """Return the shape of what the operation of a node returned."""
    metadata = getattr(node, "_input_metadata", None) or ()
    return tuple(metadata[0].shape) if metadata else None


def _wrong_in(node: Any) -> Iterator[LossInput]:
    name, shape = _name(node), _shape(node)
    operands = [inner for inner, _ in node.next_functions]
    given = _behind_views(operands[0]) if operands and operands[0] is not None else None
    source = "" if given is None else _PROBABILITIES.get(_name(given), "") or _mixture(given)
    if source and given is not None:
        for kind, ops in (("probabilities", _OF_LOGITS), ("no logarithms", _OF_LOGARITHMS)):
            if name in ops:
                yield LossInput(kind, ops[name], source, _shape(given) or (), shape or ())  # type: ignore[arg-type]
    sign = "" if given is None else _OF_ANY_SIGN.get(_name(given), "")
    if sign and given is not None and name in _OF_LOGARITHMS:  # it has no least value
        yield LossInput("no logarithms", _OF_LOGARITHMS[name], sign, _shape(given) or (), shape or ())
    if name == "LogSoftmax" and shape and shape[_dimension(node, len(shape))] == 1:
        yield LossInput("one class", _OF_LOGITS[name], "", shape, shape)
    if name in _OF_PAIRS:
        for operand, other in zip(operands, (*operands[1:], operands[0])):
            pair = _broadcast(node, operand, other)
            if pair is not None:
                yield LossInput("broadcast", _OF_PAIRS[name], "", *pair)


def _mixture(product: Any) -> str:
    """Say that a product mixes shares, as attention to labels does: a softmax times rows that are shares themselves."""
    if _name(product) not in ("Mm", "Bmm") or product.next_functions[0][0] is None:
        return ""
    softmax, shares = _behind_views(product.next_functions[0][0]), product._saved_mat2
    if _name(softmax) != "Softmax" or not isinstance(shares, Tensor) or not shares.is_floating_point():
        return ""
    with untracked():
        are_shares = bool((shares >= 0).all()) and _sum_to_one(shares) and _sum_to_one(softmax._saved_result)
    return "softmax and matmul" if are_shares else ""


def _sum_to_one(rows: Tensor) -> bool:
    sums = rows.detach().float().sum(-1)
    return bool((sums - 1).abs().max() < TOLERANCE) if sums.numel() else False


def _divergence(loss: Tensor) -> LossInput | None:
    """Return what ``kl_div`` was given where that is no logarithm.

    Its graph is a product that is taken from something, which may be meant as such. So it is computed again: only
    ``kl_div`` takes it from the sum of t·log t.
    """
    node, factors = loss.grad_fn, []
    while node is not None and _name(node) in ("Mul", "Div", "Mean", "Sum", *_SAME_ELEMENTS):
        factors.append(node)
        node = node.next_functions[0][0]
    operands = [] if node is None or _name(node) != "Sub" else [inner for inner, _ in node.next_functions]
    if len(operands) != 2 or operands[0] is not None or operands[1] is None or _name(operands[1]) != "Mul":
        return None
    product = operands[1]
    given = [_behind_views(inner) for inner, _ in product.next_functions if inner is not None]
    source = _PROBABILITIES.get(_name(given[0]), "") if len(given) == 1 and given[0] is not None else ""
    if not source:
        return None
    with untracked():
        result, target = given[0]._saved_result, product._saved_self
        target = product._saved_other if target is None else target
        factor = math.prod(map(_factor_of, factors))
        if not isinstance(target, Tensor) or target.shape != result.shape or math.isnan(factor):
            return None
        total = float((torch.xlogy(target, target) - target * result.detach()).float().sum())
    if not math.isclose(factor * total, float(loss.detach()), rel_tol=1e-3):
        return None
    return LossInput("no logarithms", "kl_div", source, tuple(result.shape), _shape(node) or ())


def _factor_of(node: Any) -> float:
    """Return what the sum of all elements is multiplied by in a node; NaN where that is no single number."""
    name = _name(node)
    if name == "Mean":
        return 1 / int(getattr(node, _NUMBER, 0) or 1)
    if name not in ("Mul", "Div"):
        return 1.0
    scalar = node._saved_other
    if not isinstance(scalar, Tensor) or scalar.numel() != 1:
        return math.nan
    number = float(scalar.detach())
    return number if name == "Mul" else 1 / number if number else math.nan


def _behind_views(node: Any) -> Any:
    """Return the node that made the elements which a node passes on."""
    for _ in range(MOST):
        if _name(node) not in _SAME_ELEMENTS or not node.next_functions or node.next_functions[0][0] is None:
            break
        node = node.next_functions[0][0]
    return node


def _dimension(node: Any, dimensions: int) -> int:
    dim = int(node._saved_dim)
    return (dim - (1 << 64) if dim >= 1 << 63 else dim) % dimensions


def _broadcast(node: Any, operand: Any, other: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes of a prediction and of what it became where each of a batch meets all targets of the batch."""
    if operand is None:
        return None
    result, is_expanded = _shape(node), _name(operand) == "Expand"
    if is_expanded:  # ``mse_loss`` and the like expand both of their operands
        result, operand = _shape(operand), operand.next_functions[0][0]
    elif other is not None:
        return None  # pairs of what the model returned may be meant
    shape = None if operand is None else _shape(operand)
    if not shape or result is None or len(result) > len(shape) + 1 or shape[0] < 2:
        return None
    padded = (1,) * (len(result) - len(shape)) + shape
    grown = [size for size, before in zip(result, padded) if size != before]
    return (shape, result) if grown == [shape[0]] else None
