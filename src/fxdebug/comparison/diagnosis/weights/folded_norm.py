"""A batch norm of a that b has folded into a convolution: which of its weights is not what folding makes of a's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fxdebug.comparison.diagnosis.weights.weight_slices import Weights
from fxdebug.comparison.pairing.by_dataflow import following_batch_norm
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import CLOSE
from fxdebug.operators.names import CONVOLUTIONS

_OF_PRODUCT = ("input", "weight", "bias")
_OF_NORM = ("input", "running_mean", "running_var", "weight", "bias")
FOLDED = "folded in"  # in every sentence
IN_TRAINING = (
    "a is in training mode: its batch norms take the statistics of this batch, where weights that they are folded into "
    "have the running ones (a.eval()); "
)


def wrongly_folded(run_a: StepList, a: Step, run_b: StepList, b: Step, weights: tuple[Weights, Weights]) -> str | None:
    """Return what is wrong with a convolution of b that has the batch norm after that of a folded in.

    ``None`` where there is no such norm, where its numbers are not known, and where it is folded in as it should be.
    """
    norm = following_batch_norm(run_a, a)
    if norm is not None and takes_its_batch(norm) and following_batch_norm(run_b, b) is None:
        own = _names(b).get("weight", "the weight")
        return f"{IN_TRAINING}{own} differs from that of a, as one does that {norm.call.path} is folded into"
    fold = _folding(run_a, a, run_b, b, weights)
    if fold is None:
        return None
    name, (of_a, of_b, of_norm) = fold.norm, fold.names
    factor = f"{name}.weight / √({name}.running_var + eps)"
    ours = of_a["weight"] if of_a["weight"] != of_b["weight"] else "that"
    if not fold.has_factor:
        if _close(fold.made, fold.matrix):
            return f"{of_b['weight']} is {ours} of a, without the factor {factor} of the norm that is folded in"
        return f"{of_b['weight']} is not {ours} of a with {name} folded in"
    if "bias" not in of_b:
        lost = f"{name}.running_mean and {name}.bias" if of_norm.get("bias") else f"{name}.running_mean"
        return f"{of_b['weight'].rpartition('.')[0]} has no bias: {lost}, which are folded in, are left out"
    terms, shift = fold.terms, fold.shift
    if len(shift) != len(terms) or fold.has_shift:
        return None
    told = of_b.get("bias") or "the bias"
    for wrong, how in (
        ([c + d - m * s for c, d, m, s in terms], f"the bias of a is not multiplied by {factor}"),
        ([d - m * s for _, d, m, s in terms], "the bias of a is left out"),
        ([(c - m) * s for c, _, m, s in terms], f"{name}.bias is left out"),
        ([c * s + d for c, d, _, s in terms], f"{name}.running_mean is left out"),
        ([(c + m) * s + d for c, d, m, s in terms], f"{name}.running_mean is added, not subtracted"),
        ([c for c, _, _, _ in terms], f"it is the bias of a, without {name}"),
    ):
        if _close(shift, wrong):
            return f"{told} has {name} folded in wrongly: {how}"
    return f"{told} is not that of a with {name} folded in"


def takes_its_batch(norm: Step) -> bool:
    """Does a batch norm take the statistics of its batch, as its module is in training mode?"""
    return norm.name == "batch_norm" and "training=True" in norm.constants and norm.call.training


def rightly_folded(run_a: StepList, a: Step, run_b: StepList, b: Step, weights: tuple[Weights, Weights]) -> bool:
    """Has a convolution of b the batch norm after that of a folded in, as far as the sums of its rows tell?"""
    fold = _folding(run_a, a, run_b, b, weights)
    return fold is not None and fold.has_factor and fold.has_shift


@dataclass(frozen=True)
class _Folding:
    """A batch norm of a, the convolution before it, and the convolution of b: row by row.

    ``terms`` are a's bias, and the norm's bias, running mean and factor; ``names`` those of the weights of all three.
    """

    norm: str
    names: tuple[dict[str, str], dict[str, str], dict[str, str]]
    matrix: list[float]
    made: list[float]
    shift: list[float]
    terms: list[tuple[float, float, float, float]]

    @property
    def has_factor(self) -> bool:
        """Are b's rows those of a times the norm's factors?"""
        return _close(self.made, [row * s for row, (_, _, _, s) in zip(self.matrix, self.terms)])

    @property
    def has_shift(self) -> bool:
        """Is b's bias the norm of a's bias?"""
        wanted = [(c - m) * s + d for c, d, m, s in self.terms]
        return len(self.shift) == len(wanted) and _close(self.shift, wanted)


def _folding(run_a: StepList, a: Step, run_b: StepList, b: Step, weights: tuple[Weights, Weights]) -> _Folding | None:
    """Return the rows of a batch norm of a that b has not; ``None`` where there is none, or its numbers are unknown."""
    norm = following_batch_norm(run_a, a)
    if norm is None or following_batch_norm(run_b, b) is not None or a.name not in {*CONVOLUTIONS, "linear"}:
        return None
    of_a, of_b, of_norm = _names(a), _names(b), _names(norm)
    known = weights[0]
    gamma, beta, mean, var = [
        _rows(known, of_norm.get(one)) for one in ("weight", "bias", "running_mean", "running_var")
    ]
    matrix, made = _rows(known, of_a.get("weight")), _rows(weights[1], of_b.get("weight"))
    if mean is None or var is None or matrix is None or made is None or not len(mean) == len(matrix) == len(made):
        return None
    gamma, beta = gamma or [1.0] * len(mean), beta or [0.0] * len(mean)
    scale = [g / math.sqrt(v + _epsilon(norm)) for g, v in zip(gamma, var)]
    bias = _rows(known, of_a.get("bias")) or [0.0] * len(mean)
    shift = _rows(weights[1], of_b.get("bias")) or [0.0] * len(mean)
    name = (of_norm.get("running_mean") or "").rpartition(".")[0]
    return _Folding(name, (of_a, of_b, of_norm), matrix, made, shift, list(zip(bias, beta, mean, scale)))


def _names(step: Step) -> dict[str, str]:
    """Return the names of the weights that a step is given, by parameter."""
    order = _OF_NORM if step.name == "batch_norm" else _OF_PRODUCT
    places = {f"args[{at}]": parameter for at, parameter in enumerate(order)}
    return {places.get(given.argument, given.argument): given.value.name for given in step.weights if given.value.name}


def _rows(weights: Weights, name: str | None) -> list[float] | None:
    """Return the sums of the rows of a weight: the elements, where it is a vector."""
    found = None if name is None else weights.find(name)
    return None if found is None or 0 not in found.sums else list(found.sums[0])


def _epsilon(norm: Step) -> float:
    named = [text for name, _, text in (constant.partition("=") for constant in norm.constants) if name == "eps"]
    try:
        return float(named[0])
    except (IndexError, ValueError):
        return 1e-5  # torch's default


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    size = max(map(abs, (*one, *other)), default=0.0)
    return all(abs(x - y) <= CLOSE * size for x, y in zip(one, other, strict=True))
