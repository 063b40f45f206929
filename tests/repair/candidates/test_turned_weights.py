"""Weights that lie another way than the code of b takes them are named where, turned, they make b return the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fxdebug import compare_models


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))  # type: ignore[no-any-return]


class Unfolded(nn.Module):
    """A convolution by a product, with its kernel as ``how`` lays it out."""

    def __init__(self, conv: nn.Conv2d, how: str) -> None:
        super().__init__()
        kernel = conv.weight.detach().permute(2, 3, 1, 0)
        kernel = {"": kernel, "transposed": kernel.transpose(0, 1), "flipped": kernel.flip(0, 1)}[how]
        self.kernel, self.bias = nn.Parameter(kernel.contiguous()), conv.bias

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 3).unflatten(1, (x.shape[1], 3, 3))
        y = torch.einsum("bcyxn,yxco->bon", patches, self.kernel) + self.bias[:, None]  # type: ignore[index]
        return y.unflatten(-1, (x.shape[2] - 2, x.shape[3] - 2))


class Port(nn.Module):
    def __init__(self, model: Convolutions, how: str) -> None:
        super().__init__()
        self.first, self.second = Unfolded(model.one, how), Unfolded(model.two, how)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())  # type: ignore[no-any-return]


def told(how: str, *, spoilt: bool = False) -> list[tuple[str, str, bool]]:
    torch.manual_seed(0)
    model = Convolutions()
    port = Port(model, how)
    if spoilt:
        with torch.no_grad():
            port.second.kernel[0] *= 2
    found = compare_models(model, port, torch.randn(2, 2, 7, 8, generator=torch.Generator().manual_seed(0)))
    return [(row.op or "", row.because, row.proven) for row in found.findings]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("transposed", "with its dimensions 0 and 1 transposed"),
        ("flipped", "flipped along dimensions 0 and 1"),
    ],
)
def test_kernels_in_another_layout_that_are_turned_are_named(how: str, words: str) -> None:
    names = "first.kernel, second.kernel"
    assert told(how) == [("einsum", f"{names} lie another way than its code takes it: {words} it fits", True)]


def test_kernels_that_fit_are_no_finding_and_those_beside_another_fault_are_not_told_as_turned() -> None:
    assert told("") == []
    assert not any("another way" in because for _, because, _ in told("transposed", spoilt=True))


class Dense(nn.Module):
    """Flattens what a convolution returns, with the channels first or last."""

    def __init__(self, channels_last: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.dense, self.channels_last = nn.Conv2d(2, 4, 3), nn.Linear(4 * 3 * 5, 3), channels_last

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x).tanh()
        return self.dense((y.permute(0, 2, 3, 1) if self.channels_last else y).flatten(1))  # type: ignore[no-any-return]


def test_columns_in_the_order_of_another_flattening_are_named() -> None:
    x = torch.randn(2, 2, 5, 7, generator=torch.Generator().manual_seed(0))
    one, other = Dense(True), Dense(False)
    turn = "with its columns, which are in the order 3×5×4, put into that of 4×3×5"
    row = compare_models(one, other, x).first
    assert row is not None and row.op == "linear" and row.proven
    assert row.because == f"dense.weight lies another way than its code takes it: {turn} it fits"
    with torch.no_grad():
        other.dense.weight.copy_(other.dense.weight.unflatten(1, (3, 5, 4)).permute(0, 3, 1, 2).flatten(1))
    assert compare_models(one, other, x).equal


class Cell(nn.Module):
    """An LSTM whose matrices have a row for each input, as some frameworks keep them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.given, self.kept = nn.Parameter(torch.randn(5, 12) / 2), nn.Parameter(torch.randn(3, 12) / 2)
        self.bias, self.out = nn.Parameter(torch.randn(12) / 2), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, c, made = torch.zeros(len(x), 3), torch.zeros(len(x), 3), []
        for each in x.unbind(1):
            i, f, g, o = (each @ self.given + h @ self.kept + self.bias).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            made.append(h)
        return self.out(torch.stack(made, 1))  # type: ignore[no-any-return]


class OfTorch(nn.Module):
    """The same by torch, where a matrix is put into its shape by ``reshape`` or transposed."""

    def __init__(self, model: Cell, *, reshaped: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 3, batch_first=True), nn.Linear(3, 4)
        self.head.load_state_dict(model.out.state_dict())
        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(model.given.T)
            self.lstm.weight_hh_l0.copy_(model.kept.reshape(12, 3) if reshaped else model.kept.T)
            self.lstm.bias_ih_l0.copy_(model.bias)
            self.lstm.bias_hh_l0.zero_()
            self.lstm.weight_ih_l0[0] *= scale

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("scale", [1.0, 0.7])
def test_a_matrix_that_was_put_into_its_shape_and_not_transposed_is_told_where_that_is_all(scale: float) -> None:
    x, model = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0)), Cell().eval()
    assert not compare_models(model, OfTorch(model, reshaped=False).eval(), x).findings
    found = compare_models(model, OfTorch(model, reshaped=True, scale=scale).eval(), x)
    told = "lstm.weight_hh_l0 lies another way than its code takes it: read as 3×12 and transposed it fits"
    assert (told in [row.because for row in found.findings if row.proven]) == (scale == 1.0)
