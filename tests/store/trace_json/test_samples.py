"""Samples of values: exact, at fixed positions, in few digits."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.data.values import sample_positions
from fxdebug.errors import LoadError
from fxdebug.store.trace_json import samples
from fxdebug.store.trace_json.samples import from_json, sample_tensor, shortest_decimal, to_json
from support.golden_runs import some

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_samples_are_the_elements_at_the_positions_and_come_back_exactly(dtype):
    tensor = some(dtype, 5, 7, 3)
    wide = tensor.to(torch.complex128).abs() if dtype.is_complex else tensor
    expected = [wide.reshape(-1)[place].item() for place in sample_positions(tensor.numel())]
    found = sample_tensor(tensor)
    assert found == pytest.approx(expected, rel=1e-15, abs=0) if dtype.is_complex else found == expected
    name = str(dtype)[6:]
    assert from_json(json.loads(json.dumps(to_json(found, name), allow_nan=False)), name) == found


@pytest.mark.parametrize("arrange", [
    lambda x: x.t(), lambda x: x[::2, 1:], lambda x: x.expand(3, 4, 6), lambda x: x[:0], lambda x: x[0, 0],
    lambda x: x.to_sparse(), lambda x: torch._neg_view(x), lambda x: x.requires_grad_(),
    lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
])  # fmt: skip
def test_samples_follow_the_order_of_the_tensor_however_it_lies_in_memory(arrange):
    tensor = arrange(some(torch.float32, 4, 6))
    plain = tensor.dequantize() if tensor.is_quantized else tensor.to_dense()
    flat = plain.detach().contiguous().reshape(-1)
    assert sample_tensor(tensor) == [flat[place].item() for place in sample_positions(flat.numel())]


def test_there_are_no_samples_of_what_has_no_elements_to_point_at():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert [sample_tensor(tensor) for tensor in (torch.empty(3, device="meta"), nested)] == [None, None]


def test_numbers_are_written_in_the_fewest_digits_that_lead_back():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        numbers = torch.cat([torch.randn(300) * 10.0**power for power in (-6, -3, 0, 3)]).to(dtype).tolist()
        short = [shortest_decimal(number, str(dtype)[6:]) for number in numbers]
        assert from_json(short, str(dtype)[6:]) == numbers
        assert sum(len(repr(number)) for number in short) < 0.75 * sum(len(repr(number)) for number in numbers)
    assert to_json([math.nan, math.inf, -math.inf, 0.0], "float32") == ["nan", "inf", "-inf", 0.0]
    assert str(from_json(["nan", "-inf"], "float32")) == "[nan, -inf]"


def test_sampling_changes_nothing_and_reaches_the_values_inside_bodies():
    class Inside(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 2 + 1).t().relu()

    x = some(torch.float32, 3, 4).requires_grad_()
    plain, run = fx_debug(Inside(), x), fx_debug(Inside(), x, values="samples")
    assert torch.equal(plain.output, run.output) and run.output.grad_fn is not None
    assert [value.label for value in run.values] == [value.label for value in plain.values]
    sampled_ones = {node.op: run.data.sample(node.value) for node in run.ops() if node.value is not None}
    assert sampled_ones["mul"] == (x * 2).reshape(-1).tolist()
    assert sampled_ones["t"] == (x * 2 + 1).t().reshape(-1).tolist()
    with pytest.raises(LoadError, match="was not kept"):
        run.tensor(run.root.outputs[0])


def test_samples_are_saved_with_a_run(tmp_path):
    model, x = nn.Linear(4, 4), some(torch.bfloat16, 2, 4).float()
    run = fx_debug(model, x, values="samples", save=tmp_path)
    loaded = fxdebug.load(tmp_path)
    assert loaded == run
    assert [loaded.data.sample(value) for value in loaded.values] == [run.data.sample(value) for value in run.values]
    loaded.save(tmp_path / "again")
    again = fxdebug.load(tmp_path / "again")
    assert again.data.samples == loaded.data.samples and len(again.data.samples) == len(run.values)


def test_a_golden_file_of_a_run_with_tensors_has_samples_and_one_of_statistics_none(tmp_path):
    layer, x = nn.Linear(8, 8), some(torch.float32, 8, 8)
    whole = fxdebug.load(fxdebug.save_golden(fx_debug(layer, x, values="tensors"), tmp_path / "a.json"))
    assert whole.data.sample(whole.root.inputs[0]) == sample_tensor(x)
    plain = fxdebug.load(fxdebug.save_golden(fx_debug(layer, x), tmp_path / "b.json"))
    assert not hasattr(plain.data, "sample") and fxdebug.compare(plain, fx_debug(layer, x)).equal


def test_a_trace_with_samples_can_be_pickled(tmp_path):
    import pickle

    run = fx_debug(nn.Linear(2, 2), torch.ones(1, 2), values="samples")
    assert pickle.loads(pickle.dumps(run)).data.samples == run.data.samples
    assert samples.Samples().lines(run.values[0]) is None
