"""Candidates of a cause are tried one after the other, and a failure among them costs no answer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fxdebug import compare_models
from fxdebug.repair.candidates import in_order


class Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin() + x.roll(1)


class Product(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x.cos() * x).flip(0) / 3


def test_a_trial_that_fails_is_a_note_beside_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object) -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(in_order, "_TELL", (fails,))
    found = compare_models(Sum(), Product(), torch.arange(8.0).view(2, 4))
    assert found.findings and f"{in_order.NOT_TRIED} (KeyError)" in found.notes
