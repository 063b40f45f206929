"""Comparing two runs: what is paired and how, what the measures are, what every kind of finding looks like."""

from __future__ import annotations

import copy
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import LoadError, UsageError, compare, fx_debug
from fxdebug.comparison import KINDS, paired
from fxdebug.comparison.closeness import error_between, tolerance_of
from fxdebug.comparison.order import in_order
from fxdebug.data.values import Stats, sample_positions

X = torch.linspace(-2, 2, 48).view(4, 12)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 24)
        self.down = nn.Linear(24, 12)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Port(nn.Module):
    """The same under other names, in one module, with the first two steps in another order of definition."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.out = copy.deepcopy(model.head)
        self.stack = nn.ModuleDict(
            {f"l{i}": nn.ModuleList([copy.deepcopy(b.down), copy.deepcopy(b.up), copy.deepcopy(b.norm)])
             for i, b in enumerate(model.blocks)}
        )  # fmt: skip

    def forward(self, x):
        for down, up, norm in self.stack.values():
            x = down(up(norm(x)).relu()) + x
        return self.out(x)


def model(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model()


def run(module: nn.Module, x: Any = X, **options: Any) -> fxdebug.Trace:
    with torch.no_grad():
        return fx_debug(module, x, **options)


def changed(change: Any, values: str = "stats", x: Any = X) -> Any:
    """A model against a copy in which something was changed."""
    one, other = model(), model()
    with torch.no_grad():
        change(other)
    return fxdebug.compare(run(one, values=values), run(other, x, values=values))


# What is paired ----------------------------------------------------------------------------------


def test_calls_of_one_name_are_paired_by_it():
    pairs = paired(run(model()), run(model()))
    assert {(found.how, found.sure) for found in pairs.calls.values()} == {("path", 1.0)}
    assert len(pairs.calls) == len(pairs.a.trace.calls)


def test_calls_of_other_names_are_paired_by_what_they_do():
    one = model()
    a, b = run(one), run(Port(one))
    pairs = paired(a, b)
    found = {b.calls[index].path: a.calls[pair.a].path for index, pair in pairs.calls.items()}
    assert found == {"": "", "out": "head"} | {
        f"stack.l{i}.{place}": f"blocks.{i}.{name}"
        for i in range(3)
        for place, name in enumerate(("down", "up", "norm"))
    }
    comparison = fxdebug.compare(a, b)
    assert comparison.equal
    assert [call.path for call in comparison.only_a] == [f"blocks.{i}" for i in range(3)]
    assert comparison.only_b == ()


def test_a_mapping_names_what_belongs_together():
    one, other = model(), nn.Sequential()
    other.core = model()
    pairs = paired(run(one), run(other), {"blocks.*": "core.blocks.*", "head": "core.head"})
    how = {pairs.b.trace.calls[index].path: found.how for index, found in pairs.calls.items()}
    assert how["core.blocks.1.up"] == "mapping" and how["core.head"] == "mapping" and how[""] == "path"


def test_a_mapping_is_read_from_yaml_with_what_to_ignore(tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text("mapping:\n  head: head\nignore:\n  - blocks.1.*\n")
    one, other = model(), model()
    with torch.no_grad():
        other.blocks[1].up.bias += 1
    comparison = fxdebug.compare(run(one), run(other), mapping=file)
    assert "blocks.1.up" not in [row.path for row in comparison.findings]


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"block.*": "blocks.*"}, "no module of a has such a path"),
        ({"blocks.*": "block.*"}, "no module of b has such a path"),
        ({"blocks.*.*": "blocks.*"}, "both sides need the same number"),
    ],
)
def test_a_mapping_that_fits_nothing_says_so(mapping, says):
    with pytest.raises(UsageError, match=says):
        fxdebug.compare(run(model()), run(model()), mapping=mapping)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [1, 2]\n", "a: {b: c}: d\n"])
def test_a_file_that_is_no_mapping_says_so(text, tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text(text)
    with pytest.raises(LoadError, match=r"names\.yaml"):
        fxdebug.compare(run(model()), run(model()), mapping=file)


def test_ignored_modules_do_not_count():
    comparison = changed(lambda other: other.blocks[1].up.bias.add_(1))
    assert comparison.first.path == "blocks.1.up"
    again = fxdebug.compare(comparison.a, comparison.b, ignore="blocks.1*")
    assert all(not row.path.startswith("blocks.1") for row in again.findings)


def test_what_is_not_a_trace_says_so():
    with pytest.raises(UsageError, match="two traces"):
        fxdebug.compare(run(model()), 3)  # type: ignore[arg-type]


def test_sequences_that_are_too_long_to_be_weighed_are_paired_by_runs_of_equal_keys():
    a = list(range(1_200))
    b = [*a[:600], -1, *a[600:]]
    weighed: list[int] = []
    assert in_order(a, b, lambda x, y: float(weighed.append(x) or 1), lambda x: x) == list(zip(a, a))
    assert weighed == []


# What is found -----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", ["stats", "tensors", "samples"])
def test_a_changed_weight_is_named_with_its_call_operation_and_line(values):
    comparison = changed(lambda other: other.blocks[1].down.weight[3].mul_(2), values)
    first = comparison.first
    assert (first.path, first.op, first.kind) == ("blocks.1.down", "linear", "weights")
    assert first.source.rpartition("/")[2].startswith("test_comparison.py:")
    assert first.a.path == first.b.path == "blocks.1.down"
    assert len(comparison.findings) == 1
    assert {row.path for row in comparison.chain()} >= {"blocks.1", "blocks.2", "head", ""}


def test_every_changed_weight_that_was_given_the_right_values_is_found():
    def change(other: Model) -> None:
        other.blocks[1].up.weight[0].mul_(3)
        other.blocks[1].norm.weight[2] = 5.0

    assert [row.path for row in changed(change).findings] == ["blocks.1.norm"]  # behind it nothing is clean


def test_other_inputs_are_the_finding_and_nothing_else_is():
    comparison = changed(lambda other: None, x=X + 1)
    assert [(row.kind, row.path) for row in comparison.findings] == [("input", "")]


def test_without_graphs_the_call_is_named_and_no_operation():
    one, other = model(), model()
    with torch.no_grad():
        other.blocks[2].up.weight[0].mul_(2)
    first = fxdebug.compare(run(one, graph=False), run(other, graph=False)).first
    assert (first.path, first.op) == ("blocks.2.up", None)


def test_a_run_that_raised_differs_where_it_raised():
    class Raises(Model):
        def forward(self, x):
            x = self.blocks[0](x)
            raise ValueError("no more")

    torch.manual_seed(0)
    with pytest.raises(ValueError, match="no more"):
        run(Raises())
    partial = fxdebug.last_failed()
    assert partial is not None
    comparison = fxdebug.compare(run(model()), partial)
    assert [row.kind for row in comparison.findings] == ["raised"]
    assert "no more" in comparison.first.because


def test_a_tolerance_that_is_given_counts_everywhere():
    comparison = changed(lambda other: other.blocks[0].up.weight.mul_(1.001), "tensors")
    assert not comparison.equal
    assert fxdebug.compare(comparison.a, comparison.b, tolerance=0.1).equal


def test_a_comparison_is_true_when_the_runs_are_equal():
    assert changed(lambda other: None)
    assert not changed(lambda other: other.head.bias.add_(1))


def test_every_kind_of_finding_is_explained():
    assert all(len(text) > 10 and not text.endswith(".") for text in KINDS.values())


# Measures ----------------------------------------------------------------------------------------


def test_the_measures_are_those_of_the_elements():
    comparison = changed(lambda other: other.head.weight[0].mul_(1.5), "tensors")
    a, b = (trace.tensor(trace.root.outputs[0]).double() for trace in (comparison.a, comparison.b))
    measures = comparison.first.measures
    gap = (a - b).abs()
    assert comparison.first.basis == "tensors"
    assert measures.max_abs == pytest.approx(gap.max().item())
    assert measures.mean_abs == pytest.approx(gap.mean().item())
    assert measures.relative == pytest.approx((gap.norm() / a.norm()).item())
    assert measures.cosine == pytest.approx(torch.cosine_similarity(a.flatten(), b.flatten(), 0).item())
    assert measures.sqnr == pytest.approx(-20 * math.log10((gap.norm() / a.norm()).item()))
    assert measures.beyond == pytest.approx((gap > tolerance_of("float32") * a.abs().max()).double().mean().item())
    steps = (a.float().view(torch.int32).long() - b.float().view(torch.int32).long()).abs()
    same_sign = (a * b) > 0
    assert measures.ulp >= int(steps[same_sign].max())


def test_with_statistics_only_the_rest_is_not_known():
    measures = changed(lambda other: other.head.weight[0].mul_(1.5)).first.measures
    assert measures.basis == "statistics"
    assert (measures.max_abs, measures.cosine, measures.ulp, measures.beyond) == (None, None, None, None)


def test_float32_against_bfloat16_is_judged_by_what_bfloat16_can_tell():
    one, other = model(), model().bfloat16()
    comparison = fxdebug.compare(run(one), run(other, X.bfloat16()))
    assert comparison.equal
    assert max(row.error for row in comparison.rows if row.verdict == "equal") > tolerance_of("float32")


def test_a_permutation_is_seen_in_samples_and_not_in_statistics():
    class Turned(nn.Module):
        def forward(self, x):
            return x.flip(0) if self.training else x

    a, b = (run(Turned().train(train), values="samples") for train in (False, True))
    assert error_between(a.root.outputs[0].stats, b.root.outputs[0].stats) < 1e-6
    assert not fxdebug.compare(a, b).equal


def test_samples_are_spread_over_all_of_a_value():
    for numel in (17, 100, 4096, 100_003):
        places = sample_positions(numel)
        assert 14 <= len(places) <= 16 and places[0] < numel / 8 and places[-1] > numel * 7 / 8


@pytest.mark.parametrize(
    ("a", "b", "error"),
    [
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), 0.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 3.0, 0.0, 3.0, 3.0, 3.0), 2.0),
        (Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0, nan=1), math.inf),
        # masks: how negative they are says nothing, how much they hide does
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=2, zeros=2), 0.0),
        (Stats(4, -5e3, 5e3, -1e4, 0.0, 1e4, zeros=2), Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, neginf=1, zeros=3), 1.0),
        (Stats(4, 0.0, 0.0, 0.0, 0.0, 0.0, zeros=4), Stats(4, 1.0, 0.0, 1.0, 1.0, 1.0), math.inf),
    ],
)
def test_the_error_of_statistics(a, b, error):
    assert error_between(a, b) == pytest.approx(error)


def test_tensors_are_read_one_pair_at_a_time(tmp_path):
    """Two saved runs of any size compare in the memory of two tensors."""
    wide = nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)])
    x = torch.randn(2048, 512)
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        with torch.no_grad():
            fx_debug(wide, x, values="tensors", save=folder)
    a, b = (fxdebug.load(folder) for folder in folders)
    live: list[int] = []
    read: list[weakref.ref[torch.Tensor]] = []
    real = type(a.data).tensor

    def watched(self: Any, value: Any) -> Any:
        tensor = real(self, value)
        read.append(weakref.ref(tensor))
        live.append(sum(reference() is not None for reference in read))
        return tensor

    type(a.data).tensor = watched
    try:
        for value in a.values + b.values:  # equal data is not read at all: make it be
            object.__setattr__(value, "digest", None)
        assert fxdebug.compare(a, b).equal
    finally:
        type(a.data).tensor = real
    assert len(read) >= 24
    assert max(live) == 2


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -1.0, "much"])
def test_a_tolerance_that_is_no_relative_error_is_refused(tolerance: Any) -> None:
    trace = fx_debug(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(UsageError, match="is no relative error: give a number from 0 on"):
        compare(trace, trace, tolerance=tolerance)


def test_data_that_cannot_be_read_are_told_of(tmp_path: Path) -> None:
    model, x = nn.Identity(), torch.arange(200.0)
    fx_debug(model, x, values="tensors", save=tmp_path / "a")
    fx_debug(model, x.flip(0), values="tensors", save=tmp_path / "b")
    assert not compare(tmp_path / "a", tmp_path / "b").equal
    (shard,) = (tmp_path / "b").glob("*.safetensors")
    shard.write_bytes(b"")
    found = compare(tmp_path / "a", tmp_path / "b")
    (note,) = found.notes
    assert note.startswith("a value was compared by statistics, as the data could not be read: ")
    assert shard.name in note
    assert "no difference at all" not in str(found)


def test_runs_without_data_are_said_to_be_equal_by_statistics_only() -> None:
    model, x = nn.Identity(), torch.arange(2000.0)
    one, other = fx_debug(model, x), fx_debug(model, x.flip(0))
    first, second = str(compare(one, other)).splitlines()[:2]
    assert first.startswith("equal within tolerance")
    assert second.startswith("no difference by statistics: a lower bound")
    kept = fx_debug(model, x, values="tensors")
    assert "no difference at all" in str(compare(kept, kept))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gru, self.head = nn.GRU(8, 12, 2, batch_first=True), nn.Linear(12, 5)

    def forward(self, x):
        y, last = self.gru(x)
        return self.head(y), last


class Cells(nn.Module):
    """The same, a step and a layer at a time; ``more`` is done to each step."""

    def __init__(self, original, more=None):
        super().__init__()
        self.cells, self.end, self.more = nn.ModuleList([nn.GRUCell(8, 12), nn.GRUCell(12, 12)]), original.head, more
        for layer, cell in enumerate(self.cells):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(cell, name, getattr(original.gru, f"{name}_l{layer}"))

    def forward(self, x):
        last = []
        for cell in self.cells:
            h, steps = torch.zeros(len(x), 12), []
            for i in range(x.shape[1]):
                h = cell(x[:, i], h)
                h = h if self.more is None else self.more(h)
                steps.append(h)
            x = torch.stack(steps, 1)
            last.append(h)
        return self.end(x), torch.stack(last)


@pytest.mark.parametrize("values", ["stats", "tensors"])
def test_steps_without_counterparts_are_no_finding_where_all_that_is_returned_is_the_same(values):
    original, x = Recurrent().eval(), torch.randn(2, 5, 8)
    a = fx_debug(original, x, values=values)
    assert compare(a, fx_debug(Cells(original).eval(), x, values=values)).equal
    assert not compare(a, fx_debug(Cells(original, torch.tanh).eval(), x, values=values)).equal
