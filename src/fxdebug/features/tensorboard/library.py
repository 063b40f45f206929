"""The package ``tensorboard``, the extra of that name: its messages, and the files of events that it reads.

The files are of records (tensorflow/core/lib/io/record_writer.h): length, checksum of the length, data, checksum of
the data. TensorBoard's own writer computes CRC32C in Python, 40 MB in four seconds; ``google-crc32c`` does in C.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

from fxdebug.data.measured.histograms import Histogram
from fxdebug.errors import needs
from fxdebug.files.write_file import written_whole

try:
    import google_crc32c
    from tensorboard.compat.proto.attr_value_pb2 import AttrValue
    from tensorboard.compat.proto.config_pb2 import RunMetadata
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.graph_pb2 import GraphDef
except ImportError as error:
    raise needs("writing for TensorBoard", "tensorboard and google-crc32c", "tensorboard") from error

Message: TypeAlias = Any  # of tensorboard, whose messages have no types that mypy can read


def new_graph() -> Message:
    """Return an empty GraphDef."""
    return GraphDef()


def new_attribute() -> Message:
    """Return an empty AttrValue, the value of a node's attribute."""
    return AttrValue()


def new_run_metadata() -> Message:
    """Return an empty RunMetadata."""
    return RunMetadata()


class EventFile:
    """One file of events, written whole or not at all; it takes the place of an earlier one of its name.

    TensorBoard reads every file with ``tfevents`` in its name, in the order of the names.
    """

    def __init__(self, folder: Path, name: str, wall_time: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._wall_time = wall_time
        self._written = written_whole(folder / f"events.out.tfevents.{name}.fxdebug")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> EventFile:
        path = self._stack.enter_context(self._written)
        self._file: IO[bytes] = self._stack.enter_context(path.open("wb"))
        self._write(Event(wall_time=self._wall_time, file_version="brain.Event:2"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _write(self, event: Message) -> None:
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        for part in (length, data):
            self._file.write(part + _checksum(part))

    def graph(self, graph: Message) -> None:
        """Write the graph, a GraphDef."""
        self._write(Event(wall_time=self._wall_time, graph_def=graph.SerializeToString(deterministic=True)))

    def run_metadata(self, tag: str, metadata: Message) -> None:
        """Write the times and sizes of a graph's nodes; ``tag`` is the name to choose them by."""
        event = Event(wall_time=self._wall_time)
        event.tagged_run_metadata.tag = tag
        event.tagged_run_metadata.run_metadata = metadata.SerializeToString(deterministic=True)
        self._write(event)

    def scalar(self, tag: str, number: float, step: int, after: float = 0.0) -> None:
        """Write one number of a step, ``after`` seconds since the file's time."""
        event = Event(wall_time=self._wall_time + after, step=step)
        event.summary.value.add(tag=tag, simple_value=number)
        self._write(event)

    def scalars(self, numbers: Sequence[tuple[str, float]], step: int) -> None:
        """Write several numbers of a step as one event."""
        event = Event(wall_time=self._wall_time, step=step)
        for tag, number in numbers:
            event.summary.value.add(tag=tag, simple_value=number)
        self._write(event)

    def histogram(self, tag: str, found: Histogram, step: int, after: float = 0.0) -> None:
        """Write counts between edges as they are; elements that are not finite are in no bucket."""
        if not found.counts:
            return
        event = Event(wall_time=self._wall_time + after, step=step)
        histogram = event.summary.value.add(tag=tag).histo
        histogram.min, histogram.max, histogram.num = found.edges[0], found.edges[-1], sum(found.counts)
        histogram.bucket_limit.extend(found.edges[1:])
        histogram.bucket.extend(found.counts)
        self._write(event)


def _checksum(data: bytes) -> bytes:
    """Return the CRC32C of data, rotated and moved: a CRC of data that has CRCs in it would be easy to hit."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
