"""``profile(tried=True)`` and ``memory(tried=True)``: advice is tried, kept with its gain, or withdrawn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.features.shared.tried_settings import pairs

NOW = [0]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    NOW[0] = 0
    monkeypatch.setitem(pairs.CLOCKS, "wall", lambda: NOW[0])
    yield


class Pools(nn.Module):
    """A model whose time is that of its steps; ``gains`` says whether padding takes time."""

    def __init__(self, gains: bool) -> None:
        super().__init__()
        self.gains, self.mix = gains, nn.Linear(64, 64)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        NOW[0] += 100_000 * (x.shape[1] if self.gains else 100)
        return (self.mix(x) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)  # type: ignore[no-any-return]


MASK = (torch.arange(400)[None] < torch.tensor([[4], [10]])).long()
INPUTS = torch.randn(2, 400, 64), MASK


def profiled(model: nn.Module) -> Any:
    with torch.no_grad():
        return fxdebug.profile(model, INPUTS, repeats=2, warmup=0, peak=False, tried=True)


def test_a_finding_that_was_tried_has_the_gain_and_what_to_write() -> None:
    report = profiled(Pools(gains=True))
    (finding,) = [finding for finding in report.findings if finding.rule == "padding"]
    assert finding.advice.startswith("Tried: inputs cut from 400 to 10 steps: 40.00 [40.00, 40.00] times as fast")
    assert finding.advice.endswith('Write: pad to the longest row, 10 (padding="longest"), instead of 400')
    assert [(row.change_of, row.verdict) for row in report.parts[-1].rows] == [
        ("inputs cut from 400 to 10 steps", "take")
    ]


def test_advice_that_brings_nothing_is_withdrawn() -> None:
    report = profiled(Pools(gains=False))
    assert "padding" not in [finding.rule for finding in report.findings]
    (note,) = [note.what for note in report.notes if note.what.startswith("withdrawn: padding at ")]
    assert "no gain beyond the noise" in note


def test_what_saves_more_of_a_step_is_told_before_what_was_tried() -> None:
    class Repeats(Pools):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            rows = [torch.tanh(torch.relu(mask[0, i : i + 1] * 1.0)) for i in range(60)]
            NOW[0] += 100_000 * (1000 + x.shape[1])
            x = self.mix(self.mix(self.mix(x)))
            return super().forward(x, mask) + torch.cat(rows).sum()

    report = profiled(Repeats(gains=False))
    assert [finding.rule for finding in report.findings] == ["row by row", "padding"]
    assert report.findings[1].advice.startswith("Tried: inputs cut from 400 to 10 steps: 1.35 ")


def test_a_finding_that_only_code_can_follow_stays_a_question() -> None:
    class Loops(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([torch.tanh(torch.relu(x[row]) + 1) for row in range(len(x))])

    with torch.no_grad():
        report = fxdebug.profile(Loops(), torch.randn(64, 4), repeats=2, warmup=0, peak=False, tried=True)
    (finding,) = [finding for finding in report.findings if finding.rule == "row by row"]
    assert finding.advice.endswith("?") and "is at stake" in finding.what


def test_settings_that_make_the_peak_smaller_are_kept_and_others_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pairs.CLOCKS, "wall", time.perf_counter_ns)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)])
    report = fxdebug.memory(model, torch.randn(2048, 64), loss=lambda y: y.square().mean(), tried=True)
    told = [note.what for note in report.notes]
    assert any(one.startswith("tried: checkpointing, 4 calls: peak of a step ") for one in told)
    peaks = {row.change_of: row.peak for row in report.parts[-1].rows}
    assert peaks["checkpointing, 4 calls"] < 0.9 * max(peak for peak in peaks.values() if peak)
