"""Callbacks in the trainers of transformers and Lightning, the real libraries: watch a training, trace chosen steps."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import fxdebug
from fxdebug.features.training.saved.training_file import read_training
from support.trainers import FAILS, FAILS_AT, STEPS, train_by_lightning, train_by_transformers

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="transformers' Trainer needs accelerate"
)
needs_lightning = pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="Lightning is not installed")


@needs_transformers
def test_the_trainer_of_transformers_is_watched(tmp_path: Path) -> None:
    from fxdebug.features.training.callbacks.trainer_callback import WatchCallback

    model = train_by_transformers(WatchCallback(every=5, save=tmp_path / "run"), tmp_path)
    record = read_training(tmp_path / "run")
    assert [step.number for step in record.watched] == [0, 5, 10] and len(record.steps) == STEPS
    assert [(incident.step, incident.trouble) for incident in record.incidents] == [(7, "loss")]
    assert "has 1 +Inf of 32" in record.incidents[0].what
    assert "forward" not in vars(model)


@needs_lightning
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_lightning_is_watched(tmp_path: Path) -> None:
    from fxdebug.features.training.callbacks.lightning_callback import WatchCallback

    model = train_by_lightning(WatchCallback(every=5, save=tmp_path / "run"), tmp_path)
    record = read_training(tmp_path / "run")
    assert [step.number for step in record.watched] == [0, 5, 10] and len(record.steps) == STEPS
    assert [(incident.step, incident.trouble, incident.path) for incident in record.incidents] == [(7, "loss", "")]
    assert "training_step" not in vars(model)


@needs_transformers
@needs_lightning
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["trainer", "lightning"])
def test_a_finding_stops_a_trainer_and_the_callback_has_the_verdict(library: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"fxdebug.features.training.callbacks.{library}_callback")
    callback = module.WatchCallback(save=tmp_path / "run", on={"error": ["stop"]})
    model = (train_by_transformers if library == "trainer" else train_by_lightning)(callback, tmp_path)
    assert isinstance(model.raised, fxdebug.api.StopTraining)
    assert len(read_training(tmp_path / "run").steps) == 8
    assert callback.watch.verdict().rule == "loss not finite"


@needs_transformers
def test_chosen_steps_of_the_trainer_of_transformers_are_traced_and_exported(tmp_path: Path) -> None:
    from fxdebug.features.training.callbacks.trainer_callback import TraceCallback

    callback = TraceCallback(
        steps=[1, 3], save=tmp_path / "step{step}", export=str(tmp_path / "step{step}.json"), values="tensors"
    )
    model = train_by_transformers(callback, tmp_path, accumulate=2)
    assert {step: len(traces) for step, traces in callback.traces.items()} == {1: 2, 3: 2}
    runs = sorted(path.name for path in tmp_path.glob("step*"))
    assert runs == ["step1", "step1-1", "step1.json", "step3", "step3-1", "step3.json"]
    first, poisoned = fxdebug.load(tmp_path / "step1"), fxdebug.load(tmp_path / "step3-1")
    assert fxdebug.check(first, analyses="numbers").healthy
    found = fxdebug.check(poisoned, analyses="numbers")
    assert [(finding.rule, finding.severity) for finding in found][:1] == [("input", "error")]
    assert len(json.loads((tmp_path / "step3.json").read_text())["nodes"]) == len(callback.traces[3][0].graph)
    assert "forward" not in vars(model)


@needs_lightning
@pytest.mark.filterwarnings("ignore")
def test_chosen_steps_of_the_trainer_of_lightning_are_traced(tmp_path: Path) -> None:
    from fxdebug.features.training.callbacks.lightning_callback import TraceCallback

    callback = TraceCallback(steps=7, save=tmp_path / "step{step}", export=str(tmp_path / "step{step}.txt"))
    model = train_by_lightning(callback, tmp_path)
    ((trace,),) = callback.traces.values()
    assert trace.root.method == "training_step" and [call.path for call in trace.calls] == ["", "layer"]
    assert trace.root.outputs[0].stats.posinf == 1
    assert "Linear" in (tmp_path / "step7.txt").read_text() and fxdebug.load(tmp_path / "step7").calls
    assert "training_step" not in vars(model)


@needs_transformers
@pytest.mark.parametrize("fails", FAILS)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_training_of_transformers_that_raises_leaves_the_forward_as_it_was(tmp_path, fails, accumulate):
    from fxdebug.features.training.callbacks.trainer_callback import TraceCallback

    callback = TraceCallback(steps=range(STEPS), save=None)
    model = train_by_transformers(callback, tmp_path, accumulate, fails)
    assert str(model.raised) == f"the {fails} failed" and model.layer.forwards == _forwards(fails, accumulate)
    traces = [trace for traces in callback.traces.values() for trace in traces]
    assert len(traces) == model.layer.forwards
    assert (traces[-1].error is not None) == (fails == "forward")
    assert "forward" not in vars(model)


def _forwards(fails: str, accumulate: int = 1) -> int:
    """Return how many forwards have run where this part of a training fails."""
    if fails in ("optimizer", "scheduler"):
        return -(-(FAILS_AT + 1) // accumulate) * accumulate
    return FAILS_AT + (fails != "batch")


@needs_transformers
@pytest.mark.parametrize("fails", ["", *FAILS])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("every", [1, 2])
def test_a_watched_training_of_transformers_that_raises_leaves_everything_as_it_was(tmp_path, fails, accumulate, every):
    from fxdebug.features.training.callbacks.trainer_callback import WatchCallback

    before = _patched()
    callback = WatchCallback(every=every, save=tmp_path / "run")
    model = train_by_transformers(callback, tmp_path, accumulate, fails)
    assert _patched() == before and "forward" not in vars(model) | vars(model.layer)
    steps = (_forwards(fails, accumulate) - (fails != "batch")) // accumulate
    assert len(callback.watch.steps) == (steps + (fails == "scheduler") if fails else STEPS // accumulate)
    told = [incident.what for incident in callback.watch.incidents if incident.trouble == "exception"]
    assert told == ([f"the training raised RuntimeError: the {fails} failed"] if fails else [])
    healthy = train_by_transformers(callback, tmp_path, accumulate)  # the same callback watches another training
    assert len(callback.watch.steps) == STEPS // accumulate and _patched() == before
    assert "forward" not in vars(healthy)


@needs_transformers
def test_between_two_steps_of_transformers_nothing_is_patched(tmp_path):
    from transformers import TrainerCallback

    from fxdebug.features.training.callbacks.trainer_callback import WatchCallback

    before, seen = _patched(), []

    class Callback(WatchCallback):
        def on_step_end(self, args, state, control, **given):
            super().on_step_end(args, state, control, **given)
            seen.append((_patched() == before, "forward" in vars(given["model"])))
            if state.global_step == 2:
                raise RuntimeError("the evaluation failed")

    assert issubclass(Callback, TrainerCallback)
    with pytest.raises(RuntimeError, match="the evaluation failed"):
        train_by_transformers(Callback(every=5, save=None), tmp_path)
    assert seen == [(True, False)] * 2 and _patched() == before


def _patched() -> tuple[object, int, int]:
    """Return what a watched training patches outside the model."""
    return torch.autograd.backward, len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)


@needs_lightning
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fails", FAILS)
def test_a_watched_training_of_lightning_that_raises_leaves_everything_as_it_was(tmp_path, fails):
    from fxdebug.features.training.callbacks.lightning_callback import WatchCallback

    before = _patched()
    callback = WatchCallback(every=1, save=tmp_path / "run")
    model = train_by_lightning(callback, tmp_path, fails)
    assert _patched() == before and "training_step" not in vars(model) | vars(model.layer)
    assert [incident.trouble for incident in read_training(tmp_path / "run").incidents] == ["exception"]


@needs_lightning
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fails", FAILS)
def test_a_training_of_lightning_that_raises_leaves_its_step_as_it_was(tmp_path, fails):
    from fxdebug.features.training.callbacks.lightning_callback import TraceCallback

    callback = TraceCallback(steps=range(STEPS), save=None)
    model = train_by_lightning(callback, tmp_path, fails)
    assert str(model.raised) == f"the {fails} failed" and list(callback.traces) == [0, 1, 2]
    assert (callback.traces[FAILS_AT][0].error is not None) == (fails in ("forward", "batch", "loss"))
    assert "training_step" not in vars(model)
