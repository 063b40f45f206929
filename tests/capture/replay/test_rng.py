"""Generators stand where the run has left them, whatever a forward draws, seeds or restores."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from fxdebug.capture.replay.rng import RngSnapshot
from support.watched import VERIFIED, Layer, saw


def test_every_generator_goes_on_from_where_the_run_has_left_it() -> None:
    class Draws(Layer):
        def setup(self) -> None:
            self.own = random.Random(3)
            self.numpy = np.random.default_rng(3)
            self.old = np.random.RandomState(3)
            self.torch = torch.Generator().manual_seed(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            noise = torch.rand(8, generator=self.torch) + torch.rand(())
            drawn = self.own.random(), self.numpy.random(), self.old.rand(), random.random(), np.random.rand()
            return self.l(x) + noise if drawn else x

    def states(model: Any) -> Any:
        return (
            model.own.getstate(), str(model.numpy.bit_generator.state), model.old.get_state(), model.torch.get_state(),
        )  # fmt: skip

    assert saw(Draws, outside=states, not_alone=("#0",)) == VERIFIED  # the audit rewinds torch's own generator only


def test_a_random_number_of_python_in_the_result_gives_a_recorded_graph() -> None:
    class Draws(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.l(x) * random.random()

    status, words, line = saw(Draws)
    assert (status, line) == ("recorded", "return self.l(x) * random.random()")
    assert words.startswith("the constant 0.") and words.endswith(" was, in mul")


def test_a_forward_that_sets_a_seed_is_recorded_and_sets_it_once() -> None:
    class Seeds(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(3)
            return self.l(x) + torch.rand(8)

    assert saw(Seeds) == (
        "recorded",
        "its Python sets the state of torch's random numbers before an operation",
        "return self.l(x) + torch.rand(8)",
    )


def test_a_forward_that_sets_and_restores_the_random_state_is_recorded() -> None:
    class Forks(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(3)
                noise = torch.rand(8)
            return self.l(x) + noise

    class DrawsTheSameTwice(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            state = torch.get_rng_state()
            noise = torch.rand(8)
            torch.set_rng_state(state)
            return self.l(x) + noise + torch.rand(8)

    words = "its Python sets the state of torch's random numbers before an operation"
    assert saw(Forks) == ("recorded", words, "noise = torch.rand(8)")
    assert saw(DrawsTheSameTwice) == ("recorded", words, "return self.l(x) + noise + torch.rand(8)")


class FakeDevice:
    """A kind of device whose generators are a list of numbers."""

    def __init__(self) -> None:
        self.states = [1, 2]

    def is_available(self) -> bool:
        return True

    is_initialized = is_available

    def get_rng_state_all(self) -> list[int]:
        return list(self.states)

    def set_rng_state_all(self, states: list[int]) -> None:
        self.states = list(states)

    def get_rng_state(self) -> int:
        return self.states[0]

    def set_rng_state(self, state: int) -> None:
        self.states[0] = state


def test_generators_of_every_kind_of_device_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, xpu, mps = FakeDevice(), FakeDevice(), FakeDevice()
    for name, device in (("cuda", cuda), ("xpu", xpu), ("mps", mps)):
        monkeypatch.setattr(torch, name, device)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    state = RngSnapshot()
    cuda.states, xpu.states, mps.states = [7, 7], [8, 8], [9, 9]
    state.restore()
    assert (cuda.states, xpu.states, mps.states[0]) == ([1, 2], [1, 2], 1)
