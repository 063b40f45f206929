"""A run that ends for want of memory says where, what was asked for, and what it had made; the exception passes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fxdebug
from fxdebug.analyses.cost.no_memory import no_memory


class Large(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).repeat(10, 1)
        if len(x) > 4:
            return y.new_empty(1 << 52)  # more than any machine has
        return y.sum()


LINE = Large.forward.__code__.co_firstlineno


def test_the_exception_of_a_traced_run_has_a_note_with_the_line_and_what_was_made() -> None:
    with pytest.raises(RuntimeError, match="allocate") as raised:
        fxdebug.fx_debug(nn.Sequential(Large()), torch.ones(8, 64))
    (note,) = raised.value.__notes__
    assert note.startswith(
        f"fxdebug: no memory for 16 PiB in 0 (Large), test_no_memory.py:{LINE + 3}. Parameters take 16.2 KiB, inputs "
        "2 KiB, and operations had made 22 KiB until then"
    )
    assert f"that of repeat (test_no_memory.py:{LINE + 1}): 20 KiB" in note
    assert "fxdebug memory --limit" in note


def test_a_run_without_graphs_and_one_of_a_profile_have_the_note_too() -> None:
    with pytest.raises(RuntimeError) as raised:
        fxdebug.fx_debug(Large(), torch.ones(8, 64), graph=False)
    assert "nothing that was recorded" in raised.value.__notes__[0]
    with pytest.raises(RuntimeError) as raised:
        fxdebug.profile(Large(), torch.ones(8, 64), repeats=1, peak=False)
    assert "no memory for 16 PiB" in raised.value.__notes__[0]


def test_a_watched_training_says_what_it_held_when_there_was_no_memory(tmp_path: Path) -> None:
    model = Large()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(RuntimeError) as raised, fxdebug.watch(model, save=tmp_path / "run") as watched:
        for rows in (4, 4, 8):
            optimizer.zero_grad()
            model(torch.ones(rows, 64)).sum().backward()
            optimizer.step()
    (note,) = raised.value.__notes__
    assert f"no memory for 16 PiB at test_no_memory.py:{LINE + 3}. In use were 16.2 KiB parameters" in note
    assert "32.5 KiB state of the optimizer" in note and "activations are not counted on a CPU" in note
    told = [incident.what for incident in watched.incidents if incident.trouble == "exception"]
    assert len(told) == 1 and "16.2 KiB parameters" in told[0]


def test_other_exceptions_have_no_note() -> None:
    with pytest.raises(RuntimeError) as raised:
        fxdebug.fx_debug(nn.Linear(3, 3), torch.ones(2, 4))
    assert not hasattr(raised.value, "__notes__")
    assert no_memory(RuntimeError("shapes cannot be multiplied")) is None
    assert no_memory(KeyboardInterrupt("out of memory")) is None
