"""Faults planted in a model are found by name, and healthy models have no finding."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fxdebug
from support import sweep
from support.clocks import CountedClock, profiled_by
from zoo.zoo_sample import entries


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.q, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
        self.fault = ""
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(self.norm(x)).chunk(3, -1)
        if self.fault == "eager attention":
            attended = ((q @ k.transpose(-2, -1)) / 32**0.5).softmax(-1) @ v
        else:
            attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended)
        if self.fault == "a slow layer":
            time.sleep(0.03)
        if self.fault == "numbers read in a loop":
            x = x * sum(0.1 + 0 * row.sum().item() for row in x[0])
        hidden = F.gelu(self.up(x).double()).float() if self.fault == "float64" else F.gelu(self.up(x))
        if self.fault == "a kept activation":
            self.kept.append(hidden)
        return x + self.down(hidden)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


X = torch.randn(2, 24, 32, generator=torch.Generator().manual_seed(0))


def found(model: nn.Module) -> set[tuple[str, str]]:
    """(rule, path) of every finding of the time and of the memory of a model."""
    with torch.no_grad(), profiled_by(CountedClock()):
        times = fxdebug.profile(model, X, repeats=4, warmup=1, peak=False)
        memory = fxdebug.memory(model, X, steps=4)
    return {(finding.rule, finding.path) for finding in (*times.findings, *memory.findings)}


FAULTS: dict[str, set[tuple[str, str]]] = {
    "": set(),
    "a slow layer": {("slow", "blocks.2"), ("outside torch", "blocks.2")},
    "numbers read in a loop": {("reads numbers", "blocks.2")},
    "float64": {("float64", "blocks.2")},
    "eager attention": {("eager attention", "blocks.2")},
    "a kept activation": {("leak", "blocks.2")},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_by_name_and_nothing_else(fault: str) -> None:
    model = Net()
    model.blocks[2].fault = fault
    assert found(model) == FAULTS[fault]


def test_a_leak_in_a_hook_is_named_with_its_call_and_the_list() -> None:
    model, activations = Net(), []
    model.blocks[1].up.register_forward_hook(lambda module, args, output: activations.append(output))
    with torch.no_grad():
        (finding,) = fxdebug.memory(model, X, steps=4).findings
    assert (finding.rule, finding.path) == ("leak", "blocks.1.up")
    assert "the variable activations of test_a_leak_in_a_hook" in finding.what


HEALTHY = (
    "hf/bert/", "hf/gpt2/", "hf/llama/", "hf/t5/", "hf/clip_text_model/", "hf/vit/", "hf/whisper/", "hf/bart/",
    "hf/convnext/", "hf/gemma2/", "hf/wav2vec2/", "hf/mamba/", "layers/gru", "layers/attention", "layers/lstm",
    "layers/conv", "layers/batch", "layers/transformer", "layers/embedding", "call/", "names/", "hooks/",
)  # fmt: skip
WASTED = {"hooks/weight-norm": "same in each run"}  # its weight is made anew in each run, also in evaluation
MODELS = {name: build for name, build in entries(False) if name.startswith(HEALTHY)}


@pytest.mark.parametrize("name", sweep.sampled(MODELS, 8, ("hf/gpt2/", "hf/vit/")))
def test_a_healthy_model_has_no_finding(name: str) -> None:
    build: Callable[[], Any] = MODELS[name]
    model, inputs = build()
    with torch.no_grad(), profiled_by(CountedClock()):
        findings = [
            *fxdebug.profile(model, inputs, repeats=3, warmup=1, peak=False).findings,
            *fxdebug.memory(model, inputs, steps=3).findings,
        ]
    wasted = [finding for finding in findings if finding.rule == WASTED.get(name)]
    assert [str(finding) for finding in findings if finding not in wasted] == []
    assert len(wasted) == (name in WASTED)
