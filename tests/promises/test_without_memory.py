"""Models on the meta device or under FakeTensorMode: tree, shapes and graph without any weights."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.capture.graphs.known_templates import forget_templates


def fake() -> contextlib.AbstractContextManager[Any]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


BLOCKS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "meta": lambda: torch.device("meta"),
    "fake": fake,
}


def gpt2_xl() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_embd=1600, n_layer=48, n_head=25))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize("kind", BLOCKS)
def test_gpt2_xl_is_traced_with_its_graph_in_seconds_and_little_memory(kind: str) -> None:
    with BLOCKS[kind]():
        model = gpt2_xl()
        inputs = torch.zeros(1, 1024, dtype=torch.long)
        forget_templates()
        before, began = resident(), time.process_time()
        trace = fxdebug.fx_debug(model, inputs)
        statuses = {call.status for call in trace.calls}  # asked while the block is open
    graph = trace.graph
    took, more = time.process_time() - began, resident() - before
    assert (len(trace.calls), statuses) == (583, {"verified"})
    assert len(trace.graphs) < 20  # one per class, not per layer
    assert graph.number_of_nodes() > 5000
    assert trace.output.logits.shape == (1, 1024, 50257)
    assert trace.root.outputs["logits"].shape == (1, 1024, 50257)  # type: ignore[index]
    assert [note.what for note in trace.notes] == [f"no statistics: a {kind} tensor has no data"]
    assert all(value.stats is None for value in trace.values)
    assert sum(parameter.numel() for parameter in model.parameters()) > 1_500_000_000
    assert took < 60, took  # 3 s of the processor
    assert more < 200, more  # MB


def resident() -> float:
    """Return the resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.filterwarnings("error")  # nobody may touch the memory that fake tensors do not have
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_graph_equals_that_of_a_run_with_data(kind: str) -> None:
    def made() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LSTM(36, 4))

    expected = fxdebug.fx_debug(made(), torch.ones(2, 1, 5, 5))
    with BLOCKS[kind]():
        trace = fxdebug.fx_debug(made(), torch.ones(2, 1, 5, 5))
        codes = [call.code.replace("device(type='meta')", "device(type='cpu')") for call in trace.calls]
    assert codes == [call.code for call in expected.calls]
    shapes = [[value.shape for value in call.outputs or ()] for call in trace.calls]
    assert shapes == [[value.shape for value in call.outputs or ()] for call in expected.calls]


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_branch_on_a_value_raises_the_same_as_without_tracing(kind: str) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with BLOCKS[kind]():
        x = torch.ones(3)
        with pytest.raises(Exception) as plain:
            Branches()(x)
        with pytest.raises(Exception) as ours:
            fxdebug.fx_debug(Branches(), x)
    assert type(ours.value) is type(plain.value)
    assert str(ours.value) == str(plain.value)


def test_the_graph_of_a_trace_can_be_read_under_any_mode() -> None:
    """Modes that are on when the graph is read have nothing to do with the run."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    for block in (*BLOCKS.values(), torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")):
        trace = fxdebug.fx_debug(model, torch.ones(2, 4))
        forget_templates()
        with block():
            assert [call.status for call in trace.calls] == ["verified"] * 3
