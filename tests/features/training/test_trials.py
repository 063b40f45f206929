"""Advice on a training is tried on a copy: what does not help is advice, and nothing of the training is touched."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug
from fxdebug.apps.cli.main import main
from fxdebug.features.shared.records.learning import Trial
from fxdebug.features.training.saved.training_file import read_training
from support.begun import ran
from support.same import difference
from support.watched import randomness, state_of

CENTRES = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def drops(share: float = 0.9) -> nn.Sequential:
    torch.manual_seed(0)
    inner = (nn.Linear(8, 24), nn.ReLU(), nn.Dropout(share), nn.Linear(24, 24), nn.ReLU(), nn.Dropout(share))
    return nn.Sequential(*inner, nn.Linear(24, 5))


def frozen() -> nn.Sequential:
    net = drops(0.0)
    net[0].requires_grad_(False)
    net[3].requires_grad_(False)
    return net


def scaled(times: float) -> nn.Sequential:
    """A net whose weights began so many times as large."""
    torch.manual_seed(0)
    net = nn.Sequential(*[one for _ in range(6) for one in (nn.Linear(8, 8), nn.Tanh())], nn.Linear(8, 5))
    with torch.no_grad():
        for layer in net[::2]:
            layer.weight *= times
            layer.bias.zero_()
    return net


def alike() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.1)
    return net


def entropy(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y)


def squares(out: Tensor, y: Tensor) -> Tensor:
    return (out - F.one_hot(y, 5)).pow(2).mean()


def trained(
    net: nn.Module,
    rate: float = 0.02,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = entropy,
    shuffled: bool = False,
    steps: int = 40,
    tries: float | None = 60.0,
    save: Path | None = None,
    meanwhile: bool = False,
    clip: float | None = None,
    **settings: Any,
) -> tuple[fxdebug.api.Verdict, list[Any]]:
    """The verdict with trials, and what the loop itself can see: losses, and at the end weights and random numbers."""
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], rate, momentum=0.9, **settings)
    seen: list[Any] = []
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, save=save, tries=tries is not None) as watched:
        for step in range(steps):
            y = torch.randint(0, 5, (32,))
            x = CENTRES[y] + 0.5 * torch.randn(32, 8)
            found = loss(net(x), y[torch.randperm(32)] if shuffled else y)
            found.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            if meanwhile and step == 30:
                watched.verdict(tries=tries or 0.0)
            optimizer.step()
            optimizer.zero_grad()
            seen.append(found.detach().clone())
    verdict = watched.verdict(tries=tries or 0.0)
    return verdict, [seen, state_of(net), randomness(), optimizer.state_dict()]


TRIED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "dropout too strong": (drops, {}),
    "frozen at random": (frozen, {"rate": 0.002}),
    "weight decay": (lambda: drops(0.0), {"weight_decay": 10.0}),
    "learning rate too low": (lambda: drops(0.0), {"rate": 1e-6}),
    "learning rate too high": (lambda: drops(0.0), {"rate": 30.0}),
    "loss is a sum": (lambda: drops(0.0), {"rate": 0.2, "loss": lambda o, y: F.cross_entropy(o, y, reduction="sum")}),
    "clipped away": (lambda: drops(0.0), {"clip": 1e-4}),
    "weights too small": (lambda: scaled(1e-2), {"rate": 0.1}),
    "weights too large": (lambda: scaled(40.0), {"rate": 1e-3}),
    "units alike": (alike, {"rate": 0.01}),
}


@pytest.mark.parametrize("rule", TRIED)
def test_a_change_that_helps_on_a_copy_is_told_with_both_losses(rule: str) -> None:
    make, options = TRIED[rule]
    verdict, _ = trained(make(), **options)
    assert (verdict.state, verdict.rule) == ("fault", rule), verdict
    assert " Tried on a copy: 40 steps with " in str(verdict) and "on 6 batches that were kept back" in str(verdict)


@pytest.mark.parametrize(("rule", "rate"), [("learning rate too low", 1e-6), ("learning rate too high", 300.0)])
def test_the_rate_that_is_advised_is_the_one_that_was_tried(rule: str, rate: float) -> None:
    verdict, _ = trained(drops(0.0), rate)
    assert verdict.rule == rule and " Tried on a copy: 40 steps with a learning rate of " in str(verdict)
    advice, _, tried = verdict.findings[0].advice.partition(" Tried on a copy: 40 steps with a learning rate of ")
    advised = advice.rstrip(".").rpartition(" about ")[2] if "low" in rule else advice.split()[1].rstrip(",")
    assert advised == tried.split()[0], verdict.findings[0].advice


def test_a_loss_that_is_written_out_is_tried_too() -> None:
    verdict, _ = trained(drops(), loss=squares, rate=0.005, steps=60)
    assert [" Tried on a copy: " in one.advice for one in verdict.findings] == [True]


def test_what_does_not_help_on_a_copy_is_no_more_than_advice() -> None:
    verdict, _ = trained(frozen(), shuffled=True)
    assert verdict.state == "cannot tell"
    (finding,) = [one for one in verdict.findings if one.rule == "frozen at random"]
    assert finding.severity == "advice" and finding.advice.endswith(": it did not help there.")
    assert trained(frozen(), shuffled=True, tries=None)[0].rule == "frozen at random"


def test_losses_weights_state_and_random_numbers_are_equal_to_the_last_bit_with_and_without_trials() -> None:
    plain = trained(drops(), tries=None)[1]
    for meanwhile in (False, True):
        assert difference(plain, trained(drops(), meanwhile=meanwhile)[1], "the training") is None


def test_what_was_tried_is_in_the_folder_and_in_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdict, _ = trained(drops(), save=tmp_path)
    (trial,) = read_training(tmp_path).trials
    assert (trial.rule, trial.change, trial.answer, trial.batches) == ("dropout too strong", "dropout of 0.1", "yes", 6)
    assert main(["learn", str(tmp_path), "--width", "1000"]) == 1
    assert str(verdict) in capsys.readouterr().out


WHY: dict[str, tuple[dict[str, Any], str]] = {
    "another loss": ({"loss": lambda o, y: (o.log_softmax(1) * o.exp()).mean()}, "the loss is none that can be"),
    "few batches": ({"steps": 4}, "only 4 batches were held"),
    "no time": ({"tries": 1e-9}, "no time was left"),
}


@pytest.mark.parametrize("name", WHY)
def test_where_nothing_can_be_tried_the_reason_is_kept_and_the_verdict_stays(name: str, tmp_path: Path) -> None:
    options, why = WHY[name]
    verdict, _ = trained(drops(0.95), save=tmp_path, **options)
    (trial,) = read_training(tmp_path).trials
    assert (trial.answer, trial.why.startswith(why)) == ("not tried", True), trial
    assert "Tried on a copy" not in str(verdict)
    assert isinstance(trial, Trial)


def test_trials_need_batches_that_were_held() -> None:
    with fxdebug.watch(drops(), save=None) as watched:
        pass
    with pytest.raises(fxdebug.UsageError, match=r"call fxdebug\.watch\(…, tries=True\)"):
        watched.verdict(tries=10)


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for _ in range(40):
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), torch.rand(1).item())
"""


def test_a_script_is_watched_with_trials_and_prints_what_it_does_by_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = ran([sys.executable, "train.py"], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "fxdebug", "watch", "--try", "30", "--save", "seen", "train.py"]
    watched = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert watched.stdout == plain.stdout
    assert "learning rate, from 1e-06 to about" in watched.stderr and "Tried on a copy" in watched.stderr
