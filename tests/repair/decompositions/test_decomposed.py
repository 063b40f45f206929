"""Fused operations that are written out return the same, are recorded as single ones, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import fx_debug
from fxdebug.repair.decompositions.decomposed import FUSED, IN_TWO_FORMS, decomposed


class Attends(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        heads = x.view(2, 5, 2, 4).transpose(1, 2)
        keys = heads[:, :1] if self.options.get("enable_gqa") else heads
        return F.scaled_dot_product_attention(heads, keys, keys, mask, **self.options)


class OfItself(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Tensor, padding: Tensor | None = None, mask: Tensor | None = None) -> Any:
        return self.attention(x, x, x, padding, attn_mask=mask)


class OfAnother(OfItself):
    def forward(self, x: Tensor, padding: Tensor | None = None, mask: Tensor | None = None) -> Any:
        keys = x.flip(1)
        return self.attention(x, keys, keys, padding, attn_mask=mask, need_weights=False)


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
SEEN = torch.ones(5, 5, dtype=torch.bool).tril()
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[Any, ...]]] = {
    "scaled_dot_product_attention": (Attends, (X,)),
    "a mask of booleans": (Attends, (X, SEEN)),
    "a mask that is added": (Attends, (X, torch.randn(5, 5))),
    "causal, another scale": (lambda: Attends(is_causal=True, scale=0.3), (X,)),
    "fewer keys than queries": (lambda: Attends(enable_gqa=True), (X,)),
    "multi_head_attention_forward": (OfItself, (X,)),
    "padding and a mask": (OfItself, (X, PADDED, ~SEEN)),
    "no bias": (lambda: OfItself(bias=False), (X,)),
    "another sequence": (OfAnother, (X, PADDED)),
    "keys of another width": (lambda: OfAnother(kdim=8, vdim=8), (X,)),
    "a whole layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (X,)),
    "layer_norm": (lambda: nn.LayerNorm((5, 8)), (X,)),
    "rms_norm": (lambda: nn.RMSNorm(8), (X,)),
    "group_norm": (lambda: nn.GroupNorm(5, 5), (X,)),
    "batch_norm": (lambda: nn.BatchNorm1d(5), (X,)),
    "gelu": (nn.GELU, (X,)),
    "gelu by tanh": (lambda: nn.GELU(approximate="tanh"), (X,)),
    "silu": (nn.SiLU, (X,)),
    "glu": (lambda: nn.GLU(1), (X[:, :4],)),
    "lstm": (lambda: nn.LSTM(8, 3, 2, bidirectional=True, batch_first=True), (X,)),
    "gru": (lambda: nn.GRU(8, 3, 2, bias=False), (X,)),
    "lstm_cell": (lambda: nn.LSTMCell(8, 3), (X[0],)),
    "gru_cell": (lambda: nn.GRUCell(8, 3), (X[0],)),
}


def made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    for weight in (*model.parameters(), *(b for n, b in model.named_buffers() if "running" in n)):
        weight.data.uniform_(0.2, 0.9)
    return model, inputs


def tensors(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return [tensor for each in output if each is not None for tensor in tensors(each)]


@pytest.mark.parametrize("in_another_form", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_out_returns_the_same_within_rounding(name: str, in_another_form: bool) -> None:
    model, inputs = made(name)
    with torch.no_grad():
        fused = tensors(model(*inputs))
        with decomposed(model, in_another_form=in_another_form):
            written_out = tensors(model(*inputs))
    assert len(fused) == len(written_out)
    for one, other in zip(fused, written_out):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_recording_has_the_single_operations(name: str) -> None:
    model, inputs = made(name)
    with torch.no_grad(), decomposed(model):
        trace = fx_debug(model, inputs)
    assert all(call.status != "opaque" for call in trace.calls)
    assert FUSED.isdisjoint(op.op for call in trace.calls if call.graph is not None for op in call.graph.ops)


def test_every_operation_that_is_written_out_has_a_model_here() -> None:
    assert MODELS.keys() >= FUSED
    assert IN_TWO_FORMS <= FUSED


def test_only_the_operations_that_are_named_are_written_out() -> None:
    model = nn.Sequential(nn.LayerNorm(8), nn.GELU())
    with decomposed(model, operations={"gelu"}):
        trace = fx_debug(model, X)
    ops = {op.op for call in trace.calls if call.graph is not None for op in call.graph.ops}
    assert "layer_norm" in ops and "gelu" not in ops and "erf" in ops


def test_dropout_and_narrow_dtypes_run_as_they_are() -> None:
    with decomposed(model := Attends(dropout_p=0.5)):
        torch.manual_seed(1)
        dropped = model(X)
    torch.manual_seed(1)
    assert torch.equal(dropped, model(X))
    narrow = nn.LayerNorm(8).bfloat16()
    with decomposed(narrow):
        assert torch.equal(narrow(X.bfloat16()), nn.LayerNorm(8).bfloat16()(X.bfloat16()))


def test_a_row_that_sees_no_key_is_zero_as_in_the_kernel() -> None:
    mask = SEEN.clone()
    mask[0] = False
    with decomposed(model := Attends()):
        assert torch.equal(model(X, mask), Attends()(X, mask))


def test_nothing_is_left_behind_even_after_an_exception() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    with pytest.raises(RuntimeError), decomposed(model):
        model(torch.randn(2, 3))
    assert "forward" not in vars(model)
    assert torch.backends.mha.get_fastpath_enabled()
