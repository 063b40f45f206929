"""Golden files: small, the same from run to run, and enough to notice what changed; samples are exact."""

from __future__ import annotations

import gzip
import json
import math

import pytest
import torch
import zoo
import zoo_sample
from torch import nn

import fxdebug
from fxdebug import LoadError, SaveError, fx_debug
from fxdebug.data.values import sample_positions
from fxdebug.store import golden, samples
from fxdebug.store.samples import from_json, sampled, shortest, to_json

# In the order in which threads happen to run; with tables that torch makes at the first use in a process.
DIFFERENT = ("call/threads", "tensors/jagged")
NAMES = [name for name, _ in zoo_sample.entries(False) if name.split("/")[0] in ("flow", "call", "values", "tensors")]
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def some(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 100, shape).to(dtype)


# Samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_samples_are_the_elements_at_the_positions_and_come_back_exactly(dtype):
    tensor = some(dtype, 5, 7, 3)
    wide = tensor.to(torch.complex128).abs() if dtype.is_complex else tensor
    expected = [wide.reshape(-1)[place].item() for place in sample_positions(tensor.numel())]
    found = sampled(tensor)
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
    assert sampled(tensor) == [flat[place].item() for place in sample_positions(flat.numel())]


def test_there_are_no_samples_of_what_has_no_elements_to_point_at():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert [sampled(tensor) for tensor in (torch.empty(3, device="meta"), nested)] == [None, None]


def test_numbers_are_written_in_the_fewest_digits_that_lead_back():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        numbers = torch.cat([torch.randn(300) * 10.0**power for power in (-6, -3, 0, 3)]).to(dtype).tolist()
        short = [shortest(number, str(dtype)[6:]) for number in numbers]
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


# Golden files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_equal_to_its_golden_file(name, tmp_path):
    build = zoo_sample.quietly(dict(zoo.zoo())[name])
    paths = []
    for number in range(2):
        model, inputs = build()
        torch.manual_seed(0)
        run = fx_debug(model, inputs, values="samples")
        paths.append(fxdebug.save_golden(run, tmp_path / f"{number}.json"))
    if name not in DIFFERENT:
        assert paths[0].read_bytes() == paths[1].read_bytes()
    loaded, expected = fxdebug.load(paths[1]), golden.reduced(run)
    assert loaded == expected and loaded.data.samples == expected.data.samples
    assert set(loaded.data.samples) == {value.number for value in loaded.values if value.stats is not None} & set(
        run.data.samples
    )


@pytest.mark.parametrize("name", [name for name, _ in zoo_sample.entries(False) if name.startswith("hf/bert/")])
def test_a_golden_file_is_small_and_a_run_is_equal_to_it(name, tmp_path):
    model, inputs = zoo_sample.quietly(dict(zoo.zoo())[name])()
    run = fx_debug(model, inputs, values="samples")
    path = fxdebug.save_golden(run, tmp_path / "bert.json.gz")
    assert path.stat().st_size < 150 * len(run.values)
    assert set(fxdebug.load(path).versions) == {"torch", "transformers"}
    comparison = fxdebug.compare(path, fx_debug(model, inputs, values="samples"))
    assert comparison.equal and not comparison.findings
    bases = {row.measures.basis for row in comparison.rows if row.measures is not None and row.measures.basis}
    assert "sample" in bases


def test_what_was_written_is_known_even_if_the_memory_held_the_same_before():
    class Fills(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fresh = torch.empty(8, dtype=torch.int64)
            return fresh.fill_(torch.iinfo(torch.int64).max) + x

    torch.use_deterministic_algorithms(True)  # fills what empty returns with the largest number
    try:
        run = fx_debug(Fills(), torch.zeros(8, dtype=torch.int64), values="samples")
    finally:
        torch.use_deterministic_algorithms(False)
    made, filled = run.ops("empty")[0].value, run.ops("fill")[0].value
    assert made.stats == filled.stats and made.storage == filled.storage
    kept = {value.number: value.stats is not None for value in golden.reduced(run).values}
    assert (kept[made.number], kept[filled.number]) == (False, True)


def test_nothing_of_a_machine_or_a_moment_is_in_a_golden_file(tmp_path):
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor, thing: object) -> torch.Tensor:
            return x + 1

    class At:
        def __repr__(self) -> str:
            return "At('/home/somebody/models')"

    class Known:
        def __repr__(self) -> str:
            return f"<Known(width=3) at {hex(id(self))}>"

    texts = []
    for _ in range(2):
        runs = [fx_debug(Odd(), (torch.zeros(2), thing), values="samples") for thing in (At(), Known())]
        texts.append([fxdebug.save_golden(run, tmp_path / "g.json").read_text() for run in runs])
    assert texts[0] == texts[1]
    assert "/" not in "".join(texts[0]) and "Known(width=3)" in texts[0][1] and '"At"' in texts[0][0]
    trace = json.loads(texts[0][0])
    assert trace["started"] == "" and trace["duration"] == 0 and set(trace["versions"]) == {"torch"}
    assert {"source", "duration"} & set(trace["calls"]["columns"]) == set()


def test_a_permutation_is_noticed_that_statistics_do_not_see(tmp_path):
    layer, x = nn.Linear(8, 8), some(torch.float32, 8, 8)
    path = fxdebug.save_golden(fx_debug(layer, x, values="samples"), tmp_path / "g.json")
    assert fxdebug.compare(path, fx_debug(layer, x, values="samples")).equal
    turned = fx_debug(layer, x.flip(0), values="samples")
    assert not fxdebug.compare(path, turned).equal
    with torch.no_grad():
        layer.weight.copy_(layer.weight.t().clone())
    first = fxdebug.compare(path, fx_debug(layer, x, values="samples")).first
    assert first is not None and first.op == "linear"


def test_a_golden_file_of_a_run_with_tensors_has_samples_and_one_of_statistics_none(tmp_path):
    layer, x = nn.Linear(8, 8), some(torch.float32, 8, 8)
    whole = fxdebug.load(fxdebug.save_golden(fx_debug(layer, x, values="tensors"), tmp_path / "a.json"))
    assert whole.data.sample(whole.root.inputs[0]) == sampled(x)
    plain = fxdebug.load(fxdebug.save_golden(fx_debug(layer, x), tmp_path / "b.json"))
    assert not hasattr(plain.data, "sample") and fxdebug.compare(plain, fx_debug(layer, x)).equal


def test_an_integer_is_kept_to_the_last_digit(tmp_path):
    big = torch.tensor([2**60 + 1, 3])
    run = fx_debug(nn.Identity(), big, values="samples")
    loaded = fxdebug.load(fxdebug.save_golden(run, tmp_path / "g.json"))
    assert loaded.root.inputs[0].stats == run.root.inputs[0].stats
    assert loaded.data.sample(loaded.root.inputs[0]) == [2**60 + 1, 3]


def test_zipped_or_not_a_golden_file_says_the_same_and_is_an_error_when_damaged(tmp_path):
    run = fx_debug(nn.Linear(2, 2), torch.ones(1, 2), values="samples")
    plain = fxdebug.save_golden(run, tmp_path / "new" / "g.json")
    zipped = fxdebug.save_golden(run, tmp_path / "new" / "g.json.gz")
    assert gzip.decompress(zipped.read_bytes()) == plain.read_bytes()
    assert sorted(path.name for path in plain.parent.iterdir()) == ["g.json", "g.json.gz"]
    for data in (zipped.read_bytes()[:-9], b"\x1f\x8b", zipped.read_bytes()[:40] + b"?" * 40):
        zipped.write_bytes(data)
        with pytest.raises(LoadError, match=r"g\.json\.gz is (cut short or damaged|not a trace)"):
            fxdebug.load(zipped)
    text = plain.read_text()
    plain.write_text(text.replace('"samples": [\n[0', '"samples": [\n[99'))
    with pytest.raises(LoadError, match="is damaged"):
        fxdebug.load(plain)


def test_a_place_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=r"cannot write to .*g\.json"):
        fxdebug.save_golden(fx_debug(nn.Identity(), torch.ones(1)), tmp_path / "file" / "g.json")


def test_a_trace_with_samples_can_be_pickled(tmp_path):
    import pickle

    run = fx_debug(nn.Linear(2, 2), torch.ones(1, 2), values="samples")
    assert pickle.loads(pickle.dumps(run)).data.samples == run.data.samples
    assert samples.Samples().lines(run.values[0]) is None
