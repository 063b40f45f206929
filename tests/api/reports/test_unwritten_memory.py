"""Memory of ``torch.empty`` that a model reads before it is written, told by ``check``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from support.watched import state_of

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Runs(nn.Module):
    def __init__(self, body: object) -> None:
        super().__init__()
        self.body, self.calls = body, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.body(x)


def cached(x: Tensor) -> Tensor:
    kept = torch.empty(6, 4)
    kept[:3] = x
    return kept.mean(0)


def masked(x: Tensor) -> Tensor:
    kept = torch.empty(6, 4)
    kept[:3] = x
    return (x @ x.T @ torch.eye(3, 6)).masked_fill(torch.arange(6) > 2, -torch.inf).softmax(-1) @ kept


def in_two_parts(x: Tensor) -> Tensor:
    kept = torch.empty_like(x)
    kept[:1], kept[1:] = x[:1], x[1:]
    return kept + torch.empty(3, 4).normal_() + x.new_empty(3, 4).copy_(x)


def chosen(x: Tensor) -> Tensor:
    kept = torch.empty_like(x)
    kept[:2] = 1.0
    return torch.where(torch.arange(3)[:, None] < 2, kept, x)


def read_where_written(x: Tensor) -> Tensor:
    kept = torch.empty(9, 4)
    kept[:3] = x
    return kept[:3].sum()


def told(body: object) -> list[str]:
    found = fxdebug.check(Runs(body), X)
    return [one.severity for one in found if one.rule == "uninitialised"]


def test_memory_that_what_is_returned_depends_on_is_an_error() -> None:
    assert told(cached) == ["error"]


def test_memory_whose_numbers_have_the_weight_zero_is_a_warning_unless_there_was_a_nan() -> None:
    assert told(masked) in (["warning"], ["error"])


@pytest.mark.parametrize("body", [in_two_parts, chosen, read_where_written])
def test_memory_that_is_written_or_not_chosen_is_quiet(body: object) -> None:
    assert told(body) == []


def test_a_model_that_asks_for_no_such_memory_runs_once_and_all_is_put_back() -> None:
    for body, runs in ((torch.relu, 1), (cached, 3)):
        model = Runs(body)
        seen = []
        model.register_forward_pre_hook(lambda *_, seen=seen: seen.append(1))
        before = state_of(model), torch.get_rng_state()
        fxdebug.check(model, X, analyses="numbers")
        assert len(seen) in (1, runs)  # once, too, where a NaN was left there
        assert state_of(model) == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
