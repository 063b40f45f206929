"""Faults around attentions in ports whose heads, masks and biases of positions are laid out in another way than a's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from support.compared import WAYS, compared

HEADS, WIDTH = 4, 32


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = (
            linear(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class Reference(nn.Module):
    """Layers that look at themselves, with a mask for each sequence, and at a memory with a mask of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(WIDTH), "own": Attention(), "cross": Attention()}) for _ in range(3)
        )

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        hidden = torch.ones(size, size).triu(1).bool()
        mask = torch.zeros(len(x), 1, size, size).masked_fill(hidden, torch.finfo(x.dtype).min)
        for layer in self.layers:
            y = layer["norm"](x)  # type: ignore[index, operator]
            x = x + layer["own"](y, y, mask)  # type: ignore[index, operator]
            x = x + layer["cross"](x, memory, torch.zeros(len(x), 1, size, memory.shape[1]))  # type: ignore[index, operator]
        return x


class Fused(nn.Module):
    """Channels first, with keys and values from one weight."""

    def __init__(self, a: Attention, fault: str) -> None:
        super().__init__()
        self.q, self.o, self.fault = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, 1), fault
        self.kv = nn.Linear(WIDTH, 2 * WIDTH)
        with torch.no_grad():
            for mine, theirs in ((self.q, a.q), (self.o, a.o)):
                mine.weight.copy_(theirs.weight[..., None])
                mine.bias.copy_(theirs.bias)  # type: ignore[union-attr]
            self.kv.weight.copy_(torch.cat([a.k.weight, a.v.weight]))
            self.kv.bias.copy_(torch.cat([a.k.bias, a.v.bias]))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q = self.q(x.transpose(1, 2)).unflatten(1, (HEADS, -1))
        k, v = (part.transpose(1, 2).unflatten(1, (HEADS, -1)) for part in self.kv(memory).chunk(2, -1))
        scores = torch.einsum("bhdt,bhds->bhts", q, k)
        if self.fault != "scale":
            scores = scores * (WIDTH // HEADS) ** -0.5
        scores = scores if mask is None else scores + mask
        weights = scores.softmax(1 if self.fault == "axis" else -1)
        y = torch.einsum("bhts,bhds->bhdt", weights, v)
        y = y.transpose(1, 2) if self.fault == "merge" else y
        return self.o(y.reshape(len(x), WIDTH, -1)).transpose(1, 2)


class Port(nn.Module):
    def __init__(self, a: Reference, fault: str = "", place: int = 1) -> None:
        super().__init__()
        self.norms = nn.ModuleList(layer["norm"] for layer in a.layers)  # type: ignore[index, misc]
        self.own, self.cross = (
            nn.ModuleList(Fused(layer[name], fault if i == place else "") for i, layer in enumerate(a.layers))  # type: ignore[index, arg-type]
            for name in ("own", "cross")
        )
        for each in self.cross:
            each.fault = ""

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        for norm, own, cross in zip(self.norms, self.own, self.cross):
            y = norm(x)
            x = x + own(y, y, torch.full((x.shape[1],) * 2, -1e9).triu(1))
            x = x + cross(x, memory, None)
        return x


def pair(fault: str = "", place: int = 1) -> tuple[Reference, Port, tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    a = Reference()
    with torch.no_grad():
        for weight in a.parameters():
            weight.copy_(torch.randn_like(weight) / math.sqrt(WIDTH) if weight.dim() > 1 else torch.randn_like(weight))
    return a, Port(a, fault, place), (torch.randn(2, 5, WIDTH), torch.randn(2, 7, WIDTH))


@pytest.mark.parametrize("way", WAYS)
def test_attentions_with_channels_first_and_without_masks_of_zeros_are_equal(way):
    a, b, inputs = pair()
    assert compared(a, b, inputs, way).verdict == "equal"


@pytest.mark.parametrize("fault, kind, op, because", [
    ("axis", "constant", "softmax", "dim=1 in b, where a's values need dim=-1"),
    ("merge", "wiring", "reshape", "elements are joined from 8 × 4 in b, where a's values need 4 × 8"),
])  # fmt: skip
def test_an_operation_that_works_along_another_dimension_is_tried_along_that_of_a(fault, kind, op, because):
    a, b, inputs = pair(fault)
    found = compared(a, b, inputs, "models").first
    assert found is not None
    assert (found.kind, found.path, found.op, found.because, found.proven) == (kind, "own.1", op, because, True)


@pytest.mark.parametrize("way", ["stats", "tensors"])
@pytest.mark.parametrize("fault, path, because", [
    ("axis", "own.1", "scaled_dot_product_attention in a, einsum('bhdt,bhds->bhts')"),
    ("merge", "own.1.o", "inputs with the same statistics give other values"),
])  # fmt: skip
def test_without_models_the_place_is_told_with_the_operations_of_both(fault, path, because, way):
    a, b, inputs = pair(fault)
    found = compared(a, b, inputs, way).first
    assert found is not None
    assert (found.kind, found.path, found.because.startswith(because)) == ("values", path, True)


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_scale_is_not_told_as_a_mask_that_is_written_in_another_way(way):
    a, b, inputs = pair("scale")
    found = compared(a, b, inputs, way).first
    assert found is not None
    assert found.path == "own.1" and "triu" not in found.because and found.op != "triu"


@pytest.mark.parametrize("way", WAYS)
def test_keys_and_values_exchanged_in_a_later_layer_are_named_there_and_not_as_a_lost_mask_of_zeros(way):
    a, b, inputs = pair()
    with torch.no_grad():
        w: Any = b.cross[2].kv.weight
        w.copy_(torch.cat([w[WIDTH:], w[:WIDTH]]))
    found = compared(a, b, inputs, way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("weights", "cross.2.kv", "linear")


@pytest.mark.parametrize("way", WAYS)
def test_a_bias_of_a_later_layer_that_is_zero_is_not_told_of_an_earlier_layer_with_the_same_memory(way):
    a, b, inputs = pair()
    with torch.no_grad():
        b.cross[1].kv.bias[WIDTH:] = 0.0  # type: ignore[union-attr, index]
    found = compared(a, b, inputs, way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("weights", "cross.1.kv", "linear")


class Biased(nn.Module):
    """Two attentions with biases of positions, each from its own table."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(9, HEADS), nn.Embedding(9, HEADS)
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1])
        apart = places[None] - places[:, None] + 4
        for table, layer in zip((self.first, self.second), self.layers):
            x = x + layer(x, x, table(apart).permute(2, 0, 1)[None])
        return x


class BiasedByRows(nn.Module):
    """The same with one table for all, or with tables whose rows are heads, of which ``used`` are taken."""

    def __init__(self, a: Biased, used: tuple[int, int]) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(t.weight.detach().T.clone()) for t in (a.first, a.second))
        self.blocks, self.used = nn.ModuleList(Fused(layer, "") for layer in a.layers), used  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        apart = 4 - torch.arange(size)[:, None] + torch.arange(size)
        for place, block in zip(self.used, self.blocks):
            x = x + block(x, x, self.tables[place][:, apart])
        return x


@pytest.mark.parametrize("way", WAYS)
def test_a_bias_that_is_looked_up_in_the_table_of_another_layer_is_named_at_the_lookup(way):
    torch.manual_seed(0)
    a, x = Biased(), torch.randn(2, 5, WIDTH)
    assert compared(a, BiasedByRows(a, (0, 1)), x, way).verdict == "equal"
    found = compared(a, BiasedByRows(a, (0, 0)), x, way).first
    assert found is not None
    assert (found.kind, found.path, found.op) == ("wiring", "", "getitem")
    assert found.because == "it looks up rows of tables.0, in a of second.weight"


class Repeated(nn.Module):
    """A mask of what is padded, repeated for each head."""

    def __init__(self, a: Attention, inverted: bool = False) -> None:
        super().__init__()
        self.block, self.inverted = Fused(a, ""), inverted

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        hidden = kept if self.inverted else ~kept
        mask = torch.zeros(len(x), 1, 1, x.shape[1]).masked_fill(hidden[:, None, None], -1e9)
        return self.block(x, x, mask.repeat_interleave(HEADS, 1))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        mask = torch.where(kept, 0.0, torch.finfo(x.dtype).min)[:, None, None]
        return self.attention(x, x, mask)


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_that_hides_the_wrong_positions_is_named_where_it_is_made_and_not_where_it_is_repeated(way):
    torch.manual_seed(0)
    a, inputs = Masked(), (torch.randn(2, 5, WIDTH), torch.arange(5) < torch.tensor([[5], [3]]))
    assert compared(a, Repeated(a.attention), inputs, way).verdict == "equal"
    found = compared(a, Repeated(a.attention, inverted=True), inputs, way).first
    assert found is not None
    assert (found.path, found.op) == ("", "masked_fill")
    inverted = "wiring", "the mask of masked_fill is inverted against that of a", True  # an edit that repairs b
    shares = "values", "the mask lets 80% through in a, 20% in b", False
    assert (found.kind, found.because, found.proven) == (inverted if way == "models" else shares)
