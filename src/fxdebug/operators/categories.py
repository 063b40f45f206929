"""Sets of torch's operations, by their effect on NaN and infinities. Names have no underscores around them."""

from __future__ import annotations

from collections.abc import Iterable, Set

from fxdebug.data.values import Value

# Operations whose result is uninitialised memory.
UNFILLED = frozenset(
    "empty empty_like new_empty empty_strided new_empty_strided empty_permuted resize resize_as".split()
)


# Operations that give a program the memory of a tensor: it may free it, and make it anew, unseen (FSDP does with the
# weights it gathers). Then it holds whatever was there before.
GIVES_MEMORY = frozenset(["untyped_storage", "data_ptr"])


# Operations that move, copy or reinterpret elements, and compute nothing.
VIEWS = GIVES_MEMORY | frozenset(
    "view view_as reshape reshape_as transpose permute swapaxes swapdims movedim moveaxis getitem select narrow "
    "chunk split tensor_split unbind iter expand expand_as unsqueeze squeeze flatten unflatten contiguous clone "
    "detach alias T mT H t to type float half bfloat16 double cpu cuda broadcast_to broadcast_tensors as_strided "
    "unfold diagonal requires_grad data getattr repeat tile hsplit vsplit dsplit view_as_real view_as_complex "
    "real imag positive".split()
)


# Operations that write into a tensor, or into a part of it; among them the transfers between processes, whose buffers
# are new memory: a process copies its part in, and the rest arrives later (FSDP gathers its weights like this).
WRITES = frozenset(
    "setitem copy fill zero index_copy index_put index_fill masked_fill masked_scatter scatter set normal uniform "
    "random bernoulli exponential slice_scatter select_scatter fill_diagonal foreach_copy split_with_sizes_copy "
    "unbind_copy chunk_cat all_gather all_gather_copy_in all_gather_into_tensor all_gather_into_tensor_out "
    "all_gather_into_tensor_coalesced all_gather_single all_gather_base allgather allgather_into_tensor broadcast recv "
    "irecv all_to_all all_to_all_single reduce_scatter reduce_scatter_tensor reduce_scatter_tensor_coalesced "
    "reduce_scatter_single reduce_scatter_base wait_tensor".split()
)


# Operations that, in place, leave nothing of the earlier content.
OVERWRITES = frozenset("fill copy zero normal uniform random bernoulli exponential log_normal cauchy geometric".split())


# Operations that write what other ranks send: over the earlier content of a tensor, or as a sum with it.
SUMS_OF_RANKS = frozenset("all_reduce all_reduce_coalesced reduce".split())
_FROM_RANKS = SUMS_OF_RANKS | frozenset(
    "broadcast recv irecv all_gather all_gather_coalesced all_gather_into_tensor all_gather_single gather scatter "
    "reduce_scatter reduce_scatter_tensor reduce_scatter_single all_to_all all_to_all_single".split()
)


def is_from_ranks(op: str, place: str) -> bool:
    """Does an operation write what other ranks send? ``place`` is its name with its module.

    ``gather``, ``scatter`` and ``reduce`` are also operations on one rank's tensors.

    >>> is_from_ranks("scatter", "torch.distributed.distributed_c10d.scatter"), is_from_ranks("scatter", "scatter_")
    (True, False)
    """
    return op in _FROM_RANKS and ("distributed" in place or "c10d" in place)


# Operations that draw random numbers, returned or written in place.
DRAWS = frozenset(
    "rand randn rand_like randn_like randint bernoulli multinomial normal uniform exponential cauchy geometric "
    "log_normal kaiming_uniform kaiming_normal xavier_uniform xavier_normal trunc_normal dropout1d alpha_dropout "
    "feature_dropout gumbel_softmax rrelu poisson".split()
)


# Operations that may replace NaN or infinities by other numbers.
REPLACES_NONFINITE = frozenset(
    "where nan_to_num masked_fill index_fill nanmean nansum nanmedian masked_scatter setitem".split()
)
TO_PYTHON_NUMBERS = frozenset("item tolist".split())
# Operations whose result has as many elements as numbers of their operands say: on an accelerator, they are waited for.
SIZED_BY_NUMBERS = frozenset(
    "nonzero nonzero_numpy argwhere masked_select unique unique2 unique_dim unique_consecutive bincount".split()
)
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
TO_UNIT_INTERVAL = SOFTMAXES - {"log_softmax"} | {"sigmoid", "special_expit", "hardsigmoid"}  # results from 0 to 1
SINGULAR_AT_ZERO = LOGS | DIVIDES | {"reciprocal", "rsqrt"}  # often applied to all elements, before ``where`` chooses
EXPONENTIALS = frozenset("exp exp2 expm1 sinh cosh".split())
PRODUCTS = frozenset("mul rmul imul multiply matmul mm bmm baddbmm addmm linear einsum dot mv conv1d conv2d".split())


# Operations that never turn -Inf into +Inf.
KEEPS_SIGN_OF_INF = (
    EXPONENTIALS - {"cosh"} | CASTS | {"add", "radd", "iadd", "sum", "mean", "cumsum", "softplus", "sqrt"}
)


# Elementwise operations: an infinity in the result was at the same place in an input, or is new.
ELEMENTWISE = (
    ADDS - {"addmm", "baddbmm"}
    | DIVIDES
    | EXPONENTIALS
    | CASTS
    | frozenset("mul rmul imul multiply pow rpow ipow float_power square".split())
)


# Operations that place numbers among their arguments in the result unchanged.
PLACES_LITERALS = REPLACES_NONFINITE | frozenset("full full_like new_full fill clamp clip pad constant_pad_nd".split())
SCALES = frozenset(
    "mul rmul imul multiply div divide truediv add radd iadd".split()
)  # a literal beyond the dtype may still have a finite result


def uses_only_shape(op: str) -> bool:
    """Does an operation use only the shape, dtype and device of a tensor, and none of its elements?

    >>> uses_only_shape("zeros_like"), uses_only_shape("new_full"), uses_only_shape("neg")
    (True, True, False)
    """
    return op.endswith("_like") or op.startswith("new_")


_KEEPS_UNIT_INTERVAL = VIEWS | {"rsub", "sub"}  # p and 1 - p


def is_probability(op: str, inputs: Iterable[Value], known: Set[int]) -> bool:
    """Are an operation's results probabilities: from 0 to 1, with both ends reached only by rounding?

    ``known``: the numbers of values that are probabilities; views of those are probabilities, too.

    >>> is_probability("softmax", (), set()), is_probability("ge", (), set())
    (True, False)
    """
    return op in TO_UNIT_INTERVAL or (
        bool(known) and op in _KEEPS_UNIT_INTERVAL and any(value.number in known for value in inputs)
    )
