"""The journal that a run writes while the model runs, so that a killed process leaves its trace behind.

It has a line per event: ``["value", row]``, ``["began", …]`` when a call begins and ``["ended", …]`` when it ends.
It lies in the run's staging folder and is removed once ``trace.json`` is there. Each event is written at once (4 µs),
not buffered, so that the call in which the process dies is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fxdebug.data.calls import Call, Failure, Note
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.errors import LoadError
from fxdebug.store.deep_json import dumps, loads
from fxdebug.store.trace_json import records, trace_file

FILE = "journal.jsonl"


class OpenCall(Protocol):
    """The facts about a call that the journal writes (``capture.recorder.frame.Frame`` has them)."""

    index: int
    number: int
    depth: int
    inputs: Inputs
    outputs: Outputs | None
    error: Failure | None
    duration: float
    parent: Any
    site: Any


class Journal:
    """Write each call as it begins and ends. The first error of the disk ends the journal, not the run."""

    def __init__(self, folder: Path, model: str, values: Sequence[Value]) -> None:
        self.broken: OSError | None = None
        self._values = values
        self._written = 0
        self.rows = records.ValueRowCache()
        self._file = (folder / FILE).open("wb", buffering=0)
        self._write(_line("run", [trace_file.VERSION, model]))

    def enter_call(self, call: OpenCall) -> None:
        """Write that a call began: its module, its parent and its inputs."""
        parent = None if call.parent is None else call.parent.index
        site = call.site
        where = [call.index, site.path, site.type, call.number, parent, call.depth]
        self._write(self._new_values() + _line("began", [*where, records.inputs_to_json(call.inputs)]))

    def leave_call(self, call: OpenCall) -> None:
        """Write that a call ended: its duration, its outputs or its exception."""
        outputs, error = records.outputs_to_json(call.outputs), records.failure_to_json(call.error)
        self._write(self._new_values() + _line("ended", [call.index, call.duration, outputs, error]))

    def close(self) -> None:
        """Close the file: the run is over."""
        try:
            self._file.close()
        except OSError as error:
            self.broken = error

    def _new_values(self) -> str:
        new = self._values[self._written :]
        self._written += len(new)
        return "".join([f'["value",{self.rows.text(value)}]\n' for value in new])

    def _write(self, text: str) -> None:
        """Write lines in one system call, since another thread may take over at each."""
        if self.broken is not None:
            return
        lines = text.encode()
        try:
            while lines:
                lines = lines[self._file.write(lines) :]
        except OSError as error:
            self.broken = error


def _line(event: str, content: Any) -> str:
    return f'["{event}",{dumps(content)}]\n'


def recover_trace(folder: Path) -> TraceData:
    """Return the trace that an unfinished run left in its staging folder. Calls that never ended have an error.

    Raises :class:`LoadError` if the journal cannot be read or has no call.
    """
    path = folder / FILE
    values: list[Value] = []
    calls: dict[int, dict[str, Any]] = {}
    model = "?"
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                event, content = loads(line)
            except ValueError:
                break  # the line that the process was writing when it ended
            if event == "run":
                model = content[1]
            elif event == "value":
                values.append(records.value_from_row(dict(zip(records.VALUE_COLUMNS, content))))
            elif event == "began":
                index, module, kind, number, parent, depth, inputs = content
                arguments = records.inputs_from_json(inputs, tuple(values))
                calls[index] = {
                    "index": index,
                    "path": module,
                    "type": kind,
                    "number": number,
                    "parent_index": parent,
                    "depth": depth,
                    "inputs": Inputs() if arguments is None else arguments,
                }
            elif event == "ended":
                index, duration, outputs, error = content
                returned = None if outputs is None else Outputs(records.item_from_json(outputs[0], values))
                failed = None if error is None else Failure(*error)
                calls[index] |= {"duration": duration, "outputs": returned, "error": failed, "finished": index}
    except (OSError, TypeError, KeyError, IndexError, ValueError) as error:
        raise LoadError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not calls:
        raise LoadError(f"{path} holds no call: the run ended before the model began")
    unfinished = [call for call in calls.values() if "finished" not in call]
    above = {call["parent_index"] for call in unfinished}
    for call in unfinished:
        call["error"] = Failure("Unfinished", "the process ended while this call ran", call["index"] not in above)
    note = Note("recovered from an unfinished run: its process ended before it was complete")
    return TraceData(model, tuple(Call(**call) for call in calls.values()), tuple(values), notes=(note,), folder=folder)
