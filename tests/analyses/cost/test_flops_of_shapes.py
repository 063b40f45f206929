"""``fxdebug.flops`` of any shapes: torch's count where it has one, and formulas by hand where it has none (row P4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fxdebug
from fxdebug.analyses.cost.flops import count_flops
from support.bodies import Body
from support.sweep import examples
from support.torchs_flops import torchs_count

F = nn.functional
SIZE = st.integers(1, 5)
FLAG = st.booleans()
EQUATIONS = ["bij,bjk->bik", "bij,bkj->bik", "bij,jk", "bij,bij->b", "...ij,jk->...ik"]
SOME = settings(max_examples=examples(25, 300), deadline=None, database=None)


def grown(*shape: int, gradient: bool = True) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=gradient)


def counted(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[int, int]:
    call = count_flops(fxdebug.fx_debug(model, inputs))[0]
    assert not call.unknown
    return call.total.forward, call.total.backward


def agrees(model: nn.Module, *inputs: Any) -> None:
    assert counted(model, inputs) == torchs_count(model, inputs)


@SOME
@given(st.lists(SIZE, min_size=1, max_size=3), SIZE, SIZE, SIZE, FLAG, FLAG)
def test_products_with_broadcasting(batch: list[int], m: int, k: int, n: int, grow: bool, few: bool) -> None:
    agrees(Body(torch.matmul), grown(*batch, m, k, gradient=grow), grown(*batch[len(batch) * few :], k, n))


@SOME
@given(SIZE, SIZE, SIZE, SIZE, st.sampled_from(["addmm", "baddbmm", "linear", "bilinear", "tensordot", "addmv"]))
def test_products_that_are_added(b: int, m: int, k: int, n: int, kind: str) -> None:
    operands: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
        "addmm": (torch.addmm, (grown(m, n), grown(m, k), grown(k, n))),
        "baddbmm": (torch.baddbmm, (grown(b, m, n), grown(b, m, k), grown(b, k, n))),
        "linear": (F.linear, (grown(b, m, k), grown(n, k), grown(n))),
        "tensordot": (lambda x, y: torch.tensordot(x, y, dims=2), (grown(b, m, k), grown(m, k, n))),
    }
    if kind == "addmv":
        forward, backward = counted(Body(torch.addmv), (grown(m), grown(m, k), grown(k)))
        assert (forward, backward) == (2 * m * k, 4 * m * k)  # torch's counter says half of it: an outer product has 0
    elif kind == "bilinear":
        forward, _ = counted(Body(F.bilinear), (grown(b, m), grown(b, k), grown(n, m, k)))
        assert forward == 2 * b * n * m * k + 2 * b * n * k  # torch multiplies element by element, which counts 0 there
    else:
        function, tensors = operands[kind]
        agrees(Body(function), *tensors)


@SOME
@given(st.integers(1, 3), SIZE, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.data())
def test_convolutions_with_groups_strides_and_dilations(
    dims: int, batch: int, groups: int, stride: int, dilation: int, data: st.DataObject
) -> None:
    transposed, kernel = data.draw(FLAG), data.draw(st.integers(1, 3))
    channels, made = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 3))
    kind = f"Conv{'Transpose' * transposed}{dims}d"
    layer = getattr(nn, kind)(channels, made, kernel, stride=stride, dilation=dilation, groups=groups)
    sizes = [data.draw(st.integers((kernel - 1) * dilation + 1, 9)) for _ in range(dims)]
    agrees(layer, grown(batch, channels, *sizes, gradient=data.draw(FLAG)))


@SOME
@given(SIZE, st.integers(1, 3), st.integers(1, 3), SIZE, SIZE, SIZE, st.sampled_from(["", "mask", "biased", "wide"]))
def test_attention_with_grouped_heads_and_masks(
    batch: int, heads: int, group: int, queries: int, keys: int, width: int, kind: str
) -> None:
    q, k = grown(batch, heads * group, queries, width), grown(batch, heads, keys, width)
    v = grown(batch, heads, keys, width + (kind == "wide"))
    mask = grown(queries, keys, gradient=kind == "biased") if kind in ("mask", "biased") else None

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, *mask, enable_gqa=True)

    model = Body(attend)
    given = (q, k, v) if mask is None else (q, k, v, mask)
    rows = batch * heads * group * queries
    forward = 2 * rows * keys * (width + v.shape[-1])
    assert counted(model, given)[0] == forward
    if group == 1:  # torch's formula of the kernel takes its keys as many as its queries
        agrees(model, *given)


@SOME
@given(st.sampled_from(["LSTM", "GRU", "RNN"]), SIZE, SIZE, SIZE, st.integers(2, 4), st.integers(1, 3), FLAG, FLAG)
def test_recurrent_layers(
    kind: str, steps: int, batch: int, width: int, hidden: int, layers: int, both_ways: bool, projected: bool
) -> None:
    projection = {"proj_size": hidden - 1} if kind == "LSTM" and projected else {}
    model = getattr(nn, kind)(width, hidden, num_layers=layers, bidirectional=both_ways, **projection)
    x = torch.randn(steps, batch, width)
    ways, out = 1 + both_ways, hidden - 1 if projection else hidden
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    first, later = gates * hidden * (width + out), gates * hidden * (ways * out + out)
    each = first + (layers - 1) * later + layers * (hidden * out if projection else 0)
    assert counted(model, (x,))[0] == 2 * steps * batch * ways * each
    assert counted(model, (x,))[0] == torchs_count(model, (x,))[0]


@SOME
@given(
    SIZE, SIZE, SIZE, SIZE, st.sampled_from(["bij,bjk->bik", "bij,bkj->bik", "bij,jk", "bij,bij->b", "...ij,jk->...ik"])
)
def test_einsum(b: int, i: int, j: int, k: int, equation: str) -> None:
    sizes = {"b": b, "i": i, "j": j, "k": k}
    terms = equation.replace("...", "b").partition("->")[0].split(",")
    operands = [grown(*[sizes[index] for index in term]) for term in terms]
    agrees(Body(lambda *x: torch.einsum(equation, *x)), *operands)


@pytest.mark.parametrize("layer", [nn.Embedding(7, 4), nn.EmbeddingBag(7, 4), nn.EmbeddingBag(7, 4, mode="max")])
def test_embeddings_have_no_products(layer: nn.Module) -> None:
    assert counted(layer, (torch.tensor([[1, 2], [3, 6]]),)) == (0, 0)


@SOME
@given(st.integers(1, 40), st.integers(1, 40), SIZE)
def test_distances_of_many_points_are_a_product(m: int, n: int, width: int) -> None:
    model, points = Body(torch.cdist), (grown(m, width), grown(n, width))
    forward, backward = counted(model, points)
    many = max(m, n) > 25
    assert forward == many * 2 * m * n * (width + 2)  # torch's counter says 0
    assert backward == torchs_count(model, points)[1] == many * 4 * m * n * width


@SOME
@given(SIZE, st.integers(1, 8), SIZE)
def test_sparse_products_count_the_numbers_that_are_not_0(m: int, k: int, n: int) -> None:
    matrix = torch.randn(m, k).relu()
    dense = torch.randn(k, n)
    nonzero = int((matrix != 0).sum())
    for sparse in (matrix.to_sparse(), matrix.to_sparse_csr()):
        assert counted(Body(lambda a, b: a @ b), (sparse, dense)) == (2 * nonzero * n, 0)
    assert counted(Body(torch.sparse.mm), (matrix.to_sparse(), dense)) == (2 * nonzero * n, 0)


@pytest.mark.parametrize("function, forward", [
    (torch.fft.fft, 5 * 48 * math.log2(8)), (torch.fft.rfft, 2.5 * 48 * math.log2(8)),
    (torch.fft.fftn, 5 * 48 * math.log2(48)), (torch.fft.fft2, 5 * 48 * math.log2(48)),
    (lambda x: torch.fft.fft(x, dim=0), 5 * 48 * math.log2(6)),
    (lambda x: torch.fft.irfft(x, n=8), 2.5 * 48 * math.log2(8)),
])  # fmt: skip
def test_fourier_transforms_count_as_fftws_authors_count(function: Callable[..., Any], forward: float) -> None:
    complex_ones = torch.zeros(6, 8, dtype=torch.complex64)
    x = complex_ones.real if function is torch.fft.rfft else complex_ones
    assert counted(Body(function), (x,))[0] == round(forward)


def test_transforms_in_a_model_of_real_numbers_count_once() -> None:
    report = fxdebug.flops(fxdebug.fx_debug(Body(lambda x: torch.fft.irfft(torch.fft.rfft(x))), torch.randn(4, 16)))
    assert report.totals["forward"] == (2 * round(2.5 * 64 * 4), "FLOP") and report.notes == ()


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("gradient", [True, False])
def test_attention_layers_count_by_hand_fused_or_not(gradient: bool, batch_first: bool) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first).eval()
    x = torch.randn(3, 5, 8)
    batch, length = (3, 5) if batch_first else (5, 3)
    with torch.set_grad_enabled(gradient):
        trace = fxdebug.fx_debug(layer, (x, x, x), {"need_weights": False})
    by_hand = batch * (2 * length * 8 * 32 + 4 * length * length * 8)
    assert count_flops(trace)[0].total.forward == by_hand
