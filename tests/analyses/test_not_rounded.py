"""Weights that are no roundings of the original's, and those that are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fxdebug.analyses.quantisation.not_rounded import not_rounded

W = torch.randn(48, 32, generator=torch.Generator().manual_seed(0)) * torch.logspace(-1, 1, 48)[:, None]
SQUARE = torch.randn(32, 32, generator=torch.Generator().manual_seed(1)) * torch.logspace(-1, 0, 32)[:, None]


def rounded(weight: Tensor, bits: int, group: int | None = None) -> Tensor:
    """Round a weight by one scale for each row, or for each group of a row."""
    parts = weight.reshape(len(weight), -1, group or weight.shape[1])
    scale = parts.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return ((parts / scale).round() * scale).reshape(weight.shape)


def scaled_along_columns() -> Tensor:
    scale = SQUARE.abs().amax(1, keepdim=True) / 127
    return (SQUARE / scale).round() * scale.T


def test_scales_along_another_axis_transposed_weights_other_orders_and_shifts_are_told() -> None:
    shifts = torch.linspace(-2, 2, 48)[:, None]
    order = torch.arange(48).view(-1, 2).flip(1).flatten()
    made = {
        "its weight is a's with a factor for each row and one for each column: scales along another axis": (
            SQUARE,
            scaled_along_columns(),
        ),
        "its weight is that of a transposed": (SQUARE, rounded(SQUARE, 8).T),
        "48 of 48 rows of its weight stand elsewhere in a": (W, rounded(W, 8)[order]),
        "32 of 32 columns of its weight stand elsewhere in a": (
            W,
            rounded(W, 8)[:, torch.arange(32).view(-1, 2).flip(1).flatten()],
        ),
        "each row of its weight is a's with a factor, 0.37 to 2.7": (
            W,
            rounded(W, 8) * torch.logspace(-1, 1, 48, base=2.7183)[:, None],
        ),
        "its weight is a's times 2": (W, rounded(W, 8) * 2),
        "each row of its weight is a's with a shift: zero points are others": (W, rounded(W, 8) + shifts * 4),
        "each column of its weight is a's with a factor, 0.37 to 2.7": (
            W,
            rounded(W, 8) * torch.logspace(-1, 1, 32, base=2.7183),
        ),
        "": (W, torch.randn(48, 32, generator=torch.Generator().manual_seed(2))),
    }
    assert {text: (found := not_rounded(*pair)) and found[1] for text, pair in made.items()} == {x: x for x in made}


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("group", [None, 8, 16])
def test_weights_rounded_to_any_number_of_bits_are_not_told(bits: int, group: int | None) -> None:
    assert not_rounded(W, rounded(W, bits, group)) is None


def test_weights_that_are_cut_off_are_another_matter() -> None:
    assert not_rounded(W, W.clamp(-0.2 * W.abs().amax(1, keepdim=True), 0.2 * W.abs().amax(1, keepdim=True))) is None


def test_nothing_is_said_of_other_shapes_and_of_weights_that_are_not_finite() -> None:
    broken = W.clone()
    broken[0, 0] = torch.nan
    assert (not_rounded(W, W[:4]), not_rounded(W, broken), not_rounded(W[0], W[0])) == (None, None, None)
