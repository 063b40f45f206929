"""What the parts of a loss are for is read in its graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical, Normal, kl_divergence

from fxdebug.features.shared.records.learning import PartFacts
from fxdebug.features.training.loss.loss_parts import LossParts

LOGITS = torch.linspace(-1, 1, 32).reshape(8, 4).requires_grad_()
OTHER = torch.linspace(1, -1, 8).requires_grad_()
GAIN = torch.linspace(-1, 1, 8)
TAKEN = torch.arange(8) % 4
BITS = torch.tensor([0.0, 1.0] * 4)


def facts_of(loss: Callable[[], Tensor], again: bool = False) -> PartFacts:
    parts = LossParts()
    for _ in range(8):
        parts.look(loss(), (), is_again=again)
    return parts.facts()


def chosen() -> Tensor:
    return Categorical(logits=LOGITS * 1).log_prob(TAKEN)


def focal() -> Tensor:
    log = chosen()
    return -((1 - log.exp()) ** 2 * log).mean()


def overlap(targets: Tensor = BITS) -> Tensor:
    share = OTHER.sigmoid()
    return 2 * (share * targets).sum() / (share.sum() + targets.sum())


def code(sign: float, drawn: bool) -> Tensor:
    of = Normal(LOGITS * 1, (LOGITS * 0.5).exp())
    z = of.rsample() if drawn else of.sample()
    return (z * OTHER[:, None]).square().mean() + sign * kl_divergence(of, Normal(0.0, 1.0)).mean()


CASES: dict[str, tuple[Callable[[], Tensor], PartFacts]] = {
    "rewards without a minus": (lambda: (chosen() * GAIN).mean(), PartFacts(rarer=(0.0, 0.0))),
    "rewards with one": (lambda: -(chosen() * GAIN).mean(), PartFacts()),
    "rewards that are alike": (lambda: -(chosen() * torch.ones(8)).mean(), PartFacts(weights_alike=1.0)),
    "an advantage that learns": (lambda: -(chosen() * (GAIN - OTHER * 1)).mean(), PartFacts(learned_weights=True)),
    "a focal loss": (focal, PartFacts()),
    "an overlap": (
        overlap,
        PartFacts(overlap=True),
    ),
    "one minus an overlap": (
        lambda: 1 - overlap(),
        PartFacts(),
    ),
    "one minus an overlap with pixels": (
        lambda: 1 - overlap(255 * BITS),
        PartFacts(overlap_of=255.0),
    ),
    "a likelihood without a minus": (lambda: chosen().mean(), PartFacts(unlikely=True)),
    "a likelihood with one": (lambda: -chosen().mean(), PartFacts()),
    "a likelihood times a return below zero": (lambda: -(chosen() * -3.0).mean(), PartFacts()),
    "a likelihood beside a value, as of soft actors": (lambda: (0.2 * chosen() - OTHER * 1).mean(), PartFacts()),
    "a distance that a mask chooses": (lambda: ((OTHER * 1).square() * BITS).clamp(min=1e-12).sum(), PartFacts()),
    "a margin of zeros and ones": (
        lambda: (1 - OTHER * BITS).clamp(min=0).mean(),
        PartFacts(bits=("clamp", 0.5)),
    ),
    "a margin of both signs": (lambda: F.softplus(-OTHER * (2 * BITS - 1)).mean(), PartFacts()),
    "two things driven apart": (
        lambda: -(LOGITS[:, 0] * 1 - OTHER).square().mean(),
        PartFacts(repels=True),
    ),
    "a code": (lambda: code(1.0, True), PartFacts()),
    "a code without a gradient": (lambda: code(1.0, False), PartFacts()),
    "a code upside down": (lambda: code(-1.0, True), PartFacts(code_upside_down=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_part_is_told_for_what_it_is(name: str) -> None:
    loss, expected = CASES[name]
    found = facts_of(loss)
    assert (found.rarer is None) == (expected.rarer is None)
    told = (
        "weights_alike", "learned_weights", "entropy_sunk", "overlap", "overlap_of", "unlikely", "repels", "bits",
        "code_upside_down",
    )  # fmt: skip
    assert [getattr(found, one) for one in told] == [getattr(expected, one) for one in told]


def test_the_ratio_is_looked_at_where_examples_came_before() -> None:
    def loss() -> Tensor:
        ratio = (chosen() - chosen().detach()).exp()
        return -torch.min(ratio * GAIN, ratio.clamp(0.8, 1.2) * GAIN).mean()

    assert facts_of(loss).ratio_of_one == 0
    assert facts_of(loss, again=True).ratio_of_one == 8


def test_a_part_without_a_gradient_is_told_where_it_changes() -> None:
    steps = iter(range(1, 100))
    changing = facts_of(lambda: F.mse_loss(OTHER * 1, GAIN) + torch.tensor(float(next(steps))))
    steady = facts_of(lambda: F.mse_loss(OTHER * 1, GAIN) + 3.0)
    assert changing.without_gradient is not None and steady.without_gradient is None


def test_margins_that_come_to_the_same_are_told() -> None:
    assert facts_of(lambda: (OTHER * 1e-3 + 0.2).relu().mean()).margin == pytest.approx(0.2)
    assert facts_of(lambda: (OTHER + 0.2).relu().mean()).margin is None
