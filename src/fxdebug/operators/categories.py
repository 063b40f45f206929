"""Torch's operations by what they do to numbers that are not finite: names without underscores around them."""

from __future__ import annotations

from collections.abc import Iterable, Set

from fxdebug.data.values import Value

UNFILLED = frozenset(
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted resize resize_as".split()
)
VIEWS = frozenset(
    "view view_as reshape reshape_as transpose permute swapaxes swapdims movedim moveaxis getitem select narrow "
    "chunk split tensor_split unbind iter expand expand_as unsqueeze squeeze flatten unflatten contiguous clone "
    "detach alias T mT H t to type float half bfloat16 double cpu cuda broadcast_to broadcast_tensors as_strided "
    "unfold diagonal requires_grad data getattr repeat tile hsplit vsplit dsplit view_as_real view_as_complex "
    "real imag positive".split()
)
WRITES = frozenset(
    "setitem copy fill zero index_copy index_put index_fill masked_fill masked_scatter scatter set normal uniform "
    "random bernoulli exponential slice_scatter select_scatter fill_diagonal".split()
)


# In place, these leave nothing of what was there.
OVERWRITES = frozenset("fill copy zero normal uniform random bernoulli exponential log_normal cauchy geometric".split())


# Operations whose results are random numbers, here or in place.
DRAWS = frozenset(
    "rand randn rand_like randn_like randint bernoulli multinomial normal uniform exponential cauchy geometric "
    "log_normal kaiming_uniform kaiming_normal xavier_uniform xavier_normal trunc_normal dropout1d alpha_dropout "
    "feature_dropout gumbel_softmax rrelu poisson".split()
)


# Operations that put something else where a NaN or an infinity was.
REPLACES_NONFINITE = frozenset(
    "where nan_to_num masked_fill index_fill nanmean nansum nanmedian masked_scatter setitem".split()
)
TO_PYTHON_NUMBERS = frozenset("item tolist".split())  # as numbers of Python
CASTS = frozenset("to type float half bfloat16 double type_as".split())
SOFTMAXES = frozenset("softmax log_softmax _softmax softmin special_softmax sparse_softmax".split())
ATTENTIONS = frozenset(
    "scaled_dot_product_attention multi_head_attention_forward MultiheadAttention TransformerEncoderLayer "
    "TransformerEncoder TransformerDecoderLayer TransformerDecoder flex_attention".split()
)
ADDS = frozenset("add radd iadd sub rsub isub subtract addmm baddbmm".split())
DIVIDES = frozenset(
    "div divide truediv rtruediv itruediv floordiv floor_divide true_divide rdiv remainder fmod".split()
)
LOGS = frozenset("log log2 log10".split())
TO_UNIT_INTERVAL = SOFTMAXES - {"log_softmax"} | {"sigmoid", "special_expit", "hardsigmoid"}  # into 0 to 1
SINGULAR_AT_ZERO = LOGS | DIVIDES | {"reciprocal", "rsqrt"}  # often taken everywhere, and chosen from with ``where``
EXPONENTIALS = frozenset("exp exp2 expm1 sinh cosh".split())
PRODUCTS = frozenset("mul rmul imul multiply matmul mm bmm baddbmm addmm linear einsum dot mv conv1d conv2d".split())


# What they make of -Inf is not +Inf.
KEEPS_SIGN_OF_INF = (
    EXPONENTIALS - {"cosh"} | CASTS | {"add", "radd", "iadd", "sum", "mean", "cumsum", "softplus", "sqrt"}
)


# An infinity in what they make was in its place before, or they made it.
ELEMENTWISE = (
    ADDS - {"addmm", "baddbmm"}
    | DIVIDES
    | EXPONENTIALS
    | CASTS
    | frozenset("mul rmul imul multiply pow rpow ipow float_power square".split())
)


# They put the numbers in their arguments somewhere as they are.
PLACES_LITERALS = REPLACES_NONFINITE | frozenset("full full_like new_full fill clamp clip pad constant_pad_nd".split())
SCALES = frozenset("mul rmul imul multiply div divide truediv add radd iadd".split())  # up to 65536 in float16, say


def uses_only_shape(op: str) -> bool:
    """Does an operation use nothing of a tensor but its shape and kind?

    >>> only_the_shape("zeros_like"), only_the_shape("new_full"), only_the_shape("neg")
    (True, True, False)
    """
    return op.endswith("_like") or op.startswith("new_")


_KEEPS_UNIT_INTERVAL = VIEWS | {"rsub", "sub"}  # p, and 1 - p


def is_probability(op: str, given: Iterable[Value], known: Set[int]) -> bool:
    """Does an operation make numbers from 0 to 1 that reach both ends by rounding, or pass on some that are ``known``?

    >>> is_probability("softmax", (), set()), is_probability("ge", (), set())
    (True, False)
    """
    return op in TO_UNIT_INTERVAL or (
        bool(known) and op in _KEEPS_UNIT_INTERVAL and any(value.number in known for value in given)
    )
