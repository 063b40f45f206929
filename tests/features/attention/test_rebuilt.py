"""Weights of attention that are rebuilt from its arguments, masks included, are those that torch computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fxdebug.features.attention.seen.rebuilt import Rebuilt, rebuild_fused, rebuild_multi_head
from fxdebug.operators.attention import bound

MULTI_HEAD = "multi_head_attention_forward"


def rebuilt(layer: nn.MultiheadAttention, x: Tensor, **masks: Any) -> tuple[Rebuilt, Tensor]:
    """Return the rebuilt weights of a layer's call, and those that torch returns."""
    caught: list[Any] = []
    original = functional.multi_head_attention_forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        caught.append((bound(MULTI_HEAD, args, kwargs), result[0]))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, MULTI_HEAD, watched)
        _, weights = layer(x, x, x, average_attn_weights=False, **masks)
    return rebuild_multi_head(*caught[0]), weights


@pytest.fixture
def layer() -> nn.MultiheadAttention:
    torch.manual_seed(0)
    return nn.MultiheadAttention(8, 2, batch_first=True)


X = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
CAUSAL = torch.ones(5, 5).triu(1).bool()
PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])


def test_weights_without_a_mask_are_those_of_torch(layer: nn.MultiheadAttention) -> None:
    found, weights = rebuilt(layer, X)
    torch.testing.assert_close(found.weights, weights.detach())
    assert found.visible is None and found.padding is None


def test_masks_say_which_keys_are_visible_and_which_are_padding(layer: nn.MultiheadAttention) -> None:
    found, weights = rebuilt(layer, X, attn_mask=CAUSAL, key_padding_mask=PADDED)
    torch.testing.assert_close(found.weights, weights.detach())
    assert found.padding is not None and found.visible is not None
    assert torch.equal(found.padding, PADDED)
    assert torch.equal(found.visible.expand(3, 2, 5, 5), (~CAUSAL & ~PADDED[:, None, None]).expand(3, 2, 5, 5))


def test_a_mask_for_each_head_is_one_for_each_batch_and_head(layer: nn.MultiheadAttention) -> None:
    mask = torch.stack([CAUSAL if number % 2 else torch.zeros(5, 5, dtype=torch.bool) for number in range(6)])
    found, weights = rebuilt(layer, X, attn_mask=mask)
    torch.testing.assert_close(found.weights, weights.detach())
    assert found.visible is not None
    assert torch.equal(found.visible.expand(3, 2, 5, 5), ~mask.view(3, 2, 5, 5))


def test_a_key_that_the_layer_adds_is_visible_to_every_query() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True)
    found, _ = rebuilt(layer, X, attn_mask=CAUSAL)
    assert found.visible is not None and found.visible.shape[-1] == 6
    assert bool(found.visible[..., 5].all()) and not bool(found.visible[..., 4].all())


def test_a_query_that_sees_no_key_has_weights_of_nought() -> None:
    q = torch.randn(1, 1, 2, 4)
    mask = torch.tensor([[True, False], [False, False]])
    arguments = {"query": q, "key": q, "value": q, "attn_mask": mask}
    found = rebuild_fused(arguments, functional.scaled_dot_product_attention(q, q, q, attn_mask=mask))
    assert found.weights[0, 0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
