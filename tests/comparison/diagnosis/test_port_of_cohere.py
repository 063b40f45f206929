"""A port of transformers' Cohere with one projection, grouped heads and attention step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare, fx_debug

transformers = pytest.importorskip("transformers")

IDS = torch.arange(14).reshape(2, 7) * 5 % 60
WIDTH, HEADS, GROUPS, SIZE, INNER = 32, 4, 2, 8, 48


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gain, None, 1e-5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.given = Norm(), nn.Linear(WIDTH, (HEADS + 2 * GROUPS) * SIZE, bias=False)
        self.made, self.turned = nn.Linear(WIDTH, WIDTH, bias=False), True
        self.up, self.down = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        h, (batch, tokens, _) = self.norm(x), x.shape
        heads = self.given(h).view(batch, tokens, HEADS + 2 * GROUPS, SIZE).permute(0, 2, 1, 3)
        q, k, v = heads.split([HEADS, GROUPS, GROUPS], 1)
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        q = q.view(batch, GROUPS, HEADS // GROUPS, tokens, SIZE)
        weights = torch.softmax(q @ k[:, :, None].mT * SIZE**-0.5 + mask, -1)
        attended = (weights @ v[:, :, None]).reshape(batch, HEADS, tokens, SIZE)
        attended = attended.transpose(1, 2).flatten(2) if self.turned else attended.reshape(batch, tokens, -1)
        gate, up = self.up(h).chunk(2, -1)
        return x + self.made(attended) + self.down(F.silu(gate) * up)

    def rotated(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


class Port(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.blocks, self.last = nn.Embedding(60, WIDTH), nn.ModuleList([Block(), Block()]), Norm()
        self.scale = 1.0

    def forward(self, ids: Tensor) -> Tensor:
        x, tokens = self.words(ids), ids.shape[1]
        x = x if self.scale == 1.0 else x * self.scale
        angles = torch.outer(torch.arange(tokens).float(), 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE))
        mask = torch.full((tokens, tokens), float("-inf")).triu(1)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin(), mask)
        return F.linear(self.last(x), self.words.weight) * 0.25


def pair() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    config = transformers.CohereConfig(
        vocab_size=60, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=GROUPS, pad_token_id=0, bos_token_id=1, eos_token_id=2, logit_scale=0.25,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    reference, port = transformers.CohereForCausalLM(config).eval(), Port().eval()
    for weight in reference.parameters():
        weight.copy_(torch.randn_like(weight) * WIDTH**-0.5 if weight.dim() > 1 else torch.rand_like(weight) + 0.5)
    port.words.weight.copy_(reference.model.embed_tokens.weight)
    port.last.gain.copy_(reference.model.norm.weight)
    for block, layer in zip(port.blocks, reference.model.layers):
        own, net = layer.self_attn, layer.mlp
        block.norm.gain.copy_(layer.input_layernorm.weight)
        block.given.weight.copy_(torch.cat([own.q_proj.weight, own.k_proj.weight, own.v_proj.weight]))
        block.made.weight.copy_(own.o_proj.weight)
        block.up.weight.copy_(torch.cat([net.gate_proj.weight, net.up_proj.weight]))
        block.down.weight.copy_(net.down_proj.weight)
    return reference, port


def compared(reference: nn.Module, port: nn.Module, values: Any) -> Any:
    inputs = {"input_ids": IDS, "use_cache": False}
    return compare(fx_debug(reference, inputs, values=values), fx_debug(port, IDS, values=values))


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_the_port_is_equal(values: str) -> None:
    found = compared(*pair(), values)
    assert (found.verdict, found.findings) == ("equal", ())


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_heads_that_are_not_turned_back_are_named_at_their_reshape(values: str) -> None:
    reference, port = pair()
    port.blocks[0].turned = False
    first = compared(reference, port, values).first
    assert (first.path, first.op) == ("blocks.0", "reshape")


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_a_scale_before_a_norm_is_named_and_not_a_part_of_the_norm(values: str) -> None:
    reference, port = pair()
    port.scale = 5.0
    first = compared(reference, port, values).first
    assert (first.path, first.op) == ("", "mul")
