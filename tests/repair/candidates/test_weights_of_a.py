"""Weights of b that are those of a with factors, or those of another module, are named where a's own repair b."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models

X = torch.randn(3, 6, 9, generator=torch.Generator().manual_seed(1))


class Filters(nn.Module):
    """A bank of filters as a buffer, one row each; ``areas`` divide each by its sum."""

    def __init__(self, *, columns: bool, areas: bool) -> None:
        super().__init__()
        bank = (1 - (torch.arange(12.0)[:, None] - torch.arange(5.0) * 2.3 - 1).abs() / (1.5 + torch.arange(5))).clamp(
            0
        )
        bank = bank / bank.sum(0) if areas else bank
        self.register_buffer("bank", bank if columns else bank.t().contiguous())
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        power = torch.cat([x.square(), x.abs()[..., :3]], -1)
        energy = power @ self.bank if self.columns else (self.bank @ power.mT).mT
        return energy.clamp_min(1e-6).log()


def test_factors_of_the_rows_of_a_buffer_are_told() -> None:
    a = Filters(columns=False, areas=True)
    (row,) = compare_models(a, Filters(columns=True, areas=False), X).findings
    assert row.because.startswith("bank is bank of a transposed, with each of its columns times another factor, from ")
    assert row.proven and row.kind == "weights"
    assert compare_models(a, Filters(columns=True, areas=True), X).equal


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose1d(6, 6, 2, stride=2, bias=False), nn.BatchNorm1d(6)
        nn.init.uniform_(self.norm.weight, 0.4, 1.8)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.norm(self.up(x)))


class Merged(nn.Module):
    """The same with the norm in the weights, along one of their dimensions."""

    def __init__(self, model: Scaled, along: int) -> None:
        super().__init__()
        scale = model.norm.weight.detach() / (model.norm.running_var + 1e-5).sqrt()  # type: ignore[operator]
        shape = [-1 if at == along else 1 for at in range(3)]
        self.kernel = nn.Parameter((model.up.weight.detach() * scale.view(shape)).flatten(1))
        self.bias = nn.Parameter(model.norm.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("bit,io->bot", x, self.kernel).unflatten(1, (6, 2)).mT.flatten(2) + self.bias[:, None]
        return y * y.sigmoid()


def test_factors_along_another_dimension_than_they_belong_are_told() -> None:
    torch.manual_seed(3)
    a = Scaled().eval()
    (row,) = compare_models(a, Merged(a, 0), X).findings
    assert row.because.startswith("kernel is up.weight of a, with each of its rows times another factor, from ")
    assert row.because.endswith(", where a's values need these along another dimension") and row.proven
    assert compare_models(a, Merged(a, 1), X).equal


class Halves(nn.Module):
    """Two feed-forward parts with something between; ``shared``: they are one module."""

    def __init__(self, names: tuple[str, str], *, shared: bool = False) -> None:
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(9, 12), nn.Tanh(), nn.Linear(12, 9))  # noqa: E731
        first = make()
        self.names = names
        self.add_module(names[0], first)
        self.mix = nn.Linear(9, 9)
        self.add_module(names[1], first if shared else make())

    def forward(self, x: Tensor) -> Tensor:
        one, two = (self.get_submodule(name) for name in self.names)
        x = x + one(x) / 2
        x = x + self.mix(x)
        return x + two(x) / 2


def halves(*, shared: bool) -> tuple[Halves, Halves]:
    torch.manual_seed(5)
    a, b = Halves(("macaron", "feed")), Halves(("ffn_1", "ffn_2"), shared=shared)
    names = {"macaron": "ffn_1", "feed": "ffn_2", "mix": "mix"}
    b.load_state_dict({f"{names[k.partition('.')[0]]}.{k.partition('.')[2]}": v for k, v in a.state_dict().items()})
    return a, b


def test_one_module_in_the_place_of_two_is_told() -> None:
    first = compare_models(*halves(shared=True), X).first
    assert first is not None and first.proven and "feed.0.weight of a" in first.because
    assert "macaron.0.weight" in first.because
    assert compare_models(*halves(shared=False), X).equal
