"""What two operations of one kind are given besides tensors, held against each other argument by argument.

Arguments may be given by position on one side and by name on the other, and defaults be given or left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fxdebug.operators.names import CONVOLUTIONS

# What is left out is so: what decides what comes out, where switches stand in the order of their arguments.
_POOLED = {"ceil_mode": "False", "count_include_pad": "True"}
DEFAULTS: dict[str, dict[str, str]] = {
    "topk": {"largest": "True"}, "sort": {"descending": "False"}, "argsort": {"descending": "False"},
    "batch_norm": {"training": "False"}, "instance_norm": {"use_input_stats": "True"},
    "dropout": {"training": "True"}, "interpolate": {"align_corners": "False"},
    "grid_sample": {"align_corners": "False"}, "affine_grid": {"align_corners": "False"},
    "var": {"unbiased": "True"}, "std": {"unbiased": "True"}, "avg_pool1d": _POOLED, "avg_pool2d": _POOLED,
    "avg_pool3d": _POOLED, "bucketize": {"right": "False"}, "searchsorted": {"right": "False"},
    "poisson_nll_loss": {"log_input": "True", "full": "False"}, "kl_div": {"log_target": "False"},
}  # fmt: skip

_BOOLEANS = ("True", "False")
_SYNONYMS = {"axis": "dim", "keepdims": "keepdim"}
_NO_EFFECT = frozenset(["inplace", "non_blocking", "memory_format", "sorted", "stable"])  # not what comes out
_SYMMETRIC = frozenset(["transpose", "swapaxes", "swapdims"])  # of two dimensions, whichever comes first


class Constant(NamedTuple):
    """One argument: its name where it is known, its value, and both as text."""

    name: str
    value: str
    text: str

    @property
    def is_void(self) -> bool:
        """Does it say nothing that matters: left out on purpose, or where and how the result is kept?"""
        return self.value == "None" or "torch." in self.value

    @property
    def may_be_default(self) -> bool:
        """May it be a default, which is left out elsewhere?"""
        return self.is_void or self.value in (*_BOOLEANS, "0.0")


def differing_constants(op: str, a: Iterable[str], b: Iterable[str]) -> tuple[list[str], list[str]]:
    """The constants in which two operations differ, as text.

    What only one of them is given may be the default: it counts where nothing else differs.

    >>> other_constants("softmax", ["0.0"], ["dim=-1.0", "dtype=None"])
    (['0.0'], ['dim=-1.0'])
    >>> other_constants("topk", ["8.0"], ["8.0", "-1.0", "False"])
    (['largest=True'], ['largest=False'])
    """
    one, other = _parsed(op, a), _parsed(op, b)
    if op in _SYMMETRIC:
        one, other = sorted(one, key=lambda x: x.value), sorted(other, key=lambda x: x.value)
    if op == "permute" and one != other:
        return [x.text for x in one], [x.text for x in other]
    apart = _differing_by_name(op, one, other) + _differing_by_position(one, other)
    _remove_equal(one, other)
    _remove_equal(other, one)
    apart = apart or _number_against_zero(one, other)
    if apart and op not in CONVOLUTIONS:  # of these, what is usual is not there
        one = other = []
    gone, new = ([x.text for x in side if not x.may_be_default] for side in (one, other))
    return [x.text for x, _ in apart] + gone, [y.text for _, y in apart] + new


def is_relu_clamp(constants: Iterable[str]) -> bool:
    """Does a clamp keep what is above zero, all of it, and nothing else: is it a ReLU?

    >>> [zero_below(x) for x in (["min=0.0"], ["0.0", "None"], ["max=0.0"], ["None", "0.0"], [])]
    [True, True, False, False, False]
    """
    said = _parsed("clamp", constants)
    given = [x for x in said if not x.is_void]
    return len(given) == 1 and given[0].value == "0.0" and given[0] is said[0] and given[0].name in ("", "min")


def _parsed(op: str, constants: Iterable[str]) -> list[Constant]:
    found: list[Constant] = []
    free = [name for name, value in DEFAULTS.get(op, {}).items() if value in _BOOLEANS]
    for text in constants:
        name, given, value = text.partition("=")
        if not given or not name.isidentifier():
            name, value = "", text
        if not name and value in _BOOLEANS and free:
            name = free[0]
            text = f"{name}={value}"
        free = [switch for switch in free if switch != name]
        found.append(Constant(_SYNONYMS.get(name, name), value, text))
    return [x for x in found if not x.name or not (x.is_void or x.name in _NO_EFFECT or x.name.startswith("_"))]


ConstantPairs = list[tuple[Constant, Constant]]


def _differing_by_name(op: str, one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """What both sides name, or have by default, and have otherwise; it is taken out of the two."""
    left, right = ({x.name: x for x in side if x.name} for side in (one, other))
    for name, usual in DEFAULTS.get(op, {}).items():
        for mine, its in ((left, right), (right, left)):
            if name in its:
                mine.setdefault(name, Constant(name, usual, f"{name}={usual}"))
    both = [(left[name], right[name]) for name in left if name in right]
    for x, y in both:
        if x in one:
            one.remove(x)
        if y in other:
            other.remove(y)
    return [(x, y) for x, y in both if _differs(x, y)]


def _differing_by_position(one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """What stands in the same place on both sides and is not the same; it is taken out of the two."""
    left, right = ([x for x in side if not x.name] for side in (one, other))
    if len(left) != len(right):
        left, right = ([x for x in side if not x.is_void] for side in (left, right))
    if len(left) != len(right):
        return []
    one[:], other[:] = ([x for x in side if x.name] for side in (one, other))
    return [(x, y) for x, y in zip(left, right) if _differs(x, y)]


def _remove_equal(one: list[Constant], other: list[Constant]) -> None:
    """Takes out what one side has by position and the other anywhere."""
    for x in [x for x in one if not x.name]:
        same = next((y for y in other if y.value == x.value), None)
        if same is not None:
            one.remove(x)
            other.remove(same)


def _number_against_zero(one: list[Constant], other: list[Constant]) -> ConstantPairs:
    """A zero that one side has by position or by name, where the other has another number the other way."""
    left, right = ([x for x in side if _is_number(x.value)] for side in (one, other))
    if len(left) != 1 or len(right) != 1 or bool(left[0].name) == bool(right[0].name):
        return []
    one.remove(left[0])
    other.remove(right[0])
    return [(left[0], right[0])]


def _differs(a: Constant, b: Constant) -> bool:
    told = a.value != b.value and not (a.is_void and b.is_void)
    return told and not (a.may_be_default and b.may_be_default and (a.is_void or b.is_void))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
