"""What a loss's graph shows by itself is named, and the loop without it has no warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.features.training.loss.odd_losses import odd_in
from fxdebug.features.training.verdict.judge import Verdict
from support.loops import cases_of, warnings_of
from support.tool import tool

bench_loops = tool("bench_loops")
CASES = cases_of("learn_classes")


def policy_that_learns_from(detached: bool) -> Verdict:
    """A policy with a Gaussian, whose loss is the logarithm of the probability of what it drew, with a reward."""
    torch.manual_seed(0)
    net, spread = torch.nn.Linear(4, 2), torch.nn.Parameter(torch.zeros(2))
    net.register_parameter("spread", spread)
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(40):
            state = torch.randn(32, 4)
            policy = torch.distributions.Normal(net(state), spread.exp())
            action = policy.rsample()
            reward = -(action.detach() - state[:, :2]).square().sum(1)
            taken = action.detach() if detached else action
            optimizer.zero_grad()
            (-(policy.log_prob(taken).sum(1) * (reward - reward.mean())).mean()).backward()
            optimizer.step()
    return watched.verdict()


def test_a_drawn_value_whose_mean_cancels_is_named_as_the_reason_of_gradients_that_are_0() -> None:
    found = {one.rule: one for one in policy_that_learns_from(detached=False).findings}
    assert "so that it cancels: a mean from what was drawn around it" in found["zero gradients"].what
    assert "zero gradients" not in {one.rule for one in policy_that_learns_from(detached=True).findings}


class Rounds(torch.nn.Module):
    """Codes that are rounded, and a sigmoid at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode((0.2 * self.encode(x).sigmoid()).round()).sigmoid()


def test_zeros_in_the_middle_are_not_put_down_to_the_sigmoid_at_the_end() -> None:
    torch.manual_seed(0)
    net = Rounds()
    optimizer = torch.optim.SGD(net.parameters(), 1e-2)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(40):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(net(x), x).backward()
            optimizer.step()
    (found,) = [one for one in watched.verdict().findings if one.rule == "silent activation"]
    assert found.what.startswith("what is before decode returned only zeros") and "sigmoid" not in found.advice


def test_a_gate_over_one_expert_is_named_though_the_loss_falls() -> None:
    path = bench_loops.LOOPS / "sixth" / "f03_moe_top1_gate.py"

    assert bench_loops.watched(path, True).rule == "normalised alone"
    assert warnings_of(bench_loops.watched(path, False)) == []


def test_the_share_of_one_expert_that_is_divided_by_itself_is_named_though_another_loss_teaches_the_gate() -> None:
    path = bench_loops.LOOPS / "seventh" / "f08_minimind_moe.py"

    found = bench_loops.watched(path, True)

    assert (found.rule, found.findings[0].op) == ("normalised alone", "division by its sum")
    assert warnings_of(bench_loops.watched(path, False)) == []


def test_values_of_rewards_without_an_end_are_no_fault() -> None:
    path = bench_loops.LOOPS / "sixth" / "h07_ddqn_rising_loss.py"

    found = bench_loops.watched(path, False)

    assert [one.severity for one in found.findings if one.rule == "targets grow"] == ["advice"]
    assert warnings_of(found) == []


def test_targets_that_run_away_are_named_before_what_follows_from_them() -> None:
    path = bench_loops.LOOPS / "tenth" / "f06.py"

    assert [one.rule for one in bench_loops.watched(path, True).findings] == ["targets grow"]


def test_text_behind_an_image_that_all_places_see_does_not_see_ahead() -> None:
    found = bench_loops.watched(bench_loops.LOOPS / "tenth" / "f09.py", False)

    assert (found.state, found.findings) == ("learns", ())


@pytest.mark.parametrize("all_in_eval", [False, True])
def test_a_normalisation_that_is_frozen_as_it_began_is_no_fault_of_a_model_in_training(all_in_eval: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    target = x @ torch.randn(8, 3)
    norm = torch.nn.BatchNorm1d(32)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), norm, torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train(not all_in_eval)
    norm.eval()
    with fxdebug.watch(model, optimizer, save=None) as watched:
        for _ in range(60):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()
    told = [(one.severity, one.rule) for one in watched.verdict().findings if one.rule == "eval mode"]
    assert told == [("error" if all_in_eval else "advice", "eval mode")]


@pytest.mark.parametrize("moves", [False, True])
def test_answers_whose_classes_are_no_last_dimension_are_to_be_moved_before_they_are_rows(moves: bool) -> None:
    answers, labels = torch.randn(8, 4, 10, requires_grad=True) * 1, torch.randint(0, 4, (80,))
    rows = answers.transpose(1, 2).reshape(-1, 4) if moves else answers.view(-1, 4)
    loss = nn.functional.cross_entropy(rows, labels)

    assert odd_in(loss, [answers], ()) == ({} if moves else {"rows mixed": (8.0, 4.0, 10.0)})


@pytest.mark.parametrize("squashes", [False, True])
def test_a_sigmoid_that_is_joined_with_others_before_the_loss_takes_its_own_is_told(squashes: bool) -> None:
    raw, labels = torch.randn(16, 5, requires_grad=True), torch.ones(16, 3)
    answers = torch.cat([raw[:, :2].sigmoid(), raw[:, 2:].sigmoid() if squashes else raw[:, 2:]], -1)
    loss = nn.functional.binary_cross_entropy_with_logits(answers[..., 2:], labels)

    assert odd_in(loss, [answers], ()) == ({"sigmoid twice": (1.0,)} if squashes else {})


def test_a_margin_that_all_examples_keep_is_learned() -> None:
    torch.manual_seed(0)
    net = nn.Linear(8, 4)
    near, far = torch.randn(1, 8) + 0.1 * torch.randn(32, 8), 3 * torch.randn(1, 8) + 0.1 * torch.randn(32, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(120):
            optimizer.zero_grad()
            nn.functional.triplet_margin_loss(net(near), net(near.roll(1, 0)), net(far), margin=20.0).backward()
            optimizer.step()

    assert warnings_of(watched.verdict()) == []


def test_factors_that_both_begin_as_zeros_are_told_though_they_return_the_same_for_all() -> None:
    torch.manual_seed(0)
    base, down, up = nn.Linear(8, 4).requires_grad_(False), nn.Linear(8, 2, bias=False), nn.Linear(2, 4, bias=False)
    nn.init.zeros_(down.weight)
    nn.init.zeros_(up.weight)
    net = nn.ModuleDict({"base": base, "adapter": nn.Sequential(down, up)})
    optimizer = torch.optim.Adam(net["adapter"].parameters(), 1e-2)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(40):
            optimizer.zero_grad()
            x = torch.randn(32, 8)
            nn.functional.cross_entropy(net["base"](x) + net["adapter"](x), x[:, :4].argmax(1)).backward()
            optimizer.step()

    assert str(watched.verdict()).startswith("2 of 2 matrices that learn (adapter.0.weight, adapter.1.weight) began as")


FAR_LOSSES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a power": (lambda out: (400 * out + 300).pow(2).mean(), "a power that is too large for float16"),
    "a power of a tensor": (lambda out: (out.abs() + 300).pow(torch.full_like(out, 2.5)).mean(), "a power that is too"),
    "a power below 0": (lambda out: (out - out.detach()).pow(-1).mean(), "a power of -1 of 0"),
    "a power of each": (lambda out: (out - 9).pow(torch.full_like(out, 0.5)).mean(), "a power of numbers below 0"),
    "a number to powers": (lambda out: (2.0 ** (out + 40)).mean(), "a power that is too large for float16"),
    "a product": (
        lambda out: ((300 * out + 300) * (300 * out + 300)).mean(),
        "a product that is too large for float16",
    ),
    "a sum": (lambda out: (10 * out + 100).pow(2).sum(), "a sum that is too large for float16"),
    "squares": (lambda out: F.mse_loss(out, torch.full_like(out, -1000)), "a square that is too large for float16"),
    "an exponential": (lambda out: (out + 30).exp().mean(), "an exponential that is too large for float16"),
}


@pytest.mark.parametrize("name", FAR_LOSSES)
def test_what_is_too_large_for_half_precision_is_named(name: str) -> None:
    loss, told = FAR_LOSSES[name]
    first = halves(loss, 3)
    assert first.rule == "loss not finite" and told in str(first), first


def test_a_loss_in_half_precision_that_fits_names_no_operation() -> None:
    assert "too large" not in str(halves(lambda out: out.pow(2).mean(), 30))


def test_updates_of_a_loss_that_is_not_finite_are_not_rounded_away() -> None:
    assert halves(lambda out: (out - 9).log().mean(), 10).rule == "log of zero"


def halves(loss: Callable[[Tensor], Tensor], steps: int) -> Verdict:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)).half()
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, save=None) as watched:
        for _ in range(steps):
            loss(net(torch.randn(32, 8).half())).backward()
            optimizer.step()
            optimizer.zero_grad()
    return watched.verdict()


@pytest.mark.parametrize("apart", [False, True])
def test_vectors_of_another_view_are_no_own_pairs_though_one_call_made_both(apart: bool) -> None:
    made = nn.functional.normalize(torch.randn(16, 8, requires_grad=True), dim=1)
    first, second = made.chunk(2)
    loss = nn.functional.cross_entropy(first @ (second if apart else first).T / 0.1, torch.arange(8))

    assert ("own pair" in odd_in(loss, [made], ())) is not apart
    assert "own pair" not in odd_in(
        nn.functional.cross_entropy(made[:8] @ made[8:].T / 0.1, torch.arange(8)), [made], ()
    )
