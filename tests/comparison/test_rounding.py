"""A float32 original against a port in bfloat16 or float16 whose projections are fused, split or transposed.

Rounding explains something in every number of such a port. What it explains is not blamed, what it does not is, and
what it may hide is said.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from faults.bench import FAULTS
from faults.case import plant, port
from faults.judge import plain, traced
from faults.originals import inputs_of, reference
from fxdebug.api.comparison import Comparison
from fxdebug.comparison.rounding import may_be_copies
from fxdebug.data.values import Stats

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# BERT's three projections are one in its port, GPT-2's one (a Conv1D, which holds its weight transposed) are three.
LAYOUTS = {"fused": "bert", "split and transposed": "gpt2", "fused in another order": "vit"}


def _low(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {k: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for k, x in inputs.items()}


def _compared(a: nn.Module, b: nn.Module, inputs: dict[str, Any], dtype: str, mode: str) -> Comparison:
    narrow = b.to(DTYPES[dtype])
    return fxdebug.compare(traced(a, inputs, mode), traced(narrow, _low(inputs, DTYPES[dtype]), mode))


def _of(name: str, dtype: str, mode: str) -> Comparison:
    pair = FAULTS[name].build()
    return _compared(pair.a, pair.b, pair.inputs, dtype, mode)


def _by_numbers_alone(name: str, dtype: str) -> Comparison:
    """Compare runs whose models are not at hand, as those that were saved."""
    pair = FAULTS[name].build()
    runs = [traced(pair.a, pair.inputs, "statistics")]
    runs.append(traced(pair.b.to(DTYPES[dtype]), _low(pair.inputs, DTYPES[dtype]), "statistics"))
    return fxdebug.compare(*map(copy.copy, runs))


@pytest.mark.parametrize("mode", ["statistics", "tensors"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_blamed_in_a_correct_port_with_weights_of_another_dtype_and_layout(layout, dtype, mode):
    name = LAYOUTS[layout]
    found = _compared(reference(name), port(name), inputs_of(name), dtype, mode)
    assert found.findings == () and found.equal
    assert found.notes == ()
    assert str(found).startswith(f"no difference beyond what {dtype} explains: ")


# Six kinds of faults, planted in the second block of BERT's fused port ---------------------------------


def _scaled(self: Any, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.matmul(q, k.transpose(-1, -2)) / (self.size**0.5 * 1.4)


def _merged(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[2], -1)


def _half_residual(self: Any, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    x = self.mixer_norm(x + self.mixer(x, keep))
    return self.network_norm(x + 0.5 * self.network(x))


def _weakly_masked(self: Any, scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return scores.masked_fill(~keep[:, None, None, :], -1.0)


def _planted(fault: str) -> tuple[nn.Module, set[str], set[str]]:
    """The port of eager BERT with a fault; the call and the operations that may be named."""
    b: Any = port("bert", reference("bert", "eager"))
    block = b.trunk["block_1"]
    if fault == "scale":
        plant(block.mixer, scores=_scaled)
        return b, {"trunk.block_1.mixer"}, {"div", "matmul"}
    if fault == "heads":
        plant(block.mixer, merge=_merged)
        return b, {"trunk.block_1.mixer"}, {"reshape"}
    if fault == "residual":
        plant(block, forward=_half_residual)
        return b, {"trunk.block_1"}, {"mul"}
    if fault == "mask":
        plant(block.mixer, masked=_weakly_masked)
        return b, {"trunk.block_1.mixer"}, {"masked_fill"}
    if fault == "epsilon":
        block.mixer_norm.eps = 10.0
        return b, {"trunk.block_1.mixer_norm"}, {"layer_norm"}
    block.network[1] = nn.SiLU()
    return b, {"trunk.block_1.network.1"}, {"silu"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", ["scale", "heads", "residual", "mask", "epsilon", "activation"])
def test_each_kind_of_fault_is_blamed_first_in_a_fused_port_of_another_dtype(fault, dtype):
    b, calls, ops = _planted(fault)
    first = _compared(reference("bert", "eager"), b, inputs_of("bert"), dtype, "tensors").first
    assert first is not None
    assert first.path in calls and plain(first.op) in ops, f"{first}: {first.because}"


VISIBLE = [
    "port-bert/missing-scale",
    "port-bert/padding-ignored",
    "port-bert/heads-merged-without-transpose",
    "port-bert/pre-norm",
    "port-gpt2/causal-mask-missing",
    "port-gpt2/doubled-residual",
    "port-gpt2/position-off-by-one",
    "port-vit/transposed-square-weight",
    "port-vit/one-corrupted-element",
]


@pytest.mark.parametrize("mode", ["statistics", "tensors"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VISIBLE)
def test_a_fault_that_is_larger_than_rounding_is_blamed_where_it_was_planted(name, dtype, mode):
    fault = FAULTS[name]
    first = _of(name, dtype, mode).first
    assert first is not None
    assert (first.path in fault.calls, plain(first.op) in {plain(op) for op in fault.ops}) == (True, True), str(first)


@pytest.mark.parametrize(
    "name",
    [
        "port-bert/swapped-query-and-key",
        "port-bert/zeroed-bias",
        "port-gpt2/mask-off-by-one",
        "port-gpt2/mask-broadcast-along-queries",
        "port-vit/class-token-last",
    ],
)
def test_with_tensors_a_fault_is_blamed_that_statistics_of_a_narrow_dtype_do_not_show(name):
    fault = FAULTS[name]
    first = _of(name, "bfloat16", "tensors").first
    assert first is not None
    assert first.path in fault.calls and plain(first.op) in {plain(op) for op in fault.ops}, str(first)


HIDDEN = pytest.mark.parametrize(
    ("name", "place", "what"),
    [
        ("port-bert/norm-epsilon", "trunk.block_0.mixer_norm, layer_norm", "eps=1e-12 in a, eps=0.001 in b"),
        ("port-bert/tanh-gelu", "trunk.block_2.network.1, gelu", "approximate='none' in a, approximate='tanh' in b"),
    ],
)


@pytest.mark.parametrize("dtype", DTYPES)
@HIDDEN
def test_by_statistics_a_note_names_a_constant_whose_effect_rounding_hides(name, place, what, dtype):
    found = _by_numbers_alone(name, dtype)
    assert found.findings == ()
    assert found.notes == (f"{place}: {what}; nothing of it is seen beyond what {dtype} rounds",)


@pytest.mark.parametrize("dtype", DTYPES)
@HIDDEN
def test_with_tensors_and_models_such_a_constant_is_found_in_float32(name, place, what, dtype):
    (row,) = _of(name, dtype, "tensors").findings
    assert (f"{row.path}, {row.op}", row.because) == (place, what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fault_that_rounding_hides_altogether_is_not_called_equal(dtype):
    found = _by_numbers_alone("port-gpt2/erf-gelu", dtype)  # in the port a function of its own: no constant to tell
    assert found.findings == ()
    assert "equal" not in str(found).splitlines()[0]
    (row,) = _of("port-gpt2/erf-gelu", dtype, "tensors").findings
    assert (row.path, row.op) == ("body.blocks.0", "erf")


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_row_of_a_fused_weight_that_is_off_by_more_than_rounding_is_blamed_itself(dtype):
    b: Any = port("bert")
    with torch.no_grad():
        b.trunk["block_1"].mixer.qkv.weight[70] *= 3.0
    found = _compared(reference("bert"), b, inputs_of("bert"), dtype, "tensors")
    assert found.first is not None
    assert (found.first.path, found.first.kind) == ("trunk.block_1.mixer.qkv", "weights")
    assert "block_1.mixer.qkv.weight" in found.first.because


def test_two_runs_in_one_dtype_are_still_called_equal():
    found = fxdebug.compare(*[traced(reference("bert"), inputs_of("bert"), "statistics") for _ in range(2)])
    assert found.narrow is None and str(found).startswith("equal within tolerance")


# Statistics of copied numbers ---------------------------------------------------------------------


def _stats(x: torch.Tensor) -> Stats:
    x = x.double().flatten()
    low, high = x.min().item(), x.max().item()
    return Stats(x.numel(), x.mean().item(), x.std().item(), low, high, max(-low, high))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(64, 64) * 0.02,
        lambda: torch.randn(100_000),
        lambda: torch.full((64,), 0.7) + torch.randn(64) * 1e-5,  # all are rounded to the same side
        lambda: torch.rand(48) + 0.5,
        lambda: torch.randn(512) ** 9 * 1e-3,  # a few make up most of the squares
        lambda: torch.randn(4096) * 1e-7,  # too small for float16 to round like others
        lambda: torch.randn(5),
    ],
    ids=["weights", "many", "alike", "norms", "heavy-tailed", "tiny", "five"],
)
def test_rounded_numbers_may_be_copies_and_others_of_their_kind_are_not(make, dtype):
    torch.manual_seed(0)
    for _ in range(20):
        x = make()
        one = _stats(x)
        assert may_be_copies(one, _stats(x.to(DTYPES[dtype])), ("float32", dtype))
        assert not may_be_copies(one, _stats(x.to(DTYPES[dtype])), ("float32", "float32"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_weights_of_another_layer_of_the_same_kind_are_told_apart_by_their_sums(dtype):
    torch.manual_seed(0)
    for _ in range(100):
        x, other = torch.randn(2, 128, 128) * 0.02
        assert not may_be_copies(_stats(x), _stats(other.to(DTYPES[dtype])), ("float32", dtype))
