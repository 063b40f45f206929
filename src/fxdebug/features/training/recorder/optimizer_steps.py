"""See the steps of optimizers: by hooks of the one that is known, else by one pair of hooks for all optimizers.

The hooks for all optimizers lie in one table, which every step of every thread reads: a step raises where another
thread changes the table meanwhile. So all watchers share one pair. It is added with the first of them, and taken out
with the last one only where no other living thread has made a step; else it stays, and does nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fxdebug.capture.probe import untracked

Look = Callable[[Optimizer, FrameType], None]  # the frame is that of the step


class OptimizerSteps:
    """Calls ``before`` and ``after`` around each step of ``optimizer``, or of every optimizer, while it is put.

    ``hooked`` is the optimizer that carries the hooks: that inside a wrapper which does not call any itself. It is
    ``None`` where the steps of all are seen.
    """

    def __init__(self, optimizer: Optimizer | None, before: Look, after: Look) -> None:
        candidates = (optimizer, getattr(optimizer, "optimizer", None))  # accelerate's wrapper
        self.hooked: Optimizer | None = next(filter(_calls_hooks, candidates), None)
        self._before, self._after = before, after
        self._handles: list[Any] = []
        self.is_put = False

    def put(self) -> None:
        """See steps from now on."""
        if self.is_put:
            return
        self.is_put = True
        if self.hooked is None:
            _of_all.begin(self)
        else:
            self._handles = [
                self.hooked.register_step_pre_hook(self.before),
                self.hooked.register_step_post_hook(self.after),
            ]

    def remove(self) -> None:
        """See no more steps; everything is as before."""
        if self.hooked is None:
            _of_all.end(self)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.is_put = False

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Tell that a step begins: a hook of torch's."""
        self._before(optimizer, sys._getframe(1))

    def after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Tell that a step is over: a hook of torch's."""
        self._after(optimizer, sys._getframe(1))

    def tell(self, optimizer: Optimizer, step: FrameType, *, over: bool) -> None:
        """Tell of a step of any optimizer."""
        (self._after if over else self._before)(optimizer, step)


def _calls_hooks(optimizer: Any) -> bool:
    return (
        isinstance(optimizer, Optimizer)
        and "_optimizer_step_pre_hooks" in vars(optimizer)
        and bool(getattr(type(optimizer).step, "hooked", False))
    )


class _OfAll:
    """The one pair of hooks for all optimizers, and the watchers that it tells."""

    def __init__(self) -> None:
        self.users: tuple[OptimizerSteps, ...] = ()
        self._lock = threading.RLock()
        self._handles: list[Any] = []
        self._threads: set[int] = set()  # that made steps

    def begin(self, user: OptimizerSteps) -> None:
        with self._lock:
            self.users = (*self.users, user)
            if not self._handles:
                self._handles.append(register_optimizer_step_pre_hook(self._before))
                self._handles.append(register_optimizer_step_post_hook(self._after))

    def end(self, user: OptimizerSteps) -> None:
        with self._lock:
            self.users = tuple([other for other in self.users if other is not user])
            if self.users or self._threads & sys._current_frames().keys() - {get_ident()}:
                return
            self._threads.clear()
            while self._handles:
                self._handles.pop().remove()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._threads.add(get_ident())
        for user in self.users:
            user.tell(optimizer, sys._getframe(1), over=False)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for user in self.users:
            user.tell(optimizer, sys._getframe(1), over=True)


_of_all = _OfAll()


def steps_made(optimizer: Optimizer) -> int | None:
    """Return the steps that an optimizer has made, as its state counts them; ``None`` where it does not count them.

    >>> import torch
    >>> weight = torch.ones(2, requires_grad=True)
    >>> adam, sgd = torch.optim.Adam([weight]), torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    >>> steps_made(adam), steps_made(sgd)
    (0, 0)
    >>> weight.sum().backward()
    >>> adam.step(), sgd.step()
    (None, None)
    >>> steps_made(adam), steps_made(sgd)
    (1, None)
    """
    if not optimizer.state:
        return 0
    with untracked():
        counts = [one["step"] for one in optimizer.state.values() if isinstance(one, dict) and "step" in one]
        try:
            return max(map(int, counts), default=None)
        except (TypeError, ValueError, RuntimeError):  # an optimizer of its own keeps something else there
            return None
