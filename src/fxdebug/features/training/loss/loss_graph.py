"""Read in autograd's graph which loss the root of a backward is, with its targets, and compute it again to be sure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fxdebug.capture.probe import untracked

MOST = 48  # nodes between the root and the loss
MOST_MADE = 1000  # in which a parameter is looked for
CLOSE = 1e-3  # relative; of a loss in bfloat16 a hundredth
NARROW = 1e-2
Edge: TypeAlias = tuple[Any, int]
"""A node of a graph, and which of its results."""

PASSED = frozenset(
    "View UnsafeView ReshapeAlias Reshape Transpose T Permute Squeeze Unsqueeze Clone Alias Select Slice ToCopy Copy "
    "Contiguous Index".split()
)
SCALED = frozenset("Mul Div Add Sub MaskedFill Where".split())  # on the way to a softmax
_BOUNDED = {
    "Relu": (0.0, math.inf), "Softplus": (0.0, math.inf), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0),
    "Hardsigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Exp": (0.0, math.inf), "Abs": (0.0, math.inf),
    "LogSigmoid": (-math.inf, 0.0),
}  # fmt: skip
_LINEAR = frozenset("Addmm Mm Linear Convolution Bmm Baddbmm".split())
_LOSSES = {
    "NllLoss": "cross_entropy",
    "NllLoss2D": "cross_entropy",
    "MseLoss": "mse_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
    "BinaryCrossEntropy": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits",
}


@dataclass(frozen=True)
class LossRead:
    """A loss by its graph. ``kind`` is a function of ``torch.nn.functional``, empty where it is none that is known.

    ``target`` is what it was compared with, or ``difference`` that of both. ``prediction`` is the node of what it was
    given, behind casts and views. ``weight`` are those of the classes, ``factor`` is on the whole loss. ``terms`` are
    the known losses that are added up. ``over_batch``: its softmax runs over dimension 0. ``smoothing`` is that of the
    labels.
    """

    kind: str = ""
    target: Tensor | None = None
    ignore: int = -100
    weight: Tensor | None = None
    factor: float = 1.0
    terms: int = 0
    node: Any = None
    prediction: Any = None
    difference: Tensor | None = None
    over_batch: bool = False
    smoothing: float = 0.0

    @property
    def classes(self) -> int:
        """The number of classes of a cross entropy of one label each."""
        return int(_logarithms_in(self.node)._saved_result.shape[1])

    @property
    def bend(self) -> float:
        """The size at which a loss that is square near zero becomes straight: its beta or delta."""
        return float(getattr(self.node, "_saved_delta", getattr(self.node, "_saved_beta", 1.0)))


def read_loss(root: Tensor, outputs: Sequence[Tensor] = ()) -> LossRead:
    """Return which loss a tensor is, as its graph tells, down to what the model returned, ``outputs``.

    What the graph of the model itself has saved is not read: a checkpoint would run again for it.

    >>> import torch
    >>> x = torch.randn(4, 3, requires_grad=True)
    >>> loss = torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 0])) / 4
    >>> read = read_loss(loss)
    >>> read.kind, read.factor, read.target.tolist()
    ('cross_entropy', 0.25, [0, 1, 2, 0])
    """
    factor, node = 1.0, root.grad_fn
    ends = ends_of(outputs)
    for _ in range(MOST):
        name = name_of(node)
        if not name or node in ends:
            break
        if name in _LOSSES:
            return _of_function(node, name, factor)
        found = written_out(node, name, factor)
        if found is not None:
            return found
        if name == "Neg":
            factor = -factor
        elif name in ("Mul", "Div"):
            number = None if elements_of(node) != 1 else scalar_of(getattr(node, "_saved_other", None))
            if number is None or (name == "Mul" and not number):
                break
            factor = factor * number if name == "Mul" else factor / (number or 1.0)  # by 0: of a mean over nothing
        elif name not in PASSED and name not in ("Mean", "Sum"):
            break
        inputs = [inner for inner, _ in node.next_functions if inner is not None]
        if len(inputs) != 1:
            break
        node = inputs[0]
    return LossRead(terms=_terms(root))


def read_function(node: Any) -> LossRead | None:
    """Return which loss a node is, where one of torch's functions made it."""
    read = _of_function(node, name_of(node), 1.0) if name_of(node) in _LOSSES else None
    return read if read is not None and read.kind else None


def _of_function(node: Any, name: str, factor: float) -> LossRead:
    weight = getattr(node, "_saved_weight", None)
    given, target = node.next_functions[0][0], node._saved_target
    over_batch = False
    if name in ("NllLoss", "NllLoss2D"):
        given = _logarithms_in(node)
        if name_of(given) != "LogSoftmax":
            return LossRead(terms=1)
        saved = given._saved_result
        if target.dim() != saved.dim() - 1 and saved.dim() > 2:
            target = target.reshape(saved.shape[:1] + saved.shape[2:])
        over_batch = saved.dim() >= 2 and _dimension(given, saved.dim()) == 0
        prediction = given.next_functions[0][0]
    else:
        prediction = given
        if weight is not None or getattr(node, "_saved_pos_weight", None) is not None:
            return LossRead(terms=1)
    return LossRead(
        _LOSSES[name], target, signed(getattr(node, "_saved_ignore_index", -100)), weight, factor, 1, node,
        behind_views(prediction), over_batch=over_batch,
    )  # fmt: skip


def written_out(node: Any, name: str, factor: float) -> LossRead | None:
    """Return a loss that was written out: squared or absolute differences, logarithms of the classes' probabilities."""
    inputs = [inner for inner, _ in node.next_functions if inner is not None]
    first: Any = inputs[0] if inputs else None
    if name in ("Pow", "Abs") and name_of(first) == "Sub":
        if name == "Pow" and scalar_of(node._saved_exponent) != 2:
            return None
        difference = node._saved_self
        operands = [inner for inner, _ in first.next_functions]
        asking = [inner for inner in operands if inner is not None]
        if len(asking) != 1 or name_of(first) != "Sub":
            return LossRead(terms=1)
        sign = 1.0 if operands[0] is not None else -1.0
        kind = "mse_loss" if name == "Pow" else "l1_loss"
        return LossRead(
            kind, None, factor=factor, terms=1, node=node, prediction=behind_views(asking[0]),
            difference=difference * sign,
        )  # fmt: skip
    if name == "Add" and len(inputs) == 2:
        return _smoothed(inputs, factor)
    if name_of(first) == "LogSoftmax" and name in ("Gather", "Index", "Mul"):
        saved = first._saved_result
        dimension = _dimension(first, saved.dim())
        target = _picked(node, name, saved, dimension)
        if target is not None:
            kind = "soft cross_entropy" if name == "Mul" else "cross_entropy"
            return LossRead(
                kind, target, factor=-factor, terms=1, node=node,
                prediction=behind_views(first.next_functions[0][0]),
                over_batch=saved.dim() >= 2 and dimension == 0,
            )  # fmt: skip
    return None


def _smoothed(parts: Sequence[Any], factor: float) -> LossRead | None:
    """Return a cross entropy with smoothed labels, which torch adds up of two: its share of the label and of all."""
    shares = {id(part): scalar_of(getattr(part, "_saved_other", None)) for part in parts if name_of(part) == "Mul"}
    inner = {id(part): behind_views(part.next_functions[0][0]) for part in parts if id(part) in shares}
    of_label = next((part for part in parts if name_of(inner.get(id(part))) in ("NllLoss", "NllLoss2D")), None)
    of_all = next((part for part in parts if part is not of_label), None)
    if of_label is None or of_all is None or id(of_all) not in shares:
        return None
    read = _of_function(inner[id(of_label)], name_of(inner[id(of_label)]), factor)
    node, share, rest = inner[id(of_all)], shares[id(of_label)], shares[id(of_all)]
    for _ in range(MOST):
        if name_of(node) not in PASSED | {"Div", "Sum", "Mean", "MaskedFill", "Neg"}:
            break
        node = node.next_functions[0][0]
    if not read.kind or node is not _logarithms_in(read.node) or share is None or rest is None:
        return None
    classes = node._saved_result.shape[1] if node._saved_result.dim() > 1 else 0
    is_of_labels = bool(classes) and read.weight is None and abs(rest * classes - (1 - share)) < CLOSE
    return replace(read, smoothing=1 - share) if is_of_labels else None


def _picked(node: Any, name: str, saved: Tensor, dimension: int) -> Tensor | None:
    """Return the targets with which the classes' logarithms were picked or weighted."""
    if name == "Gather":
        is_of_classes = signed(node._saved_dim) in (dimension, dimension - saved.dim())
        return node._saved_index if is_of_classes else None
    if name == "Index":
        indices = [index for index in node._saved_indices if index is not None]
        is_last = dimension == saved.dim() - 1 and bool(indices)
        return indices[-1] if is_last and not indices[-1].is_floating_point() else None
    other = node._saved_other if node._saved_other is not None else node._saved_self
    if other is None or other.shape != saved.shape or dimension != 1:
        return None
    whole = other.detach().sum(1)
    is_distribution = bool((other >= 0).all()) and bool(((whole - 1).abs() < NARROW).all())
    return other if is_distribution else None


def bounds_of(read: LossRead) -> tuple[str, float, float] | None:
    """Return the operation that made what a loss was given, where it keeps it within bounds, and these.

    >>> import torch
    >>> x = torch.randn(4, 1, requires_grad=True)
    >>> bounds_of(read_loss(torch.nn.functional.mse_loss(x.sigmoid(), torch.zeros(4, 1))))
    ('sigmoid', 0.0, 1.0)
    """
    node, scale = read.prediction, 1.0
    while name_of(node) in ("Mul", "Div") and (number := scalar_of(getattr(node, "_saved_other", None))):
        scale = scale * number if name_of(node) == "Mul" else scale / number
        node = behind_views(node.next_functions[0][0])
    name = name_of(node)
    low, high = _BOUNDED.get(name, (-math.inf, math.inf))
    if name in ("Clamp", "Hardtanh"):
        end = "_val" if name == "Hardtanh" else ""
        least, most = getattr(node, f"_saved_min{end}"), getattr(node, f"_saved_max{end}")
        low, high = low if least is None else float(least), high if most is None else float(most)
    if low == -math.inf and high == math.inf:
        return None
    return (name.lower(), *sorted((low * scale, high * scale)))  # type: ignore[return-value]


def start_of(read: LossRead, outputs: Sequence[Tensor]) -> int | None:
    """Return from which place on a loss takes what the model returned; ``None`` where it is not cut, but picked.

    >>> import torch
    >>> x = torch.randn(2, 6, 3, requires_grad=True) * 1
    >>> loss = torch.nn.functional.cross_entropy(x[:, 2:].flatten(0, 1), torch.zeros(8).long())
    >>> start_of(read_loss(loss, [x]), [x])
    2
    """
    node, start, ends = read.node, 0, ends_of(outputs)
    for _ in range(MOST):
        if node is None or node in ends:
            break
        name = name_of(node)
        if name == "Index":
            return None
        if name == "Slice" and signed(node._saved_dim) in (1, -2):
            start += max(int(node._saved_start), 0) if int(node._saved_start) < 1 << 62 else 0
        node = node.next_functions[0][0] if node.next_functions else None
    return start


def is_first_of_many(read: LossRead) -> bool:
    """Is what a loss is given one column in front of others, all scaled alike: a positive before its negatives?

    >>> import torch
    >>> own, others = torch.randn(8, 1, requires_grad=True), torch.randn(8, 9, requires_grad=True)
    >>> logits, first = torch.cat([own, others], 1) / 0.1, torch.zeros(8).long()
    >>> is_first_of_many(read_loss(torch.nn.functional.cross_entropy(logits, first)))
    True
    """
    node = read.prediction
    while name_of(node) in ("Mul", "Div") and node.next_functions:
        node = behind_views(node.next_functions[0][0])
    if name_of(node) != "Cat" or signed(node._saved_dim) not in (1, -1) or len(node.next_functions) < 2:
        return False
    first, rest = elements_of(node.next_functions[0][0]), elements_of(node)
    rows = node._input_metadata[0].shape[0]
    return first == rows < rest


def is_divided(root: Tensor) -> bool:
    """Is a loss, or one of the terms that it adds up, multiplied with a number below 1?

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> is_divided(x.mean() / 8), is_divided(x.mean() + x.exp().mean()), is_divided(x.mean() + x.exp().mean() / 8)
    (True, False, True)
    """
    pending: list[Any] = [root.grad_fn]
    for _ in range(MOST):
        if not pending:
            break
        node = pending.pop()
        name = name_of(node)
        if name in ("Mul", "Div") and elements_of(node) == 1:
            number = scalar_of(getattr(node, "_saved_other", None))
            if number is None or (abs(number) < 1 if name == "Mul" else abs(number) > 1):
                return True
            pending.append(node.next_functions[0][0])
        elif name in ("Add", "Sub", "Neg"):
            pending += [inner for inner, _ in node.next_functions if inner is not None]
    return False


def computed_again(read: LossRead) -> tuple[float, int, int] | None:
    """Return the sum of the terms of a loss, their weight, and the rows of the batch; ``None`` if not known."""
    node = read.node
    if node is None:
        return None
    with untracked():
        if read.kind == "cross_entropy" and read.target is not None:
            return _of_classes(read)
        if read.kind == "soft cross_entropy" and read.target is not None:
            logs = node.next_functions[0][0]._saved_result.float()
            total = -float((read.target.float() * logs).sum())
            return total, logs.numel() // logs.shape[1], logs.shape[0]
        if read.difference is not None:
            each = read.difference.float()
            each = each.square() if read.kind == "mse_loss" else each.abs()
        elif read.target is not None:
            given = node._saved_self.detach().float()
            target = read.target.detach().float()
            if given.shape != target.shape:
                return None
            each = _each(read, given, target)
        else:
            return None
        return float(each.double().sum()), each.numel(), each.shape[0] if each.dim() else 1


def _each(read: LossRead, given: Tensor, target: Tensor) -> Tensor:
    functional = torch.nn.functional
    if read.kind == "mse_loss":
        return (given - target).square()
    if read.kind == "smooth_l1_loss":
        return functional.smooth_l1_loss(given, target, reduction="none", beta=read.node._saved_beta)
    if read.kind == "huber_loss":
        return functional.huber_loss(given, target, reduction="none", delta=read.node._saved_delta)
    if read.kind == "binary_cross_entropy":
        return functional.binary_cross_entropy(given, target, reduction="none")
    return functional.binary_cross_entropy_with_logits(given, target, reduction="none")


def _of_classes(read: LossRead) -> tuple[float, int, int] | None:
    given = _logarithms_in(read.node)
    target, dimension = read.target, 1
    assert target is not None
    logs = given._saved_result
    if name_of(read.node) == "Gather":
        dimension = _dimension(given, logs.dim())
        picked = logs.gather(dimension, target).reshape(-1).double()
        return -float(picked.sum()), picked.numel(), logs.shape[0]
    if name_of(read.node) == "Index":
        if logs.dim() != 2 or target.dim() != 1:
            return None
        picked = logs.gather(1, target[:, None]).double()
        return -float(picked.sum()), picked.numel(), logs.shape[0]
    if logs.dim() < 2:
        return None
    keep = target != read.ignore
    safe = target.clamp(min=0)
    picked = logs.gather(1, safe.unsqueeze(1)).squeeze(1).double()
    if read.smoothing:
        picked = (1 - read.smoothing) * picked + read.smoothing * logs.mean(1).double()
    weight = keep.double() if read.weight is None else read.weight.double()[safe] * keep
    return -float((picked * weight)[keep].sum()), float(weight.sum()), logs.shape[0]  # type: ignore[return-value]


def _logarithms_in(node: Any) -> Any:
    """Return the node of what a loss of classes takes; torch gives sizes of (examples, classes, places) a fourth one.

    >>> x = torch.zeros(2, 3, 4, requires_grad=True)
    >>> name_of(_logarithms_in(torch.nn.functional.cross_entropy(x, torch.zeros(2, 4).long()).grad_fn))
    'LogSoftmax'
    """
    given = node.next_functions[0][0]
    is_viewed = name_of(node) == "NllLoss2D" and name_of(given) in ("View", "UnsafeView") and given.next_functions
    return given.next_functions[0][0] if is_viewed else given


def behind_views(node: Any) -> Any:
    """Return the node that made what a node passes on, behind casts, views and slices."""
    for _ in range(MOST):
        if name_of(node) not in PASSED or not node.next_functions or node.next_functions[0][0] is None:
            break
        node = node.next_functions[0][0]
    return node


def way_behind(edge: Edge, passed: Set[str] = PASSED) -> list[Edge]:
    """Return an edge of a graph and those behind it, as far as numbers are only passed on there.

    >>> import torch
    >>> x = torch.ones(4, 2, requires_grad=True).exp()
    >>> [name_of(node) for node, _ in way_behind((x.t()[:1].grad_fn, 0))]
    ['Slice', 'T', 'Exp']
    """
    way = [edge]
    while name_of(way[-1][0]) in passed and way[-1][0].next_functions:
        way.append(way[-1][0].next_functions[0])
    return way


def origin_of(edge: Edge, passed: Set[str] = PASSED) -> Edge:
    """Return the node that made what is only passed on, and which of its results that is."""
    return way_behind(edge, passed)[-1]


def is_made_with(root: Tensor, parameters: Set[int]) -> bool:
    """Was a tensor computed with one of these parameters, by their ids? The nearest thousand operations are looked at.

    >>> import torch
    >>> weight, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    >>> is_made_with((weight * 2).sum(), {id(weight)}), is_made_with((other * 2).sum(), {id(weight)})
    (True, False)
    """
    pending, known = deque([root.grad_fn]), set[Any]()
    while pending and len(known) < MOST_MADE:
        node = pending.popleft()
        if node is None or node in known:
            continue
        if id(getattr(node, "variable", None)) in parameters:
            return True
        known.add(node)
        pending.extend(inner for inner, _ in node.next_functions)
    return False


def takes_output(read: LossRead, outputs: Sequence[Tensor]) -> bool:
    """Was the loss given what the model returned, or what its last layer did where the model returns the loss?"""
    if read.prediction is None:
        return False
    made = [behind_views(tensor.grad_fn) for tensor in outputs if tensor.grad_fn is not None]
    made += [behind_views(node.next_functions[0][0]) for node in made if name_of(node) == "LogSoftmax"]
    if any(node is read.prediction for node in made):
        return True
    if all(tensor.numel() == 1 for tensor in outputs) and name_of(read.prediction) in _LINEAR:
        leaves = [behind_views(inner) for inner, _ in read.prediction.next_functions if inner is not None]
        return any(hasattr(leaf, "variable") for leaf in leaves)
    return False


def logarithms_and_roots(root: Tensor, outputs: Sequence[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield what logarithms (``Log``) were taken of in a loss, and what roots (``Sqrt``) gave, after the model."""
    pending: list[Any] = [root.grad_fn]
    known, ends = set[Any](), ends_of(outputs)
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known or node in ends:
            continue
        known.add(node)
        if name_of(node) == "Log":
            yield "Log", node._saved_self
        elif name_of(node) == "Sqrt":
            yield "Sqrt", node._saved_result
        pending += [inner for inner, _ in node.next_functions]


def out_of_domain(root: Tensor, outputs: Sequence[Tensor]) -> tuple[str, float, float] | None:
    """Return the first operation of a loss that has no finite result for what it takes.

    The first is the one that is nearest to the model; with it come how many numbers it is so for, and of how many.

    >>> import torch
    >>> x = torch.ones(4, requires_grad=True) * 1
    >>> out_of_domain((x.sum() / torch.tensor([1.0, 0.0, 0.0])).log10().mean(), [x])
    ('a division by 0', 2.0, 3.0)
    """
    pending: list[Any] = [root.grad_fn]
    known, ends, found = set[Any](), ends_of(outputs), None
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known or node in ends:
            continue
        known.add(node)
        if (outside := _outside(node)) is not None:
            found = outside
        pending += [inner for inner, _ in node.next_functions]
    return found


def _outside(node: Any) -> tuple[str, float, float] | None:
    name = name_of(node)
    other, own = (getattr(node, name, None) for name in ("_saved_other", "_saved_self"))
    if name == "Div" and isinstance(other, Tensor):
        what, bad = "a division by 0", other == 0
    elif name in ("Log", "Log10", "Log2") and isinstance(own, Tensor):
        is_zero = bool((own == 0).any())
        what, bad = f"the logarithm of {'0' if is_zero else 'numbers below 0'}", own <= 0
    elif name == "Log1P" and isinstance(own, Tensor):
        what, bad = "log(1 + x) of -1 and less", own <= -1
    elif name == "Xlogy" and isinstance(other, Tensor):
        what, bad = "x * log(y) of y below 0 (kl_div of logarithms where it takes probabilities)", other < 0
    elif name == "Pow" and isinstance(own, Tensor) and (power := _no_power(node, own)) is not None:
        what, bad = power
    elif name in ("Acos", "Asin", "Atanh") and isinstance(own, Tensor):
        what, bad = f"{name.lower()} of numbers beyond 1", own.abs() > 1
    elif _is_of_nothing(node, name, own):
        return "a mean of nothing (a mask that is empty)", 1.0, 1.0
    elif (made := _too_large(node, name)) is not None:
        what, bad = made
    elif name == "Sqrt":
        what, bad = "the square root of numbers below 0", node._saved_result.isnan()
    else:
        return None
    count = int(bad.sum())
    return (what, float(count), float(bad.numel())) if count else None


def _no_power(node: Any, own: Tensor) -> tuple[str, Tensor] | None:
    """Return which numbers have no finite power: those below 0 with one that is not whole, and 0 with one below 0."""
    exponent = torch.as_tensor(node._saved_exponent)
    power = scalar_of(exponent)
    named = "a power" if power is None else f"a power of {power:g}"
    less, zero = (own < 0) & (exponent % 1 != 0), (own == 0) & (exponent < 0)
    if bool(less.any()):
        return f"{named} of numbers below 0", less
    return (f"{named} of 0", zero) if bool(zero.any()) else None


_WRITTEN = {
    "Pow": "a power", "PowTensor": "a power", "Mul": "a product", "Div": "a quotient", "Exp": "an exponential",
    "Exp2": "an exponential", "Expm1": "an exponential", "Cosh": "a cosh", "Sinh": "a sinh", "Sum": "a sum",
    "Prod": "a product", "MseLoss": "a square", "Cumprod": "a product", "LinalgVectorNorm": "a norm",
}  # fmt: skip
_AGAIN: dict[str, Callable[[Any], Tensor]] = {  # what an operation returned, from what it saved
    "Pow": lambda node: node._saved_self.pow(node._saved_exponent),
    "Mul": lambda node: node._saved_self * node._saved_other,
    "Div": lambda node: node._saved_self / node._saved_other,
    "Cosh": lambda node: node._saved_self.cosh(),
    "Sinh": lambda node: node._saved_self.sinh(),
    "MseLoss": lambda node: (node._saved_self - node._saved_target).square(),
    "Prod": lambda node: node._saved_result,
    "Cumprod": lambda node: node._saved_self.cumprod(node._saved_dim),
}


def _result_of(node: Any, name: str) -> Tensor | None:
    """Return what a node returned, as far as it saved that or what it takes."""
    made = getattr(node, "_saved_result", None)
    if isinstance(made, Tensor):
        return made.detach()
    try:
        with untracked():
            return _AGAIN[name](node).detach() if name in _AGAIN else None
    except (AttributeError, TypeError, RuntimeError):  # it has not saved all of it
        return None


def _too_large(node: Any, name: str) -> tuple[str, Tensor] | None:
    """Return that finite numbers come to one that the dtype does not hold, and which."""
    given = [getattr(node, f"_saved_{one}", None) for one in ("self", "other", "exponent", "target")]
    if name == "Sum":
        inner = next((one for one, _ in node.next_functions), None)
        summed = None if inner is None else _result_of(inner, name_of(inner))
        if summed is None:
            return None
        given, made = [summed], summed.double().sum().to(summed.dtype)
    elif name not in _WRITTEN or (result := _result_of(node, name)) is None:
        return None
    else:
        made = result
    tensors = [one for one in given if isinstance(one, Tensor)]
    if not all(bool(one.isfinite().all()) for one in tensors) or not bool(made.isinf().any()):
        return None
    return f"{_WRITTEN[name]} that is too large for {str(made.dtype).removeprefix('torch.')}", made.isinf()


def _is_of_nothing(node: Any, name: str, own: Any) -> bool:
    """Is it a mean of no numbers?"""
    if name.endswith("Loss"):
        return isinstance(own, Tensor) and not own.numel()
    return name == "Mean" and not elements_of(next((one for one, _ in node.next_functions), None))


def cosine_factor(root: Tensor, outputs: Sequence[Tensor]) -> float | None:
    """Return the factor on a mean of cosines of results and of numbers that ask for no gradient; ``None`` of others.

    >>> import torch
    >>> x, y = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    >>> cosine_factor(1 - torch.nn.functional.cosine_similarity(x, y).mean(), ())
    -1.0
    """
    factor, node, ends = 1.0, root.grad_fn, ends_of(outputs)
    for _ in range(MOST):
        name = name_of(node)
        inputs = [] if node is None else [inner for inner, _ in node.next_functions if inner is not None]
        if not name or node in ends or len(inputs) != 1:
            return None
        if name in ("Neg", "Rsub"):
            factor = -factor
        elif name in ("Mul", "Div") and elements_of(node) == 1:
            factor *= math.copysign(1.0, scalar_of(getattr(node, "_saved_other", None)) or 1.0)
        elif name == "Mul" and name_of(inputs[0]) == "Div":
            other = node._saved_other if node._saved_other is not None else node._saved_self
            if not isinstance(other, Tensor) or other.dim() < 2:
                return None
            with untracked():
                sizes = other.detach().float().norm(dim=-1)
                return factor if bool(((sizes - 1).abs() < CLOSE).all()) else None
        elif name not in PASSED and name not in ("Mean", "Sum", "Add", "Sub"):
            return None
        node = inputs[0]
    return None


def gaussians(root: Tensor, outputs: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield results of the model that a loss takes as the mean (squared) and the log-variance (in exp) of a code."""
    places = {(one.grad_fn, one.output_nr): one for one in outputs if one.grad_fn is not None}
    pending: list[Any] = [root.grad_fn]
    known, ends = set[Any](), ends_of(outputs)
    squared, raised = list[Tensor](), list[Tensor]()
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known or node in ends:
            continue
        known.add(node)
        inputs = node.next_functions
        given = places.get(inputs[0]) if inputs else None
        if given is not None and (name_of(node) == "Pow" or (name_of(node) == "Mul" and inputs[1:] == inputs[:1])):
            squared.append(given)
        elif given is not None and name_of(node) == "Exp":
            raised.append(given)
        pending += [inner for inner, _ in node.next_functions]
    for variance in raised:
        yield from ((mean, variance) for mean in squared if mean.shape == variance.shape and mean is not variance)


def _terms(root: Tensor) -> int:
    """Count the known losses in a sum of several."""
    pending: list[Any] = [root.grad_fn]
    known, count = set[Any](), 0
    while pending and len(known) < MOST:
        node = pending.pop(0)
        if node is None or node in known:
            continue
        known.add(node)
        if name_of(node) in _LOSSES:
            count += 1
            continue
        pending += [inner for inner, _ in node.next_functions]
    return count


def ends_of(outputs: Sequence[Tensor]) -> set[Any]:
    """Return the nodes that made what the model returned, but for a loss of its own."""
    return {tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None and tensor.numel() != 1}


def elements_of(node: Any) -> int:
    """Return the number of elements of what the operation of a node returned; 0 where it is not known."""
    metadata = getattr(node, "_input_metadata", None) or ()
    return prod(metadata[0].shape) if metadata else 0


def name_of(node: Any) -> str:
    """Return the operation of a node of torch, ``Mul`` of MulBackward0; empty for another."""
    name, backward, number = ("" if node is None else node.name()).partition("Backward")
    return name if backward and number.isdigit() else ""


def scalar_of(content: Any) -> float | None:
    """Return a number, or the one of a tensor of one element that does not learn; ``None`` of others."""
    if isinstance(content, (int, float)):
        return float(content)
    if isinstance(content, Tensor) and content.numel() == 1 and not content.requires_grad:
        with untracked():
            return float(content)
    return None


def answer_of(output: Tensor, node: Any) -> Tensor | None:
    """Return what a node has of an output: the output itself, or what was gathered of it; ``None`` of another one.

    >>> q, actions = torch.arange(6.0, requires_grad=True).view(3, 2) * 1, torch.tensor([[1], [0], [1]])
    >>> answer_of(q, q.gather(1, actions).grad_fn).flatten().tolist(), answer_of(q, q.exp().grad_fn)
    ([1.0, 2.0, 5.0], None)
    """
    made = behind_views(output.grad_fn)
    if made is node:
        return output.detach()
    if name_of(node) == "Gather" and behind_views(node.next_functions[0][0]) is made:
        return output.detach().gather(signed(node._saved_dim), node._saved_index)
    return None


def signed(number: int) -> int:
    """Return a number as it was given: autograd keeps negative ones as numbers of 64 bits without a sign.

    >>> signed((1 << 64) - 1), signed(2)
    (-1, 2)
    """
    return number - (1 << 64) if number >= 1 << 63 else number


def _dimension(node: Any, dimensions: int) -> int:
    return signed(int(node._saved_dim)) % max(dimensions, 1)
