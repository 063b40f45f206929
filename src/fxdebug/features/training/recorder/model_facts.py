"""Facts about the model that is trained: modes, frozen parts that never learned, twins, zeros, nets that are linear."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, special_tensors, untracked
from fxdebug.features.shared.records.learning import Names
from fxdebug.features.training.recorder.samples import sample

NAMED = 4
STRONG = 0.8  # a dropout's noise is twice its signal
ROUNDING = 1e-4  # of the largest number of a row
SMALL_GAIN = 0.1  # three layers of it leave a thousandth of what differs between examples
SURE = 4.0  # standard errors
FEWEST_DRAWN = 1000  # numbers
MOST_NODES = 20_000
LARGE_GAIN = 4.0  # of a layer: He and others draw up to 1.67 (nn.init.calculate_gain), Linear itself 0.58
MOST_COMPARED = 64  # matrices with which embeddings are compared
_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_DROPOUTS = (nn.modules.dropout._DropoutNd,)
_PRODUCTS = frozenset("Addmm Mm Linear Convolution Bmm Baddbmm".split())
_LINEAR = _PRODUCTS | frozenset(
    "T Transpose View UnsafeView ReshapeAlias Reshape Permute Add Sub Neg Expand Mean Sum Slice Select Cat Squeeze "
    "Unsqueeze ToCopy Clone Alias AdaptiveAvgPool2D AvgPool2D Mul Div Stack Split Unbind Pad ConstantPadNd".split()
)
_FACTORS = frozenset("Addmm Mm Linear Embedding".split())
_PASSED_ON = frozenset("T Transpose ToCopy".split())


def names_of(found: Iterable[tuple[str, Tensor]], whole: int) -> Names:
    """Return names with their number and their share of all elements."""
    listed = list(found)
    elements = sum(tensor.numel() for _, tensor in listed)
    return Names(tuple([name for name, _ in listed[:NAMED]]), len(listed), round(elements / max(whole, 1), 6))


def module_names(paths: Iterable[str]) -> Names:
    """Return the names of modules with their number."""
    listed = list(paths)
    return Names(tuple(listed[:NAMED]), len(listed))


class ModelFacts:
    """Facts about a model that are taken when its training begins, and compared later."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        learning = [(name, p) for name, p in _matrices(model) if p.requires_grad]
        with untracked():
            self.zero = [(name, p) for name, p in learning if p.numel() and not bool(sample(p, 4096).any())]
            self.zero = [(name, p) for name, p in self.zero if not bool(special_tensors.local_part(p).detach().any())]
            self._twins = _twins(model)
            self._gains = _gains(model)
            one_row = [(name, p) for name, p in _matrices(model) if p.requires_grad and _has_one_row(p)]
            self._alike = [(name, p, sample(p).clone()) for name, p in one_row]
        self.matrices = len(learning)
        self.modes: dict[str, bool] = {}
        self.seen: dict[str, int | None] = {}

    def large(self) -> tuple[Names, float, float | None]:
        """Return layers whose weights began far too large, by how much the largest of them grows its input; the median.

        Independent inputs of size 1 become results of the size of the gain.
        """
        whole = sum(p.numel() for p in members.parameters_of(self._model))
        found = [(name, p) for name, p, gain in self._gains if gain > LARGE_GAIN]
        gains = sorted(gain for _, _, gain in self._gains)
        return names_of(found, whole), max(gains, default=0.0), gains[len(gains) // 2] if gains else None

    def small(self) -> Names:
        """Return layers whose weights began far too small: most layers of a model that normalises nothing."""
        whole = sum(p.numel() for p in members.parameters_of(self._model))
        found = [(name, p) for name, p, gain in self._gains if 0 < gain < SMALL_GAIN]
        normalises = any("norm" in type(module).__name__.lower() for _, module in members.named_modules_of(self._model))
        return Names() if normalises or 2 * len(found) <= len(self._gains) else names_of(found, whole)

    def alike(self) -> Names:
        """Return matrices whose rows were all the same at the beginning, have changed, and are the same now."""
        whole = sum(p.numel() for p in members.parameters_of(self._model))
        with untracked():
            moved = [(name, p) for name, p, first in self._alike if not torch.equal(sample(p), first)]
            return names_of([(name, p) for name, p in moved if _has_one_row(p, ROUNDING)], whole)

    def note_modes(self) -> None:
        """Note the modes in which normalisations and dropouts run, as they are at the forward."""
        for path, module in members.named_modules_of(self._model):
            if isinstance(module, (*_BATCH_NORMS, *_DROPOUTS)):
                self.modes[path] = module.training

    def norms(self) -> tuple[int, Names, Names]:
        """Return the number of batch normalisations, those in eval mode, and those of them that saw no batch."""
        found = [(path, m) for path, m in members.named_modules_of(self._model) if isinstance(m, _BATCH_NORMS)]
        resting = [(path, m) for path, m in found if self.modes.get(path, True) is False and m.track_running_stats]
        with untracked():
            unused = [
                path for path, m in resting if m.num_batches_tracked is not None and not int(m.num_batches_tracked)
            ]
        return len(found), module_names(path for path, _ in resting), module_names(unused)

    def constants(self) -> Names:
        """Return batch normalisations that trained and whose running statistics never left 0 and 1."""
        with untracked():
            return module_names(
                path
                for path, m in members.named_modules_of(self._model)
                if isinstance(m, _BATCH_NORMS) and self.modes.get(path) and m.momentum == 0.0
                if m.running_mean is not None and m.running_var is not None
                if not bool(m.running_mean.any()) and bool((m.running_var == 1).all())
            )

    def drops(self) -> tuple[int, Names, Names, float]:
        """Return the number of dropouts, those in eval mode, those that drop most of it, and how much."""
        found = [(path, m) for path, m in members.named_modules_of(self._model) if isinstance(m, _DROPOUTS) and m.p > 0]
        resting = [path for path, _ in found if self.modes.get(path, True) is False]
        strong = [(path, m.p) for path, m in found if m.p >= STRONG and self.modes.get(path, True)]
        return (
            len(found),
            module_names(resting),
            module_names(path for path, _ in strong),
            max([p for _, p in strong], default=0.0),
        )

    def frozen_fresh(self) -> Names:
        """Return frozen matrices that are as torch or transformers draw them: they never learned anything."""
        whole = sum(p.numel() for p in members.parameters_of(self._model))
        modules = dict(members.named_modules_of(self._model))
        found = []
        with untracked():
            for name, p in _matrices(self._model):
                path, _, _ = name.rpartition(".")
                is_table = isinstance(modules.get(path), (nn.Embedding, nn.EmbeddingBag))
                if not p.requires_grad and (_is_fresh_table(p) if is_table else _is_fresh(p)):
                    found.append((name, p))
        return names_of(found, whole)

    def untied(self) -> tuple[str, str] | None:
        """Return two matrices that began equal in every bit, and are not any more."""
        with untracked():
            return next(((a, b) for a, b, p, q in self._twins if not torch.equal(p.detach(), q.detach())), None)


def _matrices(model: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    for name, parameter in members.named_parameters_of(model):
        if parameter.dim() > 1 and not parameter.is_meta:
            yield name, parameter


def _gains(model: nn.Module) -> list[tuple[str, Tensor, float]]:
    """Return by how much the weights of each layer that learns grow an input of size 1, on average."""
    modules, found = dict(members.named_modules_of(model)), []
    of_heads = {id(m.weight) for _, m in modules.items() if type(m) is nn.Linear}  # a table may be one, too
    for name, p in _matrices(model):
        module = modules.get(name.rpartition(".")[0])
        if not p.requires_grad or (isinstance(module, nn.Embedding) and id(p) not in of_heads):
            continue
        taken = p.numel() // len(p) if len(p) else 0
        fan = taken if isinstance(module, (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd)) else min(taken, len(p))
        some = sample(p)
        if fan and some.numel() and some.is_floating_point():
            found.append((name, p, float(some.float().square().mean().sqrt()) * math.sqrt(fan)))
    return found


def _has_one_row(matrix: Tensor, close: float = 0.0) -> bool:
    """Are all rows of a matrix the same, and not 0?"""
    own = special_tensors.local_part(matrix).detach()
    if own.dim() < 2 or len(own) < 2 or own[0].numel() < 2 or not own.is_floating_point():
        return False
    largest = float(own[0].abs().max())
    if not largest or float((own[1] - own[0]).abs().max()) > close * largest:
        return False
    return float((own - own[0]).abs().max()) <= close * largest


def _twins(model: nn.Module) -> list[tuple[str, str, Tensor, Tensor]]:
    """Return an embedding and a matrix of the same numbers, which are two tensors: they may have been tied."""
    modules = dict(members.named_modules_of(model))
    kinds = [(name, p, isinstance(modules.get(name.rpartition(".")[0]), nn.Embedding)) for name, p in _matrices(model)]
    embeddings = [(name, p) for name, p, is_embedding in kinds if is_embedding and special_tensors.local_part(p) is p]
    others = [(name, p) for name, p, is_embedding in kinds if not is_embedding and special_tensors.local_part(p) is p]
    found = []
    for name, p in embeddings[:MOST_COMPARED]:
        for other, q in others:
            if (
                p.shape != q.shape
                or p.dtype != q.dtype
                or p.device != q.device
                or not torch.equal(sample(p), sample(q))
            ):
                continue
            if torch.equal(p.detach(), q.detach()) and float(sample(p).float().std()) > 0:
                found.append((name, other, p, q))
    return found


def _is_fresh(parameter: Tensor) -> bool:
    """Has a weight the distribution of torch's layers (uniform in ±1/√fan), or that of transformers (N(0, 0.02))?"""
    x = special_tensors.local_part(parameter).detach().float()
    if x.numel() < 64 or x.layout is not torch.strided:
        return False
    bound, count = 1 / math.sqrt(x[0].numel()), x.numel()
    deviation = float(x.std())
    usual = bound / math.sqrt(3)
    if float(x.abs().max()) <= 1.0001 * bound and abs(deviation - usual) < SURE * usual * math.sqrt(0.2 / count):
        return float(x.abs().max()) > 0.9 * bound
    if abs(deviation - 0.02) >= SURE * 0.02 / math.sqrt(2 * count) or count < 1000:
        return False
    fourth = float(((x - x.mean()) ** 4).mean()) / deviation**4
    return abs(fourth - 3) < SURE * math.sqrt(24 / count)


def _is_fresh_table(parameter: Tensor) -> bool:
    """Has a table of embeddings the distribution with which torch draws it, N(0, 1), or N(0, 0.02)?"""
    x = special_tensors.local_part(parameter).detach().float()
    x = x[x.any(1)] if x.dim() == 2 and x.layout is torch.strided else x[:0]  # without the row of the padding
    count = x.numel()
    if count < FEWEST_DRAWN:
        return False
    deviation = float(x.std())
    usual = min((1.0, 0.02), key=lambda one: abs(deviation - one))
    if abs(deviation - usual) > SURE * usual / math.sqrt(2 * count) or abs(float(x.mean())) > SURE * usual / count**0.5:
        return False
    fourth = float(((x - x.mean()) ** 4).mean()) / deviation**4
    columns, rows = x.std(0), x.std(1)  # what was learned has columns and rows of many sizes
    sizes = ((columns, len(x)), (rows, x.shape[1]))
    even = all(float((one / usual - 1).square().mean()) < SURE / n for one, n in sizes)
    return abs(fourth - 3) < SURE * math.sqrt(24 / count) and even


def products_in(root: Any) -> tuple[int, bool]:
    """Return the products in a graph, and whether everything in it is linear."""
    pending, known, names = [root], set[Any](), Counter[str]()
    while pending and len(known) < MOST_NODES:
        node = pending.pop()
        if node is None or node in known:
            continue
        known.add(node)
        name, _, _ = node.name().partition("Backward")
        if not name.endswith("AccumulateGrad"):
            names[name] += 1
        pending += [inner for inner, _ in node.next_functions]
    is_linear = len(known) < MOST_NODES and all(name in _LINEAR for name in names)
    return sum(names[name] for name in _PRODUCTS), is_linear


def weights_of(node: Any) -> tuple[set[int], set[int]]:
    """Return the ids of weights that an operation multiplies with or looks up, and of those that it uses otherwise."""
    name, _, _ = node.name().partition("Backward")
    factors, others = set[int](), set[int]()
    if name in _PASSED_ON:  # the operation behind it uses the weight
        return factors, others
    for place, (inner, _) in enumerate(node.next_functions):
        while inner is not None and inner.name().partition("Backward")[0] in _PASSED_ON:
            inner = inner.next_functions[0][0]
        variable = getattr(inner, "variable", None)
        if variable is not None:
            is_factor = name in _FACTORS and (place > 0 or name != "Addmm")
            (factors if is_factor else others).add(id(variable))
    return factors, others
