"""A loss that is given what it is not made for: found in autograd's graph, wherever the loss is computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

Loss = Callable[[Tensor], Tensor]
CLASSES, TARGET = torch.tensor([0, 2, 1, 1, 0, 2, 2, 1]), torch.linspace(0, 1, 8)
NONE = torch.zeros(8, dtype=torch.long)


def twice(op: str, given: str) -> str:
    return f"{op} takes logits, and is given what {given} returned: squashed twice, gradients are small"


def spread(op: str, shape: str, result: str = "8×8") -> str:
    return f"{op} of {shape} and a target of another shape, broadcast to {result}: each output meets each target"


def pixels(logits: Tensor) -> Tensor:
    return F.cross_entropy(logits.softmax(1).view(2, 4, 3).transpose(1, 2), CLASSES.view(2, 4))


WRONG: list[tuple[int, Loss, str]] = [
    (3, lambda o: F.cross_entropy(o.softmax(1), CLASSES), twice("cross_entropy", "softmax")),
    (3, lambda o: F.cross_entropy(o.softmax(-1), CLASSES, label_smoothing=0.1) * 2, twice("cross_entropy", "softmax")),
    (3, lambda o: F.cross_entropy(o.softmax(-1), torch.full((8, 3), 1 / 3)), twice("cross_entropy", "softmax")),
    (3, lambda o: F.cross_entropy(o.sigmoid(), CLASSES), twice("cross_entropy", "sigmoid")),
    (3, pixels, twice("cross_entropy", "softmax")),
    (
        1,
        lambda o: F.binary_cross_entropy_with_logits(o.sigmoid()[:, 0], TARGET),
        twice("binary_cross_entropy_with_logits", "sigmoid"),
    ),
    (
        3,
        lambda o: F.nll_loss(o.softmax(1), CLASSES),
        "nll_loss takes logarithms of probabilities, and is given what softmax returned",
    ),
    (
        1,
        lambda o: F.cross_entropy(o, NONE),
        "cross_entropy runs over a dimension of size 1 (8×1): its result is 0, and so is every gradient",
    ),
    (1, lambda o: F.mse_loss(o, TARGET), spread("mse_loss", "8×1")),
    (1, lambda o: F.smooth_l1_loss(o[:, 0], TARGET[:, None]), spread("smooth_l1_loss", "8")),
    (1, lambda o: ((o - TARGET) ** 2).mean(), spread("sub", "8×1")),
    (1, lambda o: (TARGET - o).abs().sum() / 8, spread("sub", "8×1")),
    (1, lambda o: F.l1_loss(o, TARGET), spread("sub", "8×1")),
    (
        1,
        lambda o: F.mse_loss(o.view(2, 1, 2, 2), TARGET.view(2, 2, 2)),
        spread("mse_loss", "2×1×2×2", "2×2×2×2"),
    ),
]
RIGHT: dict[str, tuple[int, Loss]] = {
    "cross_entropy": (3, lambda o: F.cross_entropy(o, CLASSES)),
    "log_softmax twice, which changes nothing": (3, lambda o: F.cross_entropy(o.log_softmax(1), CLASSES)),
    "nll_loss of a logarithm": (3, lambda o: F.nll_loss(o.softmax(1).log(), CLASSES)),
    "binary_cross_entropy of a sigmoid": (1, lambda o: F.binary_cross_entropy(o.sigmoid()[:, 0], TARGET)),
    "mse_loss of equal shapes": (1, lambda o: F.mse_loss(o[:, 0], TARGET)),
    "mse_loss and one target for all": (1, lambda o: F.mse_loss(o, torch.ones(1, 1).expand(8, 1))),
    "all pairs of predictions": (1, lambda o: (o - o.T).pow(2).mean()),
    "minus the mean of a batch": (1, lambda o: (o - TARGET.mean()).pow(2).mean()),
    "distances to three centres": (3, lambda o: (o[:, None] - torch.eye(3)).pow(2).sum(-1).mean()),
}


def losses(outputs: int, loss: Loss) -> list[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of mse_loss
        report = fxdebug.gradients(nn.Linear(4, outputs), torch.randn(8, 4), loss)
    return [(finding.severity, finding.what) for finding in report.findings if finding.rule == "loss input"]


@pytest.mark.parametrize("outputs, loss, told", WRONG)
def test_a_loss_that_is_given_the_wrong_thing_is_named_with_what_it_was_given(
    outputs: int, loss: Loss, told: str
) -> None:
    assert losses(outputs, loss) == [("warning", told)]


@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_of_what_it_is_made_for_is_no_finding(name: str) -> None:
    assert losses(*RIGHT[name]) == []


def watched(folder: Path, optimizer: torch.optim.Optimizer, model: nn.Module, loss: Loss) -> list[str]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fxdebug.watch(model, optimizer, every=4, save=folder):
            for _ in range(12):
                loss(model(x)).backward()
                optimizer.step()
                optimizer.zero_grad()
    return [f"{one.severity}: {one.rule}: {one.what}" for one in fxdebug.check(folder).findings]


def test_a_watched_training_tells_it_once_with_what_to_do(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    found = watched(tmp_path, optimizer, model, lambda o: F.cross_entropy(o.softmax(1), CLASSES))
    what = twice("cross_entropy", "softmax")
    assert found == [f"warning: loss input: {what}. Give it what the last layer returned, without softmax"]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_that_maximises_a_loss_is_the_cause_and_the_rate_is_not(tmp_path: Path, kind: type) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = kind(model.parameters(), lr=0.2, maximize=True)
    found = watched(tmp_path, optimizer, model, lambda o: F.mse_loss(o[:, 0], TARGET) / 2)
    assert [one.partition(" the loss rises")[0] for one in found] == ["warning: maximizes:"]
    assert found[0].endswith("in 12 steps: the optimizer was made with maximize=True, and goes uphill")


def test_a_reward_that_is_maximised_is_no_more_than_advice(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, maximize=True)
    found = watched(tmp_path, optimizer, model, lambda o: -F.mse_loss(o[:, 0], TARGET))
    assert [one.split(":")[:2] for one in found] == [["advice", " maximizes"]]
