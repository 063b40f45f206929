"""Operations that compute attention: the names of their arguments, and the way from a softmax to its product."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E")

FUSED: Final = "scaled_dot_product_attention"
MULTI_HEAD: Final = "multi_head_attention_forward"
SOFTMAX: Final = "softmax"
ATTENTIONS = frozenset([FUSED, MULTI_HEAD, SOFTMAX])

# The parameters of the two functions, in their order.
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    FUSED: ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"),
    MULTI_HEAD: (
        "query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k",
        "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight", "out_proj_bias", "training", "key_padding_mask",
        "need_weights", "attn_mask", "use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight",
        "static_k", "static_v", "average_attn_weights", "is_causal",
    ),
}  # fmt: skip

# Operations between a softmax and the product with the values. The first ones change no weight.
_SAME_WEIGHTS = frozenset("dropout view reshape to type type_as float half bfloat16 contiguous clone identity".split())
_OTHER_WEIGHTS = frozenset("getitem mul div masked_fill where nan_to_num detach expand".split())
_OF_OUTPUTS = frozenset("transpose permute view reshape contiguous to type type_as flatten dropout getitem".split())
PRODUCTS = frozenset(["matmul", "einsum", "baddbmm"])
LINEAR = frozenset(["linear", "addmm", "matmul"])


def bound(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of one of the two functions by the names of its parameters.

    >>> bound("scaled_dot_product_attention", ("q", "k", "v"), {"scale": 0.5})
    {'query': 'q', 'key': 'k', 'value': 'v', 'scale': 0.5}
    """
    return dict(zip(PARAMETERS[name], args)) | dict(kwargs)


@dataclass(frozen=True, slots=True)
class WeightedSum(Generic[T]):
    """A product of attention weights with values; ``weights`` are those of the softmax, ``used`` those multiplied."""

    weights: T
    used: T
    values: T
    dropped: bool  # dropout lies between


class SoftmaxFlow(Generic[T]):
    """Follows the results of softmax to the product with the values: attention that is written out.

    ``same`` tells whether two tensors are one, ``shape`` returns the sizes of one. At most eight results are followed
    at a time, so nothing is kept alive for long.
    """

    def __init__(self, same: Callable[[T, T], bool], shape: Callable[[T], tuple[int, ...]]) -> None:
        self._same, self._shape = same, shape
        self._open: deque[tuple[T, T, bool]] = deque(maxlen=8)  # the present form, the weights, dropped

    def step(self, name: str, args: Sequence[Any], operands: Iterable[T], result: T) -> WeightedSum[T] | None:
        """Look at one operation; return the weighted sum that it computes, if it does.

        ``name`` is canonical, ``args`` are all arguments, ``operands`` the tensors among them.
        """
        given = list(operands)
        if name == SOFTMAX:
            if len(self._shape(result)) > 2 and _is_last(args, len(self._shape(result))):
                self._open.append((result, result, False))
            return None
        if name in PRODUCTS:
            return self._product(name, args, given, result)
        if name in _SAME_WEIGHTS | _OTHER_WEIGHTS and given:
            known = self._find(given[0])
            if known is not None and not self._same(result, known[0]):
                shape, before = self._shape(result), self._shape(known[1])
                kept = name in _SAME_WEIGHTS and (len(before) == 4 or len(shape) < 4)
                self._open.append((result, known[1] if kept else result, known[2] or name == "dropout"))
        return None

    def _product(self, name: str, args: Sequence[Any], given: list[T], result: T) -> WeightedSum[T] | None:
        for position, tensor in enumerate(given[:3]):
            known = self._find(tensor)
            if known is None or position + 1 >= len(given) or (name == "baddbmm" and not position):
                continue
            if name == "einsum" and not _sums_last(args, position):
                continue
            keys, others = self._shape(tensor)[-1], self._shape(given[position + 1])
            if name != "einsum" and (len(others) < 2 or others[-2] != keys):
                continue
            _forget(self._open, known)
            return WeightedSum(known[1], tensor, given[position + 1], known[2])
        return None

    def _find(self, tensor: T) -> tuple[T, T, bool] | None:
        for entry in reversed(self._open):
            if self._same(entry[0], tensor):
                return entry
        return None


def _is_last(args: Sequence[Any], dims: int) -> bool:
    """Is a softmax over the last dimension, as far as its arguments tell?"""
    chosen = next((arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)), -1)
    return chosen in (-1, dims - 1)


def _sums_last(args: Sequence[Any], position: int) -> bool:
    """Does an einsum sum over the last letter of an operand, and keep the one before it?"""
    equation = next((arg for arg in args if isinstance(arg, str)), "")
    terms, arrow, kept = equation.replace(" ", "").partition("->")
    parts = terms.split(",")
    if not arrow or position >= len(parts) or len(parts[position]) < 2:
        return False
    return parts[position][-1] not in kept and parts[position][-2] in kept


class OutputFlow(Generic[T]):
    """Follows what attentions return to the linear layer that takes all heads together, their output projection."""

    def __init__(self, same: Callable[[T, T], bool]) -> None:
        self._same = same
        self._open: deque[tuple[T, int]] = deque(maxlen=8)

    def begin(self, output: T, attention: int) -> None:
        """Follow the output of an attention; ``attention`` is its number."""
        self._open.append((output, attention))

    def step(self, name: str, operands: Sequence[T], result: T) -> int | None:
        """Return the number of the attention that a linear layer takes as its input, else ``None``."""
        for tensor in operands[:2]:
            entry = next((entry for entry in reversed(self._open) if self._same(entry[0], tensor)), None)
            if entry is not None:
                if name in LINEAR:
                    _forget(self._open, entry)
                    return entry[1]
                if name in _OF_OUTPUTS:
                    self._open.append((result, entry[1]))
                return None
        return None


def _forget(entries: deque[E], entry: E) -> None:
    """Remove an entry, by identity: tensors cannot be compared as a whole."""
    kept = [other for other in entries if other is not entry]
    entries.clear()
    entries.extend(kept)
