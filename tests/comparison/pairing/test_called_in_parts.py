"""A model that takes its input in parts: equal where it comes to the same, else told with the part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fxdebug


class Step(nn.Module):
    """Mixes each position with the one before it, or with what the part before this one ended with."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.before = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, last: Tensor) -> Tensor:
        earlier = torch.cat([last[:, None], x[:, :-1]], 1)
        return torch.tanh(self.now(x) + self.before(earlier))


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.last = Step(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inner(x, torch.zeros(len(x), 6)))  # type: ignore[no-any-return]


class InParts(Whole):
    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps = keeps

    def forward(self, x: Tensor) -> Tensor:
        state, out = torch.zeros(len(x), 6), []
        for part in x.split(4, 1):
            out.append(self.last(self.inner(part, state)))
            state = part[:, -1] if self.keeps else state
        return torch.cat(out, 1)


X = torch.randn(2, 11, 6, generator=torch.Generator().manual_seed(0))


def test_parts_that_come_to_the_same_are_no_finding() -> None:
    assert not fxdebug.compare_models(Whole(), InParts(True), X).findings


class Streams(nn.Module):
    """Holds a model and calls it on parts: each makes a table of its own size."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps, self.model = keeps, Masked()

    def forward(self, x: Tensor) -> Tensor:
        state, out = torch.zeros(len(x), 6), []
        for part in x.split(4, 1):
            out.append(self.model(part, state))
            state = part[:, -1] if self.keeps else state
        return torch.cat(out, 1)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.last = Step(), nn.Linear(6, 3)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        state = torch.zeros(len(x), 6) if state is None else state
        return self.last(self.inner(x, state) + torch.full((x.shape[1], 1), 0.5))  # type: ignore[no-any-return]


TOLD = (
    "before positions 4:7 it puts 0, not what a has at 3:4 (called on 3 parts in b; the one at 4:8 of dimension 1 is "
    "the first to return something else, though it is given what a has there)"
)


def test_a_model_that_another_one_holds_and_calls_on_parts_is_paired_with_it() -> None:
    assert not fxdebug.compare_models(Masked(), Streams(True), X).findings
    found = fxdebug.compare_models(Masked(), Streams(False), X)
    assert [(row.path, row.op, row.because) for row in found.findings] == [("model.inner", "cat", TOLD)]


@pytest.mark.parametrize("as_runs", [True, False])
def test_the_first_part_that_differs_is_told_with_its_place(as_runs: bool) -> None:
    models = Whole(), InParts(False)
    runs = [fxdebug.fx_debug(model, X, values="tensors") for model in models]
    found = fxdebug.compare(*runs) if as_runs else fxdebug.compare_models(*models, X)
    assert [(row.path, row.op, row.because) for row in found.findings] == [("inner", "cat", TOLD)]
