"""Relations between the gradients of two steps: one factor, a norm or an element that is limited, weight decay, a sum.

Only what the numbers show is stated. Of what explains a factor, what fits the number is named as possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from fxdebug.data.measures import counted
from fxdebug.features.gradients.compared.facing import (
    Facing,
    Step,
    elements_of,
    error_between,
    factor_limit,
    factor_spread,
)

SCALE = 65536.0  # the first loss scale of torch.amp.GradScaler
LEAST_SCALE = 1024  # smaller powers of two are rather numbers of batches or ranks
UNSURE = 0.05  # where a factor is known less well, the nearest count says nothing
ROUND = 2e-5  # of a norm: clip_grad_norm_ adds 1e-6 to it
MOST = 256  # numbers of micro batches and ranks that a factor is read as


@dataclass(frozen=True)
class Common:
    """A factor that most gradients of b have: ``fitting`` are the names of the parameters that have it."""

    factor: float
    fitting: frozenset[str]


def common_factor(pairs: Sequence[Facing]) -> Common | None:
    """Return the factor that more than half of the parameters share, exactly 1.0 where rounding explains the rest."""
    candidates = [pair for pair in pairs if pair.fits(pair.factor)]
    if not candidates:
        return None
    exact = frozenset(pair.name for pair in pairs if pair.fits(1.0))
    if len(exact) == len(pairs):
        factor = _over_all(pairs)
        if abs(factor - 1.0) <= factor_limit(pairs) or not all(pair.fits(factor) for pair in pairs):
            return Common(1.0, exact)
    larger = sorted((pair for pair in candidates if math.prod(pair.a.shape) > 1), key=lambda pair: pair.factor)
    larger = larger or sorted(candidates, key=lambda pair: pair.factor)
    middle = larger[len(larger) // 2].factor
    alike = [pair for pair in candidates if pair.fits(middle)]
    factor = _over_all(alike)
    if abs(factor - 1.0) <= factor_limit(alike):
        factor = 1.0
    fitting = frozenset(pair.name for pair in pairs if pair.fits(factor))
    if 2 * len(fitting) > len(pairs):
        return Common(factor, fitting)
    return Common(1.0, exact) if len(exact) > 1 and 2 * len(exact) >= len(pairs) else None


def _over_all(pairs: Sequence[Facing]) -> float:
    largest = max(pair.products[1] for pair in pairs) or 1.0
    return sum(p.products[0] / largest for p in pairs) / (sum(p.products[1] / largest for p in pairs) or 1.0)


def reading(factor: float, pairs: Sequence[Facing], a: Step, b: Step, counts: Mapping[str, float]) -> str:
    """Say what fits a factor: a number that the user knows, a loss scale, a norm that was clipped, a count.

    It begins with a colon where the numbers show it, and with "as" where it is one of several causes.
    """
    near = factor_spread(factor, pairs)

    def is_near(number: float) -> bool:
        return abs(factor - number) <= near * abs(number)

    for name, count in counts.items():
        if count > 0 and is_near(count):
            return f": {count:g} is the number of {name}, and b is not divided by it where a is"
        if count > 0 and is_near(1 / count):
            return f": {count:g} is the number of {name}, and b is divided by it once more than a"
    for (one, some), (other, all_of) in permutations(counts.items(), 2):
        if some > 0 < all_of and is_near(some / all_of):
            return f": {some:g} / {all_of:g} ({one} / {other})"
    for large, clipped, plain in ((factor < 1, b, a), (factor > 1, a, b)):
        norm = clipped.total
        if large and norm < plain.total and all(p.by_elements for p in pairs) and _is_round(norm):
            side = "b" if clipped is b else "a"
            return (
                f": {side} has a total norm of {norm:.3g}, as clipping to {norm:.3g} leaves it (of {plain.total:.4g})"
            )
    limited = a.total if factor < 1 else b.total  # where both are clipped, one of them by a norm that is too large
    if 0.05 < factor < 20 and all(p.by_elements for p in pairs) and _is_round(limited):
        side, larger = ("a", "b") if factor < 1 else ("b", "a")
        times = max(factor, 1 / factor)
        return (
            f": {side} has a total norm of {limited:.3g}, as clipping to {limited:.3g} leaves it; where {larger} is "
            f"clipped to the same, its total norm was taken {times:.4g} times too large (parameters counted twice?)"
        )
    power = math.log2(factor) if factor > 0 else 0.5
    if 0 < factor < 1.01 / LEAST_SCALE and is_near(2.0 ** round(power)) and _is_round(a.total):
        at = f"clipping to {a.total:.3g}"
        return f", a power of two, as {at} leaves it before the loss scale is taken off (unscale_ first)"
    scale = _scale_before_clipping(b.total)
    if scale and 0 < factor < 1.01 / LEAST_SCALE and all(p.by_elements for p in pairs):
        norm = b.total * scale
        return (
            f": b has a total norm of {norm:g} / {scale:g}, as clipping to {norm:g} leaves it "
            f"before the loss scale {scale:g} is taken off (unscale_ first)"
        )
    if is_near(-1.0):
        return ": the sign is the other one, one of them ascends"
    if is_near(SCALE):
        return ", as the loss scale 65536 leaves it (no GradScaler.unscale_), or a sum over so many elements"
    if is_near(1 / SCALE):
        return ", as the loss scale 65536 leaves it in a (no unscale_), or a mean over so many in b"
    if factor >= LEAST_SCALE and is_near(2.0 ** round(power)):
        return ", a power of two, as a loss scale leaves it that is not divided out, or a sum over so many elements"
    if 2 <= round(factor) <= MOST and is_near(round(factor)) and factor * near < UNSURE:
        return f", as a sum over {round(factor)} leaves it (micro batches, ranks) that a averages over"
    if 0 < factor < 1 and round(1 / factor) <= MOST and is_near(1 / round(1 / factor)) and near / factor < UNSURE:
        return f", as averaging over {round(1 / factor)} leaves it (ranks, micro batches) once more than in a"
    if 0.05 < factor < 20:
        return ", as another number to divide by leaves it (of tokens, with padding or without it, or of samples)"
    return ""


def _scale_before_clipping(norm: float) -> float:
    """Return the power of two by which a norm is a round one divided, as a loss scale; 0 where it is not."""
    for power in range(24, 9, -1):
        clipped = norm * 2.0**power
        if any(abs(clipped - round_one) <= ROUND * round_one for round_one in (0.1, 0.5, 1.0, 5.0, 10.0)):
            return 2.0**power
    return 0.0


def _is_round(norm: float) -> bool:
    return math.isfinite(norm) and norm > 0 and abs(norm - float(f"{norm:.1g}")) <= ROUND * norm


def weight_decay(pairs: Sequence[Facing]) -> tuple[float, tuple[str, ...]] | None:
    """Return the number by which the weights are added to the gradients of b, and the parameters that have it.

    All parameters have it, or all matrices, and the others' gradients are equal.
    """
    found: dict[str, float] = {}
    for pair in pairs:
        weight = pair.a.weight if pair.a.weight is not None else pair.b.weight
        if pair.a.tensor is None or pair.b.tensor is None or weight is None:
            return None
        w, gap = elements_of(weight), elements_of(pair.b.tensor) - elements_of(pair.a.tensor)
        square = float(w @ w)
        decay = float(w @ gap) / square if square else 0.0
        rest = float((gap - decay * w).norm())
        size = max(float(gap.norm()), 1e-300)
        rounding = pair.limit / 30 * float(elements_of(pair.b.tensor).norm())
        if size > 2 * rounding and rest <= max(2 * rounding, 1e-3 * size) and rest < size / 20 and w.numel() > 1:
            found[pair.name] = decay
        elif not pair.fits(1.0) and w.numel() > 1:
            return None
    if not found:
        return None
    numbers = sorted(found.values())
    middle = numbers[len(numbers) // 2]
    if any(abs(one - middle) > 0.02 * abs(middle) for one in numbers):
        return None
    return middle, tuple(found)


def largest_element(pairs: Sequence[Facing]) -> float | None:
    """Return the number that each element of the gradients of b is limited to, if that is all that differs."""
    if not pairs or not all(pair.by_elements for pair in pairs):
        return None
    sides = [
        (elements_of(p.a.tensor), elements_of(p.b.tensor), p)
        for p in pairs
        if p.a.tensor is not None and p.b.tensor is not None
    ]
    limit = max(float(y.abs().max()) for _, y, _ in sides)
    if not limit or sum(int((y.abs() == limit).sum()) for _, y, _ in sides) < 2:
        return None
    if any(error_between(x.clamp(-limit, limit), y) > pair.limit for x, y, pair in sides):
        return None
    return limit


def sums(a: Step, b: Step, limit_names: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return a parameter of a whose gradient is the sum of those of several parameters of b, with their names.

    ``limit_names`` are parameters of b that a does not have.
    """
    for name, one in a.gradients.items():
        other = b.gradients.get(name)
        if other is None or one.tensor is None or other.tensor is None:
            continue
        own, part = elements_of(one.tensor), elements_of(other.tensor)
        for extra in limit_names:
            further = b.gradients[extra]
            if further.tensor is None or further.shape != one.shape or not further.norm:
                continue
            pair = Facing(name, one, other)
            if not pair.fits(1.0) and error_between(part + elements_of(further.tensor), own) <= pair.limit:
                return name, (name, extra)
    return None


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def parameters(count: int) -> str:
    """Return a number of parameters in words."""
    return counted(count, "parameter")
