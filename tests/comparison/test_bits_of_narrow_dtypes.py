"""In bfloat16 tolerance is wide: another setting, and an early cast, show in the last bits, and are found by them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fxdebug import compare, compare_models, fx_debug

WIDTH = 32


@dataclass(frozen=True)
class Way:
    """How a model is written: the forms that a port of it gets wrong."""

    approximate: str = "tanh"
    cast_late: bool = True
    scaled_by_tensor: bool = True


class Norm(nn.Module):
    def __init__(self, cast_late: bool) -> None:
        super().__init__()
        self.weight, self.cast_late = nn.Parameter(torch.zeros(WIDTH)), cast_late

    def forward(self, x: Tensor) -> Tensor:
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        if self.cast_late:
            return (normed * (1 + self.weight.float())).type_as(x)
        return normed.type_as(x) * (1 + self.weight)


class Block(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.norm, self.way = Norm(way.cast_late), way
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate=self.way.approximate))


class Model(nn.Module):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self.embed, self.way = nn.Embedding(50, WIDTH), way
        self.layers, self.norm = nn.ModuleList(Block(way) for _ in range(2)), Norm(way.cast_late)

    def forward(self, ids: Tensor) -> Tensor:
        scale = math.sqrt(3072)
        x = self.embed(ids)
        x = x * torch.tensor(scale, dtype=x.dtype) if self.way.scaled_by_tensor else x * scale
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.norm(x) @ self.embed.weight.T
        return logits


def model(way: Way, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    made = Model(way)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return made.to(dtype).eval()


IDS = torch.randint(50, (2, 24), generator=torch.Generator().manual_seed(1))
ONE = Way()
PORTS = {
    "another GELU": (
        Way(approximate="none"),
        {("layers.0", "gelu"), ("layers.1", "gelu")},
        "approximate='tanh' in a, approximate='none' in b",
    ),
    "an early cast": (
        Way(cast_late=False),
        {("layers.0.norm", "type_as"), ("layers.1.norm", "type_as"), ("norm", "type_as")},
        "float32 in a, bfloat16 in b",
    ),
    "a scale that is not rounded": (Way(scaled_by_tensor=False), {("", "mul")}, "55.5 in a, 55.42562584220407 in b"),
}


@pytest.mark.parametrize("name", PORTS)
def test_what_only_the_last_bits_show_is_found_everywhere(name):
    way, places, because = PORTS[name]
    with torch.no_grad():
        found = compare_models(model(ONE), model(way), IDS)
    assert all(row.error <= row.tolerance for row in found.outputs)
    assert {(row.path, row.op) for row in found.findings} == places
    assert {row.because for row in found.findings} == {because}


def test_several_of_them_are_all_found():
    everything = Way("none", cast_late=False, scaled_by_tensor=False)
    with torch.no_grad():
        found = compare_models(model(ONE), model(everything), IDS)
    assert {(row.path, row.op) for row in found.findings} == set().union(*(places for _, places, _ in PORTS.values()))


def test_an_edit_that_repairs_the_last_bits_is_proven():
    with torch.no_grad():
        found = compare_models(model(ONE), model(Way(approximate="none")), IDS)
    assert [row.proven for row in found.findings] == [True, True]


@pytest.mark.parametrize(
    ("a", "b"), [(ONE, ONE), (Way(cast_late=False), ONE)], ids=["the same", "a later cast than in a"]
)
def test_what_loses_nothing_is_no_finding(a, b):
    with torch.no_grad():
        assert compare_models(model(a), model(b), IDS).findings == ()


DTYPES = [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)]


@pytest.mark.parametrize("dtypes", DTYPES)
def test_what_a_narrow_dtype_of_one_model_hides_is_told_in_float32(dtypes):
    with torch.no_grad():
        found = compare_models(model(ONE, dtypes[0]), model(Way(approximate="none"), dtypes[1]), IDS)
    assert {(row.path, row.op, row.kind) for row in found.findings} == {
        ("layers.0", "gelu", "constant"),
        ("layers.1", "gelu", "constant"),
    }
    assert found.notes[-1] == "told in float32, of copies of both models whose weights are rounded to bfloat16"


@pytest.mark.parametrize("dtypes", DTYPES)
def test_a_model_in_a_narrow_dtype_is_equal_to_itself_in_float32(dtypes):
    a, b = (model(ONE, dtype) for dtype in dtypes)
    with torch.no_grad():
        found = compare_models(a, b, IDS)
    assert (found.findings, found.narrow) == ((), "bfloat16")
    assert [next(each.parameters()).dtype for each in (a, b)] == list(dtypes)


class Turning(nn.Module):
    """Angles of positions, as rotary embeddings have them."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.inner = wide, nn.Linear(16, 16)
        self.register_buffer("inv_freq", 1e4 ** (-torch.arange(8) / 8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        freq = 1e4 ** (-torch.arange(8) / 8) if self.wide else self.inv_freq
        angles = torch.outer(torch.arange(x.shape[1]).to(freq.dtype), freq)
        turned: torch.Tensor = self.inner(x) * torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype)
        return turned


def test_positions_that_a_cast_rounds_are_named_and_not_another_order_of_elements() -> None:
    x = torch.randn(1, 1500, 16)
    found = compare_models(Turning(False), Turning(False).bfloat16(), x, inputs_b=x.bfloat16())
    assert found.first is not None and (found.first.kind, found.first.op) == ("dtype", "to")
    assert found.first.because == (
        "positions up to 1499 are rounded to bfloat16, which has every integer only up to 256, and not in a"
    )
    right = compare_models(Turning(True), Turning(True).bfloat16(), x, inputs_b=x.bfloat16())
    assert right.findings == ()


class Normed(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.norm, self.inner = nn.Embedding(50, 32), nn.LayerNorm(32, eps=eps), nn.Linear(32, 32)
        self.head = nn.Linear(32, 8)

    def forward(self, ids):
        x = self.words(ids)
        return self.head(x + 0.05 * torch.tanh(self.inner(self.norm(x))))


def test_repairs_are_measured_on_the_runs_that_were_made_not_on_those_of_copies():
    port = Normed(0.05).bfloat16()  # plain, its rounding hides the epsilon; with the inputs of a's calls it does not
    found = compare_models(Normed(1e-5), port, torch.arange(48).view(2, 24))
    assert [(row.path, row.op, row.because) for row in found.findings] == [
        ("norm", "layer_norm", "eps=1e-05 in a, eps=0.05 in b")
    ]


class Rotated(Turning):
    """Halves that turn by cosines and sines, which are two results."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        freq = 1e4 ** (-torch.arange(8) / 8) if self.wide else self.inv_freq
        angles = torch.einsum("i,j->ij", torch.arange(x.shape[1]).type_as(freq), freq)
        cos, sin = angles.cos().to(x.dtype)[None], angles.sin().to(x.dtype)[None]
        one, other = self.inner(x).chunk(2, -1)
        turned: torch.Tensor = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
        return turned


def test_positions_that_a_cast_rounds_are_one_finding_however_many_results_they_make() -> None:
    x = torch.randn(1, 600, 16)
    because = "positions up to 599 are rounded to bfloat16, which has every integer only up to 256, and not in a"
    dtypes = torch.float32, torch.bfloat16
    for wide in (False, True):
        runs = [fx_debug(Rotated(wide).to(dtype), x.to(dtype), values="tensors") for dtype in dtypes]
        told = [(row.kind, row.op, row.because) for row in compare(*runs).findings]
        assert told == [("dtype", "type_as", because)][wide:]


class RoundedRates(Turning):
    """Angles in float32, of frequencies that were cast, unless ``wide``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        freq = 1e2 ** (-torch.arange(8) / 8)
        freq = freq if self.wide else freq.to(x.dtype).float()
        angles = torch.einsum("i,j->ij", torch.arange(x.shape[1]).float(), freq).repeat(1, 2)
        one, other = x.chunk(2, -1)
        turned: torch.Tensor = x * angles.cos().to(x.dtype) + torch.cat([-other, one], -1) * angles.sin().to(x.dtype)
        return turned


class RatedModel(nn.Module):
    def __init__(self, wide: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rates, self.head = RoundedRates(wide), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.rates(x))
        return logits


def test_frequencies_that_a_cast_rounds_before_positions_multiply_them_are_named() -> None:
    x = torch.randn(1, 1500, 16, generator=torch.Generator().manual_seed(0)) + 2
    rounded = (
        "what positions up to 1499 are multiplied by is rounded to bfloat16, and not in a: angles are off by up to"
    )
    for wide, given in ((True, x), (False, x), (False, x - 2)):  # around 0, statistics do not show turned halves
        found = compare_models(RatedModel(wide), RatedModel(wide).bfloat16(), given, inputs_b=given.bfloat16())
        told = [(row.path, row.kind, row.op, row.because) for row in found.findings]
        assert told == ([] if wide else [("rates", "dtype", "to", f"{rounded} 5.9 radians")])


class Timed(nn.Module):
    """Sines of a time that the caller gives, in its own dtype or in that of the weights."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.wide = nn.Linear(32, 16), wide

    def forward(self, time: torch.Tensor) -> torch.Tensor:
        time = time if self.wide else time.to(self.head.weight.dtype)
        angles = time[:, None].float() * 1e4 ** (-torch.arange(16) / 16)
        made: torch.Tensor = self.head(torch.cat([angles.cos(), angles.sin()], -1).to(self.head.weight.dtype))
        return made


def test_a_time_that_a_cast_rounds_before_sines_are_taken_of_it_is_named() -> None:
    time = torch.tensor([937.3, 833.7])
    rounded = "what sines and cosines are taken of, up to 936, is rounded to bfloat16, and not in a"
    for wide in (True, False):
        found = compare_models(Timed(wide), Timed(wide).bfloat16(), time, inputs_b=time)
        told = [(row.kind, row.op, row.because) for row in found.findings]
        assert told[:1] == ([] if wide else [("dtype", "to", f"{rounded}: angles are off by up to 3.7 radians")])


class TurnedLate(nn.Module):
    """Halves are turned in float32 and cast afterwards, by angles of frequencies that are cast, unless ``wide``."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.wide = nn.Linear(16, 16), nn.Linear(16, 16), wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        freq = 1e4 ** (-torch.arange(8) / 8)
        angles = torch.arange(2000, 2064).float()[:, None] * (freq if self.wide else freq.to(x.dtype).float())
        cos, sin = angles.cos(), angles.sin()

        def turned(y: torch.Tensor) -> torch.Tensor:
            one, other = y.float().chunk(2, -1)
            return torch.cat([one * cos - other * sin, other * cos + one * sin], -1).to(y.dtype)

        scores: torch.Tensor = turned(self.q(x)) @ turned(self.k(x)).mT
        return scores


def test_a_cast_behind_what_is_joined_is_no_other_view() -> None:
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    for wide in (True, False):
        found = compare_models(TurnedLate(wide), TurnedLate(wide).bfloat16(), x, inputs_b=x.bfloat16())
        assert [(row.kind, row.op) for row in found.findings] == ([] if wide else [("dtype", "to")])
