"""Gradients of two steps side by side, by parameter: their norms, and their elements if available."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxdebug.analyses.paired_names import prefix_between
from fxdebug.comparison.elementwise import measure_elements
from fxdebug.comparison.thresholds import GROWTH, NARROW_ROUNDING_STEPS
from fxdebug.comparison.tolerance import rounding_step, tolerance_of
from fxdebug.data.values import Value
from fxdebug.operators.dtypes import EPS

if TYPE_CHECKING:
    from torch import Tensor

NULL = 10.0  # epsilons of the largest gradient in a module, below which one is zero by structure
NEAR_ONE = 1e-4  # a factor that is nearer to one is none: it is what rounding in a deep model adds up to
ROUNDED = 2e-5  # the least that a factor may be off


@dataclass(frozen=True, eq=False)
class OneGradient:
    """The gradient of one parameter; ``norm`` is ``None`` where there is none, ``why`` says why as far as known.

    ``tensor`` and ``weight`` are the gradient and the parameter, ``None`` where only the norm is known. ``is_table``:
    is it a table whose rows are looked up, one for each token? ``None`` where its module is not known.
    """

    shape: tuple[int, ...]
    dtype: str
    norm: float | None
    tensor: Tensor | None = None
    weight: Tensor | None = None
    why: str = ""
    is_table: bool | None = None

    @property
    def is_finite(self) -> bool:
        """Is there a gradient, and are all its elements finite?"""
        return self.norm is not None and math.isfinite(self.norm)


@dataclass(frozen=True, eq=False)
class Step:
    """The gradients of one step: by the name of the parameter, in the order of the forward."""

    name: str
    gradients: Mapping[str, OneGradient]
    stops: tuple[str, ...] = ()  # where gradients stop, as sentences
    recomputed: tuple[str, ...] = ()  # modules that the backward ran again with other random numbers

    @property
    def total(self) -> float:
        """The 2-norm of all gradients together."""
        return math.hypot(*[one.norm for one in self.gradients.values() if one.norm is not None])


@dataclass(frozen=True, eq=False)
class Facing:
    """The gradients of one parameter in both steps; both are there and finite, and not all of their elements are 0."""

    name: str
    a: OneGradient
    b: OneGradient
    _errors: dict[float, float] = field(default_factory=dict)

    @property
    def by_elements(self) -> bool:
        """Are the elements of both known?"""
        return self.a.tensor is not None and self.b.tensor is not None

    @functools.cached_property
    def products(self) -> tuple[float, float]:
        """The sum of the products of elements, and of the squares of a; norms are used where elements are unknown."""
        assert self.a.norm is not None and self.b.norm is not None
        if self.a.tensor is None or self.b.tensor is None:
            return self.a.norm * self.b.norm, self.a.norm**2
        x, y = elements_of(self.a.tensor), elements_of(self.b.tensor)
        return float(x @ y), float(x @ x)

    @property
    def factor(self) -> float:
        """The factor by which a comes nearest to b."""
        product, square = self.products
        return product / square if square else 0.0

    @property
    def limit(self) -> float:
        """The error that rounding in all operations of a backward adds up to."""
        return limit_of(self.a.dtype, self.b.dtype)

    def error(self, factor: float) -> float:
        """Return the error of b against a times a factor, as comparisons of runs measure it."""
        if factor not in self._errors:
            assert self.a.norm is not None and self.b.norm is not None
            if self.a.tensor is None or self.b.tensor is None:
                size = max(abs(factor) * self.a.norm, self.b.norm)
                found = abs(abs(factor) * self.a.norm - self.b.norm) / size if size else 0.0
            else:
                found = error_between(elements_of(self.a.tensor) * factor, self.b.tensor)
            self._errors[factor] = found
        return self._errors[factor]

    def fits(self, factor: float) -> bool:
        """Is b equal to a times a factor, but for rounding?"""
        return self.error(factor) <= self.limit


def elements_of(tensor: Tensor) -> Tensor:
    """Return the elements of a gradient of any layout in one row, in float64."""
    dense = tensor.detach()
    return (dense.to_dense() if str(dense.layout) != "torch.strided" else dense).reshape(-1).cpu().double()


def error_between(expected: Tensor, tensor: Tensor) -> float:
    """Return the error of a tensor as comparisons of runs measure it."""
    value = Value(0, tuple(tensor.shape), "float64", "cpu")
    return measure_elements(expected, elements_of(tensor), 0.0, value, value).error


def limit_of(*dtypes: str) -> float:
    """Return the error that rounding in all operations of a backward adds up to, in the coarsest of these dtypes.

    >>> limit_of("float32") < 4e-4 < limit_of("bfloat16", "float32")
    True
    """
    narrow = tolerance_of(*dtypes) > tolerance_of("float32")
    return GROWTH * tolerance_of(*dtypes) / (NARROW_ROUNDING_STEPS if narrow else 1)


def factor_limit(pairs: Sequence[Facing]) -> float:
    """Return how far a common factor may be from one, relative to it: roundings of many elements even out."""
    coarsest = max(max(rounding_step(pair.a.dtype), rounding_step(pair.b.dtype)) for pair in pairs)
    return max(8 * coarsest, NEAR_ONE)


def factor_spread(factor: float, pairs: Sequence[Facing]) -> float:
    """Return how far a common factor may be off, relative to it, by how much those of single parameters differ."""
    off = sorted(abs(pair.factor / factor - 1.0) for pair in pairs if math.prod(pair.a.shape) > 1) or [0.0]
    return min(max(ROUNDED, 3 * off[len(off) // 2]), factor_limit(pairs))


def rounding_alone(step: Step) -> frozenset[str]:
    """Return the parameters whose gradients are rounding errors beside those of their module's others."""
    largest: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for name, one in step.gradients.items():
        if one.norm is not None and math.isfinite(one.norm):
            sizes[name] = one.norm / math.sqrt(max(math.prod(one.shape), 1))
            path = name.rpartition(".")[0]
            largest[path] = max(largest.get(path, 0.0), sizes[name])
    return frozenset(
        name
        for name, size in sizes.items()
        if 0 < size < NULL * EPS.get(step.gradients[name].dtype, 0.0) * largest[name.rpartition(".")[0]]
    )


def paired_steps(a: Step, b: Step) -> tuple[Step, Step]:
    """Return two steps whose names have no prefix that one side alone has, such as ``module.`` of DDP."""
    missing = [name for name in a.gradients if name not in b.gradients]
    beyond = [name for name in b.gradients if name not in a.gradients]
    prefix = prefix_between(beyond, missing)
    if not prefix:
        return a, b
    a, b = (
        Step(
            one.name,
            {name.removeprefix(prefix): each for name, each in one.gradients.items()},
            one.stops,
            one.recomputed,
        )
        for one in (a, b)
    )
    return a, b
