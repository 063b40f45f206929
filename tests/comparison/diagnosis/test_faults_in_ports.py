"""Faults in ports that write attention, tables of positions and sums in their own way are named where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare, compare_models, fx_debug
from fxdebug.api.comparison import Comparison
from support import sweep

WIDTH, HEADS, SIZE, WORDS, TOKENS = 32, 4, 8, 40, 7
IDS = torch.arange(2 * TOKENS).reshape(2, TOKENS) * 5 % WORDS


# The reference: tables as wide as a head, a fused attention, the sum of attention and network first -------------


class Angles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", 1.0 / 10000.0 ** (torch.arange(0, SIZE, 2) / SIZE), persistent=False)

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        angles = places[:, None].float() @ self.inverse[None]  # type: ignore[index]
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.key_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (
            t.unflatten(-1, (HEADS, SIZE)).transpose(1, 2) for t in (self.q(h), self.key_norm(self.k(h)), self.v(h))
        )
        q, k = (t * cos + torch.cat([-t[..., SIZE // 2 :], t[..., : SIZE // 2]], -1) * sin for t in (q, k))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.o(attended) + self.down(F.gelu(self.up(h))) + x


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(20, WIDTH)
        self.angles, self.layers = Angles(), nn.ModuleList([Layer(), Layer()])
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        x = self.words(ids) + self.places(places + 2)
        tables = self.angles(places)
        for layer in self.layers:
            x = layer(x, *tables)
        return self.head(self.last(x)[:, 0:])


# The port: half tables, one projection, attention step by step, sums in another order ---------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln, self.kn = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.weight, self.bias = nn.Parameter(torch.zeros(3 * WIDTH, WIDTH)), nn.Parameter(torch.zeros(3 * WIDTH))
        self.out, self.fc, self.proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.fault = ""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.ln(x)
        q = F.linear(h, self.weight[:WIDTH], self.bias[:WIDTH])
        k, v = F.linear(h, self.weight[WIDTH:], self.bias[WIDTH:]).chunk(2, -1)
        k = k if self.fault == "norm" else self.kn(k)
        q, k, v = (t.view(*t.shape[:2], HEADS, SIZE) for t in (q, k, v))
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / (4.0 if self.fault == "scale" else SIZE**0.5)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1 if self.fault == "mask" else 0)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        a = self.out(torch.einsum("bhts,bshd->bthd", weights, v).flatten(2))
        g = F.gelu(self.fc(h))
        g = F.dropout(g, 0.3, training=self.fault == "dropout")
        return x + a + self.proj(g)

    def rotated(self, t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        left, right = t.chunk(2, -1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class Port(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(20, WIDTH))
        self.blocks = nn.ModuleList([Block(), Block()])
        self.ln_f, self.lm = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
        self.base, self.stretch, self.first = 10000.0, 1.0, 2

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos[self.first : self.first + ids.shape[1]]
        places = torch.arange(ids.shape[1]) * self.stretch
        angles = torch.outer(places.float(), 1.0 / self.base ** (torch.arange(0, SIZE, 2) / SIZE))
        cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.lm(self.ln_f(x))


def ported(reference: Reference) -> Port:
    port = Port()
    with torch.no_grad():
        port.pos.copy_(reference.places.weight)
        for to, source in ((port.tok, reference.words), (port.ln_f, reference.last), (port.lm, reference.head)):
            to.load_state_dict(source.state_dict())
        for block, layer in zip(port.blocks, reference.layers):
            assert isinstance(layer, Layer) and isinstance(block, Block)
            block.weight.copy_(torch.cat([layer.q.weight, layer.k.weight, layer.v.weight]))
            block.bias.copy_(torch.cat([layer.q.bias, layer.k.bias, layer.v.bias]))
            pairs = ((block.ln, layer.norm), (block.kn, layer.key_norm), (block.out, layer.o))
            for to, source in (*pairs, (block.fc, layer.up), (block.proj, layer.down)):
                to.load_state_dict(source.state_dict())
    return port.eval()


def models() -> tuple[Reference, Port]:
    torch.manual_seed(0)
    reference = Reference().eval()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.add_(torch.randn_like(weight) * (0.3 if weight.dim() > 1 else 0.2))
    return reference, ported(reference)


WAYS: dict[str, Callable[[nn.Module, nn.Module], Comparison]] = {
    "statistics": lambda a, b: compare(fx_debug(a, IDS), fx_debug(b, IDS)),
    "tensors": lambda a, b: compare(fx_debug(a, IDS, values="tensors"), fx_debug(b, IDS, values="tensors")),
    "models": lambda a, b: compare_models(a, b, IDS),
}


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("way", WAYS)
def test_the_port_is_right(way: str) -> None:
    found = WAYS[way](*models())
    assert (found.verdict, found.findings) == ("equal", ())


def _values_lost(port: Any) -> None:
    port.blocks[1].bias[2 * WIDTH :] = 0.0


def _keys_and_values_exchanged(port: Any) -> None:
    weight = port.blocks[1].weight
    weight.copy_(torch.cat([weight[:WIDTH], weight[2 * WIDTH :], weight[WIDTH : 2 * WIDTH]]))


def _in_code(fault: str) -> Callable[[Any], None]:
    return lambda port: setattr(port.blocks[0], "fault", fault)


FAULTS: dict[str, tuple[Callable[[Any], None], str, set[str], str]] = {
    "scale": (_in_code("scale"), "blocks.0", {"einsum"}, "scaled_dot_product_attention(is_causal=True) in a, einsum("),
    "mask": (_in_code("mask"), "blocks.0", {"invert", "tril"}, "the mask lets 57% through in a, 69% in b"),
    "dropout": (_in_code("dropout"), "blocks.0", {"dropout"}, "random numbers were drawn"),
    "norm": (_in_code("norm"), "blocks.0", {"LayerNorm"}, "layers.0.key_norm of a"),
    "base": (lambda port: setattr(port, "base", 1000.0), "", {"rpow", "pow"}, "it makes other numbers than"),
    "stretched places": (lambda port: setattr(port, "stretch", 0.5), "", {"mul"}, "0.5 in b"),
    "first place": (lambda port: setattr(port, "first", 0), "", {"getitem"}, "it takes other rows of pos"),
    "values lost": (_values_lost, "blocks.1", {"linear"}, "rows 64:96 of blocks.1.bias are zero"),
    "keys and values": (_keys_and_values_exchanged, "blocks.1", {"linear"}, "rows 32:64 of blocks.1.weight are"),
}


# the edit that repairs b is told: the argument that makes the other mask, the rows that are taken
BY_MODELS = {
    "scale": "mul(0.35355339059327373) in a, div(4) in b",
    "mask": "diagonal=1 in b, where a's values need diagonal=0",
    "first place": "0:7 of dimension 0 in b, where a's values need 2:9",
}
# with compare_models the norm behind the keys is found to be given the values: as right
CASES = [pair for pair in sweep.spread(FAULTS, WAYS) if pair != ("keys and values", "models")]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_fault_is_named_with_its_reason(name: str, way: str) -> None:
    plant, path, ops, because = FAULTS[name]
    reference, port = models()
    plant(port)
    first = WAYS[way](reference, port).first
    assert first is not None
    ops = {"div", "truediv"} if (name, way) == ("scale", "models") else ops
    assert (first.path, first.op in ops) == (path, True), first
    assert (BY_MODELS.get(name, because) if way == "models" else because) in first.because
