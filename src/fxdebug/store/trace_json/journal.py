"""The journal that a run writes while the model runs, so that a killed process leaves its trace behind.

It has a line per event: ``["value", row]``, ``["began", …]`` when a call begins and ``["ended", …]`` when it ends.
It lies in the run's staging folder and is removed once ``trace.json`` is there. Each event is written at once (4 µs),
not buffered, so that the call in which the process dies is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fxdebug.data.calls import OUTSIDE_FORWARD, Call, Failure, Note
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Inputs, Outputs, Value
from fxdebug.errors import LoadError, SaveError
from fxdebug.files.being_written import Writer, is_being_written, mark_as_written, this_writer
from fxdebug.files.read_file import read_text, require_inside
from fxdebug.files.schema import Damaged, columns_of, defaults_of, integers, rows, shown, texts
from fxdebug.files.system_errors import system_errors_told, system_reason
from fxdebug.store.deep_json import dumps, loads
from fxdebug.store.trace_json import records, trace_file
from fxdebug.store.versioned_json import require_version

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
        try:
            self._file = (folder / FILE).open("wb", buffering=0)
        except OSError as error:  # no further files can be opened
            raise SaveError(f"cannot write to {folder.parent}: {system_reason(error)}") from error
        mark_as_written(self._file)
        self._write(_line("run", [trace_file.VERSION, model]) + _line("writer", list(this_writer())))

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
    """Return the trace of an unfinished run, from its staging folder. Calls that have not ended have an error.

    Raises :class:`LoadError` if the journal cannot be read or has no call.
    """
    path = folder / FILE
    require_inside(path, folder)
    try:
        with system_errors_told(path):
            goes_on = is_written(path)  # asked first: what has ended by now is read whole
            return _recovered(path, _events(read_text(path, "a journal")), goes_on)
    except Damaged as error:
        raise LoadError(f"{path} is damaged: {error}") from None


def is_written(path: Path) -> bool | None:
    """Is a journal still being written? ``None`` if unknown."""
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            head = [file.readline(MOST_OF_A_LINE).decode(errors="replace") for _ in range(2)]
        (writer,) = _events("".join(head))["writer"]
        return is_being_written(path, rows(Writer, _WRITER)([writer], lambda _: "writer")[0])
    except (OSError, ValueError, Damaged):  # none of this version
        return is_being_written(path)


def _events(text: str) -> dict[str, list[list[Any]]]:
    """Return the content of each line, by the kind of event."""
    events: dict[str, list[list[Any]]] = {"run": [], "writer": [], "value": [], "began": [], "ended": []}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            event = loads(line)
        except ValueError:
            break  # the line that the process was writing when it ended
        if type(event) is not list or len(event) != 2 or type(event[0]) is not str or event[0] not in events:
            raise Damaged(f"line {number} is {shown(event)}, no event")
        events[event[0]].append(event[1])
    return events


def _recovered(path: Path, events: dict[str, list[list[Any]]], goes_on: bool | None) -> TraceData:
    if not events["began"]:
        raise LoadError(
            f"{path} holds no call: the run {'has only begun' if goes_on else 'ended before the model began'}"
        )
    for run in events["run"]:
        require_version(path, run[0] if type(run) is list and run else None, trace_file.VERSION, trace_file.OLDER)
    runs = rows(_cells, {"version": integers(), "model": texts})(events["run"], lambda i: f"run[{i}]")
    values_read = rows(_cells, records.VALUE_READERS, defaults_of(Value))(events["value"], lambda i: f"value[{i}]")
    columns = dict(zip(records.VALUE_COLUMNS, zip(*values_read) if values_read else [()] * len(records.VALUE_COLUMNS)))
    values = records.values_from_columns(columns)
    special = records.readers_with(values)
    of_call = columns_of(Call, special)
    began = {name: of_call[name] for name in _BEGAN}
    ended = {name: of_call[name] for name in _ENDED}
    calls: dict[int, dict[str, Any]] = {}
    for cells in rows(_cells, began)(events["began"], lambda i: f"began[{i}]"):
        calls[cells[0]] = dict(zip(began, cells))
    for position, cells in enumerate(rows(_cells, ended)(events["ended"], lambda i: f"ended[{i}]")):
        call = calls.get(cells[0])
        if call is None:
            raise Damaged(f"ended[{position}].index is {shown(cells[0])}, and no such call began")
        call |= dict(zip(ended, cells)) | {"finished": position}
    unfinished = [call for call in calls.values() if "finished" not in call]
    above = {call["parent_index"] for call in unfinished}
    for call in unfinished:
        call["error"] = Failure("Unfinished", f"{_STATES[goes_on]} this call ran", call["index"] not in above)
    model = runs[-1][1] if runs else "?"
    in_order = _under_one_root([calls[index] for index in sorted(calls)], model, goes_on)
    defaults = defaults_of(Call)
    table = {name: [call.get(name, defaults.get(name)) for call in in_order] for name in records.CALL_COLUMNS}
    note = Note(_NOTES[goes_on])
    return TraceData(model, records.calls_from_columns(table), values, notes=(note,), folder=path.parent)


def _under_one_root(calls: list[dict[str, Any]], model: str, goes_on: bool | None) -> list[dict[str, Any]]:
    """Put the root above calls that have no common one, as a run of another method gets it when it is over."""
    outermost = [call for call in calls if call["parent_index"] is None]
    if [call["path"] for call in outermost] == [""]:
        return calls
    error = Failure("Unfinished", f"{_STATES[goes_on]} the run went on", all("error" not in call for call in calls))
    root = {"path": "", "type": model, "number": 0, "depth": 0, "inputs": Inputs(), "error": error}
    below = [
        {
            **call,
            "index": call["index"] + 1,
            "parent_index": 0 if call["parent_index"] is None else call["parent_index"] + 1,
            "depth": call["depth"] + 1,
            "number": call["number"] + (call["path"] == ""),  # the root above is number 0 of its path
        }
        for call in calls
    ]
    return [{**root, "index": 0, "method": OUTSIDE_FORWARD, "finished": len(calls), "has_submodules": True}, *below]


MOST_OF_A_LINE = 1 << 16
_STATES = {
    True: "this was read while",
    False: "the process ended while",
    None: "the process ended, or this was read, while",
}
_NOTES = {
    True: "the run goes on: this is what it had written when it was read",
    False: "recovered from an unfinished run: its process ended before it was complete",
    None: "recovered from an unfinished run: whether its process goes on cannot be told here",
}
_WRITER: dict[str, Any] = {"host": texts, "process": integers(0), "began": integers(0)}
_BEGAN = ("index", "path", "type", "number", "parent_index", "depth", "inputs")
_ENDED = ("index", "duration", "outputs", "error")


def _cells(*cells: Any) -> tuple[Any, ...]:
    return cells
