"""A paused run: the forward runs in a separate thread, and waits there while it is inspected.

The thread has the state of the one that starts it: context variables, gradient mode, autocast, modes, devices. What a
forward sets for good (a context variable, the gradient mode) is handed back when it is over.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from queue import Empty
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.graphs.from_tape import template_of_tape
from fxdebug.capture.graphs.to_fx import FxBuild
from fxdebug.capture.hooks.patch import Setting, SharedPatch
from fxdebug.capture.pausing.held_state import HeldState
from fxdebug.capture.pausing.moments import Moment
from fxdebug.capture.pausing.waiting_thread import Ended, Pauses, Quit, Until
from fxdebug.capture.recorder.frame import Frame, to_call
from fxdebug.capture.runnable_graphs.graphs_of_run import GraphsSoFar
from fxdebug.capture.runnable_graphs.node_values import NodeValues
from fxdebug.capture.runs.build_trace import Options, versions
from fxdebug.capture.runs.run_once import run_once
from fxdebug.capture.runs.same_start import StartState
from fxdebug.capture.source.source_line import user_line
from fxdebug.capture.source.source_text import SourceText
from fxdebug.capture.tape.call_tape import CallTape
from fxdebug.capture.torch_state.carried_state import CarriedState
from fxdebug.capture.torch_state.internals import set_grad_enabled
from fxdebug.capture.torch_state.module_members import named_modules_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.data.trace import TraceData
from fxdebug.data.values import Value, leaves

STACK = 64 * 1024 * 1024  # bytes: deep models need more than some systems give a thread
_stack_size = SharedPatch(
    Setting("threading.stack_size", threading.stack_size, threading.stack_size, lambda before: STACK)
)
SECONDS_TO_END = 30.0  # for an operation that runs while the session is quit


class PausedRun:
    """One run of a model, paused at its first moment when it is made: the call of the model begins.

    ``target`` is called with the arguments; ``backward`` gets what it returned, and runs the backward. ``moment`` is
    the present moment; ``over`` says that the run is. ``error`` is what the model raised.

    >>> import fxdebug
    >>> run = fxdebug.api.paused_run(nn.ReLU(), torch.ones(2))
    >>> run.go(lambda moment: moment.kind == "op"), run.moment.op
    (True, 'relu')
    >>> run.quit()
    """

    def __init__(
        self,
        target: Callable[..., Any],
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        settings: Mapping[str, Any],
        backward: Callable[[Any], None] | None = None,
    ) -> None:
        self._carried = CarriedState()
        self.model = model
        self.over = False
        self.running = True  # does it run, or is it paused? It still runs after an interrupt, too
        self.interrupted = False  # did Ctrl-C end the last movement?
        self.error: BaseException | None = None
        line = user_line(sys._getframe(1), {})
        self.pauses = Pauses(gradients=backward is not None, caller=line)
        self._backward = backward
        self._settings = settings
        self._recorded: TraceData | None = None
        self._failure: BaseException | None = None  # of ours
        self._arguments = target, args, kwargs
        self._lines = SourceText(())
        self._options = Options(graph=True, stepper=self.pauses)
        self._start = StartState(model)
        self._held = self.pauses.held = HeldState(model, (args, kwargs))
        self._gradients = _gradients_of(model, copies=backward is not None)
        self._context = contextvars.copy_context()
        self.pauses.until = lambda moment: True
        self._thread = self._started()
        self.go(None)  # to the first moment

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._context.run, args=(self._run,), name="fxdebug run", daemon=True)
        with _stack_size.block():
            thread.start()
        return thread

    # In its own thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        target, args, kwargs = self._arguments
        backward = self._backward

        def forward_and_backward(*args: Any, **kwargs: Any) -> Any:
            output = target(*args, **kwargs)
            backward(output)  # type: ignore[misc]
            return output

        called = target if backward is None else forward_and_backward
        try:
            with self._carried.put():
                ran = run_once(called, self.model, args, kwargs, self._options, self._settings)
                self._recorded, self.error = ran.trace, ran.raised
        except BaseException as error:
            self._failure = error
        finally:
            self.pauses.remove_hooks()
            self.pauses.arrivals.put(Ended())
            self.pauses.present = Ended()

    # In the thread that looks at it ------------------------------------------------------------------

    @property
    def has_backward(self) -> bool:
        """Does the run go on with a backward?"""
        return self._backward is not None

    @property
    def moment(self) -> Moment:
        """The present moment; after the run the last one."""
        return self.pauses.moments[-1]

    def go(self, until: Until | None) -> bool:
        """Let the run go on to the next moment where ``until`` is true, or to its end; return whether it is there.

        Ctrl-C pauses it at the next moment. Raises what ``until`` raised: the run is then paused there.
        """
        if self.over:
            return False
        if not self.running:
            self.pauses.until = until
            self.pauses.release()
        self.running = True
        self.interrupted = False
        try:
            arrived = self._next_arrival()
        except KeyboardInterrupt:  # pause at the next moment; a second interrupt no longer waits for it
            self.pauses.pause_soon = self.interrupted = True
            arrived = self._next_arrival()
        self.running = False
        if isinstance(arrived, Ended):
            self._end()
            return False
        if self.pauses.failed is not None:
            raise self.pauses.failed
        return self.pauses.passed_until

    @property
    def place(self) -> str:
        """The id of the call or operation whose edit is made at the present moment."""
        moment = self.moment
        op = moment.id.rpartition("/")[2] if moment.kind == "op" else ""
        return f"{moment.call_id}/{op}" if op else moment.call_id

    def source_text(self, source: str) -> str | None:
        """Return the text of a line of the program."""
        return self._lines.get(source)

    def _next_arrival(self) -> Moment | Ended:
        """Wait for the next arrival and look for signals meanwhile: Ctrl-C may come right before Python waits.

        An interrupt may also come between an arrival and its receipt, which is lost then: the run waits there.
        """
        arrivals = self.pauses.arrivals
        while True:
            try:
                return arrivals.get(timeout=0.2)
            except Empty:
                present = self.pauses.present
                if present is not None:
                    while not arrivals.empty():
                        arrivals.get_nowait()
                    return present

    def evaluating(self) -> AbstractContextManager[object]:
        """Return the block in which a typed line is run: a run that is quit puts back what it writes to."""
        return nullcontext() if self.over else self._held.watching()

    def finish(self) -> TraceData | None:
        """Let the run go on to its end, with no further pause; return its trace."""
        while not self.over:
            self.go(None)
        return self._recorded

    def quit(self) -> None:
        """End the run where it is, and put back what it changed: random state, weights, what model and inputs hold."""
        if self.over:
            return
        self.pauses.quitting = True
        if not self.running:
            self.pauses.release()
        self._await_end()
        self._end(handed_back=False)
        if isinstance(self.error, Quit):
            self.error = None
        self._held.restore()
        self._start.restore()
        for parameter, gradient, content in self._gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
            if gradient is not None and content is not None:
                with torch.no_grad():
                    gradient.copy_(content)

    def _await_end(self) -> None:
        while True:
            try:
                if isinstance(self.pauses.arrivals.get(timeout=SECONDS_TO_END), Ended):
                    return
                self.pauses.release()
            except Empty:  # an operation that does not come back: the thread ends with the process
                return

    def _end(self, *, handed_back: bool = True) -> None:
        self.over = True
        self._thread.join(SECONDS_TO_END)
        if self._failure is not None:
            raise self._failure
        if not handed_back:
            return
        set_grad_enabled(self._carried.grad_after)
        for variable, value in self._context.items():
            if variable.get(None) is not value:
                variable.set(value)

    # What is known -----------------------------------------------------------------------------------

    def trace(self) -> TraceData:
        """Return the run as a trace: after its end the whole one, before what was recorded up to now."""
        return self._so_far() if self._recorded is None else self._recorded

    def _so_far(self) -> TraceData:
        recorder = self.pauses.recorder
        frames = list(recorder.frames)
        tape = recorder.tape
        calls = tuple([to_call(frame) for frame in frames])
        graphs = None if tape is None else GraphsSoFar(self.model, tape, recorder.values)
        return TraceData(
            model=frames[0].site.type,
            calls=calls,
            values=tuple(recorder.values.all),
            modules=dict(self._modules()),
            notes=tuple(recorder.notes),
            versions=versions(),
            settings=self._settings,
            graph_source=graphs,
            source_lines=SourceText({call.source for call in calls}),
        )

    def _modules(self) -> dict[str, str]:
        return {path: type(module).__name__ for path, module in named_modules_of(self.model)}

    def tape_of(self, moment: Moment) -> CallTape | None:
        """Return the tape of the call of a moment."""
        tape = self.pauses.recorder.tape
        return None if tape is None else tape.call_tapes.get(moment.frame.index)

    def values_in(self, call: Moment, at: int) -> dict[str, Value]:
        """Return the results of the operations of a call up to a moment, and what it read, by their names."""
        tape = self.tape_of(call)
        if tape is None or tape.unobserved is not None:
            return {}
        values = self.pauses.recorder.values
        template, tensor_ids = template_of_tape(tape, values)
        build = FxBuild(template)
        last = max((m.entry for m in self.pauses.moments[: at + 1] if m.call_tape is tape), default=-1)
        found: dict[str, Value] = {}
        for node, item in NodeValues(build, tape, tensor_ids, values).items().items():
            index = build.entry_of.get(
                node, build.entry_of.get(build.part_of[node][0]) if node in build.part_of else None
            )
            value = next((value for _, value in leaves(item)), None)
            if value is not None and (index is None or index <= last):
                found[node.name] = value
                if node.op == "get_attr":
                    found[str(node.target)] = value
        return found

    def weight(self, name: str) -> Value | None:
        """Return the present state of a parameter or buffer, by its name in the model."""
        owner, _, own = name.rpartition(".")
        module = dict(named_modules_of(self.model)).get(owner)
        tensor = None if module is None else module._parameters.get(own, module._buffers.get(own))
        if tensor is None:
            return None
        with untracked():
            return self.pauses.recorder.values.value_of(tensor, keep=False)

    def module_at(self, frame: Frame) -> nn.Module | None:
        """Return the module of a call, where it has one in the model."""
        return frame.module or dict(named_modules_of(self.model)).get(frame.site.path)

    def argument_names(self, moment: Moment) -> list[str]:
        """Return the names of the positional arguments of the call of a moment."""
        module = self.module_at(moment.frame)
        try:
            parameters = inspect.signature(type(module).forward).parameters if module is not None else {}
        except (TypeError, ValueError):
            parameters = {}
        return list(parameters)[1:]  # the first is the module

    def tensor(self, number: int) -> Tensor | None:
        """Return the tensor of a value by its number, if it is alive and unchanged."""
        for ref in list(self.pauses.recorder.values.refs.values()):
            if ref.value.number == number:
                tensor = ref()
                if tensor is not None and (ref.version is None or ref.version == tensor._version):
                    return tensor
        return None


def _gradients_of(model: nn.Module, *, copies: bool) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Return the parameters with their gradients, and copies of these for a backward, which adds to them."""
    return [
        (parameter, parameter.grad, None if parameter.grad is None or not copies else parameter.grad.detach().clone())
        for parameter in parameters_of(model)
    ]
