"""Golden files: small, the same from run to run, and enough to notice what changed; samples are exact."""

from __future__ import annotations

import gzip
import json

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import fx_debug
from fxdebug.errors import LoadError, SaveError
from fxdebug.features.golden import run as golden
from support import sweep
from support.golden_runs import some
from zoo import zoo, zoo_sample

# In the order in which threads happen to run; with tables that torch makes at the first use in a process.
DIFFERENT = ("call/threads", "tensors/jagged")

NAMES = [name for name, _ in zoo_sample.entries(False) if name.split("/")[0] in ("flow", "call", "values", "tensors")]


# Golden files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sweep.sampled(NAMES, 4, DIFFERENT))
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
    loaded, expected = fxdebug.load(paths[1]), golden.reduce_trace(run)
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
    kept = {value.number: value.stats is not None for value in golden.reduce_trace(run).values}
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
