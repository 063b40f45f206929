"""Records do not make Python search all objects for garbage, and the program's thresholds come back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fxdebug import fx_debug


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Asks(nn.Module):
    """Calls back in the middle of its forward."""

    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        self.ask()
        return x + 1


def test_thresholds_are_higher_during_a_run_and_come_back() -> None:
    gc.set_threshold(600, 7, 8)
    seen = []
    trace = fx_debug(Asks(lambda: seen.append(gc.get_threshold())), torch.ones(2))
    assert seen == [(30_000, 7, 8)] and gc.get_threshold() == (600, 7, 8)
    assert trace.graph is not None and gc.get_threshold() == (600, 7, 8)


def test_thresholds_come_back_after_an_exception() -> None:
    before = gc.get_threshold()

    def fail() -> None:
        raise KeyError("of the model")

    with pytest.raises(KeyError):
        fx_debug(Asks(fail), torch.ones(2))
    assert gc.get_threshold() == before


def test_a_threshold_that_the_model_sets_stays() -> None:
    fx_debug(Asks(lambda: gc.set_threshold(123, 4, 5)), torch.ones(2), graph=False)
    assert gc.get_threshold() == (123, 4, 5)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 7, 8)
    seen = []
    fx_debug(Asks(lambda: seen.append(gc.get_threshold())), torch.ones(2))
    assert seen == [(0, 7, 8)] and gc.get_threshold() == (0, 7, 8)


def test_a_long_run_is_never_searched_whole() -> None:
    model, x = nn.Sequential(*[nn.ReLU() for _ in range(1500)]), torch.ones(2)
    searched: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            searched.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        trace = fx_debug(model, x)
        assert trace.calls[0].status == "verified"
    finally:
        gc.callbacks.remove(note)
    assert 2 not in searched and len(searched) < 40  # with the usual thresholds more than 100
