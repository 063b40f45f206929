"""Slices of weights that stand in other places than the code takes them are named, whatever the layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

WIDTH, HEADS = 16, 2


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(-2, -3)


class Apart(nn.Module):
    """Query, key and value by a projection each."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
        return self.o(mixed.transpose(-2, -3).flatten(-2))


class Fused(nn.Module):
    """All three by one projection, in thirds or head by head."""

    def __init__(self, by_head: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.by_head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), by_head

    def parts(self, x: Tensor) -> Any:
        y = self.qkv(x)
        if self.by_head:
            return y.unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4).unbind(0)
        return [heads(part) for part in y.chunk(3, -1)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))


class Torchs(nn.Module):
    """torch's own attention, which runs as one fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x, x, x, need_weights=False)[0]


class Tower(nn.Module):
    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([make() for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms):
            x = x + layer(norm(x))
        return x


def into(layer: Any, source: Any) -> None:
    """Copy the weights of one layer into the other layout."""
    for leaf in ("weight", "bias"):
        parts = torch.cat([getattr(p, leaf) for p in (source.q, source.k, source.v)])
        if isinstance(layer, Torchs):
            getattr(layer.mix, f"in_proj_{leaf}").copy_(parts)
            getattr(layer.mix.out_proj, leaf).copy_(getattr(source.o, leaf))
        elif isinstance(layer, Fused):
            by_head = parts.unflatten(0, (3, HEADS, -1)).transpose(0, 1).flatten(0, 2)
            getattr(layer.qkv, leaf).copy_(by_head if layer.by_head else parts)
            getattr(layer.out, leaf).copy_(getattr(source.o, leaf))


def pair(make: Callable[[], nn.Module]) -> tuple[Tower, Any]:
    torch.manual_seed(0)
    a, b = Tower(Apart).eval(), Tower(make).eval()
    with torch.no_grad():
        for weight in a.parameters():
            weight.normal_(std=0.3).add_(1.0 if weight.dim() == 1 else 0.0)
        for one, other in zip(a.layers, b.layers):
            into(other, one)
        b.norms.load_state_dict(a.norms.state_dict())
    return a, b


def compared(a: nn.Module, b: nn.Module, values: str) -> fxdebug.Comparison:
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return fxdebug.compare(fxdebug.fx_debug(a, x, values=values), fxdebug.fx_debug(b, x, values=values))


def exchange(weight: Tensor, order: tuple[int, ...], dim: int = 0) -> None:
    weight.copy_(torch.cat([weight.chunk(len(order), dim)[i] for i in order], dim).clone())


MAKES: dict[str, Callable[[], nn.Module]] = {
    "thirds": Fused,
    "by head": lambda: Fused(by_head=True),
    "torch": Torchs,
}


@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_nothing_is_found_where_each_slice_is_where_the_code_takes_it(make, values):
    assert compared(*pair(make), values).equal


def turned(weight: Tensor) -> Tensor:
    return weight.unflatten(0, (HEADS, 3, -1)).transpose(0, 1).flatten(0, 2).clone()


FAULTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "query and key": (
        "thirds",
        lambda m: [exchange(weight, (1, 0, 2)) for weight in m.qkv.parameters()],
        "rows 0:16 of layers.1.qkv.weight are 0:16 of layers.1.k.weight of a; "
        "in other layers they are those of layers.#.q.weight",
    ),
    "weight alone": (
        "thirds",
        lambda m: exchange(m.qkv.weight, (0, 2, 1)),
        "rows 16:32 of layers.1.qkv.weight are 0:16 of layers.1.v.weight of a; "
        "in other layers they are those of layers.#.k.weight",
    ),
    "bias of value": (
        "thirds",
        lambda m: m.qkv.bias[32:].zero_(),
        "rows 32:48 of layers.1.qkv.bias are zero; in other layers they are those of layers.#.v.bias",
    ),
    "not interleaved": (
        "by head",
        lambda m: m.qkv.weight.copy_(turned(m.qkv.weight)),
        "rows 8:16 of layers.1.qkv.weight are 8:16 of layers.1.q.weight of a; "
        "in other layers they are those of layers.#.k.weight",
    ),
    "in_proj": (
        "torch",
        lambda m: exchange(m.mix.in_proj_weight, (2, 1, 0)),
        "rows 0:16 of layers.1.mix.in_proj_weight are 0:16 of layers.1.v.weight of a; "
        "in other layers they are those of layers.#.q.weight",
    ),
    "in_proj bias": (
        "torch",
        lambda m: m.mix.in_proj_bias.zero_(),
        "layers.1.mix.in_proj_bias is zero, layers.1.q.bias, layers.1.k.bias, layers.1.v.bias of a is not",
    ),
    "out_proj": (
        "torch",
        lambda m: m.mix.out_proj.weight.copy_(m.mix.out_proj.weight.T.clone()),
        "layers.1.mix.out_proj.weight is layers.1.o.weight of a transposed",
    ),
}


@pytest.mark.parametrize(("name", "values"), [*((name, "stats") for name in FAULTS), ("in_proj", "tensors")])
def test_the_slice_and_its_weight_are_named(name, values):
    make, edit, told = FAULTS[name]
    a, b = pair(MAKES[make])
    with torch.no_grad():
        edit(b.layers[1])
    first = compared(a, b, values).first
    assert first is not None
    path = "layers.1.mix" if make == "torch" else "layers.1.qkv"
    assert (first.path, first.op, first.kind, first.because) == (path, "linear", "weights", told)


@pytest.mark.parametrize(("make", "op", "because"), [
    ("thirds", "scaled_dot_product_attention", "it is given the result of layers.0.k/linear in a, of layers.0/chunk("),
    ("torch", "matmul", "matmul is given the same values in another order"),
])  # fmt: skip
def test_without_a_right_layer_what_the_attention_is_given_is_tried(make, op, because):
    a, b = pair(MAKES[make])
    with torch.no_grad():
        for layer in b.layers:
            weights = layer.qkv.parameters() if make == "thirds" else (layer.mix.in_proj_weight, layer.mix.in_proj_bias)
            for weight in weights:
                exchange(weight, (1, 0, 2))
    x = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        first = fxdebug.compare_models(a, b, x).first
    assert first is not None
    assert (first.path.split(".")[:2], first.op, first.kind) == (["layers", "0"], op, "wiring")
    assert first.because.startswith(because) and first.proven


def test_code_that_takes_the_slices_in_another_order_is_told_from_weights():
    a, b = pair(Fused)
    right = Fused.parts
    for layer in b.layers:
        object.__setattr__(layer, "parts", lambda x, layer=layer: [right(layer, x)[i] for i in (1, 0, 2)])
    first = compared(a, b, "stats").first
    assert first is not None
    assert (first.path, first.op, first.kind) == ("layers.0", "chunk", "wiring")
    names = ", ".join(f"layers.0.{name}.weight" for name in "qkv")
    assert first.because == f"it takes other parts than a: the rows of layers.0.qkv.weight are those of {names} of a"


class Attends(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mha, self.is_causal = nn.MultiheadAttention(16, 2, batch_first=True), is_causal
        nn.init.normal_(self.mha.in_proj_bias)  # zeros tell nothing of their order

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((x.shape[1], x.shape[1]), -torch.inf).triu(1) if self.is_causal else None
        return self.mha(x, x, x, attn_mask=mask, need_weights=False)[0]


class Reads(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.scale = kind(8, 8, batch_first=True), scale

    def forward(self, x: Tensor) -> Tensor:
        start = torch.ones(1, len(x), 8) * self.scale
        return self.rnn(x, (start, start) if isinstance(self.rnn, nn.LSTM) else start)[0]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("values", ["stats", "tensors"])
@pytest.mark.parametrize(
    "a, b, x",
    [
        (Attends(True), Attends(False), torch.randn(2, 5, 16)),
        *[(Reads(kind, 1.0), Reads(kind, 2.0), torch.randn(2, 5, 8)) for kind in (nn.LSTM, nn.GRU, nn.RNN)],
    ],
)
def test_equal_weights_of_a_fused_operation_are_never_the_cause(
    a: nn.Module, b: nn.Module, x: Tensor, values: Any, grad: bool
) -> None:
    """Their matrix has more rows than columns: as many as the bias has elements."""
    with torch.set_grad_enabled(grad):
        found = fxdebug.compare(fxdebug.fx_debug(a, x, values=values), fxdebug.fx_debug(b, x, values=values))
    assert found.findings and [each.kind for each in found.findings if each.kind == "weights"] == []
