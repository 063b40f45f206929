"""The masks of ``nn.MultiheadAttention`` and of torch's transformer layers, and equal weights in narrow dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fxdebug
from features.attention.test_attention_maps import IDS, gpt2, llama

LENGTH = 8
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH)
PADDING = torch.arange(LENGTH) >= torch.tensor([[8], [5]])
PER_HEAD = torch.rand(8, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.3


def seen_by(hidden: Tensor, *sizes: int) -> np.ndarray:
    return (~hidden).expand(2, 4, LENGTH, LENGTH).numpy()


MASKS: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "causal, added": ({"attn_mask": CAUSAL, "is_causal": True}, seen_by(CAUSAL < 0)),
    "causal, of truth values": ({"attn_mask": CAUSAL < 0}, seen_by(CAUSAL < 0)),
    "a large number added": ({"attn_mask": (CAUSAL < 0) * -1e9}, seen_by(CAUSAL < 0)),
    "of each head": ({"attn_mask": PER_HEAD}, seen_by(PER_HEAD.view(2, 4, LENGTH, LENGTH))),
    "padding": ({"key_padding_mask": PADDING}, seen_by(PADDING[:, None, None])),
    "padding, added": (
        {"key_padding_mask": torch.zeros(2, LENGTH).masked_fill(PADDING, -torch.inf)}, seen_by(PADDING[:, None, None])
    ),
    "causal and padding": (
        {"attn_mask": CAUSAL < 0, "key_padding_mask": PADDING}, seen_by((CAUSAL < 0) | PADDING[:, None, None])
    ),
}  # fmt: skip


@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("name", MASKS)
def test_the_masks_of_multi_head_attention_say_what_a_query_may_see(name: str, needs: bool) -> None:
    given, expected = MASKS[name]
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, LENGTH, 16)
    inputs = {"query": x, "key": x, "value": x, "need_weights": needs, **given}
    (one,) = fxdebug.attention(layer, inputs).maps
    assert one.visible is not None and np.array_equal(np.broadcast_to(one.visible, one.weights.shape), expected)
    assert one.error is not None and one.error < 1e-5


def test_the_hint_that_a_mask_is_causal_replaces_it_where_no_weights_are_needed() -> None:
    layer, x, other = nn.MultiheadAttention(16, 4, batch_first=True), torch.randn(2, LENGTH, 16), PER_HEAD[0]
    given = {"query": x, "key": x, "value": x, "attn_mask": other, "is_causal": True}
    for needs, hidden in ((False, CAUSAL < 0), (True, other)):
        (one,) = fxdebug.attention(layer, given | {"need_weights": needs}).maps
        assert one.visible is not None and np.array_equal(one.visible[0, 0], ~hidden.numpy())


def test_keys_that_the_attention_adds_are_seen_by_every_query() -> None:
    layer, x = (
        nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        torch.randn(2, 8, 16),
    )
    (one,) = fxdebug.attention(layer, {"query": x, "key": x, "value": x, "key_padding_mask": PADDING}).maps
    assert one.visible is not None and one.visible.shape == (2, 1, 1, LENGTH + 2)
    assert np.array_equal(one.visible[:, 0, 0, :LENGTH], ~PADDING.numpy()) and one.visible[..., LENGTH:].all()


class Encoder(nn.Module):
    """Layers of torch that find the padding in the tokens; those in ``without`` are not given the mask."""

    def __init__(self, *without: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)
        self.embed, self.encoder = nn.Embedding(10, 16), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.without = without

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for i, layer in enumerate(self.encoder.layers):
            x = layer(x, src_key_padding_mask=None if i in self.without else words == 0)
        return x


WORDS = torch.randint(1, 10, (2, LENGTH), generator=torch.Generator().manual_seed(2)).masked_fill(PADDING, 0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("without", [(), (0,), (1,), (2,), (0, 1)])
def test_a_layer_that_is_not_given_the_padding_of_its_kind_is_found(without: tuple[int, ...], training: bool) -> None:
    report = fxdebug.attention(Encoder(*without).train(training), {"words": WORDS})
    found = [(finding.rule, finding.path) for finding in report.findings]
    assert found == [("padding seen", f"encoder.layers.{i}.self_attn") for i in without]


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)

    def forward(self, target: Tensor, memory: Tensor) -> Any:
        return self.decoder(target, memory, tgt_mask=CAUSAL, memory_key_padding_mask=PADDING, tgt_is_causal=True)


def test_the_padding_of_the_memory_is_none_of_the_targets() -> None:
    report = fxdebug.attention(Decoder(), {"target": torch.randn(2, LENGTH, 16), "memory": torch.randn(2, LENGTH, 16)})
    assert report.findings == () and len(report.maps) == 4
    assert all(one.visible is not None for one in report.maps)


# Narrow dtypes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("small", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_weights_that_rounding_makes_equal_are_no_finding(attention: str, small: float, dtype: torch.dtype) -> None:
    """One head looks at something, and the scores of the others are small: their weights are nearly alike."""
    model = gpt2(attention)
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight[:, :16] *= 10
            block.attn.c_attn.weight[:, 16:64] *= small
    assert [finding.rule for finding in fxdebug.attention(model.to(dtype), IDS).findings] == []


def test_a_head_that_looks_at_nothing_is_found_also_in_bfloat16_where_its_weights_are_wide() -> None:
    model = llama().to(torch.bfloat16)
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[32:48] = 0
    assert [finding.rule for finding in fxdebug.attention(model, IDS).findings] == ["uniform head"]


class Queries(nn.Module):
    """Attends by the fused operation, with a mask of padding that it is given."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = x.view(2, 6, 2, 8).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask[:, None, None])


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]


KEPT = torch.tensor([[1.0, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]])


@pytest.mark.parametrize(
    "model, mask, told",
    [
        (Queries(), KEPT, "attn_mask"),
        (Queries(), KEPT.bool(), None),
        (Queries(), (1 - KEPT) * torch.finfo(torch.float32).min, None),
        (Queries(), torch.ones(2, 6), None),  # added to all scores alike
        (Queries(), KEPT * 0.5, None),  # a bias
        (Masked(), 1 - KEPT, "key_padding_mask"),
        (Masked(), KEPT == 0, None),
        (Masked(), torch.zeros(2, 6), None),
    ],
)
def test_a_floating_mask_of_zeros_and_ones_is_found_as_it_hides_nothing(
    model: nn.Module, mask: torch.Tensor, told: str | None
) -> None:
    x = torch.randn(2, 6, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = fxdebug.attention(model, (x, mask)).findings
    what = f"{told} is of floats, 0 and 1: floats are added to the scores, so it hides no key"
    assert [(one.rule, one.what) for one in found if one.severity != "advice"] == (
        [] if told is None else [("mask added", what)]
    )
