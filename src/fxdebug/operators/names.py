"""What operations are called, so that two ways of writing the same one are recognised.

``x + y``, ``torch.add(x, y)``, ``x.add_(y)`` and ``y.__radd__(x)`` are one operation here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

_SYNONYMS = {
    "iadd": "add", "radd": "add", "isub": "sub", "subtract": "sub", "imul": "mul", "rmul": "mul", "multiply": "mul",
    "truediv": "div", "itruediv": "div", "rtruediv": "rdiv", "divide": "div", "true_divide": "div",
    "negative": "neg", "ipow": "pow", "imatmul": "matmul", "rmatmul": "matmul",
    "mm": "matmul", "bmm": "matmul", "floordiv": "floor_divide", "absolute": "abs", "special_expit": "sigmoid",
    "expit": "sigmoid", "special_softmax": "softmax", "special_log_softmax": "log_softmax",
    "logical_and": "and", "bitwise_and": "and", "iand": "and", "logical_or": "or", "bitwise_or": "or", "ior": "or",
    "logical_not": "not", "bitwise_not": "not", "invert": "not", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "not_equal": "ne", "concat": "cat", "concatenate": "cat", "amax": "max",
    "amin": "min", "clip": "clamp", "square": "pow",
}  # fmt: skip


# They change where elements lie, or how they are stored, but not what they are.
TRANSPARENT = frozenset(
    """view reshape transpose permute contiguous flatten unflatten squeeze unsqueeze t T mT adjoint expand expand_as
    to type type_as float half bfloat16 double clone detach alias view_as
    reshape_as movedim moveaxis swapaxes swapdims requires_grad identity getattr data ravel resolve_conj pin_memory
    cpu cuda ensure_contiguous rearrange checkpoint_name lift_fresh""".split()
)

NORMS = frozenset(["layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "normalize"])


# Where the order of the operands does not matter.
COMMUTATIVE = frozenset(["add", "mul", "and", "or", "eq", "ne", "maximum", "minimum"])


# The same elements in another order, which matters.
REORDERING = frozenset(
    ["flip", "fliplr", "flipud", "roll", "rot90", "sort", "getitem", "gather", "take", "index_select"]
)


# Their result is whatever was in that memory.
UNINITIALISED = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"])


# They choose by comparing.
BY_RANK = frozenset(["topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "msort"])

ACTIVATIONS = frozenset(
    "gelu silu relu relu6 leaky_relu elu selu celu tanh sigmoid softplus hardswish hardsigmoid mish glu".split()
)


# Constants come to be by them.
FACTORIES = frozenset(
    "tensor zeros ones full empty arange eye linspace zeros_like ones_like full_like new_zeros new_ones new_full "
    "as_tensor scalar_tensor".split()
)


# They hold elements of what they are given, some of them more than once.
COPYING = frozenset(["repeat", "repeat_interleave", "expand", "tile", "broadcast_to", "stack", "cat"])


# Views that change the order in which elements are met.
REORDERING_VIEWS = frozenset(
    "transpose permute t T mT movedim moveaxis swapaxes swapdims adjoint getattr repeat repeat_interleave tile".split()
)


# They take rows out of a table.
LOOKUPS = frozenset(["embedding", "index_select", "gather", "take"])

REPEATING = COPYING - {"cat", "stack"}


# They take a part of a value: what they give is wrong only if what they take it from is in another order.
SLICES = frozenset(["getitem", "chunk", "split", "unbind", "narrow", "select", "tensor_split", "split_with_sizes"])


# Linear in what they are given: an error cannot grow by more than the operands' sum.
SUMS = frozenset(["add", "sub", "rsub", "mean", "sum", "cat", "stack", "where"])


# A product of a value with weights, however it is spelled.
_PRODUCTS = frozenset(
    [
        "linear",
        "addmm",
        "matmul",
        "baddbmm",
        "einsum",
        "grouped_mm",
        "_grouped_mm",
        "conv1d",
        "addbmm",
        "addmv",
        "mv",
        "tensordot",
    ]
)


# Products of two values to which a third, given first, is added.
BIAS_FIRST = frozenset(["baddbmm", "addbmm"])

RANDOM = frozenset(
    """rand randn rand_like randn_like randint randint_like randperm bernoulli multinomial normal uniform exponential
    cauchy geometric log_normal random dropout feature_dropout alpha_dropout dropout2d dropout3d rrelu
    gumbel_softmax poisson""".split()
)


# What a fused operation does, step by step: so that "the scale is missing" can be told of a fused one and a plain one.
STEPS_OF = {
    "scaled_dot_product_attention": ("matmul", "mul", "softmax", "matmul"),
    "masked scaled_dot_product_attention": ("matmul", "mul", "add", "softmax", "matmul"),
    "layer_norm": ("mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul", "add"),
    "rms_norm": ("pow", "mean", "add", "rsqrt", "mul", "mul"),
    "batch_norm": ("sub", "add", "rsqrt", "mul", "mul", "add"),
    "group_norm": ("mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul", "add"),
    "silu": ("sigmoid", "mul"),
    "addmm": ("matmul",),
    "linear": ("matmul",),
    "einsum": ("matmul",),
    "grouped_mm": ("matmul",),
    "baddbmm": ("matmul", "mul", "add"),
    "conv1d": ("matmul",),
    "addcmul": ("mul", "add"),
}


# Different operations in one role: a scale, a mask, a square.
_ROLES = {
    "div": "mul", "where": "add", "masked_fill": "add", "sub": "add", "rsub": "add", "sqrt": "rsqrt",
    "rdiv": "div",
}  # fmt: skip


def role(name: str) -> str:
    """What an operation stands for in a longer computation.

    >>> role("div"), role("masked_fill"), role("softmax")
    ('mul', 'add', 'softmax')
    """
    return _ROLES.get(name, name)


def canonical(name: str) -> str:
    """The one name of an operation.

    >>> [canonical(name) for name in ("add_", "__radd__", "iadd", "bmm", "special_expit", "gelu")]
    ['add', 'add', 'add', 'matmul', 'sigmoid', 'gelu']
    """
    plain = name.strip("_") or name
    return _SYNONYMS.get(plain, plain)


_OPS_OF_MODULES = {"linear": "linear", "conv1d": "linear", "layernorm": "layer_norm", "embedding": "embedding"}


def op_of_module(type: str) -> str:
    """A call of a module as an operation: what its class says that it does.

    >>> called("LayerNorm"), called("LlamaRMSNorm"), called("BertSelfAttention")
    ('layer_norm', 'rms_norm', 'BertSelfAttention')
    """
    plain = type.lower()
    if plain.endswith("rmsnorm"):
        return "rms_norm"
    if plain.endswith(("gelu", "geluactivation")):
        return "gelu"
    return _OPS_OF_MODULES.get(plain, type)


_FAMILIES = {"relu": "clamp"}  # at zero, from below


def family(name: str) -> str:
    """A coarser name: what may stand for what in another implementation (``linear`` for ``addmm``)."""
    return "product" if name in _PRODUCTS else _FAMILIES.get(name, name)


def normalized_constants(constants: Iterable[str]) -> Counter[str]:
    """What constants say, however they are spelled: by position or by name, defaults given or left out.

    >>> settings(["dim=-1.0", "dtype=None"]) == settings(["-1.0"])
    True
    """
    said = [constant for constant in constants if not constant.startswith("_")]
    plain = [constant.rpartition("=")[2] if "=" in constant else constant for constant in said]
    return Counter(text for text in plain if text not in ("None", "False", "True", "0.0") and "torch." not in text)


CONVOLUTIONS = frozenset(["conv1d", "conv2d", "conv3d"])
_CONVOLUTION_DEFAULTS = {
    "stride": "1",
    "padding": "0",
    "dilation": "1",
    "groups": "1",
}  # in the order of their arguments


def convolution_arguments(constants: Iterable[str]) -> tuple[str, ...]:
    """What is said of a convolution by position or name, for each dimension or for all, without what is usual.

    >>> convolved(["(2, 2)", "[1, 1]", "(1, 1)", "1"]), convolved(["None", "padding=1.0", "stride=2"])
    (('stride=2', 'padding=1'), ('stride=2', 'padding=1'))
    """
    said: dict[str, str] = {}
    free = list(_CONVOLUTION_DEFAULTS)
    for text in constants:
        name, _, value = text.rpartition("=")
        parts = [part.strip().removesuffix(".0") for part in value.strip("()[] ").split(",") if part.strip()]
        plain = parts[0] if len(set(parts)) == 1 else value
        if name in _CONVOLUTION_DEFAULTS:
            said[name] = plain
        elif not name and plain != "None" and free:
            said[free.pop(0)] = plain
    return tuple(
        [f"{name}={said[name]}" for name, usual in _CONVOLUTION_DEFAULTS.items() if said.get(name, usual) != usual]
    )


def normalized_constant(constant: str) -> str:
    """A constant as it is compared: ``1e-05`` and ``0.00001`` are one."""
    try:
        number = float(constant)
    except ValueError:
        return constant
    return constant if math.isnan(number) else repr(number)
