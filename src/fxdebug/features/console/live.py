"""A live run as a machine: the forward is paused in its own thread, and continues when the machine does.

Behind the present moment lies what was recorded; going back there shows statistics, and tensors as long as the program
keeps them. Only at the present moment can something be changed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from fxdebug.capture.probe import Moment, PausedRun, members
from fxdebug.comparison.tolerance import error_between, tolerance_of
from fxdebug.data.calls import Call
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves
from fxdebug.errors import LoadError, NotFound, UsageError, nearest
from fxdebug.features.console.machine import NameKind, Stop, Until
from fxdebug.query.network import network_of

_NUMBER = re.compile(r"_\d+$")


class LiveMachine:
    """Steps through a forward that runs, and through its backward if the run has one."""

    def __init__(self, run: PausedRun) -> None:
        self.run = run
        self._at = 0
        self._begin: dict[int, int] = {}  # index of a call → number of the moment where it begins
        self._of_op: dict[tuple[int, str], int] = {}  # index of a call, name of an operation in it → that of the moment
        self._read = 0  # moments that are in these two
        self._parts: tuple[tuple[int, int, int], Mapping[str, Value]] | None = None  # what a call has made, and when
        self._trace: tuple[int, TraceData] | None = None
        self._names = {path: type(module).__name__ for path, module in members.named_modules_of(run.model)}
        self.bound: dict[str, object] = {}  # names that an expression of `set` may use besides

    @property
    def _moments(self) -> list[Moment]:
        return self.run.pauses.moments

    # Where it stands -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The class of the model."""
        return type(self.run.model).__name__

    @property
    def stop(self) -> Moment:
        """The moment at which it stands."""
        return self._moments[self._at]

    @property
    def count(self) -> int | None:
        """The number of stops once the run is over."""
        return len(self._moments) if self.run.over else None

    @property
    def frames(self) -> Sequence[Moment]:
        """The ``call`` stops of the open calls, the model's own first."""
        self._read_moments()
        frame, found = self.stop.frame, []
        while frame is not None:
            found.append(self._moments[self._begin[frame.index]])
            frame = frame.parent  # type: ignore[assignment]
        return found[::-1]

    @property
    def ended(self) -> bool:
        """Is it at the last stop?"""
        return self._is_last and self._at == len(self._moments) - 1

    @property
    def _is_last(self) -> bool:
        """Is the present moment of the run its last one?"""
        last = self._moments[-1]
        return self.run.over or (last.kind == "return" and last.frame.parent is None and not self.run.has_backward)

    @property
    def is_present(self) -> bool:
        """Does it stand where the forward does?"""
        return not self.run.over and self._at == len(self._moments) - 1

    @property
    def interrupted(self) -> bool:
        """Did Ctrl-C end the last movement?"""
        return self.run.interrupted

    def _read_moments(self) -> None:
        for moment in self._moments[self._read :]:
            if moment.kind == "call":
                self._begin[moment.frame.index] = moment.number
            elif moment.kind == "op" and moment.gradient is None:
                self._of_op[moment.frame.index, moment.op_name] = moment.number
        self._read = len(self._moments)

    # Moving ----------------------------------------------------------------------------------------

    def forward(self, until: Until) -> bool:
        """Go on to the next stop where ``until`` holds: through what was recorded, then with the forward itself."""
        for number in range(self._at + 1, len(self._moments)):
            self._at = number
            if until(self._moments[number]):
                return True
        if self._is_last:
            return False

        def arrived(moment: Moment) -> bool:
            self._at = moment.number
            return until(moment)

        try:
            return self.run.go(arrived)
        finally:
            self._at = len(self._moments) - 1

    def backward(self, until: Until) -> bool:
        """Go back to the nearest stop where ``until`` holds, or to the beginning."""
        before = self._at
        try:
            for number in range(self._at - 1, -1, -1):
                self._at = number
                if until(self._moments[number]):
                    return True
        except BaseException:
            self._at = before
            raise
        return False

    def goto(self, number: int) -> None:
        """Stand at a stop; one that the forward has not reached yet is run to."""
        if number < 0:
            raise UsageError("there is no stop 0: the first is 1")
        if number >= len(self._moments):
            self.forward(lambda stop: stop.number >= number)
            if self.stop.number < number:
                raise UsageError(f"there is no stop {number + 1}: this run has {len(self._moments)}")
            return
        self._at = number

    def find_stop(self, name: str) -> int:
        """Return the number of the stop of an operation, or of the beginning of a call."""
        for moment in self._moments:
            if moment.kind == "op" and name == moment.id:
                return moment.number
            if moment.kind == "call" and name in (moment.id, moment.call_id, *moment.paths):
                return moment.number
        if name in self._names and not self._is_last:
            raise UsageError(f"{name!r} was not called yet: continue {name} goes there")
        known = [*self._names, *(moment.id for moment in self._moments)]
        raise NotFound(f"nothing in this run is called {name!r}.{nearest(name, known)}")

    # The run ---------------------------------------------------------------------------------------

    def operations(self, frame: Stop) -> Sequence[Moment]:
        """Return the operations of a call, and the ends of the calls that it made, as far as they ran."""
        assert isinstance(frame, Moment)
        own = frame.frame
        return [
            moment
            for moment in self._moments[self._first(frame) :]
            if (moment.kind == "op" and moment.frame is own and moment.gradient is None)
            or (moment.kind == "return" and moment.frame.parent is own)
        ]

    def _first(self, frame: Moment) -> int:
        self._read_moments()
        return self._begin.get(frame.frame.index, 0)

    def has_operations(self, frame: Stop) -> bool:
        """Are the operations of a call noted?"""
        assert isinstance(frame, Moment)
        tape = self.run.tape_of(frame)
        return tape is not None and tape.unobserved is None and bool(tape.entries)

    def values(self, frame: Stop) -> Mapping[str, Value]:
        """Return the tensors that exist in a call at the present stop, by name."""
        assert isinstance(frame, Moment)
        found = {slot: value for slot, value in frame.inputs if slot}
        for position, name in enumerate(self.run.argument_names(frame)):
            if f"args[{position}]" in found:
                found[name] = found[f"args[{position}]"]
        return {**found, **self._in_graph(frame)}

    def value(self, frame: Stop, name: str) -> Value | None:
        """Return the tensor of a name in a call at the present stop.

        Arguments and operations are looked up; the graph of the call so far is only made for other names in it.
        """
        assert isinstance(frame, Moment)
        given = dict(frame.inputs)
        names = self.run.argument_names(frame)
        slot = f"args[{names.index(name)}]" if name in names else name
        if slot in given:
            return given[slot]
        self._read_moments()
        number = self._of_op.get((frame.frame.index, name))
        if number is not None:
            found = [value for _, value in self._moments[number].results] if number <= self._at else []
            return found[0] if found else None
        return self._in_graph(frame).get(name) if self._may_be_in_graph(name) else None

    def _may_be_in_graph(self, name: str) -> bool:
        """May a name be one of a part of a result, of a call, or of a weight?"""
        base = _NUMBER.sub("", name)
        return base == "getitem" or base in self._relative or name in self._relative

    @functools.cached_property
    def _relative(self) -> set[str]:
        """Names of modules, parameters and buffers as the calls around them see them, as paths and as in graphs."""
        model = self.run.model
        paths = [
            *self._names,
            *(n for n, _ in members.named_parameters_of(model)),
            *(n for n, _ in members.named_buffers_of(model)),
        ]
        parts = [path.split(".")[i:] for path in paths for i in range(path.count(".") + 1)]
        return {sign.join(part) for part in parts for sign in "._"}

    def _in_graph(self, frame: Moment) -> Mapping[str, Value]:
        tape = self.run.tape_of(frame)
        key = (frame.frame.index, self._at, 0 if tape is None else len(tape.entries))
        if self._parts is None or self._parts[0] != key:
            self._parts = key, self.run.values_in(frame, self._at)
        return self._parts[1]

    def now(self, value: Value) -> Value:
        """Return the version of a tensor at the present stop."""
        return self.run.pauses.version_at(value, self._at)

    def weight(self, name: str) -> Value | None:
        """Return the present state of a parameter or buffer, by its name in the model."""
        return self.run.weight(name)

    def tensor(self, value: Value) -> torch.Tensor:
        """Return the data of a value; raises ``LoadError`` if the program has let go of it."""
        if value.number in self.bound_values:
            return self.bound_values[value.number]
        tensor = self.run.tensor(value.number)
        if tensor is None:
            raise LoadError(
                f"the data of value {value.number} ({value.label}) is gone: the forward has gone on. "
                "Its statistics are known; stop earlier to look at its data"
            )
        return tensor

    @property
    def bound_values(self) -> Mapping[int, Tensor]:
        """The tensors that go on from the present stop, by the numbers of their values."""
        moment = self._moments[-1]
        if not self.is_present or moment.replaced is None:
            return {}
        return {
            value.number: tensor
            for (_, value), (_, tensor) in zip(moment.replaced, self.run.pauses.tensors_now(moment))
        }

    def objects(self, frame: Stop) -> Mapping[str, object]:
        """Return the module as ``self``, the whole model as ``model``, and the arguments where a call begins."""
        assert isinstance(frame, Moment)
        found: dict[str, object] = {"model": self.run.model, **self.bound}
        module = self.run.module_at(frame.frame)
        if module is not None:
            found["self"] = module
        if self.is_present and self.stop.kind == "call" and frame.frame is self.stop.frame:
            found["args"], found["kwargs"] = self.run.pauses.content
        return found

    def evaluating(self) -> AbstractContextManager[object]:
        """Return the block in which an expression is run: a session that is quit puts back what it writes to."""
        return self.run.evaluating()

    def source_text(self, source: str) -> str | None:
        """Return the text of a line of the program."""
        return self.run.source_text(source)

    def known_names(self, kind: NameKind) -> Collection[str]:
        """Return the paths and classes of the model's modules, and the operations that torch has."""
        if kind == "path":
            return self._names.keys() | {path for moment in self._moments for path in moment.paths}
        if kind == "class":
            return set(self._names.values())
        ran = {moment.op for moment in self._moments if moment.kind == "op"}
        return {Moment.GRADIENT, *ran, *_TORCH}

    @property
    def knows_all_names(self) -> bool:
        """Names are known when the run is over."""
        return self.run.over

    @property
    def trace(self) -> TraceData:
        """The run as recorded up to now."""
        count = len(self._moments)
        if self._trace is None or (self._trace[0] != count and not self.run.running) or self.run.over:
            self._trace = (count, self.run.trace())
        return self._trace[1]

    def call_of(self, frame: Stop) -> Call | None:
        """Return the record of a call."""
        assert isinstance(frame, Moment)
        calls = self.trace.calls
        return calls[frame.frame.index] if frame.frame.index < len(calls) else None

    def differs_from(self, reference: TraceData) -> Until:
        """Return a condition that holds where a result differs from that of another run by more than rounding."""
        nodes = network_of(reference).nodes

        def differs(stop: Stop) -> bool:
            if stop.kind == "call" or stop.op == Moment.GRADIENT:
                return False
            node = nodes.get(stop.id)
            if node is None:
                return False
            item = node.item if stop.kind == "op" or node.call.outputs is None else node.call.outputs.item
            pairs = list(zip([value for _, value in leaves(item)], [value for _, value in stop.results]))
            return any(_differ(ours, theirs) for theirs, ours in pairs)

        return differs

    # Changing what goes on -----------------------------------------------------------------------

    def require_present(self) -> None:
        """Raise ``UsageError`` where nothing can be changed."""
        if self.run.over:
            raise UsageError("the run is over: nothing can be changed any more")
        if not self.is_present:
            raise UsageError(
                f"this is a past stop, and the forward stands at stop {len(self._moments)}: "
                f"goto {len(self._moments)} leads there, and only there can something be changed"
            )

    def inside(self, function: Callable[[], Any]) -> Any:
        """Run a function in the thread of the paused forward."""
        return self.run.pauses.inside(function)

    def close(self) -> None:
        """Let the run go: one that has reached its end returns, any other ends here and leaves nothing changed."""
        if self._is_last:
            self.run.finish()
        else:
            self.run.quit()


def _differ(ours: Value, theirs: Value) -> bool:
    if ours.shape != theirs.shape:
        return True
    error = error_between(theirs.stats, ours.stats)
    return error is not None and error > tolerance_of(theirs.dtype, ours.dtype)


_TORCH = frozenset(
    name
    for owner in (torch, torch.nn.functional, Tensor)
    for name in dir(owner)
    if not name.startswith("_") and callable(getattr(owner, name, None)) and name.islower()
) | {"add", "sub", "mul", "truediv", "matmul", "getitem", "setitem", "pow", "neg"}
