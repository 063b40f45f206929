"""Time every torch function of a run that is not recorded, and the backward of each.

The functions are seen by a ``TorchFunctionMode`` that notes two clock readings for each. Where a mode would switch off
a fused kernel, it is taken off the thread's stack, as the tape is: the operations in there are not timed.
The backward of a function are the nodes of autograd's graph that it added; hooks on these note when each begins and
ends. They change neither results nor gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fxdebug.capture.probe import MeasuringMode, is_in_transform
from fxdebug.features.shared.times.call_times import CallTimes, Clock
from fxdebug.operators.autograd_nodes import new_nodes


@dataclass(slots=True)
class TimedOp:
    """One torch function: its name, the position of the call it ran in, when it ran, and its backward's readings."""

    name: str
    call: int | None
    begin: Any
    end: Any
    backward: list[tuple[Any, Any]] = field(default_factory=list)


class OpTimes(MeasuringMode):
    """Notes when each torch function of the thread that runs the model began and ended.

    ``calls`` is the observer that knows the call which is open. ``backward``: also put hooks on the nodes of autograd.
    """

    def __init__(self, calls: CallTimes, clock: Clock, *, backward: bool) -> None:
        super().__init__(calls.path)
        self.ops: list[TimedOp] = []
        self._calls = calls
        self._now = clock
        self._backward = backward
        self._hooked: set[Any] = set()

    def before_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, Any]:
        """Return the open call and the time."""
        return self._calls.innermost(), self._now()

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        """Note when an operation began and ended."""
        if before is None:
            return
        call, begin = before
        op = TimedOp(self.name_of(func), call, begin, self._now())
        self.ops.append(op)
        if self._backward and not is_in_transform():
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                    self._hook(tensor.grad_fn, op)

    def _hook(self, node: Any, op: TimedOp) -> None:
        """Put hooks on the nodes of autograd's graph that were added since the last operation."""
        for new in new_nodes(node, self._hooked):
            begins: list[Any] = []

            def began(*_: Any, begins: list[Any] = begins) -> None:
                begins.append(self._now())

            def ended(*_: Any, begins: list[Any] = begins) -> None:
                op.backward.append((begins.pop(), self._now()))

            new.register_prehook(self.guard.hook("the time of a backward", began))
            new.register_hook(self.guard.hook("the time of a backward", ended))

    def forget(self) -> None:
        """Let go of autograd's graph."""
        self._hooked.clear()
