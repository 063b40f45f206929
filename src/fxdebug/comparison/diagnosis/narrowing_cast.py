"""A cast of b to a narrower dtype on the way to a value, where a has none: elements, or positions, are rounded."""

from __future__ import annotations

from itertools import permutations

from fxdebug.comparison.diagnosis.evaluate_steps import Judge, StepResult
from fxdebug.comparison.diagnosis.region import view_chain
from fxdebug.comparison.pairing.pairs import Pairs
from fxdebug.comparison.steps import Step, StepList
from fxdebug.comparison.thresholds import NEAR, VIEWS
from fxdebug.data.values import Value
from fxdebug.operators.categories import CASTS
from fxdebug.operators.dtypes import EPS, LARGEST_INTEGER
from fxdebug.operators.names import COUNTS

ANGULAR = frozenset(["cos", "sin", "polar"])
PRODUCTS = frozenset("mul einsum outer ger matmul mm bmm".split())
VIEWS_AND_CASTS = CASTS | frozenset("view reshape unsqueeze expand transpose getitem contiguous clone".split())


def narrowing_cast(pairs: Pairs, a: Value, b: Value) -> tuple[Step, str] | None:
    """Return the cast among the views before ``b`` that rounds it and that ``a`` does not have, and a sentence."""
    if _narrowing(pairs.a, a) is not None:
        return None
    step = _narrowing(pairs.b, b)
    return None if step is None else (step, f"{pairs.b.root(b).dtype} becomes {step.outputs[0].dtype}")


def _narrowing(run: StepList, value: Value) -> Step | None:
    before = EPS.get(run.root(value).dtype, 1.0)
    chain = view_chain(run, value)
    return next((s for s in chain if len(s.outputs) == 1 and EPS.get(s.outputs[0].dtype, 0.0) > before), None)


def rounded_positions(judge: Judge, result: StepResult) -> tuple[Step, str] | None:
    """Return the step of b, on the way to a step, that rounds positions, and a sentence; ``None`` where a does as well.

    Positions are counts (``arange``, ``cumsum``), or integers that are cast. Their statistics hardly change by that.
    """
    if _rounded(judge.pairs.a, result.partner) is not None:
        return None
    found = _rounded(judge.pairs.b, result.step)
    if found is None:
        return _rounded_frequencies(judge, result)
    step, largest, dtype = found
    every = f"{dtype}, which has every integer only up to {LARGEST_INTEGER[dtype]}"
    return step, f"positions up to {largest:g} are rounded to {every}, and not in a"


def _rounded(run: StepList, step: Step) -> tuple[Step, float, str] | None:
    seen: set[int] = set()
    pending = [given.value for given in step.data]
    while pending and len(seen) < NEAR:
        value = pending.pop()
        if value.number in seen or (maker := run.makers.get(value.number)) is None:
            continue
        seen.add(value.number)
        largest = None if value.stats is None else value.stats.absmax
        beyond = isinstance(largest, (int, float)) and largest > LARGEST_INTEGER.get(value.dtype, largest)
        sources = [given.value for given in maker.inputs]
        if beyond and (maker.name in COUNTS or any(_counts(run, source) for source in sources)):
            known = [source.stats.absmax for source in sources if source.stats is not None and maker.name not in COUNTS]
            exact = [float(number) for number in known if isinstance(number, (int, float))]
            return maker, max(exact, default=float(largest or 0.0)), value.dtype
        pending += sources
    return None


def _rounded_frequencies(judge: Judge, result: StepResult) -> tuple[Step, str] | None:
    """Return the cast of b that rounds what is multiplied by positions, on the way to a step, and a sentence."""
    if _rounded_factor(judge.pairs.a, result.partner) is not None:
        return None
    found = _rounded_factor(judge.pairs.b, result.step)
    if found is None:
        return None
    step, what, angle = found
    rounded = f"{what} is rounded to {step.outputs[0].dtype}, and not in a"
    return step, f"{rounded}: angles are off by up to {angle:.2g} radians"


def _rounded_factor(run: StepList, step: Step) -> tuple[Step, str, float] | None:
    """Return the narrowing cast of a factor before a sine, what that factor is, and the error of the angles.

    One factor are positions or times, the other one frequencies.
    """
    seen: set[int] = set()
    pending = [(given.value, step.name in ANGULAR) for given in step.data]
    while pending and len(seen) < NEAR:
        value, is_angle = pending.pop()
        if value.number in seen or (maker := run.makers.get(value.number)) is None:
            continue
        seen.add(value.number)
        sources = [given.value for given in maker.inputs]
        sizes = [float(s.stats.absmax) for s in sources if s.stats is not None and s.stats.absmax is not None]
        if is_angle and maker.name in PRODUCTS and len(sources) == 2 and len(sizes) == 2:
            for (factor, size), (other, largest) in permutations(zip(sources, sizes)):
                cast = _cast_to_narrow(run, factor)
                angle = 0.0 if cast is None else size * largest * EPS[cast.outputs[0].dtype] / 2
                if cast is not None and angle > 1:  # a radian: less is lost among what else is rounded
                    counted = _is_counted(run, other)
                    by = f"what positions up to {largest:g} are multiplied by"
                    return cast, by if counted else f"what sines and cosines are taken of, up to {size:g},", angle
        pending += [(source, is_angle or maker.name in ANGULAR) for source in sources]
    return None


def _is_counted(run: StepList, value: Value) -> bool:
    """Is it a count, or a view or a cast of one?"""
    for _ in range(VIEWS):
        maker = run.makers.get(value.number)
        if maker is None:
            return False
        if maker.name in COUNTS:
            return True
        if len(maker.inputs) != 1 or maker.name not in VIEWS_AND_CASTS:
            return False
        value = maker.inputs[0].value
    return False


def _cast_to_narrow(run: StepList, value: Value) -> Step | None:
    """Return the cast among the views and casts before a value after which it has fewer digits than before."""
    for _ in range(VIEWS):
        maker = run.makers.get(value.number)
        if maker is None or len(maker.inputs) != 1 or len(maker.outputs) != 1:
            return None
        before = maker.inputs[0].value
        if value.dtype in LARGEST_INTEGER and EPS.get(before.dtype, 1.0) < EPS[value.dtype]:
            return maker
        if value.dtype not in EPS or maker.name not in VIEWS_AND_CASTS:
            return None
        value = before
    return None


def _counts(run: StepList, value: Value) -> bool:
    """Are these positions in a dtype that has them: integers, or counts in a wide one?"""
    maker = run.maker(value)
    wide = value.dtype not in LARGEST_INTEGER
    return "int" in value.dtype or (wide and maker is not None and maker.name in COUNTS)
