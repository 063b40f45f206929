"""The verdict on a training: the cause first, never a wrong one, and nothing on a run that learns."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.api import Verdict
from fxdebug.apps.cli.main import main
from fxdebug.features.shared.records.learning import LearningFacts, LossFacts, StepSigns
from fxdebug.features.shared.records.training import StepRecord, TrainingRecord
from fxdebug.features.training.recorder import targets
from fxdebug.features.training.rules import BOOK
from fxdebug.features.training.saved.training_file import read_training
from fxdebug.features.training.verdict.judge import judge

CENTRES = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


@dataclass
class Loop:
    """The usual loop; each field changes one thing of it."""

    last: nn.Module = field(default_factory=nn.Identity)
    rate: float = 0.1
    steps: int = 60
    inputs: Callable[[Tensor], Tensor] = lambda x: x
    targets: Callable[[Tensor], Tensor] = lambda y: y
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    between: Callable[[nn.Module], Any] = lambda net: None
    clears: bool = True
    prepare: Callable[[nn.Sequential], Any] = lambda net: None
    make: Callable[[nn.Module, float], torch.optim.Optimizer] = lambda net, rate: torch.optim.SGD(
        net.parameters(), rate
    )
    factor: Callable[[int], float] = lambda step: 1.0

    def run(self, save: Path | None = None, watched: bool = True) -> tuple[nn.Module, Verdict | None]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5), self.last)
        self.prepare(net)
        optimizer = self.make(net, self.rate)
        watch = fxdebug.watch(net, every=25, save=save)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if watched:
                watch.__enter__()
            for step in range(self.steps):
                y = torch.randint(0, 5, (32,))
                x = CENTRES[y] + 0.5 * torch.randn(32, 8)
                self.loss(net(self.inputs(x)), self.targets(y)).backward()
                self.between(net)
                optimizer.param_groups[0]["lr"] = self.rate * self.factor(step)
                optimizer.step()
                if self.clears:
                    optimizer.zero_grad()
            if watched:
                watch.__exit__(None, None, None)
        return net, watch.verdict() if watched else None


def freeze(net: nn.Sequential) -> None:
    net[0].requires_grad_(False)
    net[2].requires_grad_(False)


def bias(net: nn.Sequential) -> None:
    with torch.no_grad():
        net[2].bias.fill_(-50.0)  # type: ignore[union-attr, operator]


def minus(out: Tensor, y: Tensor) -> Tensor:
    return -F.cross_entropy(out, y)


def clear(net: nn.Module) -> None:
    net.zero_grad()


def init_again(net: nn.Module) -> None:
    for layer in net.children():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()


FAULTS: dict[str, Loop] = {
    "learning rate too high": Loop(rate=30.0),
    "learning rate too low": Loop(rate=1e-6),
    "rate spent early": Loop(rate=0.02, factor=lambda step: 0.3**step),
    "rate of zero": Loop(factor=lambda step: 0.0),
    "loss input": Loop(last=nn.Softmax(1)),
    "wrong sign": Loop(loss=minus),
    "softmax over batch": Loop(loss=lambda out, y: F.nll_loss(F.log_softmax(out, 0), y)),
    "not cleared": Loop(clears=False),
    "cleared before step": Loop(between=clear),
    "clipped away": Loop(between=lambda net: nn.utils.clip_grad_norm_(net.parameters(), 1e-7)),
    "other optimizer": Loop(make=lambda net, rate: torch.optim.SGD(nn.Linear(8, 5).parameters(), rate)),
    "not optimised": Loop(make=lambda net, rate: torch.optim.SGD(net[4].parameters(), rate)),  # type: ignore[index]
    "targets alike": Loop(targets=lambda y: y * 0, steps=100),
    "targets ignored": Loop(targets=lambda y: y * 0 - 100),
    "targets unrelated": Loop(targets=lambda y: y[torch.randperm(len(y))], steps=120, rate=0.05),
    "inputs not normalised": Loop(inputs=lambda x: x * 1e-4),
    "silent activation": Loop(prepare=bias),
    "frozen at random": Loop(prepare=freeze, rate=0.002),
    "weight decay": Loop(make=lambda net, rate: torch.optim.SGD(net.parameters(), rate, weight_decay=4.0)),
    "zero gradients": Loop(loss=lambda out, y: F.relu(out - 1e3).sum() * 1.0),
    "targets out of range": Loop(
        loss=lambda out, y: F.binary_cross_entropy_with_logits(out, 255.0 * F.one_hot(y, 5)), rate=1e-3
    ),
    "labels smoothed": Loop(loss=lambda out, y: F.cross_entropy(out, y, label_smoothing=0.95)),
    "root of zero": Loop(loss=lambda out, y: (out * 0).square().sum().sqrt() + F.cross_entropy(out, y)),
    "eps of zero": Loop(
        prepare=lambda net: net.half(),
        inputs=lambda x: x.half(),
        loss=lambda out, y: F.cross_entropy(out.float(), y),
        make=lambda net, rate: torch.optim.Adam(net.parameters(), 1e-2),
    ),
    "inputs alike": Loop(inputs=lambda x: torch.arange(32.0 * 8).reshape(32, 8) / 256),
    "set back": Loop(between=init_again, rate=0.02, steps=100),
    "loss is a sum": Loop(loss=lambda out, y: F.cross_entropy(out, y, reduction="sum"), rate=0.3),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_the_cause_is_named_first_with_a_number_and_a_change(rule: str) -> None:
    _, verdict = FAULTS[rule].run()
    assert verdict is not None and verdict.rule == rule, verdict
    first = next(finding for finding in verdict.findings if finding.rule == rule)
    assert str(verdict) == (f"{first.what}. {first.advice}" if rule != "loss input" else f"{first.what}.")
    assert rule in {one.name for one in BOOK.rules} | {"loss input"}


def test_a_softmax_too_many_is_told_once_and_nothing_that_follows_from_it() -> None:
    _, verdict = Loop(last=nn.Softmax(1), steps=150, rate=0.3).run()
    assert verdict is not None and [one.rule for one in verdict.findings] == ["loss input"], verdict.findings


def test_steps_that_are_far_larger_than_the_weights_are_told_in_words() -> None:
    _, verdict = Loop(rate=1e3, steps=30).run()
    assert verdict is not None and verdict.rule == "learning rate too high"
    assert "each changes the weights by more than ten times their own size (0.1 to 1 % is usual)" in str(verdict)


@pytest.mark.parametrize("rate", [1e-3, 0.3])
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_of_an_input_that_is_not_finite_no_learning_rate_is_blamed(rate: float, number: float) -> None:
    steps = itertools.count()

    def poisoned(x: Tensor) -> Tensor:
        return x.index_fill(1, torch.tensor(3), number) if next(steps) == 7 else x

    _, verdict = Loop(rate=rate, inputs=poisoned, loss=lambda out, y: out.square().mean()).run()
    assert verdict is not None and verdict.rule == "loss not finite", verdict
    assert verdict.sentence.startswith("step 7: the input 'input' has 32 ")


HEALTHY: dict[str, Loop] = {
    "plain": Loop(),
    "adam": Loop(make=lambda net, rate: torch.optim.Adam(net.parameters(), 1e-2)),
    "warm-up": Loop(factor=lambda step: min(1.0, step / 20)),
    "a decay to 0": Loop(factor=lambda step: 1 - step / 60),
    "a loss that is written out": Loop(loss=lambda out, y: -out.log_softmax(1).gather(1, y[:, None]).mean()),
    "a negative that is maximised": Loop(
        loss=minus, make=lambda net, rate: torch.optim.SGD(net.parameters(), rate, maximize=True)
    ),
    "clipped": Loop(between=lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.5)),
    "a model that returns logarithms": Loop(last=nn.LogSoftmax(1), loss=F.nll_loss),
    "smoothed labels": Loop(loss=lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1)),
    "logits that are scaled outside": Loop(loss=lambda out, y: F.cross_entropy(out @ torch.eye(5) * 2, y)),
    "soft targets": Loop(targets=lambda y: F.one_hot(y, 5) * 0.9 + 0.02),
    "squares": Loop(loss=lambda out, y: (out - F.one_hot(y, 5)).pow(2).mean()),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_run_that_learns_says_so_against_the_constant_answer(name: str) -> None:
    _, verdict = HEALTHY[name].run()
    assert verdict is not None and verdict.state == "learns", verdict
    assert verdict.constant is not None and f"(a constant answer has {verdict.constant:.3g})" in str(verdict)
    assert [finding for finding in verdict.findings if finding.severity != "advice"] == []


@pytest.mark.parametrize("steps", [1, 3, 12, 19])
def test_before_twenty_steps_nothing_is_said_of_the_loss(steps: int) -> None:
    _, verdict = replace(Loop(), steps=steps).run()
    assert str(verdict) == f"cannot tell yet ({steps} of 20 steps)"


def test_what_a_loss_means_that_cannot_be_computed_again_is_not_known() -> None:
    _, verdict = Loop(loss=lambda out, y: F.cross_entropy(out, y) + 0.1 * out.abs().mean()).run()
    assert verdict is not None and (verdict.state, verdict.constant) == ("learns", None)


def test_a_loss_that_falls_while_all_answers_become_the_same_is_not_said_to_learn() -> None:
    def hardest(out: Tensor, y: Tensor) -> Tensor:
        far, same = (out[:, None] - out[None]).square().sum(-1), y[:, None] == y[None]
        return F.relu((far * same).amax(1) - (far + 1e9 * same).amin(1) + 1).mean()

    rapid = Loop(
        loss=hardest, rate=0.03, steps=150, inputs=lambda x: 3 * torch.randn_like(x),
        make=lambda net, rate: torch.optim.AdamW(net.parameters(), rate),
    )  # fmt: skip
    _, verdict = rapid.run()
    assert verdict is not None and (verdict.state, verdict.rule) == ("cannot tell", "answers alike"), verdict
    assert "the model returns the same for all examples of a batch, though they differ" in str(verdict)
    _, verdict = Loop(loss=lambda out, y: F.cross_entropy(out, y) + 0.1 * out.abs().mean()).run()
    assert verdict is not None and verdict.state == "learns"


def test_a_bias_whose_gradient_is_rounding_alone_is_no_group_that_stays() -> None:
    _, verdict = Loop(loss=lambda out, y: (out - out.roll(1, 0)).square().mean() + 1, rate=0.3).run()
    assert verdict is not None and verdict.findings == (), verdict


def test_targets_are_drawn_at_random_where_it_is_asked_and_not_in_the_first_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[int] = []
    plain = targets._chance
    monkeypatch.setattr(targets, "_chance", lambda pairs, kind: drawn.append(len(pairs)) or plain(pairs, kind))
    net = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen = []
    with fxdebug.watch(net, save=tmp_path) as watch:
        for step in range(101):
            F.cross_entropy(net(torch.randn(32, 8)), torch.randint(0, 5, (32,))).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 59:
                seen.append(list(drawn))
                watch.verdict()
                seen.append(list(drawn))
    assert seen == [[], [8, 8]]  # the first batches and the last
    assert drawn == [8, 8, 8, 8]  # after 100 steps, and at the end: the first ones are known
    facts = read_training(tmp_path).learning
    assert facts is not None and facts.loss.unrelated is not None


@pytest.mark.parametrize("rule", ["targets unrelated", "silent activation", "loss input"])
def test_weights_and_random_numbers_are_as_without_it(rule: str) -> None:
    plain, _ = FAULTS[rule].run(watched=False)
    after = torch.rand(3)
    seen, _ = FAULTS[rule].run()
    assert torch.equal(torch.rand(3), after)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters(), strict=True))


def test_the_sentence_is_the_first_line_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    _, verdict = FAULTS["wrong sign"].run(tmp_path)
    sentence = str(verdict)
    for command in ("learn", "check", "watch"):
        status = main([command, str(tmp_path)])
        assert capsys.readouterr().out.splitlines()[0] == sentence
        assert status == 1
    assert main(["learn", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["rule"], told["sentence"]) == ("fault", "wrong sign", sentence)
    assert str(judge(read_training(tmp_path))) == sentence


def test_a_step_takes_less_than_300_bytes(tmp_path: Path) -> None:
    replace(Loop(), steps=40).run(tmp_path)
    lines = (tmp_path / "training.jsonl").read_text().splitlines()
    sizes = [sum(len(line) + 1 for line in lines if line.startswith(f'{{"{kind}"')) for kind in ("step", "signs")]
    assert sum(sizes) / 40 < 300


def test_a_record_without_signs_is_judged_by_its_losses_alone() -> None:
    losses = [1 / (step + 1) for step in range(40)]
    record = TrainingRecord("Net", 50, tuple([StepRecord(i, x, 1.0, 0.1) for i, x in enumerate(losses)]))
    assert str(judge(record)) == "it learns: 1 → 0.0284"
    assert judge(replace(record, signs=(StepSigns(0, 1, "a"),), learning=LearningFacts(40))).state == "learns"


@pytest.mark.parametrize("factor", [8.0, 0.25, 64])
def test_a_factor_that_is_a_power_of_two_belongs_to_the_loss_and_is_no_scaler(factor: float) -> None:
    _, verdict = Loop(rate=0.1 / factor, loss=lambda out, y: F.cross_entropy(out, y) * factor).run()
    assert verdict is not None and verdict.state == "learns", verdict
    assert verdict.first == pytest.approx(1.6, abs=0.2) and verdict.constant == pytest.approx(1.6, abs=0.02)


def test_a_weight_of_a_loss_that_shrinks_is_no_scaler_that_skips_steps() -> None:
    weights = iter([2.0**-step for step in range(30)])
    _, verdict = Loop(steps=30, loss=lambda out, y: F.cross_entropy(out, y) * next(weights)).run()
    assert verdict is not None and verdict.rule == "" and verdict.findings == (), verdict


def test_a_target_that_is_one_of_the_inputs_is_an_error_where_other_inputs_tell_of_it_too() -> None:
    def run(copied: bool) -> Verdict:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        with fxdebug.watch(net, save=None) as watched:
            for _ in range(40):
                x = torch.randn(32, 4)
                y = x.sum(1, keepdim=True) if copied else x[:, :1]
                F.mse_loss(net(torch.cat([x[:, :3], y], 1) if copied else x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        return watched.verdict()

    assert run(copied=True).rule == "target in input"
    lesson = run(copied=False)
    assert lesson.state == "learns" and [one.severity for one in lesson.findings] == ["advice"]


class Players(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.judge = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.judge(x)


@pytest.mark.parametrize("clears", [True, False])
def test_of_two_players_gradients_of_the_other_are_not_said_to_be_left_over(clears: bool) -> None:
    torch.manual_seed(0)
    net = Players()
    of_maker, of_judge = (torch.optim.Adam(part.parameters(), 1e-3) for part in (net.maker, net.judge))
    said = F.binary_cross_entropy_with_logits
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, save=None) as watched:
        for _ in range(30):
            real, fake = torch.randn(16, 2) + 1, net.maker(torch.randn(16, 4))
            if clears:
                of_judge.zero_grad()
            (said(net(real), torch.ones(16, 1)) + said(net(fake.detach()), torch.zeros(16, 1))).backward()
            of_judge.step()
            if clears:
                of_maker.zero_grad()
            said(net(fake), torch.ones(16, 1)).backward()
            of_maker.step()
    assert watched.verdict().rule == ("" if clears else "not cleared")


class Pair(nn.Module):
    """Two nets that are never called together."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 1)


@pytest.mark.parametrize("cut", [True, False])
def test_an_optimizer_whose_parameters_never_have_a_gradient_is_named(cut: bool) -> None:
    net = Pair()
    of_one, of_two = (torch.optim.SGD(part.parameters(), 0.1) for part in (net.one, net.two))
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(6):
            made = net.one(torch.randn(8, 4))
            net.two(made.detach() if cut else made).square().mean().backward()
            of_one.step()
            of_two.step()
    verdict = watched.verdict()
    assert (verdict.rule == "idle optimizer") is cut, verdict
    assert cut or str(verdict) == "cannot tell yet (6 of 20 steps)"  # of 12, as every other one had no backward


def uphill(net: nn.Module, step: int) -> None:
    """Move the weights uphill and back, as sharpness-aware minimisation does."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 if step else -0.05)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("way", ["uphill", "put together", "lost"])
def test_gradients_that_are_cleared_after_they_were_used_are_not_said_to_be_lost(way: str, in_place: bool) -> None:
    torch.manual_seed(0)
    net = nn.Linear(8, 5)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(12):
            kept = []
            for part in range(2):
                optimizer.zero_grad(set_to_none=not in_place)
                F.cross_entropy(net(torch.randn(16, 8)), torch.randint(0, 5, (16,))).backward()
                kept.append([parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None])
                if way == "uphill":
                    uphill(net, part)
            if way == "put together":
                for parameter, *parts in zip(net.parameters(), *kept, strict=True):
                    assert parameter.grad is not None
                    parameter.grad.copy_(torch.stack(parts).mean(0))
            if way == "lost":
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
    assert (watched.verdict().rule == "cleared between") is (way == "lost"), watched.verdict()
    assert "accumulated undivided" not in {one.rule for one in watched.verdict().findings}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, nn.TransformerEncoderLayer])
def test_what_goes_over_the_batch_as_over_a_sequence_is_named(kind: type[nn.Module], batch_first: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            more = {"nhead": 2} if kind is nn.TransformerEncoderLayer else {"hidden_size": 8}
            self.layer = kind(8, batch_first=batch_first, **more)  # type: ignore[call-arg]
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(x)
            return self.head((x if isinstance(x, Tensor) else x[0])[:, -1])

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(4):
            F.cross_entropy(net(torch.randn(16, 6, 8)), torch.randint(0, 3, (16,))).backward()
            optimizer.step()
            optimizer.zero_grad()
    found = [finding for finding in watched.verdict().findings if finding.rule == "batch mixed"]
    assert bool(found) is not batch_first, found
    assert batch_first or "over dimension 0 of 16×6×8" in found[0].what


def test_a_layer_that_is_made_in_forward_is_told_from_one_that_was_forgotten() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            self.head = nn.Linear(8, 5)
            return self.head(self.body(x))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with warnings.catch_warnings(), fxdebug.watch(net, save=None) as watched:
        warnings.simplefilter("ignore")
        for _ in range(8):
            F.cross_entropy(net(torch.randn(16, 8)), torch.randint(0, 5, (16,))).backward()
            optimizer.step()
            optimizer.zero_grad()
    verdict = watched.verdict()
    assert verdict.rule == "not optimised" and "took the place of others" in str(verdict), verdict


def test_a_batch_whose_targets_are_all_ignored_is_named_with_its_step() -> None:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        calls.append(0)
        return F.cross_entropy(out, y * 0 - 100 if len(calls) == 8 else y)

    calls: list[int] = []
    _, verdict = Loop(loss=loss, steps=20).run()
    assert verdict is not None and verdict.rule == "targets ignored" and "step 7:" in str(verdict), verdict


def test_a_method_that_is_a_whole_step_has_its_forward_followed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

        def training_step(self, x: Tensor, y: Tensor) -> None:
            F.cross_entropy(self(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with fxdebug.watch(net, save=None, method="training_step") as watched:
        for _ in range(40):
            y = torch.randint(0, 5, (32,))
            net.training_step(CENTRES[y] + 0.5 * torch.randn(32, 8), y)
    assert watched.verdict().state == "learns" and watched.verdict().constant is not None
    assert "forward" not in vars(net) and "training_step" not in vars(net)


def test_small_batches_of_a_rare_class_are_not_said_to_be_sorted() -> None:
    _, verdict = Loop(targets=lambda y: (torch.rand(len(y)) < 0.02).long(), steps=60).run()
    assert verdict is not None and verdict.rule != "data sorted", verdict


class Coded(nn.Module):
    """A variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + torch.randn_like(mean) * (variance / 2).exp()), mean, variance


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("share", "state", "rule"),
    [(0.1, "learns", ""), (30.0, "cannot tell", "answers alike"), (-1.0, "fault", "wrong sign")],
)
def test_a_code_that_says_nothing_and_a_divergence_that_is_subtracted_are_not_said_to_learn(
    share: float, state: str, rule: str
) -> None:
    torch.manual_seed(0)
    net = Coded()
    optimizer = torch.optim.Adam(net.parameters(), 2e-2)
    with fxdebug.watch(net, save=None) as watch:
        for _ in range(300):
            x = 2 * torch.randn(64, 2) @ torch.ones(2, 8).tril()
            again, mean, variance = net(x)
            divergence = -0.5 * (1 + variance - mean.pow(2) - variance.exp()).sum(1).mean()
            optimizer.zero_grad()
            ((again - x).pow(2).sum(1).mean() + share * divergence).backward()
            optimizer.step()
    verdict = watch.verdict()
    assert (verdict.state, verdict.rule) == (state, rule), verdict


@pytest.mark.parametrize("learns", [True, False])
def test_weights_whose_gradients_are_0_are_named_and_are_advice_where_the_rest_learns(learns: bool) -> None:
    torch.manual_seed(0)
    body, head = nn.Linear(8, 64), nn.Linear(64, 5)
    net = nn.Sequential(body, nn.Tanh(), head)
    for p in body.parameters():
        p.register_hook(lambda gradient: gradient * 0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    with fxdebug.watch(net, save=None) as watch:
        for _ in range(60):
            y = torch.randint(0, 5, (32,))
            x = CENTRES[y] if learns else torch.randn(32, 8)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    verdict = watch.verdict()
    assert (verdict.state, verdict.rule) == (("learns", "") if learns else ("fault", "zero gradients")), verdict
    assert "the gradients of 0.weight, 0.bias" in verdict.findings[0].what


def test_gradients_in_few_rows_of_a_large_table_are_not_said_to_be_0() -> None:
    torch.manual_seed(0)
    net = nn.Embedding(40_000, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with fxdebug.watch(net, save=None) as watch:
        for _ in range(25):
            optimizer.zero_grad()
            (net(torch.randint(0, 40_000, (2,))) - 1).square().mean().backward()
            optimizer.step()
    assert "zero gradients" not in {finding.rule for finding in watch.verdict().findings}


def test_an_end_that_lies_below_the_constant_answer_by_chance_alone_is_not_said_to_learn() -> None:
    def of_losses(end: Sequence[float]) -> str:
        losses = [1.2] * 10 + [1.0] * 20 + [*end]
        steps = tuple([StepRecord(number, loss, 1.0, 0.01, (0.1,)) for number, loss in enumerate(losses)])
        facts = LearningFacts(0, LossFacts("cross_entropy", known=True, constant=1.0))
        return judge(TrainingRecord("Net", 50, steps=steps, learning=facts)).state

    assert of_losses([0.6, 1.3, 0.7, 1.2, 0.6, 1.3, 0.7, 1.1, 0.5, 1.2]) == "cannot tell"
    assert of_losses([0.8, 0.9, 0.8, 0.9, 0.8, 0.9, 0.8, 0.9, 0.8, 0.9]) == "learns"


def test_a_container_whose_parts_are_called_has_losses_and_a_backward_of_others_is_none_of_them() -> None:
    torch.manual_seed(0)
    parts = nn.ModuleDict({"body": nn.Linear(8, 24), "head": nn.Linear(24, 5)})
    other = nn.Linear(8, 5)
    optimizer = torch.optim.Adam(parts.parameters(), 1e-2)
    centres = 2 * torch.randn(5, 8)
    with fxdebug.watch(parts, save=None) as watched:
        for _ in range(60):
            y = torch.randint(0, 5, (32,))
            x = centres[y] + torch.randn(32, 8)
            (1e6 * other(x).square().mean()).backward()
            F.cross_entropy(parts["head"](torch.relu(parts["body"](x))), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    losses = [step.loss for step in watched.steps]
    assert len(losses) == 60 and all(loss is not None and loss < 10 for loss in losses)
    assert watched.verdict().state == "learns" and watched.incidents == ()


def test_losses_of_a_game_in_a_container_say_nothing_and_are_no_spikes() -> None:
    torch.manual_seed(0)
    players = nn.ModuleDict({"one": nn.Linear(4, 1), "other": nn.Linear(4, 1)})
    optimizers = [torch.optim.SGD(player.parameters(), 0.1) for player in players.values()]
    with fxdebug.watch(players, save=None) as watched:
        for step in range(120):
            for factor, player, optimizer in zip((1.0, -100.0 * (step == 100)), players.values(), optimizers):
                (factor * player(torch.ones(2, 4)).tanh().mean()).backward()
                optimizer.step()
                optimizer.zero_grad()
    verdict = watched.verdict()
    assert (verdict.state, verdict.rule, watched.incidents) == ("cannot tell", "", ())
    assert verdict.sentence.startswith("cannot tell: several optimizers take turns in 240 steps")


def test_frozen_parameters_with_gradients_of_an_earlier_training_are_not_said_to_get_some() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 5))
    net(torch.randn(4, 8)).sum().backward()
    net[0].requires_grad_(False)
    optimizer = torch.optim.SGD(net[2].parameters(), 0.1)
    with fxdebug.watch(net, save=None) as watched:
        for _ in range(30):
            optimizer.zero_grad()
            F.cross_entropy(net(torch.randn(32, 8)), torch.randint(0, 5, (32,))).backward()
            optimizer.step()
    assert "not optimised" not in {finding.rule for finding in watched.report().findings}
