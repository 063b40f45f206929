"""``resumes``: what a checkpoint loses is named, and tried; one that loses nothing is called right."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fxdebug

Parts = dict[str, Any]


def training(
    saved: tuple[str, ...] = ("model", "optimizer", "scheduler", "scaler", "ema", "loader", "seen", "random"),
    *,
    draws: str = "dropout",
    begin: Callable[[Parts], None] = lambda parts: None,
) -> Callable[[], Any]:
    """A training of two layers whose checkpoint has the parts that are named."""

    def make() -> Any:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        if draws != "dropout":
            model[2].p = 0.0
        ema = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        shuffle = torch.Generator().manual_seed(1)
        data = torch.randn(64, 4, generator=torch.Generator().manual_seed(2))
        state = {"seen": 0}
        parts: Parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "ema": ema, "loader": shuffle}
        begin(parts)

        def step() -> float:
            rows = torch.randint(64, (8,), generator=shuffle)
            batch = data[rows]
            if draws == "numpy":
                batch = batch + float(np.random.normal())
            if draws == "counter":
                batch = batch * (1 + state["seen"])
            optimizer.zero_grad()
            loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            state["seen"] += 1
            with torch.no_grad():
                for mine, other in zip(ema.parameters(), model.parameters()):
                    mine.lerp_(other, 0.1)
            return float(loss.detach())

        def save(path: Any) -> None:
            content = {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                "ema": ema.state_dict(), "loader": shuffle.get_state(), "seen": state["seen"],
                "random": (torch.get_rng_state(), np.random.get_state(), random.getstate()),
            }  # fmt: skip
            torch.save({name: content[name] for name in saved if name in content}, path)

        def load(path: Any) -> None:
            content = torch.load(path, weights_only=False)
            for name in ("model", "optimizer", "scheduler", "ema"):
                if name in content:
                    parts[name].load_state_dict(content[name])
            if "loader" in content:
                shuffle.set_state(content["loader"])
            state["seen"] = content.get("seen", 0)
            if "random" in content:
                torch.set_rng_state(content["random"][0])
                np.random.set_state(content["random"][1])
                random.setstate(content["random"][2])

        return step, save, load

    return make


ALL = ("model", "optimizer", "scheduler", "ema", "loader", "seen", "random")


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in ALL if name not in names)


def told(report: Any) -> list[tuple[str, str]]:
    return [
        (finding.rule, finding.what.partition(":")[0]) for finding in report.findings if finding.severity == "error"
    ]


def test_a_checkpoint_that_has_everything_is_called_right() -> None:
    report = fxdebug.resumes(training(ALL))
    assert report.totals["resumes"][0] == "yes: 3 steps after loading are equal to the last bit to those in one go"
    assert (report.rows, report.findings, report.notes) == ((), (), ())


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (training(without("optimizer")), ["optimizer is not restored"]),
        (training(without("scheduler")), ["scheduler is not restored"]),
        (training(without("random")), ["torch's random numbers are not restored"]),
        (training(without("random"), draws="numpy"), ["numpy's random numbers are not restored"]),
        (training(without("loader")), ["shuffle is not restored"]),
        (training(without("ema")), ["ema is not restored"]),
        (training(without("seen"), draws="counter"), ["state['seen'] is not restored"]),
        (training(without("optimizer", "scheduler")), ["optimizer is not restored", "scheduler is not restored"]),
    ],
)
def test_the_part_that_is_lost_and_needed_is_named_alone(make: Callable[[], Any], named: list[str]) -> None:
    report = fxdebug.resumes(make)
    assert told(report) == [("not restored", what) for what in named]
    assert str(report.totals["resumes"][0]).startswith("no: step ")


def test_parts_that_are_lost_without_effect_are_advice_or_only_a_row() -> None:
    report = fxdebug.resumes(training(without("random", "seen"), draws="none"))
    assert str(report.totals["resumes"][0]).startswith("yes: ")
    assert [(row.part, row.lost) for row in report.rows] == [("state['seen']", "0 instead of 3")]
    assert report.findings == ()


def test_batch_statistics_and_modes_belong_to_the_model() -> None:
    def weights_only(parts: Parts) -> None:
        model = parts["model"]
        whole = model.state_dict
        model.state_dict = lambda: {
            name: t for name, t in whole().items() if "running" not in name and "num_" not in name
        }
        load = model.load_state_dict
        model.load_state_dict = lambda content: load(content, strict=False)

    report = fxdebug.resumes(training(ALL, begin=weights_only))
    assert report.findings[0].what.startswith("model is not restored: 1.running_mean differs, and 2 more values")


def test_a_loader_that_begins_again_is_seen_by_its_batches() -> None:
    def make() -> Any:
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = iter(torch.utils.data.DataLoader(torch.randn(24, 2), batch_size=4, shuffle=True))

        def step() -> float:
            optimizer.zero_grad()
            loss = (model(next(batches)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        return (
            step,
            lambda path: torch.save((model.state_dict(), optimizer.state_dict()), path),
            lambda path: [part.load_state_dict(s) for part, s in zip((model, optimizer), torch.load(path))],
        )

    report = fxdebug.resumes(make, steps=2)
    (error,) = [finding for finding in report.findings if finding.severity == "error"]
    assert error.what.startswith("the position in the data is lost: step 3 is given the batch of step 1 again; ")
    assert error.advice.startswith("save how many batches of the epoch were used")


def test_a_model_that_loading_makes_anew_is_not_the_one_that_the_optimizer_trains() -> None:
    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.model = nn.Linear(2, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def step(self) -> None:
            self.optimizer.zero_grad()
            (self.model(torch.ones(3, 2)) - 1).pow(2).mean().backward()
            self.optimizer.step()

        def save(self, path: Any) -> None:
            torch.save(self.model, path)

        def load(self, path: Any) -> None:
            self.model = torch.load(path, weights_only=False)

    report = fxdebug.resumes(Trainer)
    stray = ", ".join(f"a parameter of no model ({i})" for i in (0, 1))
    assert report.findings[0].what == f"optimizer is not restored: trains: {stray} instead of weight, bias"
    assert report.notes[0].what.startswith("with all these parts brought back the steps differ still")


def test_a_scaler_of_mixed_precision_and_an_epoch_belong_to_the_checkpoint() -> None:
    """As in public reports: resuming loses the scaler's scale, or begins the schedule of epochs again."""

    def make() -> Any:
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
        loop = {"epoch": 0}

        def step() -> None:
            optimizer.param_groups[0]["lr"] = 0.1 * 0.5 ** loop["epoch"]
            optimizer.zero_grad()
            scaler.scale((model(torch.ones(3, 2)) - 1).pow(2).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            loop["epoch"] += 1

        return (
            step,
            lambda path: torch.save((model.state_dict(), optimizer.state_dict()), path),
            lambda path: [part.load_state_dict(s) for part, s in zip((model, optimizer), torch.load(path))],
        )

    report = fxdebug.resumes(make)
    assert [(row.part, row.needed) for row in report.rows] == [("scaler", "no"), ("loop['epoch']", "yes")]
    assert [(finding.severity, finding.what.partition(":")[0]) for finding in report.findings] == [
        ("error", "loop['epoch'] is not restored"),
        ("advice", "scaler is not restored"),
    ]


def test_an_object_with_methods_may_be_the_training() -> None:
    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.model, self.steps = nn.Linear(2, 1), 0
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

        def step(self) -> None:
            self.steps += 1
            for group in self.optimizer.param_groups:
                group["lr"] = 0.1 / self.steps
            self.optimizer.zero_grad()
            (self.model(torch.ones(3, 2)) - 1).pow(2).mean().backward()
            self.optimizer.step()

        def save(self, path: Any) -> None:
            torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

        def load(self, path: Any) -> None:
            content = torch.load(path)
            self.model.load_state_dict(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])

    assert told(fxdebug.resumes(Trainer)) == [("not restored", "steps is not restored")]
    assert fxdebug.resumes(Trainer).findings[0].what == "steps is not restored: 0 instead of 3"


def test_a_training_that_is_not_repeatable_and_one_that_saving_changes_are_told_apart() -> None:
    draws = iter(range(1000))

    def unseeded() -> Any:
        model = nn.Linear(2, 1)
        with torch.no_grad():
            model.weight.fill_(float(next(draws)))
        return (lambda: model(torch.ones(1, 2)).sum().item(), lambda path: None, lambda path: None)

    def saved_in_eval() -> Any:
        step, save, load = training(ALL)()
        model = dict(zip(step.__code__.co_freevars, step.__closure__))["model"].cell_contents

        def save_and_evaluate(path: Any) -> None:
            save(path)
            model.eval()

        return step, save_and_evaluate, load

    report = fxdebug.resumes(unseeded)
    assert told(report)[0][0] == "not repeatable"
    assert report.totals["resumes"][0] == "cannot tell: two runs in one go differ from step 1 on"
    report = fxdebug.resumes(saved_in_eval)
    assert told(report)[0][0] == "saving changes"


def test_random_generators_are_afterwards_as_before() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    fxdebug.resumes(training(ALL), steps=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


def test_what_make_must_return_is_said() -> None:
    with pytest.raises(fxdebug.UsageError, match=r"make\(\) returned a Linear: let it return the functions"):
        fxdebug.resumes(lambda: nn.Linear(1, 1))
    with pytest.raises(fxdebug.UsageError, match=r"step, save and load use no nn\.Module"):
        fxdebug.resumes(lambda: (lambda: None, lambda path: None, lambda path: None))
    with pytest.raises(fxdebug.UsageError, match="steps=0: give the number of steps"):
        fxdebug.resumes(training(ALL), steps=0)


def test_exceptions_of_the_training_pass() -> None:
    def make() -> Any:
        raise KeyError("no data")

    with pytest.raises(KeyError, match="no data"):
        fxdebug.resumes(make)
