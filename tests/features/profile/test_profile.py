"""``fxdebug.profile``: rows P1, P3, P5, P6, P7, P8, P10 of the analyses; P9 is in ``analyses/cost/test_changes``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug.data.measured.timings import MachinePeak, Timings
from fxdebug.features.profile.report import Items, bound_of, items_of, profile_report, profiles
from support.clocks import CountedClock, ProcessClock, busy_machine, profiled_by

transformers = pytest.importorskip("transformers", reason="the rows' fixture G is a model of transformers")


def gpt2(attention: str = "sdpa") -> nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=128, attn_implementation=attention,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.GPT2LMHeadModel(config).eval()
    return model


IDS = torch.arange(64).reshape(2, 32)


@pytest.fixture(scope="module")
def slow() -> Any:
    """Fixture G with 50 ms of sleep in the second block's MLP."""
    model = gpt2()
    mlp = model.transformer.h[1].mlp  # type: ignore[union-attr, index]
    forward = mlp.forward

    def sleeping(*args: Any) -> Any:
        time.sleep(0.05)
        return forward(*args)

    mlp.forward = sleeping
    with torch.no_grad(), profiled_by(CountedClock()):
        return fxdebug.profile(model, IDS, repeats=4, warmup=1, peak=False)


def test_p1_a_sleep_is_self_time_of_its_call_and_total_time_of_those_around_it(slow: Any) -> None:
    rows = {row.call: row for row in slow.rows}
    assert rows["transformer.h.1.mlp#0"].own >= 0.05
    assert all(row.own < 0.05 for call, row in rows.items() if call != "transformer.h.1.mlp#0")
    assert rows["transformer.h.1#0"].total >= 0.05 and rows["GPT2LMHeadModel#0"].total >= 0.05
    assert rows["transformer.h.0#0"].total < 0.05


def test_p1_self_times_add_up_to_the_whole(slow: Any) -> None:
    whole = next(row.total for row in slow.rows if row.call == "GPT2LMHeadModel#0")
    assert sum(row.own for row in slow.rows) == pytest.approx(whole, rel=0.02)


def test_p5_items_per_second_are_the_tokens_of_a_run_over_its_median(slow: Any) -> None:
    assert slow.totals["tokens/s"][0] * slow.totals["forward"][0] == pytest.approx(64, rel=0.01)


def test_p5_twice_the_batch_is_twice_the_tokens_and_items_can_be_given() -> None:
    model = nn.Embedding(64, 4)

    def items(batch: int, given: tuple[int, str] | None = None) -> tuple[float, float]:
        report = fxdebug.profile(model, IDS[:1].repeat(batch, 1), repeats=2, warmup=0, peak=False, items=given)
        unit = "tokens" if given is None else given[1]
        return report.totals[f"{unit}/s"][0] * report.totals["forward"][0], report.rows[0].p95  # type: ignore[operator, return-value]

    assert items(2)[0] == pytest.approx(64) and items(4)[0] == pytest.approx(128)
    assert items(4, (7, "sentences"))[0] == pytest.approx(7)


def test_p3_the_use_of_the_gpu_is_none_without_one_and_a_note_says_why(slow: Any) -> None:
    assert slow.totals["GPU use"] == (None, "%")
    assert "GPU use: n/a (no CUDA device)" in str(slow)


def test_p6_the_spread_of_every_call_is_in_its_row(slow: Any) -> None:
    for row in slow.rows:
        assert 0 <= row.least <= row.low <= row.median <= row.high and row.iqr == pytest.approx(row.high - row.low)
        assert row.p95 <= row.total * 50


def test_p6_shares_of_self_time_add_up_to_100_percent(slow: Any) -> None:
    assert sum(row.share for row in slow.rows) == pytest.approx(100, abs=2)
    assert sum(row.share for row in slow.parts[0].rows) == pytest.approx(100, abs=0.5)


def test_p7_the_sleep_is_the_first_row_and_a_finding_with_its_name(slow: Any) -> None:
    assert slow.rows[0].call == "transformer.h.1.mlp#0"
    assert [(finding.rule, finding.path) for finding in slow.findings] == [
        ("slow", "transformer.h.1.mlp"), ("outside torch", "transformer.h.1.mlp"),
    ]  # fmt: skip


class Tiny(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(500):
            x = x + 1
        return x


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Copies(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.0


@pytest.mark.parametrize(
    "model, x, bound",
    [
        (Tiny(), torch.ones(4), "overhead"),
        (Product(), torch.ones(256, 256), "compute"),  # half a millisecond: on a busy machine, too, some run through
    ],
)
def test_p7_the_roofline_says_what_bounds_a_call(model: nn.Module, x: torch.Tensor, bound: str) -> None:
    threads = torch.get_num_threads()
    report = fxdebug.profile(model, x, repeats=20, warmup=1)
    assert [row.bound for row in report.rows] == [bound]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    "peak, bound",
    [
        (MachinePeak(1e12, 1e9, "float32", "cpu", 1), "memory"),  # 16 MiB read, 16 MiB written: 34 ms
        (MachinePeak(1e12, 1e12, "float32", "cpu", 1), "overhead"),
    ],
)
def test_p7_a_call_without_products_is_bound_by_memory_or_overhead(peak: MachinePeak, bound: str) -> None:
    trace = fxdebug.fx_debug(Copies(), torch.ones(2048, 2048))
    times = Timings(calls={("", 0): [40_000_000]}, own={("", 0): [40_000_000]})
    assert [bound_of(call, peak) for call in profiles(trace, times)] == [bound]


def test_p8_eager_attention_is_advised_against_and_the_fused_one_is_not() -> None:
    with torch.no_grad():
        eager = fxdebug.profile(gpt2("eager"), IDS, repeats=2, warmup=1, peak=False)
        fused = fxdebug.profile(gpt2("sdpa"), IDS, repeats=2, warmup=1, peak=False)
    assert [(f.rule, f.path, f.others) for f in eager.findings] == [
        ("eager attention", "transformer.h.0.attn", ("transformer.h.1.attn#0/softmax",))
    ]
    assert not fused.findings


class ReadsNumbers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in x:
            x = x + row.sum().item()
        return x


class Widens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        scale = torch.ones(64, 64, dtype=torch.float64)
        return (y.unsqueeze(-1) * scale).sum(-1)


@pytest.mark.parametrize(
    "model, x, rule, op",
    [(ReadsNumbers(), torch.ones(5, 3), "reads numbers", "item"), (Widens(), torch.ones(32, 64), "float64", "ones")],
)
def test_p8_planted_faults_are_found_with_their_line(model: nn.Module, x: torch.Tensor, rule: str, op: str) -> None:
    findings = fxdebug.profile(model, x, repeats=2, warmup=1, peak=False).findings
    assert [(finding.rule, finding.op) for finding in findings] == [(rule, op)]
    assert findings[0].source is not None and "test_profile.py" in findings[0].source


def test_the_backward_of_every_call_is_timed_with_a_loss() -> None:
    with profiled_by(ProcessClock()):
        report = fxdebug.profile(gpt2(), IDS, loss=lambda output: output.logits.mean(), repeats=5, peak=False)
    rows = {row.call: row for row in report.rows}
    assert 0 < rows["lm_head#0"].backward < rows["GPT2LMHeadModel#0"].backward
    blocks = rows["transformer.h.0#0"].backward + rows["transformer.h.1#0"].backward
    assert 0 < blocks < rows["transformer#0"].backward
    assert rows["GPT2LMHeadModel#0"].backward <= 2 * report.totals["backward"][0]


@pytest.mark.parametrize(
    "loss, told",
    [
        (lambda y: y, r"a tensor of shape \(2, 3\)"),
        (lambda y: 1.0, "a float"),
        (lambda y: y.detach().sum(), r"shape \(\) without a gradient"),
    ],
)
def test_a_loss_that_is_no_scalar_with_a_gradient_is_a_clear_error(loss: Callable[[Any], Any], told: str) -> None:
    with pytest.raises(fxdebug.UsageError, match=told):
        fxdebug.profile(nn.Linear(4, 3), torch.ones(2, 4), loss=loss, repeats=1, warmup=0)


class Raises(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")


@pytest.mark.parametrize("function", [fxdebug.profile, fxdebug.memory])
def test_an_exception_of_the_model_passes_with_what_was_measured_until_then(function: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Raises(), nn.Linear(4, 4))
    with pytest.raises(KeyError, match="mine") as raised:
        function(model, torch.ones(2, 4))
    assert type(raised.value) is KeyError and raised.value.args == ("mine",)
    report: Any = fxdebug.last_failed_report()
    assert report.analysis == function.__name__
    assert {row.call for row in report.rows} == {"Sequential#0", "0#0", "1#0"}
    assert "the model raised" in report.notes[0].what and "KeyError: 'mine'" in report.notes[0].what
    if function is fxdebug.profile:
        assert all(row.own > 0 and row.total > 0 for row in report.rows)
    else:
        assert next(row for row in report.rows if row.call == "0#0").activations == 2 * 4 * 4


@pytest.mark.parametrize("function", [fxdebug.profile, fxdebug.memory])
def test_an_exception_of_the_loss_passes_with_the_whole_forward(function: Any) -> None:
    def loss(y: torch.Tensor) -> torch.Tensor:
        raise LookupError("of the loss")

    with pytest.raises(LookupError, match="of the loss"):
        function(nn.Sequential(nn.Linear(4, 4)), torch.ones(2, 4), loss=loss)
    report: Any = fxdebug.last_failed_report()
    assert {row.call for row in report.rows} == {"Sequential#0", "0#0"} and "LookupError" in report.notes[0].what


def test_a_model_on_the_meta_device_has_operations_and_bytes_and_no_times() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to("meta"), torch.ones(2, 4, device="meta")
    report = fxdebug.profile(model, x)
    row = next(row for row in report.rows if row.call == "0#0")
    assert (row.own, row.share, row.total, row.rate, row.bound) == (None, None, None, None, "")
    assert (row.flops, row.bytes) == (2 * 2 * 4 * 3, 4 * (2 * 4 + 12 + 3 + 2 * 3))
    assert [note.what for note in report.notes] == [
        "times: n/a, the model is on the meta device, where nothing is computed"
    ]
    text = report.text(width=80, color=False)
    assert "48 FLOP" in text and "forward     n/a" in text
    assert fxdebug.memory(model, x).totals["peak"] == (4 * (15 + 8 + 6 + 6), "B")


class Regions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with fxdebug.region("outer"):
            x = self.first(x)
            inner = fxdebug.region("inner")
            inner.start()
            time.sleep(0.02)
            x = x * 2
            inner.stop()
        return self.second(x)


def test_p10_nested_regions_are_rows_and_events_inside_one_another(tmp_path: Any) -> None:
    import json

    with profiled_by(CountedClock()):
        report = fxdebug.profile(Regions(), torch.ones(2, 8), repeats=4, warmup=1, peak=False, loss=lambda y: y.sum())
    rows = {row.call: row for row in report.rows}
    assert set(rows) == {"Regions#0", "Regions/outer#0", "Regions/outer/inner#0", "first#0", "second#0"}
    assert rows["Regions/outer/inner#0"].type == "region" and rows["Regions/outer/inner#0"].own >= 0.02
    assert rows["Regions/outer#0"].own < 0.02 <= rows["Regions/outer#0"].total
    assert rows["Regions#0"].own < 0.02 <= rows["Regions#0"].total
    assert sum(row.own for row in report.rows) == pytest.approx(rows["Regions#0"].total, rel=0.02)  # type: ignore[misc]
    assert 0 < rows["Regions/outer/inner#0"].backward <= rows["Regions/outer#0"].backward
    assert [(finding.rule, finding.path) for finding in report.findings] == [("outside torch", "")]

    events = json.loads(report.timeline(tmp_path / "run.json").read_text())["traceEvents"][1:]
    spans = {event["name"]: (event["cat"], event["ts"], event["ts"] + event["dur"]) for event in events}
    chain = ["Regions", "Regions/outer", "Regions/outer/inner"]
    assert [spans[name][0] for name in chain] == ["call", "region", "region"]
    for outer, inner in zip(chain, [*chain[1:]]):
        assert spans[outer][1] <= spans[inner][1] and spans[inner][2] <= spans[outer][2]
    frames = json.loads(report.timeline(tmp_path / "run.speedscope.json").read_text())["shared"]["frames"]
    assert [frame["name"] for frame in frames] == ["Regions", "Regions/outer", "first", "Regions/outer/inner", "second"]


def test_p10_a_region_changes_nothing_in_a_trace() -> None:
    trace = fxdebug.fx_debug(Regions(), torch.ones(2, 8))
    assert [call.status for call in trace.calls] == ["verified"] * 3


def test_the_times_of_a_profile_are_those_of_its_middle_repeats_however_many_regions_there_are() -> None:
    report = fxdebug.profile(Regions(), torch.ones(2, 8), repeats=1, warmup=0, peak=False)
    assert all(row.low is None and row.own == row.median for row in report.rows)


def test_items_are_tokens_images_or_samples() -> None:
    trace = fxdebug.fx_debug(nn.Conv2d(3, 4, 3), torch.ones(5, 3, 8, 8))
    assert (items_of(trace).count, items_of(trace).unit) == (5, "images")
    trace = fxdebug.fx_debug(nn.Linear(3, 4), torch.ones(7, 3))
    assert (items_of(trace).count, items_of(trace).unit) == (7, "samples")


def test_reports_are_written_as_text_csv_and_json(slow: Any, tmp_path: Any) -> None:
    import csv
    import json

    with slow.csv(tmp_path / "slow.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0][:3] == ["call", "type", "own [s]"] and rows[1][0] == "transformer.h.1.mlp#0"
    data = json.loads(slow.json(tmp_path / "slow.json").read_text())
    assert data["schema"] == "fxdebug.report/1" and data["measures"]["time.self"]["transformer.h.1.mlp#0"] >= 0.05
    assert len(data["rows"]) == len(slow.rows) == len(rows) - 1
    assert median(len(line) for line in str(slow).splitlines()) <= 80


def test_p10_the_timeline_opens_as_chrome_trace_and_as_speedscope_with_calls_nested(slow: Any, tmp_path: Any) -> None:
    import json

    events = json.loads(slow.timeline(tmp_path / "slow.json").read_text())["traceEvents"][1:]
    by_name = {event["name"]: event for event in events}
    outer, inner = by_name["transformer.h.1"], by_name["transformer.h.1.mlp"]
    assert len(events) == len(slow.rows) and inner["dur"] >= 50_000
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    scope = json.loads(slow.timeline(tmp_path / "slow.speedscope.json").read_text())
    stack: list[int] = []
    last = 0
    for event in scope["profiles"][0]["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            stack.append(event["frame"])
        else:
            assert stack.pop() == event["frame"]
    assert not stack and {frame["name"] for frame in scope["shared"]["frames"]} == set(by_name)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_pictures_of_a_profile_are_drawn(slow: Any, tmp_path: Any, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="pictures of reports need the extra plot")
    path = slow.plot(tmp_path / f"slow.{suffix}")
    assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm", b"%PDF")


def test_pictures_name_the_extra_that_draws_them(slow: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(fxdebug.MissingExtra, match=r"pip install 'fxdebug\[plot\]'"):
        slow.plot(tmp_path / "slow.png")


# One time everywhere, and how far it can be trusted ------------------------------------------------


def timed(plain: list[int], watched: list[int]) -> Any:
    trace = fxdebug.fx_debug(nn.ReLU(), torch.ones(2))
    timings = Timings(plain=plain, watched=watched, calls={("", 0): plain}, own={("", 0): plain}, device_use=[1.0])
    return profile_report(trace, timings, profiles(trace, timings), peak=None, settings={}, items=Items())


def test_times_of_repeats_that_scatter_are_said_to_be_uncertain_and_by_how_much() -> None:
    wild = timed([10_000_000, 10_000_000, 12_000_000, 16_000_000, 18_000_000], [])
    assert wild.notes[0].what == (
        "times are uncertain by ±25 %: half of the repeats took 10 ms to 16 ms; the machine did other work, or its "
        "clock changed"
    )
    steady = timed([10_000_000, 10_100_000, 10_200_000, 10_300_000, 90_000_000], [])
    assert not [note for note in steady.notes if "uncertain" in note.what]


def test_plain_repeats_that_are_slower_than_timed_ones_were_disturbed() -> None:
    busy = timed([20_000_000, 20_100_000, 20_200_000], [12_000_000, 12_100_000, 12_200_000])
    assert busy.notes[0].what == (
        "times are uncertain: plain repeats took 20.1 ms and those whose calls are timed 12.1 ms; the machine did "
        "other work, or its clock changed"
    )


def test_what_timing_adds_is_no_negative_number() -> None:
    report = timed([10, 10, 10], [9, 9, 9])
    assert report.totals["added by timing"] == (None, "%") and "added by timing: n/a" in report.notes[0].what
    assert timed([10, 10, 10], [11, 11, 11]).totals["added by timing"][0] == pytest.approx(10)


def test_table_timeline_and_picture_have_the_same_times() -> None:
    with profiled_by(busy_machine(3)):
        report = fxdebug.profile(gpt2(), IDS, repeats=7, warmup=0, peak=False)
    spans = {f"{span.name(report.subject)}#{span.number}": (span.end - span.begin) / 1e9 for span in report.spans}
    assert {row.call: row.total for row in report.rows} == pytest.approx(spans, abs=1e-6)
    measured = report.measures["time.total"]
    assert {id: measured[id] for id in spans} == pytest.approx(spans, abs=1e-6)


class Experts(nn.Module):
    """Experts that each take their tokens: by a mask, by positions, or from one read of all numbers."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.gate = way, nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        if self.way == "grouped":
            order = chosen.argsort()
            parts = x[order].split(chosen.bincount(minlength=4).tolist())
            return torch.cat([expert(part) for expert, part in zip(self.experts, parts)])[order.argsort()]
        for number, expert in enumerate(self.experts):
            mask = chosen == number
            if self.way == "mask":
                out = out.index_put((mask,), expert(x[mask]))
            elif self.way == "nonzero":
                (places,) = mask.nonzero(as_tuple=True)
                out = out.index_add(0, places, expert(x[places]))
            else:
                out = torch.where(mask[:, None], expert(x), out)
        return out


@pytest.mark.parametrize(("way", "found"), [("mask", ["getitem"]), ("nonzero", []), ("where", []), ("grouped", [])])
def test_what_waits_for_numbers_is_found_where_it_does_so_in_one_module(way: str, found: list[str]) -> None:
    model = nn.Sequential(*[Experts(way) for _ in range(5)])
    findings = fxdebug.profile(model, torch.randn(32, 8), repeats=1, warmup=0, peak=False).findings
    reads = [finding for finding in findings if finding.rule == "reads numbers"]
    assert [finding.op for finding in reads] == found
    assert all(finding.measured == 40 for finding in reads)


def test_operations_after_a_loop_over_rows_have_their_times() -> None:
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = sum(row.sum() for row in x)
            values, places = x.sort()
            return values[0] + total + places[0]

    report = fxdebug.profile(Rows(), torch.ones(7, 2), repeats=1, warmup=0, peak=False)
    timed = {row.op: row.count for row in report.parts[0].rows}
    assert timed == {"unbind": 1, "sum": 7, "add": 9, "sort": 1, "getitem": 2}


def test_lines_that_read_numbers_come_by_their_time_with_what_is_computed_for_them_alone() -> None:
    class Reads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for row in x:
                x = x + row.sum().item()
            for row in x[:3]:
                x = x + row.repeat(4_000).sort().values[7].item()
            return x

    findings = fxdebug.profile(Reads(), torch.ones(7, 2), repeats=1, warmup=0, peak=False).findings
    first, other = [finding for finding in findings if finding.rule == "reads numbers"]
    assert (first.measured, other.measured) == (3, 7)
    assert "(item), which, with what is computed for them alone, takes " in first.what
    assert first.advice.endswith("be read once for all? Are they needed in each run?")
