"""``trace_forwards``: trace each forward that a program makes in a block, such as one step of a training loop."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

from torch import nn

from fxdebug.api.run_model import RunOptions, check_values, stored_run
from fxdebug.api.trace import Trace
from fxdebug.capture.hooks.patch import OwnAttribute
from fxdebug.capture.runs.root_forward import root_forward
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.data.values import Keeping
from fxdebug.errors import UsageError
from fxdebug.store.tensors.shards import WAITING_BYTES


class _Forwards:
    """Traces each forward of a model in the thread that made this; forwards of other threads run as they are."""

    def __init__(self, model: nn.Module, method: str, keeping: RunOptions, most: int | None) -> None:
        self.traces: list[Trace] = []
        self._model, self._method, self._keeping = model, method, keeping
        self._begun, self._most = 0, most
        self._thread = get_ident()
        self.patch: OwnAttribute = root_forward(model, method, self._around)

    @uncounted
    def _around(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if get_ident() != self._thread:
            return run(*args, **kwargs)
        self.patch.restore()
        self._begun += 1
        try:
            keeping: RunOptions = {**self._keeping, "save": self._next_folder()}
            trace, ran = stored_run(self._target, self._model, args, kwargs, self._method, keeping, graph=True)
        finally:
            if self._most is None or self._begun < self._most:
                self.patch.put()
        self.traces.append(trace)
        if ran.raised is not None:
            raise ran.raised
        return ran.output

    @uncounted
    def _target(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._model, self._method)(*args, **kwargs)

    def _next_folder(self) -> Path | None:
        """Return the folder of the next forward: further ones have their number behind the name of the first."""
        save = self._keeping.get("save")
        if save is None:
            return None
        number, folder = len(self.traces), Path(save)
        return folder if not number else folder.with_name(f"{folder.name}-{number}")


@contextlib.contextmanager
def trace_forwards(
    model: nn.Module,
    *,
    save: str | os.PathLike[str] | None = None,
    values: Keeping = "stats",
    method: str = "forward",
    budget: int = WAITING_BYTES,
    most: int | None = None,
) -> Iterator[list[Trace]]:
    """Trace each forward that the program makes of a model in this block; the list of traces grows with them.

    The forwards run once, as they would have run, and the program gets their results: gradients flow through them.
    ``save`` is the folder of the first run; those of further forwards have a number behind its name. ``values`` and
    ``budget`` are those of :func:`fxdebug.fx_debug`. ``method`` is the method that the program calls, if it is not
    ``forward``. After the first ``most`` forwards, further ones run as they are. A forward that raises leaves a partial
    trace in the list, and its exception passes through. Forwards in other threads are not traced.
    Raises ``UsageError`` for arguments that cannot work, and ``SaveError`` where a run cannot be written.

    >>> import torch, fxdebug
    >>> model = torch.nn.Linear(2, 1)
    >>> with fxdebug.trace_forwards(model) as traces:
    ...     model(torch.ones(3, 2)).sum().backward()
    >>> len(traces), traces[0].root.outputs[0].shape, model.weight.grad.shape
    (1, (3, 1), torch.Size([1, 2]))
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"trace_forwards needs a torch.nn.Module, not {type(model).__name__}")
    check_values(values)
    if not callable(getattr(model, method, None)):
        raise UsageError(f"{type(model).__name__} has no method {method!r}")
    if most is not None and most < 1:
        raise UsageError(f"most={most}: give the number of forwards to trace, at least 1")
    keeping: RunOptions = {"save": save, "values": values, "budget": budget, "progress": False}
    forwards = _Forwards(model, method, keeping, most)
    forwards.patch.put()
    try:
        yield forwards.traces
    finally:
        forwards.patch.restore()
