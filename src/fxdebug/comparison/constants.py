"""Compare the constants (non-tensor arguments) of two operations of one kind, one by one.

One side may pass an argument by position and the other by name; defaults may be passed or left out.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from fxdebug.operators.names import CONVOLUTIONS

# Defaults of arguments that change the result. Switches stand in the order in which they are passed by position.
_POOLED = {"ceil_mode": "False", "count_include_pad": "True"}
DEFAULTS: dict[str, dict[str, str]] = {
    "topk": {"largest": "True"}, "sort": {"descending": "False"}, "argsort": {"descending": "False"},
    "batch_norm": {"training": "False"}, "instance_norm": {"use_input_stats": "True"},
    "dropout": {"training": "True"}, "interpolate": {"align_corners": "False"},
    "grid_sample": {"align_corners": "False"}, "affine_grid": {"align_corners": "False"},
    "var": {"unbiased": "True"}, "std": {"unbiased": "True"}, "avg_pool1d": _POOLED, "avg_pool2d": _POOLED,
    "avg_pool3d": _POOLED, "bucketize": {"right": "False"}, "searchsorted": {"right": "False"},
    "gelu": {"approximate": "'none'"},
    "poisson_nll_loss": {"log_input": "True", "full": "False"}, "kl_div": {"log_target": "False"},
}  # fmt: skip

# Names of the first arguments that are no tensors, as torch has them, for what is given by position.
_DIM = ("dim",)
BY_POSITION: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ["softmax", "log_softmax", "softmin", "cumsum", "cumprod", "logsumexp", "sum", "mean", "amax", "amin", "argmax",
         "argmin", "sort", "argsort", "gather", "index_select", "take_along_dim", "glu"], _DIM,
    ),
    "group_norm": ("num_groups",), "layer_norm": ("normalized_shape",), "rms_norm": ("normalized_shape",),
    "leaky_relu": ("negative_slope",), "elu": ("alpha",), "celu": ("alpha",), "softplus": ("beta", "threshold"),
    "pixel_shuffle": ("upscale_factor",), "pixel_unshuffle": ("downscale_factor",), "topk": ("k", "dim"),
    "repeat_interleave": ("repeats", "dim"), "roll": ("shifts", "dims"), "flip": ("dims",), "masked_fill": ("value",),
    "pow": ("exponent",), "pad": ("pad",), "tril": ("diagonal",), "triu": ("diagonal",),
}  # fmt: skip

_BOOLEANS = ("True", "False")
_SYNONYMS = {"axis": "dim", "keepdims": "keepdim"}


# Arguments without an effect on the elements of the result.
_NO_EFFECT = frozenset(
    "inplace non_blocking memory_format sorted stable device layout pin_memory requires_grad".split()
)
SYMMETRIC = frozenset(["transpose", "swapaxes", "swapdims"])  # the order of their two dimensions does not matter


class Constant(NamedTuple):
    """An argument: its name (empty where it is unknown), its value, and its text in the trace."""

    name: str
    value: str
    text: str

    @property
    def is_void(self) -> bool:
        """Has it no effect on the elements: is it ``None``, or a dtype, device or layout of the result?"""
        return self.value == "None" or "torch." in self.value

    @property
    def may_be_default(self) -> bool:
        """May it be a default that the other side leaves out?"""
        return self.is_void or self.value in (*_BOOLEANS, "0.0")


def differing_constants(op: str, a: Iterable[str], b: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the constants in which two operations differ, as text: those of a, those of b.

    An argument that only one of them is given may be a default: it counts only where nothing else differs.

    >>> differing_constants("softmax", ["0.0"], ["dim=-1.0", "dtype=None"])
    (['dim=0'], ['dim=-1'])
    >>> differing_constants("mean", ["(-1,)"], ["-1.0"]), differing_constants("mean", ["[1, 2]"], ["1.0"])
    (([], []), (['dim=[1, 2]'], ['dim=1']))
    >>> differing_constants("topk", ["8.0"], ["8.0", "-1.0", "False"])
    (['largest=True'], ['largest=False'])
    """
    one, other = _parsed(op, a), _parsed(op, b)
    if op in SYMMETRIC:
        one, other = sorted(one, key=lambda x: x.value), sorted(other, key=lambda x: x.value)
    if op == "permute" and one != other:
        return as_written(*[x.text for x in one]), as_written(*[x.text for x in other])
    different = _differing_by_name(op, one, other) + _differing_by_position(one, other)
    _remove_equal(one, other)
    _remove_equal(other, one)
    different = different or _number_by_position_and_name(one, other)
    if different and op not in CONVOLUTIONS:  # defaults were removed from their constants before
        one = other = []
    gone, new = ([x.text for x in side if not x.may_be_default] for side in (one, other))
    texts = [x.text for x, _ in different] + gone, [y.text for _, y in different] + new
    return as_written(*texts[0]), as_written(*texts[1])


def as_written(*constants: str) -> list[str]:
    """Return constants for display: whole numbers as integers, although they are compared as floats.

    >>> as_written("dim=-1.0", "(2.0, 0.5)", "1.0e-05")
    ['dim=-1', '(2, 0.5)', '1.0e-05']
    """
    return [re.sub(r"(?<![\w.])(-?\d+)\.0(?![\w.])", r"\1", text) for text in constants]


def is_relu_clamp(constants: Iterable[str]) -> bool:
    """Is a clamp with these constants a ReLU: does it have the lower bound zero and no upper one?

    >>> [is_relu_clamp(x) for x in (["min=0.0"], ["0.0", "None"], ["max=0.0"], ["None", "0.0"], [])]
    [True, True, False, False, False]
    """
    arguments = _parsed("clamp", constants)
    bounds = [x for x in arguments if not x.is_void]
    return len(bounds) == 1 and bounds[0].value == "0.0" and bounds[0] is arguments[0] and bounds[0].name in ("", "min")


def _parsed(op: str, constants: Iterable[str]) -> list[Constant]:
    parsed: list[Constant] = []
    named = iter(BY_POSITION.get(op, ()))
    free = [name for name, value in DEFAULTS.get(op, {}).items() if value in _BOOLEANS]
    for text in constants:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            name, value = "", text
            text = "=".join([*itertools.islice(named, 1), value])
        if not name and value in _BOOLEANS and free:
            name = free[0]
            text = f"{name}={value}"
        free = [switch for switch in free if switch != name]
        alone = re.fullmatch(r"[(\[](-?\d+),?[)\]]", value)
        value = repr(float(alone[1])) if alone else value  # one dimension, alone or in a list
        parsed.append(Constant(_SYNONYMS.get(name, name), value, text))
    return [x for x in parsed if not x.name or not (x.is_void or x.name in _NO_EFFECT or x.name.startswith("_"))]


ConstantPairs = list[tuple[Constant, Constant]]


def _differing_by_name(op: str, one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """Remove the arguments that both sides give by name or have as default; return the pairs that differ."""
    left, right = ({x.name: x for x in side if x.name} for side in (one, other))
    for name, default in DEFAULTS.get(op, {}).items():
        for side, opposite in ((left, right), (right, left)):
            if name in opposite:
                side.setdefault(name, Constant(name, default, f"{name}={default}"))
    both = [(left[name], right[name]) for name in left if name in right]
    for x, y in both:
        if x in one:
            one.remove(x)
        if y in other:
            other.remove(y)
    return [(x, y) for x, y in both if _differs(x, y)]


def _differing_by_position(one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """Remove the positional arguments of both sides, if they are equally many; return the pairs that differ."""
    left, right = ([x for x in side if not x.name] for side in (one, other))
    if len(left) != len(right):
        left, right = ([x for x in side if not x.is_void] for side in (left, right))
    if len(left) != len(right):
        return []
    one[:], other[:] = ([x for x in side if x.name] for side in (one, other))
    return [(x, y) for x, y in zip(left, right) if _differs(x, y)]


def _remove_equal(one: list[Constant], other: list[Constant]) -> None:
    """Remove from both sides each positional argument of ``one`` whose value ``other`` has too."""
    for x in [x for x in one if not x.name]:
        same = next((y for y in other if y.value == x.value), None)
        if same is not None:
            one.remove(x)
            other.remove(same)


def _number_by_position_and_name(one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """Remove and return the two numbers where each side has just one: one side by position, the other by name."""
    left, right = ([x for x in side if number_in(x.value) is not None] for side in (one, other))
    if len(left) != 1 or len(right) != 1 or bool(left[0].name) == bool(right[0].name):
        return []
    one.remove(left[0])
    other.remove(right[0])
    return [(left[0], right[0])]


def _differs(a: Constant, b: Constant) -> bool:
    differs = a.value != b.value and not (a.is_void and b.is_void)
    return differs and not (a.may_be_default and b.may_be_default and (a.is_void or b.is_void))


def number_in(text: str) -> float | None:
    """Return the number that the text of a constant is; ``None`` for any other text.

    >>> number_in("0.5"), number_in("None")
    (0.5, None)
    """
    try:
        return float(text)
    except ValueError:
        return None
