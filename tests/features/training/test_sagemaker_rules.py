"""Each rule that SageMaker Debugger had for trainings: a planted fault is named, and a clean run is silent on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fxdebug

CENTRES = 2 * torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
Batch: TypeAlias = tuple[Tensor, Tensor]


def points(step: int) -> Batch:
    y = torch.randint(0, 5, (64,))
    return CENTRES[y] + torch.randn(64, 8), y


def mlp(act: Callable[[], nn.Module] = nn.ReLU, layers: int = 2) -> nn.Sequential:
    inner = [part for _ in range(layers - 1) for part in (nn.Linear(24, 24), act())]
    return nn.Sequential(nn.Linear(8, 24), act(), *inner, nn.Linear(24, 5))


def learned(
    folder: Path, *, net: nn.Module | None = None, steps: int = 60, rate: float = 0.1,
    batch: Callable[[int], Batch] = points, loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
    groups: Callable[[Any], Any] = lambda net: net.parameters(), falls_at: int | None = None,
) -> set[str]:  # fmt: skip
    """Train under watch, and return the rules of what is found above advice; in a folder ``stops`` it stops."""
    torch.manual_seed(0)
    net = mlp() if net is None else net
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(groups(net), rate)
    on = {"error": ["stop"], "warning": ["stop"]} if folder.name == "stops" else None
    with warnings.catch_warnings(action="ignore"), fxdebug.watch(net, every=10, save=folder, on=on):
        for step in range(steps):
            if step == falls_at:
                optimizer.param_groups[0]["lr"] /= 10
            x, y = batch(step)
            loss(net(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return {finding.rule for finding in fxdebug.check(folder).findings if finding.severity != "advice"}


def changed(net: nn.Module, change: Callable[[nn.Sequential], Any]) -> nn.Module:
    with torch.no_grad():
        change(net)  # type: ignore[arg-type]
    return net


def drawn(net: nn.Module, deviation: float) -> nn.Module:
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=deviation) if parameter.dim() > 1 else None
    return net


def rare(step: int) -> Batch:
    y = (torch.rand(256) < 0.02).long()
    return torch.randn(256, 8) + 0.1 * y[:, None], y


def far(out: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(out.exp().exp(), 1e30 * F.one_hot(y, 5))


def saturate(net: nn.Sequential) -> None:
    for layer in net[:4:2]:
        layer.bias.fill_(50)


def first_at_rest(net: nn.Sequential) -> list[dict[str, Any]]:
    return [{"params": net[0].parameters(), "lr": 0.0}, {"params": net[2:].parameters()}]


def twice_with_a_dropout_that_rests(folder: Path) -> set[str]:
    learned(folder)
    torch.manual_seed(0)
    net = mlp()
    return learned(folder, net=nn.Sequential(*net[:2], nn.Dropout(0.5), *net[2:]).eval())


PLANTED: dict[str, tuple[str, Callable[[Path], set[str]]]] = {  # SageMaker's rule: ours, and a training with the fault
    "vanishing_gradient": (
        "gradients vanish", lambda folder: learned(folder, net=mlp(nn.Sigmoid, layers=10))
    ),
    "exploding_tensor": (
        "loss not finite", lambda folder: learned(folder, loss=far)
    ),
    "dead_relu": (
        "silent activation", lambda folder: learned(folder, net=changed(mlp(), lambda net: net[2].bias.fill_(-100)))
    ),
    "saturated_activation": (
        "saturated activation",
        lambda folder: learned(folder, net=changed(mlp(nn.Sigmoid), saturate)),
    ),
    "poor_weight_initialization": (
        "weights too large", lambda folder: learned(folder, net=drawn(mlp(layers=4), 2.0))
    ),
    "weight_update_ratio": ("learning rate too high", lambda folder: learned(folder, rate=30.0)),
    "unchanged_tensor": (
        "group stays",
        lambda folder: learned(folder, groups=first_at_rest),
    ),
    "similar_across_runs": ("as before", twice_with_a_dropout_that_rests),
    "loss_not_decreasing": ("learning rate too low", lambda folder: learned(folder, rate=1e-6)),
    "class_imbalance": ("targets unequal", lambda folder: learned(folder, batch=rare, steps=200, rate=0.3)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_the_fault_of_each_rule_is_named(name: str, tmp_path: Path) -> None:
    rule, train = PLANTED[name]
    assert rule in train(tmp_path)


def test_a_clean_training_is_silent_on_all_of_them(tmp_path: Path) -> None:
    assert learned(tmp_path) == set()
    assert learned(tmp_path) == set()  # and again, beside the one before


LEVELS = {"unchanged_tensor": "warning", "similar_across_runs": "warning", "class_imbalance": "warning"}  # else error


@pytest.mark.parametrize("name", PLANTED)
def test_each_rule_stops_a_training_at_its_level(name: str, tmp_path: Path) -> None:
    rule, train = PLANTED[name]
    with pytest.raises(fxdebug.api.StopTraining) as stopped:
        train(tmp_path / "stops")
    assert (stopped.value.finding.rule, stopped.value.finding.severity) == (rule, LEVELS.get(name, "error"))


def test_a_clean_training_is_not_stopped_and_neither_is_the_same_again(tmp_path: Path) -> None:
    assert learned(tmp_path / "stops") == learned(tmp_path / "stops") == set()


def test_a_rate_that_falls_after_the_steps_of_a_shorter_training_is_no_setting_of_these(
    tmp_path: Path,
) -> None:
    assert learned(tmp_path, steps=30) == learned(tmp_path, steps=60, falls_at=40) == set()
