"""Results of which a has something else: times a number, plus a number, or what a function makes of them.

No setting of an operation says so, and the operation that does it may stand anywhere in a, or be a part of another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fxdebug.repair.candidates.variations.other_numbers import NEAR_BY
from fxdebug.repair.candidates.variations.variation import Variation
from fxdebug.repair.rerun.lost_values import LostValues
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, tensors_of

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax over the last dimension": partial(torch.softmax, dim=-1),
    "log_softmax over the last dimension": partial(torch.log_softmax, dim=-1),
    "normalize over the last dimension": partial(functional.normalize, dim=-1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu with approximate='tanh'": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "softplus": functional.softplus,
    "elu": functional.elu,
    "leaky_relu": functional.leaky_relu,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "cumsum over the last dimension": partial(torch.cumsum, dim=-1),
}


def made_from_results(lost: LostValues, name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with its result times a number, or plus one, that makes it a value of a that b has not."""
    made = ran.result
    if not isinstance(made, Tensor) or not made.is_floating_point():
        return
    yield from map(_times, lost.factors(made))
    for term in lost.terms(made):
        told = f"what {{op}} returns is {abs(term):.6g} {'less' if term > 0 else 'more'} than a's values need"
        words = f"{{op}} {'+' if term > 0 else '-'} {abs(term):.6g}"
        beside = tuple([partial(_added, term * by) for by in NEAR_BY])
        yield Variation(told, words, partial(_added, term), "values", beside=beside)


def passed_through(lost: LostValues, name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with a function behind it that makes its result a value of a that b has not."""
    made = ran.result
    if not isinstance(made, Tensor) or not made.is_floating_point():
        return
    for words, function in _FUNCTIONS.items():
        if made.ndim and lost.made_by(function, made):
            told = f"what {{op}} returns is not passed through {words} in b, as a's values are"
            yield Variation(told, f"{words} behind {{op}}", partial(_passed_through, function), "missing")


def _times(factor: float) -> Variation:
    """Return an operation with its result times a number."""
    told = f"what {{op}} returns is {1 / factor:.6g} times what a's values need"
    if factor == -1.0:
        told = "what {op} returns has the other sign than a's values need"
    beside = tuple([partial(_scaled, factor * by) for by in NEAR_BY])
    return Variation(
        told, f"{{op}} with its result times {factor:.6g}", partial(_scaled, factor), "values", beside=beside
    )


def _result(ran: Ran) -> Tensor:
    if not isinstance(ran.result, Tensor) or not ran.result.is_floating_point():
        raise NoEdit
    return ran.result


def _scaled(factor: float, ran: Ran) -> Any:
    return _result(ran) * factor


def _added(term: float, ran: Ran) -> Any:
    return _result(ran) + term


def _passed_through(function: Callable[[Tensor], Tensor], ran: Ran) -> Any:
    return function(_result(ran))


def left_out(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation left out: what it is given goes on as it is."""
    made, given = ran.result, tensors_of(ran)
    if not isinstance(made, Tensor) or not made.is_floating_point():
        return
    fits = [at for at, x in enumerate(given) if x.shape == made.shape and x.dtype == made.dtype]
    for at in fits:
        which = f" behind operand {at + 1}" if len(fits) > 1 else ""
        alone = f": a's values need its operand {at + 1} alone" if len(fits) > 1 else ""
        told = f"{{op}} has no counterpart in a{alone}"
        yield Variation(told, f"{{op}} left out{which}", partial(_left_out, at), "extra")


def _left_out(at: int, ran: Ran) -> Any:
    given = tensors_of(ran)
    if at >= len(given) or given[at].shape != ran.result.shape:
        raise NoEdit
    return given[at]


KNOWN_FACTORS = (math.pi, 2 * math.pi, 2.0, math.e, math.sqrt(2), math.log(2), math.log(10))


def known_factors(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield a product or quotient with its result times a number that is often forgotten, or divided by it."""
    has_number = any(type(each) in (int, float) for each in ran.args)  # which is tried with those of a
    if name not in ("mul", "div") or has_number or not isinstance(ran.result, Tensor):
        return
    if not ran.result.is_floating_point():
        return
    width = ran.result.shape[-1] if ran.result.ndim else 1
    roots = (math.sqrt(width), float(width)) if width > 1 else ()
    for number in dict.fromkeys((*KNOWN_FACTORS, *roots)):
        for factor in (1 / number, number):
            yield _times(factor)
