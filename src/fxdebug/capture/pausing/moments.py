"""Moments of a running forward: a call begins, an operation has run, a call is about to end, a gradient is made.

A moment keeps references into the records of the run and no tensor. Everything else is looked up when it is asked for,
since there is one for every operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from fxdebug.capture.recorder.frame import Frame
from fxdebug.capture.source.source_line import Line
from fxdebug.capture.tape.call_tape import CallTape, TapeEntry
from fxdebug.capture.tape.changed_arguments import result_in
from fxdebug.capture.tape.encoding import Struct
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.data.calls import Failure
from fxdebug.data.graphs import OPAQUE, RECORDED, Status
from fxdebug.data.values import Value

if TYPE_CHECKING:
    from fxdebug.capture.pausing.waiting_thread import Pauses

MomentKind: TypeAlias = Literal["call", "op", "return"]
Slots: TypeAlias = Sequence[tuple[str, Value]]


class Moment:
    """One moment. ``entry`` is the position of the operation on the tape of its call.

    ``replaced`` are the tensors of an edit that was made here and has not gone on yet. ``gradient`` is that of a
    moment in the backward.

    >>> import torch, fxdebug
    >>> run = fxdebug.api.paused_run(torch.nn.ReLU(), torch.ones(2))
    >>> run.moment.kind, run.moment.type
    ('call', 'ReLU')
    >>> run.quit()
    """

    GRADIENT: ClassVar = "gradient"  # the operation of a moment of the backward
    __slots__ = ("_run", "call_tape", "entry", "failure", "frame", "gradient", "kind", "number", "replaced")

    def __init__(
        self,
        run: Pauses,
        number: int,
        kind: MomentKind,
        frame: Frame,
        call_tape: CallTape | None,
        entry: int,
    ) -> None:
        self._run = run
        self.number = number
        self.kind = kind
        self.frame = frame
        self.call_tape = call_tape
        self.entry = entry
        self.failure: Failure | None = None
        self.replaced: list[tuple[str, Value]] | None = None
        # the id of what it is the gradient of, its value, and the line that computed what it belongs to
        self.gradient: tuple[str, Value, Line | None] | None = None

    @property
    def depth(self) -> int:
        """The number of calls around the one that begins, runs or ends here."""
        return self.frame.depth

    @property
    def path(self) -> str:
        """The path of the module."""
        return self.frame.site.path

    @property
    def paths(self) -> Sequence[str]:
        """Every path of the module."""
        return self.frame.site.aliases or (self.frame.site.path,)

    @property
    def type(self) -> str:
        """The class of the module."""
        return self.frame.site.type

    @property
    def call_id(self) -> str:
        """The id of the call, as the record of it will have it."""
        return f"{self.frame.site.path}#{self.frame.number}"

    @property
    def _op_entry(self) -> TapeEntry | None:
        return (
            None
            if self.kind != "op" or self.call_tape is None or self.entry < 0
            else self.call_tape.entries[self.entry]
        )

    @property
    def op(self) -> str:
        """The name of the operation; ``gradient`` in the backward; empty where a call begins or ends."""
        entry = self._op_entry
        if entry is None:
            return self.GRADIENT if self.gradient is not None else ""
        return self._run.name_of(entry.what)

    @property
    def id(self) -> str:
        """The id of the operation or the call: unique among moments of its kind."""
        if self.gradient is not None:
            return f"{self.gradient[0]}/{self.GRADIENT}"
        own = f"{self.path or self._run.root_name}#{self.frame.number}"
        entry = self._op_entry
        if entry is None or self.call_tape is None:
            return own
        return f"{own}/{self.op_name}"

    @property
    def op_name(self) -> str:
        """The name of the operation in its call, with a number from the second of that name on: ``add_1``."""
        assert self.call_tape is not None
        return self._run.name_in_call(self.call_tape, self.entry)

    @property
    def source(self) -> str | None:
        """The user's line that ran the operation or made the call; where it raised, the line that did."""
        if self.failure is not None and self.failure.source:
            return self.failure.source
        entry = self._op_entry
        line = self.frame.line if entry is None else entry.line
        if self.gradient is not None:
            line = self.gradient[2]
        return None if line is None else line.text()

    @property
    def status(self) -> Status | None:
        """The trust in the graph of the call where a call ends and it is known already; else ``None``."""
        tape = self.call_tape
        if tape is None or self.kind != "return":
            return None
        if tape.unobserved is not None:
            return OPAQUE
        return RECORDED if tape.untraceable is not None else None

    @property
    def error(self) -> Failure | None:
        """The exception that leaves the call here."""
        return self.failure

    @property
    def inputs(self) -> Slots:
        """The arguments of the call, or the operands of the operation."""
        entry = self._op_entry
        if entry is None:
            return (self.replaced or list(self.frame.inputs.named())) if self.kind == "call" else []
        found = [(f"args[{i}]{slot}", code) for i, arg in enumerate(entry.args) for slot, code in slots_of_code(arg)]
        found += [
            (_joined(name, slot), code) for name, arg in entry.kwargs.items() for slot, code in slots_of_code(arg)
        ]
        return [(slot, self._run.value_before(code, self.number)) for slot, code in found]

    @property
    def results(self) -> Slots:
        """The tensors that came out; none where a call begins."""
        if self.kind == "call":
            return []
        if self.replaced is not None:
            return self.replaced
        if self.gradient is not None:
            return [("", self.gradient[1])]
        entry = self._op_entry
        if entry is None:
            outputs = self.frame.outputs or self._run.outputs_now(self)
            return [] if outputs is None else list(outputs.named())
        made = list(zip([slot for slot, _ in slots_of_code(result_in(entry.out))], entry.values))
        return made or [("", value) for _, value in entry.writes]  # x[0] = 1 returns nothing

    def number_of(self, measure: str) -> float | int | None:
        """Return the duration of a call that has ended."""
        return self.frame.duration if measure == "duration" and self.kind == "return" and self.frame.duration else None


def slots_of_code(code: Any, slot: str = "") -> Iterator[tuple[str, TensorId]]:
    """Yield the tensors in a code of a tape with their slots, named as in records."""
    kind = type(code)
    if kind is TensorId:
        yield slot, code
    elif kind in (tuple, list):
        for position, item in enumerate(code):
            yield from slots_of_code(item, f"{slot}[{position}]")
    elif kind is dict:
        for key, item in code.items():
            yield from slots_of_code(item, _joined(slot, str(key)))
    elif kind is Struct:
        keys = code.keys or range(len(code.items))
        for key, item in zip(keys, code.items):
            yield from slots_of_code(item, _joined(slot, key) if isinstance(key, str) else f"{slot}[{key}]")


def _joined(slot: str, key: str) -> str:
    if key.startswith("["):
        return slot + key
    return f"{slot}.{key}" if slot and key else slot or key
