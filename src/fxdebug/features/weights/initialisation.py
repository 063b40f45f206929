"""Initialisation of weights: by which scheme they were drawn, and which of them were not drawn by the model's own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fxdebug.features.weights.record import WeightFacts

FRESH_SHARE = 0.7  # of the matrices that some scheme fits, from which on a model counts as not trained yet
LEAST = 100  # elements, of which a distribution can be told
FEW = 4  # matrices, too few to say which scheme is the model's

OWN = "the model's own scheme"
# Layers of torch; of another class that has one weight alone, nobody knows the scheme: a table of positions, a prompt.
_LAYERS = ("Linear", "Conv", "Embedding", "Bilinear", "LSTM", "GRU", "RNN", "MultiheadAttention", "NonDynamically")
_TABLES = ("Embedding", "EmbeddingBag")
_GATES = {"LSTM": 4, "LSTMCell": 4, "GRU": 3, "GRUCell": 3, "RNN": 1, "RNNCell": 1}  # in the rows of one matrix


@dataclass(frozen=True, slots=True)
class WeightLimits:
    """Thresholds of the rule about initialisation: a deviation is off if it is off by both.

    ``errors``: standard errors between a weight's standard deviation and that of its scheme. ``ratio``: the difference
    of the two, relative to the scheme's.
    """

    errors: float = 4.0
    ratio: float = 0.1


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to draw a weight: its name, and the standard deviation that it gives this weight.

    ``uniform`` tells whether elements are uniform; otherwise they are normal. ``own`` schemes are torch's defaults and
    those of the model's configuration.
    """

    name: str
    std: float
    uniform: bool
    own: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """Facts about how the model draws its weights, as far as they are known.

    ``ranges`` are standard deviations that its configuration names (``initializer_range``), ``layers`` is its number
    of layers: GPT-2 divides the deviation of projections onto the residual stream by √(2 · layers). ``again`` has the
    deviations of weights in another model of the same class and configuration, by name.
    """

    ranges: tuple[float, ...] = ()
    layers: int | None = None
    again: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fit:
    """A weight against a scheme: ``ratio`` of the deviations, and their difference in standard errors (``z``).

    ``holds`` tells whether the weight may have been drawn by it.
    """

    scheme: Scheme
    ratio: float
    z: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Initialisation:
    """The schemes of a model: ``fits`` by the name of the weight; ``off`` are those that none of its schemes fits.

    ``fresh`` tells whether the weights look as they were drawn; a trained model has no ``off``.
    """

    fresh: bool
    fits: dict[str, Fit]
    off: dict[str, Fit]


def initialisation_of(
    facts: Sequence[WeightFacts],
    drawn: Drawn,
    fresh: bool | None = None,
    limits: WeightLimits | None = None,
) -> Initialisation:
    """Compare each matrix with the schemes of torch and of the model.

    ``fresh`` says whether the model is as it was initialised; ``None`` finds out.
    """
    limits = WeightLimits() if limits is None else limits
    matrices = [weight for weight in facts if is_drawn(weight)]
    fitting = {weight.name: [fit for fit in _fits(weight, drawn, limits) if fit.holds] for weight in matrices}
    large = [weight for weight in matrices if weight.stats.count >= LEAST]
    fitted = [weight for weight in large if weight.distribution in ("uniform", "normal") and fitting[weight.name]]
    looks_fresh = bool(large) and len(fitted) >= FRESH_SHARE * len(large)
    usual = Counter(_family(fit) for found in fitting.values() for fit in found)
    fits = {}
    for name, found in fitting.items():
        best = max(found, key=lambda fit: usual[_family(fit)], default=None)
        # one weight alone may fit some scheme by chance
        if best is not None and (best.scheme.own or usual[_family(best)] > 1 or len(matrices) < FEW):
            fits[name] = best
    off: dict[str, Fit] = {}
    if looks_fresh if fresh is None else fresh:
        of_type = Counter(weight.type for weight in matrices)
        for weight in matrices:
            is_layer = weight.type.startswith(_LAYERS) or of_type[weight.type] > 1 or weight.name in drawn.again
            if weight.name not in fits and is_layer:
                nearest = _nearest(weight, drawn, limits, usual)
                has_own = any(fit.holds and fit.scheme.own for fit in _fits(weight, drawn, limits, of_any_shape=True))
                if not nearest.holds and not has_own and (nearest.scheme.own or usual[_family(nearest)] > 1):
                    off[weight.name] = nearest
    return Initialisation(looks_fresh if fresh is None else fresh, fits, off)


def is_drawn(weight: WeightFacts) -> bool:
    """Is this a matrix of random numbers? Masks, tables of positions and layers that begin at zero are not."""
    return (
        weight.kind == "parameter"
        and weight.fan_in is not None
        and bool(weight.stats.std)
        and weight.stats.zeros < weight.stats.count / 2
        and weight.distribution != "constant"
        and not weight.ordered
    )


def _fits(weight: WeightFacts, drawn: Drawn, limits: WeightLimits, of_any_shape: bool = False) -> Iterator[Fit]:
    """Yield the weight against each scheme; ``of_any_shape``: some hundred uniform numbers may look normal."""
    std, count = weight.stats.std or 0.0, weight.stats.count
    for scheme in schemes_of(weight, drawn):
        is_known = weight.distribution in ("uniform", "normal") and not of_any_shape
        if is_known and (weight.distribution == "uniform") != scheme.uniform:
            continue
        error = scheme.std * math.sqrt((0.2 if scheme.uniform else 0.5) / count)  # of a deviation from its kurtosis
        ratio, z = std / scheme.std, (std - scheme.std) / error
        yield Fit(scheme, ratio, z, abs(z) <= limits.errors or abs(ratio - 1) <= limits.ratio)


def _nearest(weight: WeightFacts, drawn: Drawn, limits: WeightLimits, usual: Counter[tuple[str, bool]]) -> Fit:
    """Return the fit to the model's own scheme for it, or to one that most weights of the model have."""
    fits = [*_fits(weight, drawn, limits)]
    if weight.name in drawn.again:
        return fits[0]
    most = max((usual[_family(fit)] for fit in fits), default=0)
    own = [fit for fit in fits if usual[_family(fit)] == most]
    return min(own, key=lambda fit: abs(math.log(fit.ratio)))


def _family(fit: Fit) -> tuple[str, bool]:
    return fit.scheme.name, fit.scheme.uniform


def schemes_of(weight: WeightFacts, drawn: Drawn) -> Iterator[Scheme]:
    """Yield the schemes by which a weight may have been drawn.

    Glorot and Bengio 2010 (Xavier), He et al. 2015 (Kaiming), LeCun et al. 1998, Radford et al. 2019 (the division by
    √(2 · layers)), and the defaults of torch: uniform within ±1/√fan_in, normal with deviation 1 for embeddings,
    uniform within ±1/√hidden_size for all matrices of a recurrent layer, uniform Xavier for those into attention.
    """
    if weight.name in drawn.again:
        yield Scheme(OWN, drawn.again[weight.name], uniform=weight.distribution == "uniform", own=True)
    if weight.type in _TABLES:
        yield Scheme("torch's default", 1.0, uniform=False, own=True)
    fan_in, fan_out = weight.fan_in or 1, weight.fan_out or 1
    for std in dict.fromkeys(drawn.ranges):
        yield Scheme(f"normal {std:g}", std, uniform=False, own=True)
        if drawn.layers:
            narrower = std / math.sqrt(2 * drawn.layers)
            yield Scheme(f"normal {std:g}/√(2·{drawn.layers})", narrower, uniform=False, own=True)
    if weight.type in _GATES and len(weight.shape) == 2:
        is_projection = weight.name.rpartition(".")[2].startswith("weight_hr")
        hidden = weight.shape[1] if is_projection else max(weight.shape[0] // _GATES[weight.type], 1)
        yield Scheme("torch's default", 1 / math.sqrt(3 * hidden), uniform=True, own=True)
    elif weight.type == "MultiheadAttention":
        yield Scheme("torch's default", math.sqrt(2 / (fan_in + fan_out)), uniform=True, own=True)
    elif weight.type not in _TABLES:
        yield Scheme("torch's default", 1 / math.sqrt(3 * fan_in), uniform=True, own=True)
    for name, std in (
        ("Kaiming, fan in", math.sqrt(2 / fan_in)),
        ("Kaiming, fan out", math.sqrt(2 / fan_out)),
        ("Xavier", math.sqrt(2 / (fan_in + fan_out))),
        ("LeCun", math.sqrt(1 / fan_in)),
    ):
        yield Scheme(name, std, uniform=False)
        yield Scheme(name, std, uniform=True)
