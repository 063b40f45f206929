"""Floating point operations of one torch operation, from the shapes of its operands.

Counted are multiplications and additions of products: matrix products, convolutions, attention, recurrent layers, and
Fourier transforms. A product of an m×k with a k×n matrix counts 2·m·k·n, as in ``torch.utils.flop_counter`` and as in
the definition of a device's peak. Element by element operations, sums and normalisations count 0: memory traffic limits
them, and no counter of other tools includes them. An operation with products whose number has no formula here is
``None``: it is listed as unknown, never counted as 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fxdebug.data.values import Group, Item, Value, leaves
from fxdebug.operators.names import canonical


@dataclass(frozen=True, slots=True)
class Flops:
    """Operations of one call of a torch function: of its forward, and of its backward where a gradient is asked for."""

    forward: int
    backward: int = 0

    def __add__(self, other: Flops) -> Flops:
        return Flops(self.forward + other.forward, self.backward + other.backward)


NONE = Flops(0)
Formula: TypeAlias = Callable[[Item, Sequence[Item], Mapping[str, Item]], Flops]


def flops_of(
    op: str, target: str, result: Item, args: Sequence[Item], kwargs: Mapping[str, Item] | None = None
) -> Flops | None:
    """Return the operations of one torch function, or ``None`` where they are not known.

    ``op`` is the short name, ``target`` the function's full name; ``args`` and ``kwargs`` are its operands and
    ``result`` its result, with a :class:`~fxdebug.data.values.Value` for each tensor. The backward is counted for the
    operands that require a gradient: each needs as many operations as the forward, fused attention two and a half
    times as many as its forward (the kernel computes the scores anew).

    >>> a, b = Value(0, (2, 3), "float32", "cpu"), Value(1, (3, 5), "float32", "cpu")
    >>> flops_of("matmul", "matmul", Value(2, (2, 5), "float32", "cpu"), (a, b))
    Flops(forward=60, backward=0)
    >>> flops_of("relu", "torch.relu", a, (a,)), flops_of("linalg_svd", "torch.linalg.svd", a, (a,))
    (Flops(forward=0, backward=0), None)
    """
    short = op.partition(".")[0]  # of an overload, such as linear.default
    name = canonical(short)
    formula: Formula | None = _FORMULAS.get(short.strip("_")) or _FORMULAS.get(name)
    if formula is None:
        runs_code = "<locals>" in target or target.startswith("torch._higher_order_ops")  # of the program: cond, scan
        is_product = name in _PRODUCTS_WITHOUT_FORMULA or any(
            part.endswith(("mm", "matmul")) for part in short.split("_")
        )
        return None if runs_code or is_product or not is_torch_function(target) else NONE
    if any(_hides_sizes(value) for value in _tensors([result, *args])):
        return None
    if any(value.layout.startswith("sparse") for value in _tensors([*args, *(kwargs or {}).values()])):
        formula = _sparse_product if name == "matmul" or short in ("mm", "sparse_mm", "smm") else _unknown
    try:
        return formula(result, args, kwargs or {})
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return None  # operands in a form that the formula does not know, such as nested tensors


def _hides_sizes(value: Value) -> bool:
    """Does the shape of a tensor not tell how much is computed (ragged sizes, a batch hidden by ``vmap``)?"""
    return min(value.shape, default=0) < 0 or (value.detail or "").startswith("inside vmap")


def is_torch_function(target: str) -> bool:
    """Is a function torch's own, Python's or fxdebug's, not a custom operation or a function of another library?

    >>> is_torch_function("torch.nn.functional.relu"), is_torch_function("softmax"), is_torch_function("_operator.add")
    (True, True, True)
    >>> is_torch_function("torch._ops.mylib.fused_mlp"), is_torch_function("flash_attn.flash_attn_func")
    (False, False)
    """
    if target.startswith("torch._ops."):
        return target.split(".")[2] in _OF_TORCH
    package, dot, _ = target.partition(".")
    return not dot or package in ("torch", "_operator", "operator", "builtins", "math", "fxdebug")


# Namespaces of torch whose operations either have a formula here or no products: those of its kernels, and of transfers
# between processes.
_OF_TORCH = frozenset(
    "aten prims prim fsdp c10d _c10d_functional _c10d_functional_autograd c10d_functional _dtensor profiler".split()
)


# Formulas ----------------------------------------------------------------------------------------


def _products(forward: int, *operands: Item) -> Flops:
    """Return a product's operations: the backward has one product of the same size for each operand with a gradient."""
    return Flops(forward, forward * sum(isinstance(x, Value) and bool(x.requires_grad) for x in operands))


def _argument(args: Sequence[Item], kwargs: Mapping[str, Item], position: int, name: str) -> Item:
    return args[position] if position < len(args) else kwargs.get(name)


def _tensor(args: Sequence[Item], kwargs: Mapping[str, Item], position: int, *names: str) -> Value:
    for name in names:
        if (value := _argument(args, kwargs, position, name)) is not None:
            if isinstance(value, Value):
                return value
            break
    raise TypeError(f"argument {position} is no tensor")


def _first(result: Item) -> Value:
    first = result if isinstance(result, Value) else next((value for _, value in leaves(result)), None)
    if first is None:
        raise TypeError("the result is no tensor")
    return first


def _matmul(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    a, b = _tensor(args, kwargs, 0, "input", "self"), _tensor(args, kwargs, 1, "mat2", "other", "vec", "tensor")
    return _products(2 * _first(result).numel * a.shape[-1], a, b)


def _rmatmul(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    return _matmul(result, (args[1], args[0]), {})


def _added_matmul(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``addmm``, ``baddbmm``, ``addmv``: the first operand is added to the product of the others."""
    a, b = _tensor(args, kwargs, 1, "mat1", "batch1", "mat"), _tensor(args, kwargs, 2, "mat2", "batch2", "vec")
    return _products(2 * _first(result).numel * a.shape[-1], a, b)


def _addbmm(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    a, b = _tensor(args, kwargs, 1, "batch1"), _tensor(args, kwargs, 2, "batch2")
    return _products(2 * a.numel * b.shape[-1], a, b)


def _linear(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    weight = _tensor(args, kwargs, 1, "weight")
    inputs = _tensor(args, kwargs, 0, "input")
    return _products(2 * _first(result).numel * weight.shape[-1], inputs, weight)


def _bilinear(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    a, b = _tensor(args, kwargs, 0, "input1"), _tensor(args, kwargs, 1, "input2")
    weight = _tensor(args, kwargs, 2, "weight")
    rows = a.numel // a.shape[-1]
    return _products(2 * rows * weight.numel + 2 * rows * weight.shape[0] * weight.shape[2], a, b, weight)


def _convolution(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """Each element of the result is a product over the channels of one group and the kernel."""
    inputs, weight = _tensor(args, kwargs, 0, "input"), _tensor(args, kwargs, 1, "weight")
    return _products(2 * _first(result).numel * math.prod(weight.shape[1:]), inputs, weight)


def _transposed_convolution(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """Each element of the input adds a kernel's worth to the result, once for each channel of its group."""
    inputs, weight = _tensor(args, kwargs, 0, "input"), _tensor(args, kwargs, 1, "weight")
    return _products(2 * inputs.numel * math.prod(weight.shape[1:]), inputs, weight)


def _aten_convolution(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    transposed = _argument(args, kwargs, 6, "transposed")
    return (_transposed_convolution if transposed else _convolution)(result, args, kwargs)


def _attention(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """Scores (queries × keys) and their product with the values; masked scores are computed like any other.

    A fused kernel computes the scores anew in its backward. On the CPU there is one for queries and values of one
    width, without dropout and without a gradient of the mask (``sdp_utils_cpp.cpp`` of torch 2.13); on accelerators
    there are kernels for the other cases too.
    """
    query, key = _tensor(args, kwargs, 0, "query"), _tensor(args, kwargs, 1, "key")
    value = _tensor(args, kwargs, 2, "value")
    rows, dim = query.numel // query.shape[-1], query.shape[-1]
    batches = max(1, math.prod(_first(result).shape[:-1]) // rows) if rows else 1  # queries may be broadcast
    forward = 2 * rows * batches * key.shape[-2] * (dim + value.shape[-1])
    mask = _argument(args, kwargs, 3, "attn_mask")
    with_mask = isinstance(mask, Value) and bool(mask.requires_grad)
    if not with_mask and not any(x.requires_grad for x in (query, key, value)):
        return Flops(forward)
    dropout = _argument(args, kwargs, 4, "dropout_p") or 0.0
    fused = query.device != "cpu" or (
        len(query.shape) == 4 and dim == value.shape[-1] and not with_mask and not dropout and not _is_complex(query)
    )
    scores_again = 2 * rows * batches * key.shape[-2] * dim if fused else 0
    return Flops(forward, 2 * forward + scores_again)


def _is_complex(value: Value) -> bool:
    return value.dtype.startswith("complex")


def _multi_head_attention(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``F.multi_head_attention_forward``: three projections, the attention of the heads, the projection of outputs."""
    query, key, value = (_tensor(args, kwargs, i, name) for i, name in enumerate(("query", "key", "value")))
    out = _tensor(args, kwargs, 11, "out_proj_weight")
    packed = _argument(args, kwargs, 5, "in_proj_weight")
    if isinstance(packed, Value) and not _argument(args, kwargs, 17, "use_separate_proj_weight"):
        width = packed.shape[0] // 3
        third = replace(packed, shape=(width, packed.shape[1]))
        weights = [third, third, third]
    else:
        weights = [_tensor(args, kwargs, 18 + i, f"{n}_proj_weight") for i, n in enumerate("qkv")]
        width = out.shape[-1]
    total = NONE
    for x, weight in zip((query, key, value), weights):
        total += _products(2 * x.numel // x.shape[-1] * weight.numel, x, weight)
    batch = query.shape[1] if len(query.shape) == 3 else 1
    keys = key.shape[0] + (_argument(args, kwargs, 7, "bias_k") is not None)
    keys += bool(_argument(args, kwargs, 9, "add_zero_attn"))
    forward = 2 * batch * query.shape[0] * keys * 2 * width
    gradient = any(bool(x.requires_grad) for x in (query, key, value, *weights))
    fused = _argument(args, kwargs, 15, "need_weights") is False  # its backward computes the scores anew
    if query.device == "cpu" and _argument(args, kwargs, 13, "training") is not False:
        fused = fused and not _argument(args, kwargs, 10, "dropout_p")
    rows = query.numel // query.shape[-1]
    projected = Value(-1, (rows, width), query.dtype, query.device, requires_grad=gradient)
    backward = (2 * forward + forward // 2 * fused) * gradient
    return total + Flops(forward, backward) + _products(2 * rows * out.numel, projected, out)


def _recurrent(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``lstm``, ``gru``, ``rnn``: every step of every sequence meets each matrix of weights once.

    In the backward, the matrices of the first layer that meet the input need no product for an input without a
    gradient, and those that meet the hidden state none for the first step.
    """
    first = _tensor(args, kwargs, 0, "input")
    packed = isinstance(args[1], Value) and len(args[1].shape) == 1  # packed: (data, batch_sizes, hx, weights, …)
    hidden, weights = (args[2], args[3]) if packed else (args[1], args[2])
    matrices = [w for _, w in leaves(weights) if len(w.shape) == 2]
    states = [h for _, h in leaves(hidden)]
    layers, batch = states[0].shape[0], states[0].shape[-2] if len(states[0].shape) == 3 else 1
    each = len(matrices) // layers  # input, hidden and, with a projection, output
    steps = first.shape[0] if packed else first.numel // first.shape[-1]
    directions = 2 if bool(args[7 + packed]) else 1
    total = NONE
    for position, weight in enumerate(matrices):
        layer, part = divmod(position, each)
        products = 2 * steps * weight.numel
        meets_input = part == 0 and layer < directions
        for_operand = products if not meets_input or first.requires_grad else 0
        if part == 1 and not any(h.requires_grad for h in states):
            for_operand = products - 2 * batch * weight.numel
        gradient = weight.requires_grad
        total += Flops(products, products + for_operand if gradient else for_operand * bool(first.requires_grad))
    return total


def _recurrent_cell(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    inputs, hidden = _tensor(args, kwargs, 0, "input"), _first(args[1] if len(args) > 1 else kwargs["hx"])
    from_input, from_hidden = _tensor(args, kwargs, 2, "w_ih"), _tensor(args, kwargs, 3, "w_hh")
    rows = inputs.numel // inputs.shape[-1]
    return _products(2 * rows * from_input.numel, inputs, from_input) + _products(
        2 * rows * from_hidden.numel, hidden, from_hidden
    )


def _tensordot(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    a, b = _tensor(args, kwargs, 0, "a"), _tensor(args, kwargs, 1, "b")
    out = _first(result).numel
    contracted = math.isqrt(a.numel * b.numel // out) if out else 0  # |a|·|b| = |out|·k²
    if out == 1:  # torch calls `dot`, whose backward multiplies vectors by one number
        return Flops(2 * contracted)
    return _products(2 * out * contracted, a, b)


def _einsum(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """Contract from left to right, as torch does without opt_einsum; a pair that shares no summed index has none."""
    equation = args[0]
    operands = [value for item in args[1:] for _, value in leaves(item)]
    if not isinstance(equation, str) or not operands:
        raise TypeError("einsum with lists of indices")
    terms, sizes, output = _einsum_terms(equation, operands)
    gradient = [bool(operand.requires_grad) for operand in operands]
    total, left, left_gradient = NONE, terms[0], gradient[0]
    for position, right in enumerate(terms[1:], 1):
        later = set(output).union(*terms[position + 1 :])
        summed = {index for index in set(left) & set(right) if sizes[index] > 1} - later
        kept = (set(left) | set(right)) & later
        if summed:
            forward = 2 * math.prod(sizes[index] for index in kept | summed)
            total += Flops(forward, forward * (left_gradient + gradient[position]))
        left, left_gradient = "".join(sorted(kept)), left_gradient or gradient[position]
    return total


def _einsum_terms(equation: str, operands: Sequence[Value]) -> tuple[list[str], dict[str, int], str]:
    """Return the indices of every operand, the size of each index, and the indices of the result.

    Indices that ``...`` stands for are digits.
    """
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms: list[str] = []
    sizes: dict[str, int] = {}
    widest = 0
    for term, operand in zip(left.split(","), operands, strict=True):
        hidden = len(operand.shape) - len(term.replace("...", ""))
        widest = max(widest, hidden if "..." in term else 0)
        term = term.replace("...", "".join(chr(0x100 + i) for i in range(hidden, 0, -1)))
        for index, size in zip(term, operand.shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
        terms.append(term)
    hidden_indices = "".join(chr(0x100 + i) for i in range(widest, 0, -1))
    if not arrow:
        letters = "".join(terms)
        output = hidden_indices + "".join(sorted(i for i in set(letters) if letters.count(i) == 1 and i.isascii()))
    return terms, sizes, output.replace("...", hidden_indices)


def _chain(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``chain_matmul`` and ``linalg.multi_dot``: in the order with the fewest operations."""
    operands = list(_tensors(args))
    sizes = [operands[0].shape[0] if len(operands[0].shape) == 2 else 1]
    sizes += [x.shape[-1] if len(x.shape) == 2 or i == 0 else 1 for i, x in enumerate(operands)]
    count = len(operands)
    best = {(i, i): 0 for i in range(count)}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            best[i, j] = min(
                best[i, k] + best[k + 1, j] + 2 * sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)
            )
    forward = best[0, count - 1]
    return Flops(forward, 2 * forward if any(x.requires_grad for x in operands) else 0)


def _tensors(args: Sequence[Item]) -> Iterator[Value]:
    for item in args:
        yield from (value for _, value in leaves(item))


def _sparse_product(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """Each number of a sparse matrix that is not 0 meets a row, or a column, of the dense one."""
    a, b = _tensor(args, kwargs, 0, "input", "self", "mat1"), _tensor(args, kwargs, 1, "mat2", "other", "vec")
    sparse, dense = (a, b) if a.layout.startswith("sparse") else (b, a)
    if dense.layout != "strided" or len(sparse.shape) != 2 or sparse.stats is None:
        raise ValueError("the numbers of the sparse matrix are not known")
    nonzero = sparse.stats.count - (sparse.stats.zeros or 0)
    kept = sparse.shape[1] if sparse is b else sparse.shape[0]
    return _products(2 * nonzero * (_first(result).numel // kept if kept else 0), a, b)


def _unknown(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    raise ValueError("there is no formula for these operands")


def _distances(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``cdist``: of many points, Euclidean distances are a product, of rows with two more columns for their norms.

    Source: ``_euclidean_dist`` and ``cdist_impl`` in ``aten/src/ATen/native/Distance.cpp`` of torch 2.13.
    """
    a, b = _tensor(args, kwargs, 0, "x1"), _tensor(args, kwargs, 1, "x2")
    p, mode = _argument(args, kwargs, 2, "p"), _argument(args, kwargs, 3, "compute_mode")
    many = max(a.shape[-2], b.shape[-2]) > 25 and mode in (None, "use_mm_for_euclid_dist_if_necessary")
    if p not in (None, 2) or not (many or mode == "use_mm_for_euclid_dist"):
        return NONE
    pairs, width = _first(result).numel, a.shape[-1]
    return Flops(2 * pairs * (width + 2), _products(2 * pairs * width, a, b).backward)


def _fourier(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``fft.fftn`` and the like, over all dimensions or those of ``dim``."""
    sizes, dims = _argument(args, kwargs, 1, "s"), _argument(args, kwargs, 2, "dim")
    whole = len(sizes.items) if isinstance(sizes, Group) else len(_first(result).shape)
    return _transforms(result, args, kwargs, _whole_numbers(dims) or range(-whole, 0))


def _fourier_of_one(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    return _transforms(result, args, kwargs, _whole_numbers(_argument(args, kwargs, 2, "dim")) or [-1])


def _fourier_of_two(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    return _transforms(result, args, kwargs, _whole_numbers(_argument(args, kwargs, 2, "dim")) or [-2, -1])


def _transforms(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item], dims: Sequence[int]) -> Flops:
    """5·N·log₂(n) for transforms over n of N complex numbers, half of it where one side is real.

    It is the number by which FFTW's authors compare transforms (https://www.fftw.org/speed/method.html), whatever the
    algorithm. The backward is a transform of the same size.
    """
    inputs, output = _tensor(args, kwargs, 0, "input", "self"), _first(result)
    real = not (_is_complex(inputs) and _is_complex(output))
    longer = max(inputs, output, key=lambda x: x.numel) if real else output
    length = math.prod(longer.shape[dim] for dim in dims)
    return _products(round((2.5 if real else 5) * longer.numel * math.log2(length)) if length else 0, inputs)


def _whole_numbers(item: Item) -> list[int]:
    items = item.items if isinstance(item, Group) else [item]
    return [x for x in items if isinstance(x, int)]


def _kernel_of_attention(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``aten._scaled_dot_product_flash_attention`` and the like: fused, whatever the device."""
    query, key, value = (_tensor(args, kwargs, i, name) for i, name in enumerate(("query", "key", "value")))
    return _attention(result, (replace(query, device="kernel"), key, value), {})


def _grouped(result: Item, args: Sequence[Item], kwargs: Mapping[str, Item]) -> Flops:
    """``grouped_mm``: every row meets the matrix of its group."""
    a, b = _tensor(args, kwargs, 0, "input", "self", "mat_a"), _tensor(args, kwargs, 1, "mat2", "mat_b")
    if len(a.shape) == 2 and len(b.shape) == 2:  # groups along the summed dimension
        return _products(2 * a.shape[0] * a.shape[1] * b.shape[1], a, b)
    return _products(2 * _first(result).numel * a.shape[-1], a, b)


_FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "linalg_matmul", "linalg_vecdot"), _matmul),
    **dict.fromkeys(("int_mm", "scaled_mm", "weight_int8pack_mm", "weight_int4pack_mm"), _matmul),  # of 8 or 4 bits
    "vecdot": _matmul,
    "rmatmul": _rmatmul,
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "sspaddmm", "_addmm_activation"), _added_matmul),
    "addbmm": _addbmm,
    "linear": _linear,
    "bilinear": _bilinear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    **dict.fromkeys(("convolution", "_convolution"), _aten_convolution),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("flex_attention", "flex_attention_hop_wrapper"), _attention),
    **dict.fromkeys(
        (
            f"scaled_dot_product_{kind}"
            for kind in (
                "flash_attention",
                "flash_attention_for_cpu",
                "efficient_attention",
                "cudnn_attention",
            )
        ),
        _kernel_of_attention,
    ),
    "cdist": _distances,
    **dict.fromkeys((f"fft_{kind}fft" for kind in ("", "i", "r", "ir", "h", "ih")), _fourier_of_one),
    **dict.fromkeys((f"fft_{kind}fft2" for kind in ("", "i", "r", "ir", "h", "ih")), _fourier_of_two),
    **dict.fromkeys((f"fft_{kind}fftn" for kind in ("", "i", "r", "ir", "h", "ih")), _fourier),
    "multi_head_attention_forward": _multi_head_attention,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _recurrent_cell),
    "tensordot": _tensordot,
    "einsum": _einsum,
    **dict.fromkeys(("chain_matmul", "linalg_multi_dot"), _chain),
    **dict.fromkeys(("grouped_mm", "_grouped_mm"), _grouped),
    **dict.fromkeys(("sparse_mm", "smm"), _matmul),
}

# Torch's operations with products inside and no formula here: factorisations, solvers, transforms, distances.
_PRODUCTS_WITHOUT_FORMULA = frozenset(
    """linalg_cholesky linalg_cholesky_ex linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv
    linalg_inv_ex inverse linalg_lstsq linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_lu_solve
    linalg_matrix_exp matrix_exp linalg_matrix_power matrix_power linalg_pinv pinverse linalg_qr linalg_solve
    linalg_solve_ex linalg_solve_triangular linalg_svd linalg_svdvals linalg_matrix_norm linalg_matrix_rank
    linalg_cond linalg_det linalg_slogdet det slogdet logdet linalg_householder_product linalg_ldl_factor
    linalg_ldl_solve linalg_tensorinv linalg_tensorsolve cholesky cholesky_inverse cholesky_solve geqrf lu lu_solve
    lu_unpack orgqr ormqr qr svd svd_lowrank pca_lowrank lobpcg triangular_solve lstsq
    stft istft cov corrcoef
    hspmm sparse_sampled_addmm scaled_grouped_mm _scaled_grouped_mm
    transformer_encoder_layer_fwd native_multi_head_attention while_loop cond scan map""".split()
)


# Modules that ran as one kernel ------------------------------------------------------------------


def fused_module_flops(type: str, shapes: Mapping[str, Sequence[int]], inputs: Sequence[Sequence[int]]) -> Flops | None:
    """Return the operations of a module of torch that ran as one fused kernel; ``None`` for any other module.

    ``type`` is the module's class, ``shapes`` those of its parameters by name, ``inputs`` those of its arguments, with
    the batch first: only then does torch take the fused kernel. It never runs where a gradient is asked for.

    >>> shapes = {"self_attn.in_proj_weight": (12, 4), "self_attn.out_proj.weight": (4, 4),
    ...           "linear1.weight": (8, 4), "linear2.weight": (4, 8)}
    >>> fused_module_flops("TransformerEncoderLayer", shapes, [(1, 3, 4)]).forward
    912
    """
    if type in _MODULES_WITHOUT_PRODUCTS:
        return NONE
    if type not in ("MultiheadAttention", "TransformerEncoderLayer") or not inputs or len(inputs[0]) != 3:
        return None
    if min(inputs[0]) < 0:
        return None
    layer = type == "TransformerEncoderLayer"
    prefix = "self_attn." if layer else ""
    matrices = [f"{prefix}in_proj_weight", f"{prefix}out_proj.weight"]
    matrices += ["linear1.weight", "linear2.weight"] if layer else []
    if any(name not in shapes for name in matrices):
        return None
    batch, length, width = inputs[0]
    keys = inputs[1][1] if not layer and len(inputs) > 1 and len(inputs[1]) == 3 else length
    packed, *others = (math.prod(shapes[name]) for name in matrices)
    per_batch = 2 * (length + 2 * keys) * packed // 3 + 2 * length * sum(others) + 4 * length * keys * width
    return Flops(batch * per_batch)


# Modules of torch that have no products beside those of the modules that they call.
ONLY_CALLS_MODULES = frozenset(
    "TransformerEncoder TransformerEncoderLayer TransformerDecoder TransformerDecoderLayer Transformer "
    "Sequential".split()
)

_MODULES_WITHOUT_PRODUCTS = frozenset(
    "LayerNorm RMSNorm BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm Dropout ReLU GELU SiLU Identity Embedding".split()
)
