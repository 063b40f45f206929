"""Losses that smooth their labels otherwise are told by the gradients of the last bias; other losses are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
SMOOTH = 0.1


def answer(a: Loss, b: Loss, classes: int = 7, samples: int = 24, head: float = 0.25) -> str:
    models = []
    for loss in (a, b):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, classes))
        torch.nn.init.normal_(model[2].weight, std=head) if head else torch.nn.init.zeros_(model[2].weight)
        torch.nn.init.zeros_(model[2].bias)
        generator = torch.Generator().manual_seed(2)
        x, y = torch.randn(samples, 10, generator=generator), torch.randint(classes, (samples,), generator=generator)
        loss(model(x), y).backward()
        models.append(model)
    return fxdebug.compare_gradients(*models).answer


def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, label_smoothing=SMOOTH)


def by_targets(kept: Callable[[float, int], float], given: Callable[[float, int], float]) -> Loss:
    """Return a cross entropy whose one-hot targets are multiplied by one number and raised by another."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        classes = logits.shape[1]
        targets = F.one_hot(labels, classes) * kept(SMOOTH, classes) + given(SMOOTH, classes)
        return -(targets * logits.log_softmax(-1)).sum(-1).mean()

    return loss


def binary(given: float) -> Loss:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        targets = F.one_hot(labels, logits.shape[1]) * (1 - SMOOTH) + given / logits.shape[1]
        return F.binary_cross_entropy_with_logits(logits, targets)

    return loss


# after reports of pytorch-randaugment (30), utils.pytorch (14), aprender (2199) and fastai (1814)
UNEVEN = {
    "an epsilon over K taken from the label": (by_targets(lambda e, k: 1 - e / k, lambda e, k: e / k), "1.086"),
    "an epsilon taken twice": (by_targets(lambda e, k: 1 - e - e / k, lambda e, k: e / k), "0.9857"),
    "the rest for the epsilon": (by_targets(lambda e, k: 1 - e, lambda e, k: (1 - e) / k), "1.8"),
    "an epsilon over K - 1": (by_targets(lambda e, k: 1 - e * k / (k - 1), lambda e, k: e / k), "0.9833"),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_targets_that_do_not_sum_to_one_are_told_with_their_sum(name: str) -> None:
    loss, total = UNEVEN[name]
    said = answer(smoothed, loss)
    assert said.startswith(
        f"the targets of the loss of b sum to {total} times what those of a do, and are smoothed otherwise (label "
        "smoothing): so differ the gradients of 2.bias, class by class; "
    )


def test_another_epsilon_is_told_as_another_smoothing() -> None:
    said = answer(smoothed, F.cross_entropy)
    assert said.startswith(
        "the targets of the loss of b are smoothed otherwise (label smoothing): the gradients of 2.bias differ by one "
        "step for each sample of a class; all 4 parameters differ"
    )


def test_a_constant_that_all_classes_get_is_told_with_its_sign() -> None:
    said = answer(binary(SMOOTH), binary(1.0), classes=12)  # TimDettmers/ConvE#55
    assert said.startswith(
        "the gradients of 2.bias differ by one number for all classes: the targets of the loss of b are larger for "
        "every class, the label as the others"
    )
    assert "are smaller for every class" in answer(binary(1.0), binary(SMOOTH), classes=12)


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    each = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - (-each).exp()) ** 2 * each).mean()


def weighted(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, torch.linspace(0.5, 2, logits.shape[1]))


def squares(logits: Tensor, labels: Tensor) -> Tensor:
    return F.mse_loss(logits.softmax(-1), F.one_hot(labels, logits.shape[1]).float())


def with_z_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return smoothed(logits, labels) + 0.01 * logits.logsumexp(-1).square().mean()


def four_times(logits: Tensor, labels: Tensor) -> Tensor:
    return 4 * smoothed(logits, labels)


def of_samples(logits: Tensor, labels: Tensor) -> Tensor:
    each = F.cross_entropy(logits, labels, reduction="none")
    return (each * torch.linspace(0.5, 1.5, len(each))).mean()


@pytest.mark.parametrize("classes, samples", [(5, 12), (7, 24), (10, 64), (30, 64)])
@pytest.mark.parametrize("head", [0.0, 0.02, 0.25])
@pytest.mark.parametrize("loss", [focal, weighted, squares, with_z_loss, four_times, of_samples])
def test_other_losses_are_no_smoothing(loss: Loss, head: float, classes: int, samples: int) -> None:
    assert "smooth" not in answer(smoothed, loss, classes, samples, head)
