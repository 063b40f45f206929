"""The graph of a run for TensorBoard, with measured times and sizes; names of nodes are paths of modules.

TensorBoard builds its boxes from names: each call is a part of the name, a ``/`` between them. Where a name would mean
something else to it, the name is changed: see :func:`_segment`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import datetime

from fxdebug.data.calls import Call
from fxdebug.data.measures import Taken
from fxdebug.data.trace import TraceData
from fxdebug.features.shared.programs.dataflow import Dataflow, Source
from fxdebug.features.shared.programs.facts import constants_of, facts_of_node, shortened
from fxdebug.features.tensorboard.library import Message, new_attribute, new_graph, new_run_metadata
from fxdebug.printable import printable
from fxdebug.query.measures import size_of
from fxdebug.query.network import Node

LONGEST = 1_024  # bytes of an attribute: TensorBoard does not show longer ones
LONGEST_SEGMENT = 120
PRODUCER = 22  # the version of TensorFlow's graphs
_SERIES = re.compile(r"\D*\d+", re.ASCII)  # five siblings of such names are drawn as one
_TIME = "time.self"
_LARGEST = (1 << 63) - 1  # bytes that its format can say: an expanded tensor may have more, of little memory


class TensorboardGraph:
    """The nodes of a run under the names that TensorBoard gets."""

    def __init__(self, trace: TraceData, taken: Mapping[str, Taken]) -> None:
        self._trace = trace
        self._taken = taken
        self._flow = Dataflow(trace)
        self._scopes: dict[int, str] = {}
        for call in trace.calls:
            self._scopes[call.index] = self._scope(call)
        self._taken_scopes = set(self._scopes.values())
        self._used: set[str] = set()
        self.names = {node.id: self._name(node) for node in self._flow.nodes}

    def _scope(self, call: Call) -> str:
        """Return the name of a call: that of its caller, and the rest of its path."""
        if call.parent_index is None:
            return _segment(self._trace.model)
        caller = self._trace.calls[call.parent_index]
        inside = f"{caller.path}." if caller.path else ""
        rest = call.path[len(inside) :] if call.path.startswith(inside) else call.path
        *outer, last = rest.split(".") if rest else [call.type]
        own = [*outer, f"{last}#{call.number}" if call.number else last]
        return "/".join([self._scopes[caller.index], *map(_segment, own)])

    def _name(self, node: Node) -> str:
        last = node.call.type if node.step is None and node.slot is None else node.id.rpartition("/")[2]
        name = f"{self._scopes[node.call.index]}/{_segment(last)}"
        if name in self._taken_scopes:  # an operation with the name of a module
            name += ".op"
        unique, number = name, 1
        while unique in self._used:  # names that became equal
            number += 1
            unique = f"{name}~{number}."
        self._used.add(unique)
        return unique

    # The graph -----------------------------------------------------------------------------------

    def graph(self) -> Message:
        """Return the GraphDef: names, operations, devices, shapes and facts of all nodes."""
        graph = new_graph()
        graph.versions.producer = PRODUCER
        for node in self._flow.nodes:
            self._define(graph.node.add(), node)
        return graph

    def _define(self, defined: Message, node: Node) -> None:
        defined.name, defined.op = self.names[node.id], shortened(node.op) or node.kind
        defined.input.extend([self._reference(source) for source in self._flow.sources(node)])
        attributes, value = defined.attr, node.value
        if value is not None:
            defined.device = device_name(value.device)
            attributes["_output_shapes"].MergeFromString(_shapes(tuple([one.shape for one in node.values])))
        for facts in (facts_of_node(node, self._taken), constants_of(node)):
            for name, fact in facts.items():
                attributes[name].s = _text(fact) if isinstance(fact, str) else repr(fact).encode()

    def _reference(self, source: Source) -> str:
        name = self.names[source.node]
        return f"{name}:{source.output}" if source.output else name

    # Times and sizes -----------------------------------------------------------------------------

    def run_metadata(self) -> Message | None:
        """Return the measured time of each node and the bytes of its results; ``None`` where neither is known.

        Times are those of a profile, each the mean over its repeats. An operation begins where the times of those
        before it end: TensorBoard shows a box as long as from the first beginning to the last end in it. Bytes are
        those of results in memory of their own, without views.
        """
        times = self._taken[_TIME].numbers if _TIME in self._taken else {}
        metadata = new_run_metadata()
        devices: dict[str, Message] = {}
        begin, now = max(1.0, started(self._trace) * 1e6), 0.0
        storages: set[int] = set()
        for node in self._flow.nodes:
            size = _new_bytes(node, storages)
            if node.id not in times and not size:
                continue
            device = device_name("cpu" if node.value is None else node.value.device)
            if device not in devices:
                devices[device] = metadata.step_stats.dev_stats.add(device=device)
            stats = devices[device].node_stats.add(node_name=self.names[node.id])
            if node.id in times:
                stats.all_start_micros = round(begin + now * 1e6)
                now += times[node.id]
                stats.all_end_rel_micros = max(1, round(begin + now * 1e6) - stats.all_start_micros)
            if size:
                stats.memory.add(allocator_name=device, total_bytes=min(size, _LARGEST))
        return metadata if devices else None


def _new_bytes(node: Node, storages: set[int]) -> int:
    """Return the bytes of a node's results whose memory no node before it has shown."""
    size = 0
    for value in node.values:
        if value.storage is not None and value.storage not in storages:
            storages.add(value.storage)
            size += size_of(value) or 0
    return size


def started(trace: TraceData) -> float:
    """Return when a run began, in seconds since 1970; 0 where it is not known."""
    try:
        return datetime.fromisoformat(trace.started).timestamp()
    except ValueError:
        return 0.0


def device_name(device: str) -> str:
    """Return a device as TensorFlow names it.

    >>> device_name("cuda:1"), device_name("cpu")
    ('/device:CUDA:1', '/device:CPU:0')
    """
    kind, _, number = device.partition(":")
    return f"/device:{kind.upper()}:{number or 0}"


@functools.lru_cache(maxsize=100_000)
def _segment(name: str) -> str:
    """Return a part of a path as a part of a node's name.

    ``/`` would begin a new box, ``:`` name an output, ``^`` a dependency: they become their codes. Five siblings whose
    names end in numbers would be folded into one node that hides its numbers: a dot at the end prevents that.
    """
    text = printable(name).replace("%", "%25")
    for character in "/:^":
        if character in text:
            text = text.replace(character, f"%{ord(character):02X}")
    if len(text) > LONGEST_SEGMENT:
        text = f"{text[: LONGEST_SEGMENT // 2]}…{text[-LONGEST_SEGMENT // 2 :]}"
    return f"{text}." if _SERIES.fullmatch(text) else text or "(no name)"


@functools.lru_cache(maxsize=100_000)
def _shapes(shapes: tuple[tuple[int, ...], ...]) -> bytes:
    """Return the shapes of a node's results as an attribute, as many as TensorBoard shows."""
    found = new_attribute()
    for shape in shapes:
        sizes = found.list.shape.add().dim
        for size in shape:
            sizes.add(size=size)
        if found.ByteSize() > LONGEST - 20:
            del found.list.shape[-1]
            break
    return found.SerializeToString()  # type: ignore[no-any-return]


def _text(text: str) -> bytes:
    """Return the text of an attribute, cut in its middle to what TensorBoard shows of it."""
    data, half = text.encode("utf-8", "replace"), LONGEST // 2 - 20
    if len(data) <= 2 * half:
        return data
    begin, end = (part.decode("utf-8", "ignore") for part in (data[:half], data[-half:]))
    return f"{begin}…{end}".encode()
