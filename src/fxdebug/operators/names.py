"""The names of operations and of their constants in one canonical form, and sets of operations that compare alike.

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


# Operations that change the order or the storage of elements, not the elements.
TRANSPARENT = frozenset(
    """view reshape transpose permute contiguous flatten unflatten squeeze unsqueeze t T mT adjoint expand expand_as
    to type type_as float half bfloat16 double clone detach alias view_as
    reshape_as movedim moveaxis swapaxes swapdims requires_grad identity getattr data ravel resolve_conj pin_memory
    cpu cuda ensure_contiguous rearrange checkpoint_name lift_fresh""".split()
)

SOFTMAXES = frozenset(["softmax", "log_softmax"])
NORMS = frozenset(["layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "normalize"])


# Operations for which the order of the operands does not matter.
COMMUTATIVE = frozenset(["add", "mul", "and", "or", "eq", "ne", "maximum", "minimum"])


# Operations whose result has the same elements in another order, or a part of them.
REORDERING = frozenset(
    ["flip", "fliplr", "flipud", "roll", "rot90", "sort", "getitem", "gather", "take", "index_select"]
)


# Operations whose result is uninitialised memory.
UNINITIALISED = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"])


# Operations that select elements or indices by comparing: near ties can go either way.
BY_RANK = frozenset(["topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "msort"])

ACTIVATIONS = frozenset(
    "gelu silu relu relu6 leaky_relu elu selu celu tanh sigmoid softplus hardswish hardsigmoid mish glu".split()
)


# Operations that make constants.
FACTORIES = frozenset(
    "tensor zeros ones full empty arange eye linspace zeros_like ones_like full_like new_zeros new_ones new_full "
    "as_tensor scalar_tensor".split()
)


# The gates of recurrent operations, in the order in which torch keeps their weights.
GATES = {"gru": "rzn", "lstm": "ifgo"}


# Operations that make positions.
COUNTS = frozenset(["arange", "cumsum", "range", "linspace"])


# Operations whose result consists of elements of the inputs, some of them several times.
COPYING = frozenset(["repeat", "repeat_interleave", "expand", "tile", "broadcast_to", "stack", "cat"])


# Views, and copies, that change the order of elements.
REORDERING_VIEWS = frozenset(
    "transpose permute t T mT movedim moveaxis swapaxes swapdims adjoint getattr repeat repeat_interleave tile".split()
)


# Operations that take rows from a table.
LOOKUPS = frozenset(["embedding", "index_select", "gather", "take"])

# Operations that take the elements at given indices, and those that put elements there.
PICKING = frozenset(["getitem", "index_select", "gather", "take", "take_along_dim", "masked_select", "index"])
PUTTING_BACK = frozenset(
    "index_add scatter scatter_add scatter_reduce index_put index_copy setitem put masked_scatter".split()
)

REPEATING = COPYING - {"cat", "stack"}


# Operations that take a part of a value: another order of the value gives another part.
SLICES = frozenset(["getitem", "chunk", "split", "unbind", "narrow", "select", "tensor_split", "split_with_sizes"])


# Linear operations: an error cannot grow beyond the sum of the inputs' errors.
SUMS = frozenset(["add", "sub", "rsub", "mean", "sum", "cat", "stack", "where"])


# A product of a value with weights, in any spelling.
_PRODUCTS = frozenset(
    "linear addmm matmul baddbmm einsum grouped_mm _grouped_mm conv1d addbmm addmv mv tensordot".split()
)


# Operations that add the product of the second and third operand to the first.
BIAS_FIRST = frozenset(["baddbmm", "addbmm"])

RANDOM = frozenset(
    """rand randn rand_like randn_like randint randint_like randperm bernoulli multinomial normal uniform exponential
    cauchy geometric log_normal random dropout feature_dropout alpha_dropout dropout1d dropout2d dropout3d rrelu
    feature_alpha_dropout gumbel_softmax poisson""".split()
)


# The steps of fused operations: with these, a missing scale is found even if only one run uses the fused operation.
STEPS_OF = {
    "scaled_dot_product_attention": ("matmul", "mul", "softmax", "matmul"),
    "masked scaled_dot_product_attention": ("matmul", "mul", "add", "softmax", "matmul"),
    "layer_norm": ("mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul", "add"),
    "rms_norm": ("pow", "mean", "add", "rsqrt", "mul", "mul"),
    "batch_norm": ("sub", "add", "rsqrt", "mul", "mul", "add"),
    "group_norm": ("mean", "sub", "pow", "mean", "add", "rsqrt", "mul", "mul", "add"),
    "var": ("pow", "mean"),
    "silu": ("sigmoid", "mul"),
    "addmm": ("matmul",),
    "linear": ("matmul",),
    "einsum": ("matmul",),
    "grouped_mm": ("matmul",),
    "baddbmm": ("matmul", "mul", "add"),
    "conv1d": ("matmul",),
    "addcmul": ("mul", "add"),
}


# Operations that a port may write out, with the operations that it then has; a softmax also subtracts the maximum.
WRITTEN_OUT = {
    "softmax": ("exp", "sum", "div"),
    "sigmoid": ("neg", "exp", "add"),
    "gelu": ("div", "erf", "add", "mul", "mul"),
    "softplus": ("exp", "log1p"),
}
MAY_BE_WRITTEN = {"softmax": ("max", "sub"), "sigmoid": ("rdiv", "div", "reciprocal")}


# Different operations with the same role: a scale, a mask, a root.
_ROLES = {
    "div": "mul", "where": "add", "masked_fill": "add", "sub": "add", "rsub": "add", "sqrt": "rsqrt",
    "rdiv": "div",
}  # fmt: skip


def role(name: str) -> str:
    """Return the role of an operation in a longer computation.

    >>> role("div"), role("masked_fill"), role("softmax")
    ('mul', 'add', 'softmax')
    """
    return _ROLES.get(name, name)


def canonical(name: str) -> str:
    """Return the one name of an operation.

    An exported program names the overload, too: ``add.Tensor``.

    >>> [canonical(name) for name in ("add_", "__radd__", "iadd", "bmm", "special_expit", "add.Tensor")]
    ['add', 'add', 'add', 'matmul', 'sigmoid', 'add']
    """
    plain = name.partition(".")[0] or name
    plain = plain.strip("_") or plain
    return _SYNONYMS.get(plain, plain)


_OPS_OF_MODULES = {"linear": "linear", "conv1d": "linear", "layernorm": "layer_norm", "embedding": "embedding"}


def op_of_module(type: str) -> str:
    """Return the operation that a module computes, by the name of its class; else the name of the class.

    >>> op_of_module("LayerNorm"), op_of_module("LlamaRMSNorm"), op_of_module("BertSelfAttention")
    ('layer_norm', 'rms_norm', 'BertSelfAttention')
    """
    plain = type.lower()
    if plain.endswith("rmsnorm"):
        return "rms_norm"
    if plain.endswith(("gelu", "geluactivation")):
        return "gelu"
    return _OPS_OF_MODULES.get(plain, type)


_FAMILIES = {"relu": "clamp"}  # a ReLU is a clamp with the lower bound zero


def family(name: str) -> str:
    """Return a coarser name, the same for operations that may replace one another (``linear`` and ``addmm``)."""
    return "product" if name in _PRODUCTS else _FAMILIES.get(name, name)


def normalized_constants(constants: Iterable[str]) -> Counter[str]:
    """Return the constants of a step without their names and without defaults, counted.

    >>> normalized_constants(["dim=-1.0", "dtype=None"]) == normalized_constants(["-1.0"])
    True
    """
    public = [constant for constant in constants if not constant.startswith("_")]
    plain = [constant.rpartition("=")[2] if "=" in constant else constant for constant in public]
    return Counter(text for text in plain if text not in ("None", "False", "True", "0.0") and "torch." not in text)


CONVOLUTIONS = frozenset(["conv1d", "conv2d", "conv3d"])


# In the order of the arguments.
_CONVOLUTION_DEFAULTS = {"stride": "1", "padding": "0", "dilation": "1", "groups": "1"}


def convolution_arguments(constants: Iterable[str]) -> tuple[str, ...]:
    """Return the arguments of a convolution by name, without defaults, whether written once or per dimension.

    >>> convolution_arguments(["(2, 2)", "[1, 1]", "(1, 1)", "1"])
    ('stride=2', 'padding=1')
    >>> convolution_arguments(["None", "padding=1.0", "stride=2"])
    ('stride=2', 'padding=1')
    """
    arguments: dict[str, str] = {}
    free = list(_CONVOLUTION_DEFAULTS)
    for text in constants:
        name, _, value = text.rpartition("=")
        parts = [part.strip().removesuffix(".0") for part in value.strip("()[] ").split(",") if part.strip()]
        plain = parts[0] if len(set(parts)) == 1 else value
        if name in _CONVOLUTION_DEFAULTS:
            arguments[name] = plain
        elif not name and plain != "None" and free:
            arguments[free.pop(0)] = plain
    defaults = _CONVOLUTION_DEFAULTS.items()
    return tuple([f"{name}={arguments[name]}" for name, usual in defaults if arguments.get(name, usual) != usual])


def normalized_constant(constant: str) -> str:
    """Return a constant in the form in which it is compared: ``1e-05`` and ``0.00001`` are equal."""
    try:
        number = float(constant)
    except ValueError:
        return constant
    return constant if math.isnan(number) else repr(number)
