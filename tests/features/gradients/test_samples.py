"""What two gradients tell of the samples behind them: which were seen, and with what weights."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

COUNTED = (11, 4, 8, 3)  # tokens of each sample


def language_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 40))


def padded(seed: int = 0) -> tuple[Tensor, Tensor]:
    ids = torch.randint(1, 40, (4, 11), generator=torch.Generator().manual_seed(seed))
    labels = ids.clone()
    for row, count in enumerate(COUNTED):
        ids[row, count:], labels[row, count:] = 0, -100
    return ids, labels


def loss(model: nn.Module, ids: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), labels[:, 1:].flatten(), reduction=reduction)


def whole() -> tuple[nn.Module, Tensor, Tensor]:
    model = language_model()
    ids, labels = padded()
    loss(model, ids, labels).backward()
    return model, ids, labels


def test_micro_batches_that_are_averaged_each_weight_the_same_samples_otherwise() -> None:
    model, ids, labels = whole()
    each, all_of = language_model(), language_model()
    for row in range(4):
        part = slice(row, row + 1)
        (loss(each, ids[part], labels[part]) / 4).backward()
        (loss(all_of, ids[part], labels[part], "sum") / sum(count - 1 for count in COUNTED)).backward()
    answer = fxdebug.compare_gradients(model, each).answer
    assert answer.startswith("rows of 0.weight that one sample makes have the factors 0.55, 0.786, 1.83")
    assert ": b weights the same samples otherwise; all 5 parameters differ" in answer
    assert fxdebug.compare_gradients(model, all_of).answer == "all gradients of b are those of a (5 parameters)"


def test_samples_of_a_layer_that_sees_few_of_them_are_weighted_by_eigenvalues() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 12))
    other = copy.deepcopy(model)
    x, y = torch.randn(6, 20), torch.randn(6, 12)
    weights = torch.tensor([1.0, 1.0, 2.0, 2.0, 0.5, 0.5])
    (model(x) - y).square().mean(1).mean().backward()
    ((other(x) - y).square().mean(1) * weights).mean().backward()
    answer = fxdebug.compare_gradients(model, other).answer
    assert "is made by 6 samples that have the factors 0.5, 1, 2: b weights the same samples otherwise" in answer


@pytest.mark.parametrize("seed", range(3))
def test_other_samples_are_not_said_to_be_weighted_otherwise(seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 16), nn.GELU(), nn.Linear(16, 12))
    other = copy.deepcopy(model)
    model(torch.randn(6, 20)).square().mean().backward()
    other(torch.randn(6, 20)).square().mean().backward()
    answer = fxdebug.compare_gradients(model, other).answer
    assert answer.startswith("all 4 parameters differ, and by not one factor")


def test_tokens_that_are_in_one_loss_alone_are_told() -> None:
    model, ids, labels = whole()
    counted, kept = language_model(), language_model()
    loss(counted, ids, labels.clamp(min=0)).backward()  # padding, token 0, is counted
    loss(kept, *padded(1)).backward()
    loss(kept, ids, labels).backward()  # without zero_grad()
    answer = fxdebug.compare_gradients(model, counted).answer
    assert answer.startswith("2 rows of 0.weight (0, 11) ")
    assert "have gradients in b alone: other tokens are in the loss of b than of a" in answer
    report = fxdebug.compare_gradients(model, kept)
    assert "rows of 0.weight" in report.answer and "in b alone" in report.answer
    assert "no zero_grad()" in str(report.findings[0].advice)
    report = fxdebug.compare_gradients(kept, model)
    assert "rows of 0.weight" in report.answer and "have gradients in a alone" in report.answer


def test_a_factor_that_is_a_ratio_of_two_counts_is_told_by_both() -> None:
    model, ids, labels = whole()
    other = language_model()
    (loss(other, ids, labels, "sum") / 40).backward()
    counts = {"tokens": 22, "with padding": 40}
    answer = fxdebug.compare_gradients(model, other, counts=counts).answer
    assert answer == "all gradients of b are those of a × 0.55 (5 parameters): 22 / 40 (tokens / with padding)"
    assert "as another number to divide by leaves it" in fxdebug.compare_gradients(model, other).answer


def test_a_branch_without_a_gradient_is_told_before_what_it_shares() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.one, self.two = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(self.body(x))
            return self.one(h), self.two(h)

    a, b, x = Two(), Two(), torch.randn(5, 6)
    sum(one.square().mean() for one in a(x)).backward()  # type: ignore[union-attr]
    b(x)[0].square().mean().backward()
    answer = fxdebug.compare_gradients(a, b).answer
    assert answer.startswith("two.bias, two.weight have no gradient in b, and one in a; 2 of 4 parameters differ")


def test_gradients_that_differ_alone_were_changed_behind_the_backward() -> None:
    torch.manual_seed(0)
    a = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    b, x = copy.deepcopy(a), torch.randn(8, 6)
    for model in (a, b):
        model(x).square().mean().backward()
    norm = b[1]
    assert isinstance(norm, nn.LayerNorm) and norm.weight.grad is not None
    norm.weight.grad += torch.randn(8) * 0.01
    report = fxdebug.compare_gradients(a, b)
    assert report.answer.startswith("1 of 6 parameters differ: the first in the order of the backward is 1.weight")
    assert "the backward passed them rightly" in str(report.findings[0].advice)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ((slice(6, 12),), "12 samples in a, 6 of which are not in b; the others have the factor 1;"),
        ((slice(0, 6), slice(0, 6)), "12 samples in a, 6 of which are not in b; the others have the factor 2;"),
    ],
)
def test_samples_that_are_not_in_one_of_the_steps_are_counted(parts: tuple[slice, ...], said: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 10))
    other = copy.deepcopy(model)
    x, y = torch.randn(12, 32), torch.randint(10, (12,))
    F.cross_entropy(model(x), y).backward()
    for part in parts:
        (F.cross_entropy(other(x[part]), y[part]) / 2).backward()
    assert said in fxdebug.compare_gradients(model, other).answer


def test_units_that_an_activation_cuts_off_in_one_step_are_no_tokens() -> None:
    def step(keep: float, bias: bool) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 24, bias=bias), nn.ReLU(), nn.Linear(24, 4))
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
        (model(x * keep) - 1).square().sum(1).mean().backward()
        return model

    for bias in (True, False):
        one, other = step(1.0, bias), step(-1.0, bias)
        cut_off = (one[0].weight.grad == 0).all(1) != (other[0].weight.grad == 0).all(1)
        assert cut_off.any()
        assert "tokens" not in fxdebug.compare_gradients(one, other).answer
