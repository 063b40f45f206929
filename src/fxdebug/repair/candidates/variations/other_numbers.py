"""Operations with one of their settings replaced: a number, a dimension, a mode in words, a switch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.comparison.constants import BY_POSITION, DEFAULTS
from fxdebug.operators.names import ACTIVATIONS, NORMS
from fxdebug.repair.candidates.variations.variation import NEEDED, Change, Variation, with_operand
from fxdebug.repair.rerun.replaced_operations import Ran
from fxdebug.repair.trials.edits_of_operations import NoEdit, tensors_of


def other_modes(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with one of its switches turned, or another mode in words."""
    for label, value, make in _settings(name, ran):
        if type(value) in (bool, str):
            yield from _others(label, value, ran, numbers, make)


def other_settings(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield an operation with one of its numbers or dimensions replaced by another."""
    for label, value, make in _settings(name, ran):
        if type(value) not in (bool, str):
            yield from _others(label, value, ran, numbers, make)


def _settings(name: str, ran: Ran) -> Iterator[tuple[str, Any, Callable[[Any], Change]]]:
    """Yield what an operation is given that is no tensor: its name, its value, and what replaces it."""
    named = iter(BY_POSITION.get(name, ()))
    for at, value in enumerate(ran.args):
        if at and not isinstance(value, Tensor):
            label = next(named, "")
            if name in _OF_DIMENSIONS or (type(value) is bool and name in _WRITING):
                continue
            yield label, value, partial(_with_argument, at)
    for key, value in ran.kwargs.items():
        if not isinstance(value, Tensor) and key not in _WRITES:
            yield key, value, partial(_with_keyword, key)


def _others(
    label: str, value: Any, ran: Ran, numbers: Sequence[float], make: Callable[[Any], Change]
) -> Iterator[Variation]:
    for new in _values(label, value, ran, numbers):
        near: list[float] = []
        if float in (type(new), type(value)):
            near = [new * by for by in NEAR_BY]
        elif type(new) is int and label not in _DIMENSIONS:
            steps = (1, 2) if label == "exponent" else (1,)  # even and odd ones differ in the sign of what they return
            near = [each for step in steps for each in (new - step, new + step) if each != value]
        yield replace(_setting(label, value, new, make(new)), beside=tuple(map(make, near)))


def _setting(label: str, value: Any, new: Any, change: Change) -> Variation:
    was, better = (f"{label}={_text(each)}" if label else _text(each) for each in (value, new))
    return Variation(f"{was}{NEEDED}{better}", f"{{op}} with {better}", change, "constant")


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _values(label: str, value: Any, ran: Ran, numbers: Sequence[float]) -> Iterator[Any]:
    """Yield other values of a setting."""
    dims = max((each.ndim for each in tensors_of(ran)), default=0)
    if type(value) is bool:
        yield not value
    elif type(value) is str:
        known = next((group for group in _WORDS if value in group), ())
        yield from (word for word in known if word != value)
    elif type(value) is int and label in _DIMENSIONS:
        yield from (dim for dim in range(-dims, 0) if dims and dim % dims != value % dims)
    elif type(value) is int:
        whole = [int(number) for number in numbers if number == int(number)]
        turned = () if label == "exponent" else (-value,)  # nobody writes 1 / x² by mistake
        yield from dict.fromkeys(new for new in (value + 1, value - 1, *turned, *whole) if new != value)
    elif type(value) is float and math.isfinite(value):
        scaled = [new for number in numbers if number not in (0.0, 1.0) for new in (value / number, value * number)]
        yield from dict.fromkeys(new for new in (*numbers, *scaled, -value) if new != value)
    elif type(value) in (list, tuple) and 1 < len(value) <= MOST_IN_LIST and all(type(x) is int for x in value):
        yield from _lists(label, list(value), dims)


def _lists(label: str, value: list[int], dims: int) -> Iterator[list[int]]:
    """Yield other dimensions, or the numbers of a list in another order, or all with the other sign."""
    if label in _DIMENSIONS:
        others = itertools.combinations(range(dims), len(value))
        yield from (list(new) for new in others if dims and {*new} != {each % dims for each in value})
        return
    known = [[-each for each in value], *map(list, itertools.permutations(value))]
    yield from (list(new) for new in dict.fromkeys(map(tuple, known)) if list(new) != value)


_OF_DIMENSIONS = frozenset("getitem transpose permute swapaxes swapdims movedim moveaxis view reshape".split())
_WRITES = frozenset(["inplace", "out", "training", "train", "use_input_stats", "momentum"])  # into what it is given
_WRITING = NORMS | ACTIVATIONS | frozenset(["hardtanh", "threshold", "prelu"])  # by a switch without a name
_SWITCHES = {"scaled_dot_product_attention": {"is_causal": "False"}}
NEAR_BY = (1.25, 0.8)  # a number that is meant is not to be replaced by one that is a quarter larger or smaller
MOST_IN_LIST = 4  # numbers that are put into other orders
_DIMENSIONS = frozenset(["dim", "dims", "axis"])
_WORDS = (
    ("none", "tanh"),
    ("zeros", "border", "reflection"),
    ("constant", "reflect", "replicate", "circular"),
    ("nearest", "nearest-exact", "bilinear", "bicubic", "linear", "area"),
    ("sum", "mean", "prod", "amax", "amin"),
    ("floor", "trunc"),
    ("ij", "xy"),
)


def other_switches(name: str, ran: Ran, numbers: Sequence[float] = ()) -> Iterator[Variation]:
    """Yield an operation with a switch that it was not given turned from its default."""
    for key, default in {**DEFAULTS.get(name, {}), **_SWITCHES.get(name, {})}.items():
        if (
            key in ran.kwargs
            or key in _WRITES
            or default not in ("True", "False")
            or any(type(each) is bool for each in ran.args)
        ):
            continue
        if key == "unbiased" and "correction" in ran.kwargs:
            continue
        new = default == "False"
        yield _setting(key, not new, new, _with_keyword(key, new))


def scaled_numbers(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield a product or quotient with its number scaled, by as much at each place: a factor that is missing."""
    if name not in ("mul", "div") or len(ran.args) != 2:
        return
    at = next((at for at, each in enumerate(ran.args) if type(each) in (int, float)), None)
    value = 0.0 if at is None else float(ran.args[at])
    if at is None or not value or not math.isfinite(value):
        return
    for factor in dict.fromkeys(number / value for number in numbers):
        if factor not in (0.0, 1.0):
            make = partial(_scaled, at)
            told = f"{_text(value)}{NEEDED}{_text(value * factor)}, {_text(factor)} times as much"
            beside = tuple([make(factor * by) for by in NEAR_BY])
            words = f"{{op}} with {_text(factor)} times its number"
            yield Variation(told, words, make(factor), "constant", beside=beside, of_number=True)


def numbers_in_tensors(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield an operation with a number of the other run in the place of one that it is given as a tensor."""
    for at, tensor in enumerate(tensors_of(ran)):
        if tensor.numel() != 1 or not tensor.is_floating_point() or isinstance(tensor, nn.Parameter):
            continue
        value = tensor.item()
        for number in numbers:
            if number != value:
                make = partial(partial, with_operand, at)
                beside = tuple([make(partial(torch.full_like, fill_value=number * by)) for by in NEAR_BY])
                told = f"{_text(value)}{NEEDED}{_text(number)}"
                change = make(partial(torch.full_like, fill_value=number))
                yield Variation(told, f"{{op}} with {_text(number)}", change, "constant", beside=beside)


def _scaled(at: int, factor: float) -> Change:
    def change(ran: Ran) -> Any:
        if type(ran.args[at]) not in (int, float):
            raise NoEdit
        return ran.function(*ran.args[:at], ran.args[at] * factor, *ran.args[at + 1 :], **ran.kwargs)

    return change


_NUMBERS: dict[str, tuple[str, type]] = {  # of which an operation has a default, and some the size of their result
    **dict.fromkeys(["fft_irfft", "fft_rfft", "fft_fft", "fft_ifft"], ("n", int)), "istft": ("length", int),
    "pad": ("value", float), "leaky_relu": ("negative_slope", float), "elu": ("alpha", float),
    "softplus": ("beta", float),
}  # fmt: skip


def given_numbers(name: str, ran: Ran, numbers: Sequence[float]) -> Iterator[Variation]:
    """Yield an operation with a number of the other run that it is not given, in the place of its default."""
    key, kind = _NUMBERS.get(name, ("", float))
    if not key or ran.kwargs.get(key) is not None or len(ran.args) > (3 if name == "pad" else 1):
        return
    for number in numbers:
        if kind(number) == number:
            near = (number + 1, number - 1) if kind is int else [number * by for by in NEAR_BY]
            told = f"{key} is not given{NEEDED}{_text(kind(number))}"
            beside = tuple([_with_keyword(key, kind(each)) for each in near])
            change = _with_keyword(key, kind(number))
            words = f"{{op}} with {key}={_text(kind(number))}"
            yield Variation(told, words, change, "constant", beside=beside, resizes=kind is int)


def _with_argument(at: int, new: Any) -> Change:
    return lambda ran: ran.function(*ran.args[:at], new, *ran.args[at + 1 :], **ran.kwargs)


def _with_keyword(key: str, new: Any) -> Change:
    return lambda ran: ran.function(*ran.args, **{**ran.kwargs, key: new})
