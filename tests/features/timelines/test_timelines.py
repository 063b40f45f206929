"""Runs in time: what Perfetto's own messages, Chrome's form and speedscope's read back of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fxdebug
from fxdebug import Trace, fx_debug
from fxdebug.data.trace import replaced
from fxdebug.errors import UsageError
from support.exported import RUNS, run
from support.trees import Does

messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs perfetto")


@dataclasses.dataclass
class Read:
    """A slice as Perfetto understands it."""

    process: str
    track: str
    name: str
    begin: int
    end: int = -1
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    around: list[str] = dataclasses.field(default_factory=list)
    flows: list[int] = dataclasses.field(default_factory=list)
    ends_flows: list[int] = dataclasses.field(default_factory=list)


def read(path: Path) -> tuple[list[Read], dict[str, list[tuple[int, float]]]]:
    """Read a trace by Perfetto's own messages, as its importer does: names by number, slices on a stack a track."""
    trace = messages.Trace()
    trace.ParseFromString(path.read_bytes())
    names: dict[int, str] = {}
    facts: dict[int, str] = {}
    tracks: dict[int, Any] = {}
    slices: list[Read] = []
    stacks: dict[int, list[Read]] = {}
    counters: dict[str, list[tuple[int, float]]] = {}
    last: dict[int, int] = {}
    assert trace.packet[0].sequence_flags == 1 and all(p.sequence_flags == 2 for p in trace.packet[1:])
    for packet in trace.packet:
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        facts |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event, track = packet.track_event, tracks[packet.track_event.track_uuid]
        assert packet.timestamp >= last.get(track.uuid, 0)
        last[track.uuid] = packet.timestamp
        if event.type == messages.TrackEvent.TYPE_COUNTER:
            counters.setdefault(track.name, []).append((packet.timestamp, event.double_counter_value))
        elif event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
            process = tracks[track.parent_uuid].process.process_name
            stack = stacks.setdefault(track.uuid, [])
            one = Read(process, track.thread.thread_name, names[event.name_iid], packet.timestamp)
            one.around = [outer.name for outer in stack]
            one.facts = {
                facts[note.name_iid]: note.string_value if note.HasField("string_value") else note.double_value
                for note in event.debug_annotations
            }
            one.flows, one.ends_flows = list(event.flow_ids), list(event.terminating_flow_ids)
            slices.append(one)
            stack.append(one)
        elif event.type == messages.TrackEvent.TYPE_SLICE_END:
            stacks[track.uuid].pop().end = packet.timestamp
    assert not any(stacks.values())
    return slices, counters


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


@pytest.mark.parametrize("name", RUNS)
def test_every_call_is_a_slice_as_long_as_it_took_inside_its_caller(tmp_path, name):
    trace = run(name)
    slices, _ = read(trace.export(tmp_path / "run.pftrace"))
    assert len(slices) == len(trace.calls)
    for call, one in zip(trace.calls, slices):
        assert len(one.around) == call.depth
        inside = sum(nanoseconds(child.duration) for child in call.children)
        assert one.end - one.begin >= nanoseconds(call.duration)
        if inside <= nanoseconds(call.duration) and not call.children:
            assert one.end - one.begin == nanoseconds(call.duration)
        assert one.facts["duration, s"] == call.duration
        assert name == "hostile" or one.facts["call"] == call.id


def model() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.ReLU(), nn.Linear(64, 8))), torch.ones(8, 64)


@pytest.fixture(scope="module")
def profiled() -> Trace:
    profile, memory = fxdebug.profile(*model(), repeats=3, peak=False), fxdebug.memory(*model())
    return fx_debug(*model()).with_measures([profile, memory])


def test_timed_operations_are_slices_of_their_own_with_their_measured_time(profiled, tmp_path):
    slices, counters = read(profiled.export(tmp_path / "run", to="perfetto"))
    operations = {one.facts["operation"]: one for one in slices if "operation" in one.facts}
    times = profiled.numbers("time.total")
    assert sorted(operations) == ["0#0/linear", "1.0#0/relu", "1.1#0/linear"]
    for id, one in operations.items():
        assert one.end - one.begin == nanoseconds(times[id])
        assert one.facts["time.self"] == profiled.numbers("time.self")[id]
    assert operations["1.1#0/linear"].around == ["Sequential", "1", "1.1"]
    (counter,) = counters.values()
    assert [number for _, number in counter][::2] == [
        profiled.numbers("memory.peak")[id] for id in ("0#0", "1.0#0", "1.1#0")
    ]


def test_flows_lead_from_what_made_a_value_to_what_takes_it(profiled, tmp_path):
    slices, _ = read(profiled.export(tmp_path / "run.pftrace"))
    starts = {flow: one.facts.get("operation", one.name) for one in slices for flow in one.flows}
    ends = {flow: one.facts.get("operation", one.name) for one in slices for flow in one.ends_flows}
    pairs = {(starts[flow], ends[flow]) for flow in starts}
    assert {("0#0/linear", "1.0#0/relu"), ("1.0#0/relu", "1.1#0/linear")} <= pairs


def test_a_profile_has_the_times_at_which_its_calls_began(tmp_path):
    report = fxdebug.profile(*model(), repeats=3, peak=False)
    slices, _ = read(report.export(tmp_path / "profile.pftrace"))
    assert [(one.begin, one.end) for one in slices] == [(span.begin, span.end) for span in report.spans]
    assert [len(one.around) for one in slices] == [span.depth for span in report.spans]


def test_a_memory_report_is_counters_over_its_allocations(tmp_path):
    report = fxdebug.memory(*model())
    slices, counters = read(report.export(tmp_path / "memory.pftrace"))
    assert slices == []
    assert {name: tuple(number for _, number in points) for name, points in counters.items()} == report.series


def test_a_report_without_times_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no times of calls: use "):
        fxdebug.flops(fx_debug(*model())).export(tmp_path / "x.pftrace")


def ranked(rank: int, started: str) -> Trace:
    trace = fx_debug(*model())
    return replaced(trace, settings={**trace.settings, "rank": rank}, started=started)


def test_ranks_are_processes_at_the_times_of_their_clocks(tmp_path):
    ranks = [ranked(0, "2026-01-01T00:00:00.000+00:00"), ranked(1, "2026-01-01T00:00:00.250+00:00")]
    slices, _ = read(ranks[0].export(tmp_path / "run.pftrace", ranks=ranks[1:]))
    begins = {one.process: one.begin for one in reversed(slices)}
    assert begins == {"Sequential, rank 0": 0, "Sequential, rank 1": 250_000_000}
    with pytest.raises(UsageError, match="same rank"):
        ranks[0].export(tmp_path / "x.pftrace", ranks=ranks[:1])


def test_calls_of_other_threads_have_their_own_track(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(1, thread_name_prefix="side") as pool:
            there = pool.submit(self.there, x)
            return self.here(x) + there.result()

    trace = fx_debug(Does(forward, here=nn.Linear(4, 4), there=nn.Linear(4, 4)), torch.ones(1, 4))
    slices, _ = read(trace.export(tmp_path / "run.pftrace"))
    assert {one.name: one.track for one in slices} == {"Does": "calls", "here": "calls", "there": "side_0"}


@pytest.mark.parametrize("name", RUNS)
def test_chrome_has_the_same_slices_well_nested(tmp_path, name):
    trace = run(name)
    slices, _ = read(trace.export(tmp_path / "run.pftrace"))
    events = json.loads(trace.export(tmp_path / "run.trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert [(e["name"], round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in complete] == [
        (one.name, one.begin, one.end) for one in slices
    ]
    starts = [event["id"] for event in events if event["ph"] == "s"]
    assert starts == [event["id"] for event in events if event["ph"] == "f"]


@pytest.mark.parametrize("name", RUNS)
def test_speedscope_has_every_call_opened_and_closed(tmp_path, name):
    trace = run(name)
    data = json.loads(trace.export(tmp_path / "run.speedscope.json").read_text())
    (profile,) = data["profiles"]
    opened: list[int] = []
    at = 0
    for event in profile["events"]:
        assert profile["startValue"] <= event["at"] <= profile["endValue"] and event["at"] >= at
        at = event["at"]
        if event["type"] == "O":
            opened.append(event["frame"])
        else:
            assert opened.pop() == event["frame"]
    assert opened == [] and len(profile["events"]) == 2 * len(trace.calls)
