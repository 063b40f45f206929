"""A run in time for Perfetto: the messages of its trace format, written byte by byte.

The format: ``protos/perfetto/trace/trace_packet.proto`` and ``track_event/track_event.proto`` of Perfetto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fxdebug.data.report import ReportData
from fxdebug.data.trace import TraceData
from fxdebug.features.shared.programs import protobuf_wire as wire
from fxdebug.features.timelines.timeline import (
    Counter,
    Lane,
    Slice,
    lanes_of_report,
    lanes_of_traces,
    opened_and_closed,
)
from fxdebug.files.write_file import write_bytes
from fxdebug.printable import printable

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_SEQUENCE = 1  # trusted_packet_sequence_id: names are numbered within one sequence of packets
_UNITS = {"B": 3, "s": 1}  # CounterDescriptor.Unit


def write_perfetto(trace: TraceData, path: Path, *, ranks: Sequence[TraceData] = ()) -> Path:
    """Write the calls of a run, and operations where a profile timed them; ``ranks``: the runs of further ranks.

    Each rank is a process. Slices are as long as the call took; when it began is not known, only after what.
    """
    return write_bytes(path, perfetto_bytes(lanes_of_traces([trace, *ranks])))


def write_report(report: ReportData[Any], path: Path) -> Path:
    """Write the calls of a profile as they were in time, or the bytes of a memory report.

    Raises ``UsageError`` for another report.
    """
    return write_bytes(path, perfetto_bytes(lanes_of_report(report)))


def perfetto_bytes(lanes: Sequence[Lane]) -> bytes:
    """Return a trace with a process for each lane."""
    names = _Names()
    packets: list[bytes] = []
    for lane in lanes:
        packets += _LaneWriter(lane, names).packets()
    return b"".join([names.packet(), *packets])


class _Names:
    """Names of events and of their facts: each is written once and has a number."""

    def __init__(self) -> None:
        self.events: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.facts: dict[str, int] = {}

    def packet(self) -> bytes:
        """Return the packet that a sequence begins with."""
        data = b"".join(
            wire.data(field, wire.number(1, number) + wire.text(2, name))
            for field, names in ((1, self.kinds), (2, self.events), (3, self.facts))
            for name, number in names.items()
        )
        return _packet(wire.number(87, 1) + wire.data(12, data), cleared=True)


class _LaneWriter:
    """Write one process: its tracks, then the events of each."""

    def __init__(self, lane: Lane, names: _Names) -> None:
        self._lane, self._names = lane, names
        self._uuid = lane.id << 32
        self._from: dict[int, list[int]] = {}  # position of a slice → flows that leave it
        self._to: dict[int, list[int]] = {}
        for number, (source, target) in enumerate(lane.flows):
            flow = self._uuid + number + 1
            self._from.setdefault(source, []).append(flow)
            self._to.setdefault(target, []).append(flow)

    def packets(self) -> Iterator[bytes]:
        """Yield every packet of the process."""
        lane = self._lane
        process = wire.number(1, lane.id) + wire.text(6, lane.name)
        yield _described(wire.number(1, self._uuid) + wire.text(2, lane.name) + wire.data(3, process))
        places = {id(one): place for place, one in enumerate(lane.slices)}
        for number, name in enumerate(lane.tracks):
            thread = wire.number(1, lane.id) + wire.number(2, lane.id * 1_000 + number) + wire.text(5, name)
            uuid = self._uuid + 1 + number
            yield _described(wire.number(1, uuid) + wire.number(5, self._uuid) + wire.data(4, thread))
            own = [one for one in lane.slices if one.track == number]
            yield from self._slices(own, uuid, places)
        for number, counter in enumerate(lane.counters):
            yield from self._counter(counter, self._uuid + 1_000_000 + number)
        for time, text in lane.marks:
            event = wire.number(9, _INSTANT) + wire.number(11, self._uuid) + wire.text(23, printable(text))
            yield _packet(wire.number(8, time) + wire.data(11, event))

    def _slices(self, slices: Sequence[Slice], uuid: int, places: dict[int, int]) -> Iterator[bytes]:
        track = wire.number(11, uuid)
        end = wire.data(11, wire.number(9, _END) + track)
        begin = wire.number(9, _BEGIN) + track
        for opens, one in opened_and_closed(slices):
            if opens:
                yield _packet(wire.number(8, one.begin) + wire.data(11, begin + self._event(one, places[id(one)])))
            else:
                yield _packet(wire.number(8, one.end) + end)

    def _event(self, one: Slice, place: int) -> bytes:
        names = self._names
        parts = [wire.number(10, _known(names.events, one.name)), wire.number(3, _known(names.kinds, one.kind))]
        for name, fact in one.facts.items():
            number = wire.number(1, _known(names.facts, name))
            value = wire.text(6, fact) if isinstance(fact, str) else wire.double(5, float(fact))
            parts.append(wire.data(4, number + value))
        parts += [wire.fixed(47, flow) for flow in self._from.get(place, ())]
        parts += [wire.fixed(48, flow) for flow in self._to.get(place, ())]
        return b"".join(parts)

    def _counter(self, counter: Counter, uuid: int) -> Iterator[bytes]:
        unit = wire.number(3, _UNITS[counter.unit]) if counter.unit in _UNITS else wire.text(6, counter.unit)
        about = (
            wire.number(1, uuid)
            + wire.text(2, printable(counter.name))
            + wire.number(5, self._uuid)
            + wire.data(8, unit)
        )
        yield _described(about)
        event = wire.number(9, _COUNTER) + wire.number(11, uuid)
        for time, number in counter.points:
            yield _packet(wire.number(8, time) + wire.data(11, event + wire.double(44, number)))


def _known(names: dict[str, int], name: str) -> int:
    return names.setdefault(name, len(names) + 1)


# Messages ----------------------------------------------------------------------------------------


def _described(descriptor: bytes) -> bytes:
    return _packet(wire.data(60, descriptor))


def _packet(fields: bytes, *, cleared: bool = False) -> bytes:
    """Return a packet of the one sequence; ``cleared``: it begins the numbering of names."""
    return wire.data(1, fields + (_FIRST if cleared else _LATER))


_FIRST = wire.number(10, _SEQUENCE) + wire.number(13, 1)  # SEQ_INCREMENTAL_STATE_CLEARED
_LATER = wire.number(10, _SEQUENCE) + wire.number(13, 2)  # SEQ_NEEDS_INCREMENTAL_STATE
