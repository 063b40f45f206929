"""``fxdebug.memory``: rows M1 to M4 and P2 of the analyses, against torch's own tracker."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._tools import MemTracker

import fxdebug
from fxdebug.features.memory.following.followed_run import run_with_memory
from fxdebug.features.memory.record import timeline
from zoo.zoo_sample import entries

transformers = pytest.importorskip("transformers", reason="the rows' fixture is a model of transformers")


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4, n_embd=256, n_head=4, vocab_size=2000, use_cache=False, bos_token_id=0, eos_token_id=0
    )
    model: nn.Module = transformers.GPT2LMHeadModel(config).eval()
    return model


IDS = torch.arange(4 * 128).reshape(4, 128)


def run(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def torchs_peak(model: nn.Module, inputs: Any, loss: Callable[[Any], torch.Tensor] | None = None) -> int:
    gc.collect()
    tracker = MemTracker()
    tracker.track_external(model, *(tensor for tensor in _tensors(inputs)))
    with tracker:
        output = run(model, inputs)
        if loss is not None:
            loss(output).backward()
    peak = tracker.get_tracker_snapshot("peak")
    model.zero_grad(set_to_none=True)
    return int(sum(device["Total"] for device in peak.values()))


def _tensors(inputs: Any) -> list[torch.Tensor]:
    items = inputs.values() if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
    return [item for item in items if isinstance(item, torch.Tensor)]


@pytest.mark.parametrize("backward", [False, True])
def test_m1_the_peak_is_that_of_torchs_tracker(backward: bool) -> None:
    model = gpt2()
    loss = (lambda output: output.logits.mean()) if backward else None
    with torch.set_grad_enabled(backward):
        report = fxdebug.memory(model, IDS, loss=loss)
        assert report.totals["peak"][0] == pytest.approx(torchs_peak(model, IDS, loss), rel=0.01)


SAMPLED = ("hf/bert/", "hf/gpt2/", "hf/llama/", "hf/t5/", "hf/vit/", "hf/mamba/", "hf/convnext/",
           "hf/clip", "hf/mixtral/", "hf/gemma2/", "layers/gru", "layers/attention")  # fmt: skip


@pytest.mark.parametrize(
    "name, build",
    [entry for entry in entries(False) if entry[0].startswith(SAMPLED)],
    ids=lambda x: x if type(x) is str else "",
)
def test_m1_the_peak_of_zoo_models_is_that_of_torchs_tracker(name: str, build: Callable[[], Any]) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        theirs = torchs_peak(*build())
        assert fxdebug.memory(*build()).totals["peak"][0] == pytest.approx(theirs, rel=0.01)


def test_m1_the_peak_with_a_backward_is_higher_and_nothing_is_left_without_one() -> None:
    model = gpt2()
    with torch.no_grad():
        forward = fxdebug.memory(model, IDS)
    both = fxdebug.memory(model, IDS, loss=lambda output: output.logits.mean())
    parameters = sum(p.numel() * 4 for p in model.parameters())
    assert forward.totals["alive at the end"] == (parameters, "B")
    assert both.totals["peak"][0] > forward.totals["peak"][0]
    assert both.totals["alive at the end"] == (2 * parameters, "B")  # with the gradients


def test_m2_the_timeline_never_falls_below_zero_and_its_maximum_is_the_peak() -> None:
    model = gpt2()
    with torch.no_grad():
        record, raised = run_with_memory(model, (IDS,), {}, None, 1)
        peak = fxdebug.memory(model, IDS).totals["peak"][0]
    alive = timeline(record.allocations, record.events)
    assert raised is None and min(alive) >= 0 and max(alive) == peak
    assert [label for _, label in record.marks] == ["forward", "end of step 0"]
    assert [event for event, _ in record.marks] == sorted(event for event, _ in record.marks)


def test_p2_the_activation_of_the_head_has_the_size_of_the_logits() -> None:
    model = gpt2()
    with torch.no_grad():
        rows = {row.call: row for row in fxdebug.memory(model, IDS).rows}
    assert rows["lm_head#0"].outputs == 4 * 128 * 2000 * 4
    assert rows["transformer.h.0.ln_1#0"].parameters == 2 * 256 * 4


def test_m3_a_kept_activation_is_named_with_its_call_and_the_list_that_holds_it() -> None:
    model, kept = gpt2(), []
    model.transformer.h[1].mlp.register_forward_hook(lambda module, args, output: kept.append(output))  # type: ignore[union-attr, index]
    with torch.no_grad():
        report = fxdebug.memory(model, IDS, steps=5)
    assert [(finding.rule, finding.path, finding.measured) for finding in report.findings] == [
        ("leak", "transformer.h.1.mlp", 4 * 128 * 256 * 4)
    ]
    assert "the variable kept of test_m3_a_kept_activation" in report.findings[0].what


class Remembers(nn.Module):
    """Keeps something of each step, as the name of the case says."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.layer = nn.Linear(8, 8)
        self.history: list[torch.Tensor] = []
        self.total: torch.Tensor | float = 0.0
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if self.how == "a list on the module":
            self.history.append(y)
        if self.how == "a sum with its graph":
            self.total = self.total + y.sum()
        if self.how == "the last result only":
            self.last = y
        return y.relu()


def test_m3_a_list_on_a_module_is_named() -> None:
    findings = fxdebug.memory(Remembers("a list on the module"), torch.ones(4, 8), steps=4).findings
    assert [finding.path for finding in findings] == ["layer"]
    assert "the module Remembers.history (a list of 4)" in findings[0].what


@pytest.mark.parametrize("how", ["nothing", "the last result only"])
def test_m3_a_clean_model_and_one_that_keeps_its_last_result_have_no_leak(how: str) -> None:
    assert not fxdebug.memory(Remembers(how), torch.ones(4, 8), steps=4).findings


def test_m3_a_sum_of_results_that_keeps_their_graphs_is_named_with_what_it_keeps() -> None:
    (finding,) = fxdebug.memory(Remembers("a sum with its graph"), torch.ones(4, 8), steps=4).findings
    assert finding.what.startswith("autograd's graph of every step stays")  # y.sum() keeps no tensor
    assert finding.what.endswith("the module Remembers.total keeps it")

    class SumOfSquares(Remembers):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            self.total = self.total + y.square().sum()
            return y.relu()

    (finding,) = fxdebug.memory(SumOfSquares("in a class of its own"), torch.ones(4, 8), steps=4).findings
    assert (finding.path, finding.measured) == ("layer", 4 * 8 * 4)
    assert "the module SumOfSquares.total keeps autograd's graph of every step" in finding.what


def test_m3_a_sum_of_losses_that_keeps_their_graphs_is_named() -> None:
    def added(number: Callable[[torch.Tensor], Any]) -> list[tuple[str, str, str]]:
        loss_sum: Any = 0.0

        def loss(y: torch.Tensor) -> torch.Tensor:
            nonlocal loss_sum
            value = y.square().mean()
            loss_sum += number(value)
            return value

        findings = fxdebug.memory(Remembers("nothing"), torch.ones(4, 8), loss=loss, steps=4).findings
        return [(finding.rule, finding.call, finding.what) for finding in findings]

    ((rule, call, what),) = added(lambda value: value)
    assert (rule, call) == ("leak", "Remembers#0")
    assert what.startswith("autograd's graph of every step stays") and "the variable loss_sum of test_m3_a_sum" in what
    assert added(torch.Tensor.item) == added(torch.Tensor.detach) == []


def test_m3_two_steps_are_too_few_to_tell_a_leak() -> None:
    assert not fxdebug.memory(Remembers("the last result only"), torch.ones(4, 8), steps=2).findings


class Labels(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fxdebug.snapshot("before")
        y = x + 1
        z = torch.cat([y, y])
        del y
        fxdebug.snapshot("after")
        return z


def test_m2_labels_are_rows_in_their_order_with_what_was_alive() -> None:
    with torch.no_grad():
        report = fxdebug.memory(Labels(), torch.ones(256), steps=2)
    assert [(row.label, row.alive, row.peak) for row in report.parts[1].rows] == [
        ("before", 1024, 1024), ("after", 3072, 4096),
    ]  # fmt: skip
    labels = [label for _, label in report.marks]
    assert labels[:4] == ["forward", "before", "after", "end of step 0"]


def test_m4_on_the_cpu_fragmentation_is_not_available_and_a_note_says_why() -> None:
    notes = [note.what for note in fxdebug.memory(nn.Linear(2, 2), torch.ones(1, 2)).notes]
    assert notes == ["fragmentation: n/a, the allocator of the device cpu shows no segments"]


@pytest.mark.parametrize("batch", [2, 4])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("backward", [False, True])
def test_the_estimate_for_another_batch_and_dtype_is_that_of_such_a_run(
    batch: int, dtype: torch.dtype | None, backward: bool
) -> None:
    model = gpt2()
    loss = (lambda output: output.logits.mean()) if backward else None
    other: Any = {"batch": 8} if dtype is None else {"batch": 8, "dtype": dtype}
    ids = IDS[:, :16].repeat(2, 1)
    with torch.set_grad_enabled(backward):
        report = fxdebug.memory(model, ids[:batch], loss=loss, estimate=other)
        estimate = next(value for name, (value, _) in report.totals.items() if name.startswith("estimate for batch 8"))
        truth = fxdebug.memory(model if dtype is None else model.to(dtype), ids, loss=loss).totals["peak"][0]
    assert estimate == pytest.approx(truth, rel=0.01)
    assert abs(report.totals["error of the estimate"][0]) < 1  # type: ignore[arg-type, operator]
    assert report.notes[-1].what.startswith("estimate: checked in a run with batch 6")


def test_an_estimate_that_cannot_be_made_is_a_note_with_the_reason() -> None:
    class OfTwo(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 3)

    report = fxdebug.memory(OfTwo(), torch.ones(2, 3), estimate={"batch": 8})
    assert "error of the estimate" not in report.totals
    assert report.notes[-1].what.startswith("estimate: n/a, at batch 4 the model raised RuntimeError: shape '[2, 3]'")
    nothing = fxdebug.memory(nn.Identity(), (7,), estimate={"batch": 8})
    assert nothing.notes[-1].what.startswith("estimate: n/a, no input has a batch")


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"size": 3}])
def test_wrong_estimates_are_usage_errors(wrong: Any) -> None:
    with pytest.raises(fxdebug.UsageError, match="give a batch of at least 1, a dtype, or both"):
        fxdebug.memory(nn.Linear(2, 2), torch.ones(1, 2), estimate=wrong)


def test_a_loss_that_is_no_scalar_is_a_clear_error() -> None:
    with pytest.raises(fxdebug.UsageError, match=r"a tensor of shape \(1, 2\)"):
        fxdebug.memory(nn.Linear(2, 2), torch.ones(1, 2), loss=lambda y: y)


@pytest.mark.parametrize("steps", [0, -1])
def test_the_number_of_steps_is_checked(steps: int) -> None:
    with pytest.raises(fxdebug.UsageError, match="at least one"):
        fxdebug.memory(nn.Linear(2, 2), torch.ones(1, 2), steps=steps)


def test_gradients_saved_tensors_and_outputs_are_told_apart() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    report = fxdebug.memory(model, torch.ones(32, 16), loss=lambda y: y.sum())
    rows = {row.call: row for row in report.rows}
    assert rows["1#0"].saved == 32 * 16 * 4  # the result of the ReLU, for both backwards
    assert rows["2#0"].outputs == 32 * 4 * 4
    assert rows["0#0"].activations == 32 * 16 * 4
