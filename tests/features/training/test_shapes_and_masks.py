"""What a loop gives to the model and to the loss: views, masks, shapes and scales, each beside a loop that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.features.training.verdict.judge import Verdict
from support.tool import tool

bench_loops = tool("bench_loops")


def verdict_on(model: nn.Module, loss_of: Callable[[int], Tensor], steps: int = 40, rate: float = 3e-3) -> Verdict:
    """Return what is concluded of a short training."""
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], rate)
    with fxdebug.watch(model, optimizer, save=None) as watched:
        for number in range(steps):
            optimizer.zero_grad()
            loss_of(number).backward()
            optimizer.step()
        return watched.verdict()


def warnings_of(verdict: Verdict) -> list[str]:
    """Return the rules whose findings are more than advice."""
    return [one.rule for one in verdict.findings if one.severity != "advice"]


class LastOfSequence(nn.Module):
    """A recurrent net that goes over the first dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(1, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][-1]).view(-1)


class Lookup(nn.Module):
    """An attention written by hand, which takes a mask of what is to be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mixed, self.head = nn.Embedding(10, 16), nn.Linear(16, 48), nn.Linear(16, 10)

    def forward(self, ids: Tensor, seen: Tensor) -> Tensor:
        q, k, v = self.mixed(self.tokens(ids)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 4).masked_fill(seen[:, None] == 0, torch.finfo(torch.float32).min)
        return self.head((scores.softmax(-1) @ v).mean(1))


class MasksItself(nn.Module):
    """A model that hides some of the tokens that it is given, and returns its loss on these."""

    def __init__(self, hides: bool) -> None:
        super().__init__()
        self.tokens, self.mixed, self.head = nn.Embedding(13, 16), nn.GRU(16, 16, bidirectional=True), nn.Linear(32, 12)
        self.hides = hides

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.rand(ids.shape) < 0.3
        given = ids.masked_fill(hidden, 12) if self.hides else ids
        made = self.head(self.mixed(self.tokens(given).transpose(0, 1))[0].transpose(0, 1))
        return F.cross_entropy(made.transpose(1, 2), ids.masked_fill(~hidden, -100))


class Detached(nn.Module):
    """A layer whose weight is put together of a list of parameters."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.factors = nn.ParameterList([nn.Parameter(torch.randn(8, 4) / 3), nn.Parameter(torch.randn(4, 8) / 3)])
        self.bias, self.cut = nn.Parameter(torch.zeros(8)), cut

    def forward(self, x: Tensor) -> Tensor:
        one, other = (p.detach() if self.cut else p for p in self.factors)
        return F.linear(x, one @ other, self.bias)


class Contrast(nn.Module):
    """The similarity with the own key first, and those with a queue of others after it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: Tensor, own: Tensor, queue: Tensor) -> Tensor:
        q = F.normalize(self.body(x), dim=1)
        return torch.cat([(q * own).sum(1, keepdim=True), q @ queue.T], 1) / 0.1


@pytest.mark.parametrize("views", [True, False])
def test_a_matrix_that_is_viewed_as_its_transpose_before_the_model_gets_it_is_named(views: bool) -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(32, 6)
        given = x.reshape(6, -1, 1) if views else x.t().reshape(6, -1, 1)
        return F.mse_loss(model(given), x[:, -1])

    model = LastOfSequence()
    verdict = verdict_on(model, loss_of)
    assert ("viewed for transposed" in warnings_of(verdict)) is views, verdict


@pytest.mark.parametrize("views", [True, False])
def test_pictures_whose_channels_stood_last_and_are_viewed_as_if_they_stood_first_are_named(views: bool) -> None:
    torch.manual_seed(0)
    rows, shades = torch.linspace(0, 3, 12), torch.tensor([0.2, 0.5, 0.9])

    def loss_of(_: int) -> Tensor:
        turns = torch.rand(16, 1, 1, 1) * 6
        x = torch.sin(rows[None, :, None, None] + turns) * torch.cos(rows[None, None, :, None]) + 2 * shades
        x = x + 0.1 * torch.randn(16, 12, 12, 3)
        return F.mse_loss(model(x.reshape(16, 3, 12, 12) if views else x.permute(0, 3, 1, 2)), turns[:, :, 0, 0])

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 1))
    verdict = verdict_on(model, loss_of)
    assert ("viewed for transposed" in warnings_of(verdict)) is views, verdict


def test_targets_far_from_zero_that_steps_only_come_to_the_mean_of_are_named() -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(32, 6)
        return F.mse_loss(model(x), 120 + 10 * x[:, :3].prod(1, keepdim=True).sign())

    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    verdict = verdict_on(model, loss_of, steps=60, rate=0.1)
    assert warnings_of(verdict) == ["targets not scaled"], verdict.sentence
    assert "the steps went into reaching the mean" in verdict.sentence


@pytest.mark.parametrize("hides", [True, False])
def test_a_mask_that_hides_all_places_is_named(hides: bool) -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        ids = torch.randint(0, 10, (32, 5))
        return F.cross_entropy(model(ids, torch.zeros_like(ids) if hides else (ids != 0).long()), ids[:, 0])

    model = Lookup()
    assert ("mask inverted" in warnings_of(verdict_on(model, loss_of))) is hides


@pytest.mark.parametrize("cut", [True, False])
def test_parameters_in_a_list_that_are_detached_are_not_said_to_be_of_a_module_that_never_ran(cut: bool) -> None:
    torch.manual_seed(0)
    turn = torch.randn(8, 8)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(32, 8)
        return F.mse_loss(model(x), x @ turn)

    model = Detached(cut)
    told = [one.rule for one in verdict_on(model, loss_of).findings]
    assert (told[:1] == ["gradient cut"]) is cut
    assert "never used" not in told


@pytest.mark.parametrize("scale", [255.0, 1.0])
def test_masks_that_are_divided_by_255_are_named(scale: float) -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(64, 4)
        return F.binary_cross_entropy_with_logits(model(x), (x[:, :1] > 0).float() / scale)

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    assert ("targets out of range" in warnings_of(verdict_on(model, loss_of))) is (scale > 1)


@pytest.mark.parametrize("hides", [True, False])
def test_targets_are_inputs_unless_the_model_hides_them_itself(hides: bool) -> None:
    torch.manual_seed(0)
    model = MasksItself(hides)

    def loss_of(_: int) -> Tensor:
        return model((torch.randint(0, 12, (16, 1)) + torch.arange(10)) % 12)  # type: ignore[no-any-return]

    assert ("targets are inputs" in warnings_of(verdict_on(model, loss_of))) is not hides


def test_a_contrast_whose_right_answer_comes_first_has_no_targets_that_are_alike() -> None:
    torch.manual_seed(0)
    queue = F.normalize(torch.randn(64, 8), dim=1)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(64, 8)
        return F.cross_entropy(model(x, F.normalize(x, dim=1), queue), torch.zeros(64, dtype=torch.long))

    model = Contrast()
    verdict = verdict_on(model, loss_of, steps=60)
    assert (verdict.state, warnings_of(verdict)) == ("learns", [])


@pytest.mark.parametrize("begin", [2, 3])
def test_targets_are_held_against_the_places_from_which_on_the_loss_takes_answers(begin: int) -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        ids = torch.randint(0, 12, (16, 20))
        return F.cross_entropy(
            model(ids[:, :-1])[:, 1:].flatten(0, 1), F.pad(ids, (0, 2))[:, begin : 18 + begin].flatten()
        )

    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
    told = [one.rule for one in verdict_on(model, loss_of, steps=20).findings]
    assert ("targets shifted" in told) is (begin == 3)


@pytest.mark.parametrize("meets", [True, False])
def test_rewards_that_meet_the_actions_of_all_others_are_named(meets: bool) -> None:
    torch.manual_seed(0)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(32, 4)
        drawn = torch.distributions.Categorical(logits=model(x))
        action = drawn.sample()
        reward = (action == x[:, :3].argmax(1)).float()[:, None]
        reward = reward - reward.mean()
        return -(drawn.log_prob(action) * (reward if meets else reward[:, 0])).mean()

    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    assert ("loss input" in warnings_of(verdict_on(model, loss_of))) is meets


@pytest.mark.parametrize(
    ("loop", "rule"),
    [("f25_asr_accum_grad", "accumulated undivided"), ("f07_nerf_warmup", "learning rate too high")],
)
@pytest.mark.parametrize("bad", [True, False])
def test_steps_that_are_far_too_large_have_their_reason_though_what_the_loss_is_is_not_known(
    loop: str, rule: str, bad: bool
) -> None:
    verdict = bench_loops.watched(bench_loops.LOOPS / "sixth" / f"{loop}.py", bad)
    assert (verdict.rule == rule, bool(warnings_of(verdict))) == (bad, bad)


def test_a_bias_that_rounding_keeps_at_a_rate_far_too_low_is_no_group_that_stays() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(10, 2), torch.randn(10, 1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-8)
    with fxdebug.watch(model, optimizer, save=None) as watched:
        for _ in range(60):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    assert warnings_of(watched.verdict()) == ["learning rate too low"]
