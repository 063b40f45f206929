"""Time every torch function of a run that is not recorded, and the backward of each.

The functions are seen by a ``TorchFunctionMode`` that notes two clock readings for each. Where a mode would switch off
a fused kernel, it is taken off the thread's stack, as the tape is: the operations in there are not timed.
The backward of a function are the nodes of autograd's graph that it added; hooks on these note when each begins and
ends. They change neither results nor gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fxdebug.capture.probes.autograd_nodes import new_nodes
from fxdebug.capture.probes.call_times import CallTimes, Clock
from fxdebug.capture.tape.op_traits import METADATA, function_name
from fxdebug.capture.torch_state.callers_frame import as_called_there
from fxdebug.capture.torch_state.mode_stack import allows_mode_around, without_mode
from fxdebug.capture.torch_state.uncounted import uncounted


@dataclass(slots=True)
class TimedOp:
    """One torch function: its name, the position of the call it ran in, when it ran, and its backward's readings."""

    name: str
    call: int | None
    begin: Any
    end: Any
    backward: list[tuple[Any, Any]] = field(default_factory=list)


class OpTimes(TorchFunctionMode):
    """Notes when each torch function of the thread that runs the model began and ended.

    ``calls`` is the observer that knows the call which is open. ``backward``: also put hooks on the nodes of autograd.
    """

    def __init__(self, calls: CallTimes, clock: Clock, *, backward: bool) -> None:
        super().__init__()
        self.ops: list[TimedOp] = []
        self._calls = calls
        self._now = clock
        self._backward = backward
        self._owner = get_ident()
        self._hooked: set[Any] = set()

    @uncounted
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA or get_ident() != self._owner:
            return func(*args, **(kwargs or {}))
        call, begin = self._calls.innermost(), self._now()
        result = as_called_there(func, args, kwargs)
        op = TimedOp(function_name(func), call, begin, self._now())
        self.ops.append(op)
        if self._backward:
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                    self._hook(tensor.grad_fn, op)
        return result

    def _hook(self, node: Any, op: TimedOp) -> None:
        """Put hooks on the nodes of autograd's graph that were added since the last operation."""
        for new in new_nodes(node, self._hooked):
            begins: list[Any] = []
            new.register_prehook(lambda *_, begins=begins: begins.append(self._now()))
            new.register_hook(lambda *_, begins=begins: op.backward.append((begins.pop(), self._now())))

    def around(self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward; without this mode where it would switch off a fused kernel."""
        if get_ident() != self._owner or allows_mode_around(module):
            return run(*args, **kwargs)
        return without_mode(self, run, args, kwargs)[0]

    def forget(self) -> None:
        """Let go of autograd's graph."""
        self._hooked.clear()
