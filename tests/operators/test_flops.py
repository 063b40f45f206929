"""Operations of one torch function, from shapes alone: formulas by hand, unknown ones never 0."""

from __future__ import annotations

from typing import Any

import pytest

from fxdebug.data.values import Group, Stats, Value
from fxdebug.operators.flops import Flops, flops_of, fused_module_flops


def t(*shape: int, grad: bool = False, **more: Any) -> Value:
    return Value(0, shape, more.pop("dtype", "float32"), more.pop("device", "cpu"), requires_grad=grad, **more)


def group(*items: Any) -> Group:
    return Group("sequence", "list", items)


def counted(op: str, result: Any, *args: Any, **kwargs: Any) -> tuple[int, int] | None:
    known = flops_of(op, f"torch.{op}", result, args, kwargs)
    return None if known is None else (known.forward, known.backward)


W = {"grad": True}


@pytest.mark.parametrize(
    ("op", "result", "args", "expected"),
    [
        ("mm", t(2, 5), (t(2, 3), t(3, 5)), (60, 0)),
        ("matmul", t(2, 5), (t(2, 3), t(3, 5, **W)), (60, 60)),
        ("matmul", t(7, 2, 5), (t(7, 2, 3, **W), t(3, 5, **W)), (420, 840)),
        ("__rmatmul__", t(2, 5), (t(3, 5), t(2, 3, **W)), (60, 60)),
        ("addmm", t(2, 5), (t(5, **W), t(2, 3), t(3, 5, **W)), (60, 60)),
        ("baddbmm", t(4, 2, 5), (t(4, 2, 5), t(4, 2, 3, **W), t(4, 3, 5)), (240, 240)),
        ("addbmm", t(2, 5), (t(2, 5), t(4, 2, 3), t(4, 3, 5, **W)), (240, 240)),
        ("linear", t(7, 5), (t(7, 3), t(5, 3, **W), t(5, **W)), (210, 210)),
        ("bilinear", t(7, 5), (t(7, 2, **W), t(7, 3), t(5, 2, 3, **W)), (2 * 7 * 30 + 2 * 7 * 15, 2 * 630)),
        ("conv2d", t(1, 8, 4, 4), (t(1, 6, 6, 6), t(8, 2, 3, 3, **W)), (2 * 128 * 18, 2 * 128 * 18)),
        ("conv_transpose1d", t(1, 4, 9), (t(1, 2, 7), t(2, 4, 3, **W)), (2 * 14 * 12, 2 * 14 * 12)),
        ("convolution", t(1, 4, 9), (t(1, 2, 7), t(2, 4, 3), None, 1, 0, 1, True), (336, 0)),
        ("convolution", t(1, 4, 9), (t(1, 2, 11), t(4, 2, 3), None, 1, 0, 1, False), (2 * 36 * 6, 0)),
        ("cdist", t(30, 30), (t(30, 3), t(30, 3, **W)), (2 * 900 * 5, 2 * 900 * 3)),
        ("cdist", t(25, 25), (t(25, 3), t(25, 3, **W)), (0, 0)),
        ("cdist", t(30, 30), (t(30, 3), t(30, 3), 1.0), (0, 0)),
        ("cdist", t(5, 5), (t(5, 3), t(5, 3), 2.0, "use_mm_for_euclid_dist"), (2 * 25 * 5, 0)),
        ("tensordot", t(2, 5), (t(2, 3, 4), t(3, 4, 5, **W)), (2 * 10 * 12, 2 * 10 * 12)),
        ("tensordot", t(), (t(3, **W), t(3)), (6, 0)),
        ("einsum", t(2, 5), ("ij,jk->ik", t(2, 3), t(3, 5, **W)), (60, 60)),
        ("einsum", t(2, 5), ("ij,jk", t(2, 3, **W), t(3, 5, **W)), (60, 120)),
        ("einsum", t(7, 2, 5), ("...ij,...jk->...ik", t(7, 2, 3), t(7, 3, 5)), (420, 0)),
        ("einsum", t(2, 6), ("ij,jk,kl->il", t(2, 3, **W), t(3, 4), t(4, 6)), (48 + 96, 48 + 96)),
        ("einsum", t(2, 3), ("i,j->ij", t(2), t(3)), (0, 0)),
        ("einsum", t(2, 5), (group("i", "j"), t(2, 5)), None),
        ("chain_matmul", t(10, 5), (t(10, 2), t(2, 30), t(30, 5, **W)), (2 * 2 * 30 * 5 + 2 * 10 * 2 * 5, 2 * 800)),
        ("linalg_multi_dot", t(5), (group(t(2), t(2, 30), t(30, 5)),), (2 * 2 * 30 + 2 * 30 * 5, 0)),
        ("grouped_mm", t(8, 5), (t(8, 3), t(2, 3, 5, **W)), (240, 240)),
        ("grouped_mm", t(2, 8, 5), (t(8, 6), t(6, 5)), (480, 0)),
        ("fft_fft", t(4, 8, dtype="complex64"), (t(4, 8, dtype="complex64", **W),), (5 * 32 * 3, 5 * 32 * 3)),
        ("fft_rfft", t(4, 5, dtype="complex64"), (t(4, 8),), (240, 0)),
        ("fft_fft2", t(3, 4, 8, dtype="complex64"), (t(3, 4, 8, dtype="complex64"),), (5 * 96 * 5, 0)),
        ("fft_fftn", t(4, 8, dtype="complex64"), (t(4, 8, dtype="complex64"), None, group(0)), (5 * 32 * 2, 0)),
        ("fft_fftn", t(4, 8, dtype="complex64"), (t(4, 8, dtype="complex64"),), (5 * 32 * 5, 0)),
        ("fft_fft", t(0, 8, dtype="complex64"), (t(0, 8, dtype="complex64"),), (0, 0)),
        ("lstm_cell", t(7, 5), (t(7, 3), group(t(7, 5), t(7, 5)), t(20, 3, **W), t(20, 5, **W)), (2240, 2240)),
        ("relu", t(2, **W), (t(2, **W),), (0, 0)),
        ("linalg_svd", t(2), (t(2),), None),
        ("my_fancy_mm", t(2), (t(2),), None),
        ("matmul", t(-1, 5), (t(-1, 3), t(3, 5)), None),
        ("matmul", t(2, 5, detail="inside vmap of 3"), (t(2, 3), t(3, 5)), None),
        ("matmul", None, (t(2, 3), t(3, 5)), None),
        ("matmul", t(2, 5), (t(2, 3), 4.0), None),
    ],
)
def test_products_are_counted_from_shapes(op: str, result: Any, args: Any, expected: tuple[int, int] | None) -> None:
    assert counted(op, result, *args) == expected


def test_a_sparse_matrix_counts_the_numbers_that_are_not_zero() -> None:
    sparse = t(3, 4, layout="sparse_coo", stats=Stats(12, 0.0, 1.0, 0.0, 1.0, 1.0, zeros=7))
    assert counted("mm", t(3, 6), sparse, t(4, 6, grad=True)) == (2 * 5 * 6, 2 * 5 * 6)
    assert counted("matmul", t(2, 4), t(2, 3), sparse) == (2 * 5 * 2, 0)
    assert counted("mm", t(3, 6), t(3, 4, layout="sparse_coo"), t(4, 6)) is None
    assert counted("mm", t(3, 3), sparse, t(4, 3, layout="sparse_csr")) is None
    assert counted("conv1d", t(3, 3), sparse, t(4, 3)) is None


def test_attention_counts_scores_and_values_and_a_fused_backward_the_scores_again() -> None:
    q, k, v = t(2, 4, 3, 8), t(2, 4, 5, 8), t(2, 4, 5, 8)
    forward = 2 * 24 * 5 * 16
    again = 2 * 24 * 5 * 8
    asked = t(2, 4, 3, 8, grad=True)
    op = "scaled_dot_product_attention"
    assert counted(op, q, q, k, v) == (forward, 0)
    assert counted(op, q, asked, k, v) == (forward, 2 * forward + again)
    assert counted(op, q, asked, k, v, dropout_p=0.5) == (forward, 2 * forward)
    assert counted(op, q, asked, k, v, t(3, 5, grad=True)) == (forward, 2 * forward)
    assert counted(op, q, q, k, v, t(3, 5, grad=True)) == (forward, 2 * forward)
    assert counted(op, q, q, k, v, t(3, 5)) == (forward, 0)
    narrow = t(2, 4, 5, 6)
    assert counted(op, t(2, 4, 3, 6), asked, k, narrow) == (2 * 24 * 5 * 14, 4 * 24 * 5 * 14)
    assert counted(op, t(4, 3, 8), t(4, 3, 8, grad=True), t(4, 5, 8), t(4, 5, 8)) == (forward // 2, forward)
    there = {"grad": True, "device": "cuda:0"}
    assert counted(op, t(4, 3, 8), t(4, 3, 8, **there), t(4, 5, 8), t(4, 5, 8)) == (forward // 2, forward + again // 2)
    assert counted(op, t(2, 4, 3, 8), t(1, 4, 3, 8), k, v) == (forward, 0)  # queries are broadcast
    kernel = "_scaled_dot_product_flash_attention"
    assert counted(kernel, group(q), t(4, 3, 8, grad=True), t(4, 5, 8), t(4, 5, 8))[1] > forward


def test_a_multi_head_attention_counts_its_projections_too() -> None:
    x, packed, out = t(3, 2, 8), t(24, 8, grad=True), t(8, 8, grad=True)
    args = [x, x, x, 8, 2, packed, None, None, None, False, 0.0, out, None, True, None, False]
    projections, scores = 3 * 2 * 6 * 64, 2 * 2 * 3 * 3 * 2 * 8
    last = 2 * 6 * 64
    op = "multi_head_attention_forward"
    assert counted(op, group(x, None), *args) == (
        projections + scores + last,
        projections + 2 * scores + scores // 2 + 2 * last,
    )
    args[15] = True  # with weights, nothing is fused
    assert counted(op, group(x, None), *args)[1] == projections + 2 * scores + 2 * last
    args[10], args[15] = 0.1, False
    assert counted(op, group(x, None), *args)[1] == projections + 2 * scores + 2 * last
    args[13] = False  # no dropout in eval
    assert counted(op, group(x, None), *args)[1] == projections + 2 * scores + scores // 2 + 2 * last
    args[7], args[9] = t(1, 1, 8), True  # a key and a value more, and one of zeros
    assert counted(op, group(x, None), *args)[0] == projections + 2 * 2 * 3 * 5 * 2 * 8 + last
    plain = [x, x, x, 8, 2, None, None, None, None, False, 0.0, t(8, 8), None, True, None, False, None, True]
    assert counted(op, group(x, None), *plain, t(8, 8), t(8, 8), t(8, 8)) == (projections + scores + last, 0)


@pytest.mark.parametrize("grad", [False, True])
def test_a_recurrent_layer_counts_every_matrix_once_a_step(grad: bool) -> None:
    x, h = t(7, 2, 3), group(t(1, 2, 5), t(1, 2, 5))
    weights = group(t(20, 3, grad=grad), t(20, 5, grad=grad), t(20, grad=grad), t(20, grad=grad))
    args = (x, h, weights, True, 1, 0.0, True, False, False)
    forward = 2 * 14 * 60 + 2 * 14 * 100
    backward = 2 * 14 * 60 + 2 * (2 * 14 * 100) - 2 * 2 * 100 if grad else 0
    assert counted("lstm", group(t(7, 2, 5)), *args) == (forward, backward)
    rows = (t(14, 3), t(7), h, weights, True, 1, 0.0, True, False)
    assert counted("lstm", group(t(14, 5)), *rows) == (forward, backward)


def test_code_of_the_program_is_unknown_and_torchs_own_without_products_is_none() -> None:
    x = t(2)
    for target in ("mine.<locals>.f", "torch._higher_order_ops.cond", "torch._ops.mylib.fused", "flash_attn.f"):
        assert flops_of("f", target, x, (x,)) is None
    for target in ("torch.f", "f", "_operator.f", "torch._ops.aten.f", "torch._ops.c10d.f", "math.f"):
        assert flops_of("f", target, x, (x,)) == Flops(0)
    assert Flops(1, 2) + Flops(3, 5) == Flops(4, 7)


def test_a_fused_module_counts_its_matrices_and_its_attention() -> None:
    shapes = {
        "self_attn.in_proj_weight": (12, 4),
        "self_attn.out_proj.weight": (4, 4),
        "linear1.weight": (8, 4),
        "linear2.weight": (4, 8),
    }
    per = 2 * 9 * 48 // 3 + 2 * 3 * (16 + 32 + 32) + 4 * 3 * 3 * 4
    assert fused_module_flops("TransformerEncoderLayer", shapes, [(2, 3, 4)]) == Flops(2 * per)
    attention = {"in_proj_weight": (12, 4), "out_proj.weight": (4, 4)}
    alone = 2 * (3 + 10) * 48 // 3 + 2 * 3 * 16 + 4 * 3 * 5 * 4
    assert fused_module_flops("MultiheadAttention", attention, [(2, 3, 4), (2, 5, 4)]) == Flops(2 * alone)
    assert fused_module_flops("MultiheadAttention", attention, [(2, 3, 4)]) == Flops(
        2 * (2 * 9 * 48 // 3 + 2 * 3 * 16 + 4 * 3 * 3 * 4)
    )
    assert fused_module_flops("LayerNorm", {}, []) == Flops(0)
    unknown = [("Mine", [(2, 3, 4)]), ("MultiheadAttention", []), ("MultiheadAttention", [(3, 4)])]
    unknown += [("MultiheadAttention", [(2, -1, 4)]), ("TransformerEncoderLayer", [(2, 3, 4)])]
    assert [fused_module_flops(type, attention, given) for type, given in unknown] == [None] * len(unknown)
