"""Models in installed packages: they count as libraries, and their own state is restored all the same."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fxdebug import fx_debug
from fxdebug.capture.torch_state.whose_code import is_library

SOURCE = """
import torch
from torch import nn

STEPS = 0
SEEN = []


class Scaled(nn.Module):
    calls = 0

    def forward(self, x):
        global STEPS
        STEPS += 1
        Scaled.calls += 1
        SEEN.append(x.shape)
        return x * 2


class WarmUp(nn.Module):
    def forward(self, x):
        global STEPS
        STEPS += 1
        return x * STEPS
"""


@pytest.fixture(params=["site-packages", "dist-packages"])
def models(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "lib" / "python3" / request.param
    folder.mkdir(parents=True)
    name = f"installed_{request.param[:4]}"
    (folder / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder)
    is_library.cache_clear()
    yield importlib.import_module(name)
    sys.modules.pop(name)
    is_library.cache_clear()


def test_an_installed_package_is_a_library(models: ModuleType) -> None:
    assert is_library(models.__name__) and is_library("torch") and is_library("json")
    assert not is_library(__name__)


def test_the_state_of_an_installed_model_changes_once(models: ModuleType) -> None:
    trace = fx_debug(models.Scaled(), torch.ones(2))
    assert trace.root.status == "verified"
    assert (models.STEPS, models.Scaled.calls, len(models.SEEN)) == (1, 1, 1)


def test_an_installed_model_that_counts_its_calls_has_counted_one(models: ModuleType) -> None:
    model = models.WarmUp()
    trace = fx_debug(model, torch.ones(2))
    assert trace.root.status == "recorded"
    assert model(torch.ones(2)).tolist() == [2.0, 2.0]
