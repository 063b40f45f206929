"""What a loss was given, read in its graph: a divergence of probabilities, and products that look like one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fxdebug.features.shared.gradients.loss_inputs import loss_inputs

TARGET = torch.softmax(torch.arange(12.0).reshape(4, 3).sin(), -1)


def logits() -> Tensor:
    return torch.arange(12.0).reshape(4, 3).cos().requires_grad_()


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "batchmean": lambda x: F.kl_div(x.softmax(-1), TARGET, reduction="batchmean"),
    "sum": lambda x: F.kl_div(x.softmax(-1), TARGET, reduction="sum"),
    "rows": lambda x: F.kl_div(x.softmax(-1), TARGET, reduction="none").sum(1).mean(),
    "of a sigmoid": lambda x: F.kl_div(x.sigmoid(), TARGET, reduction="sum"),
    "with a temperature": lambda x: 4.0 * F.kl_div((x / 2).softmax(-1), TARGET, reduction="batchmean"),
    "of several steps": lambda x: F.kl_div(x.softmax(-1), TARGET, reduction="batchmean") / 3,
}
RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "logarithms": lambda x: F.kl_div(x.log_softmax(-1), TARGET, reduction="batchmean"),
    "logarithms on both sides": lambda x: F.kl_div(x.log_softmax(-1), TARGET.log(), reduction="sum", log_target=True),
    "a reward": lambda x: -(TARGET * x.softmax(-1)).sum(1).mean(),
    "a reward less a baseline": lambda x: (0.3 - TARGET * x.softmax(-1)).mean(),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_divergence_of_probabilities_is_told(name: str) -> None:
    (one,) = loss_inputs(WRONG[name](logits()))
    given = "sigmoid" if name == "of a sigmoid" else "softmax"
    assert (one.kind, one.op, one.given, one.shape) == ("no logarithms", "kl_div", given, (4, 3))


def test_nll_loss_of_what_a_layer_returned_is_told_and_of_its_log_softmax_not() -> None:
    layer, classes = torch.nn.Linear(3, 3), torch.tensor([0, 1, 2, 0])
    (one,) = loss_inputs(F.nll_loss(layer(logits()), classes))
    assert (one.kind, one.op, one.given, one.shape) == ("no logarithms", "nll_loss", "linear", (4, 3))
    assert loss_inputs(F.nll_loss(layer(logits()).log_softmax(-1), classes)) == ()


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_or_may_be_meant_is_not(name: str) -> None:
    assert loss_inputs(RIGHT[name](logits())) == ()


def test_a_mean_of_labels_that_attention_weighs_is_told_as_shares_and_that_of_numbers_is_not() -> None:
    scores, target = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 1, 2, 0, 1, 2])
    labels = F.one_hot(torch.tensor([0, 1, 2, 0, 1]), 3).float()
    (found,) = loss_inputs(F.cross_entropy(scores.softmax(-1) @ labels, target))
    assert (found.kind, found.op, found.given) == ("probabilities", "cross_entropy", "softmax and matmul")
    for values in (torch.randn(5, 3), 4 * labels):
        assert loss_inputs(F.cross_entropy(scores.softmax(-1) @ values, target)) == ()
    assert loss_inputs(F.nll_loss((scores.softmax(-1) @ labels).log(), target)) == ()
