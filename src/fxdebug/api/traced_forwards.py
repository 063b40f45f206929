"""``trace_forwards``: trace each forward that a program makes in a block, such as one step of a training loop."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any

from torch import nn

from fxdebug.api.run_model import remember, settings_of
from fxdebug.api.run_store import RunStore
from fxdebug.api.trace import Trace
from fxdebug.capture.hooks.collect_less_often import collect_less_often
from fxdebug.capture.hooks.patch import OwnAttribute
from fxdebug.capture.runs.run_once import run_once
from fxdebug.capture.torch_state import distributed
from fxdebug.capture.torch_state.uncounted import uncounted
from fxdebug.capture.training.root_forward import root_forward
from fxdebug.data.values import VALUES, Keeping
from fxdebug.errors import UsageError
from fxdebug.store.rank_folders import rank_folder


class _Forwards:
    """Traces each forward of a model in the thread that made this; forwards of other threads run as they are."""

    def __init__(self, model: nn.Module, method: str, folder: Path | None, values: Keeping, budget: int) -> None:
        self.traces: list[Trace] = []
        self._model, self._method, self._folder = model, method, folder
        self._values, self._budget = values, budget
        self._thread = get_ident()
        self.patch: OwnAttribute = root_forward(model, method, self._around)

    @uncounted
    def _around(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if get_ident() != self._thread:
            return run(*args, **kwargs)
        self.patch.restore()
        try:
            return self._traced(args, kwargs)
        finally:
            self.patch.put()

    @uncounted
    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rank = distributed.rank_and_size()
        store = RunStore(self._next_folder(rank[0] if rank else None), self._values, self._budget)
        settings = settings_of(values=self._values, method=self._method, prune=False, rank=rank)
        try:
            with collect_less_often.block():
                ran = run_once(self._target, self._model, args, kwargs, store.options(graph=True), settings)
                trace = store.finish(Trace.of(ran.trace), self._model, False, ran.raised)
        finally:
            store.close()
        self.traces.append(trace)
        if ran.raised is not None:
            remember(trace)
            raise ran.raised
        return ran.output

    @uncounted
    def _target(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._model, self._method)(*args, **kwargs)

    def _next_folder(self, rank: int | None) -> Path | None:
        """Return the folder of the next forward: further ones have their number behind the name of the first."""
        if self._folder is None:
            return None
        number = len(self.traces)
        folder = self._folder if not number else self._folder.with_name(f"{self._folder.name}-{number}")
        return rank_folder(folder, rank)


@contextlib.contextmanager
def trace_forwards(
    model: nn.Module,
    *,
    save: str | os.PathLike[str] | None = None,
    values: Keeping = "stats",
    method: str = "forward",
    budget: int = 256 * 1024 * 1024,
) -> Iterator[list[Trace]]:
    """Trace each forward that the program makes of a model in this block; the list of traces grows with them.

    The forwards run once, as they would have run, and the program gets their results: gradients flow through them.
    ``save`` is the folder of the first run; those of further forwards have a number behind its name. ``values`` and
    ``budget`` are those of :func:`fxdebug.fx_debug`. ``method`` is the method that the program calls, if it is not
    ``forward``. A forward that raises leaves a partial trace in the list, and its exception passes through. Forwards
    in other threads are not traced.
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
    if values not in VALUES:
        raise UsageError(f"values={values!r}: use one of {', '.join(map(repr, VALUES))}")
    if not callable(getattr(model, method, None)):
        raise UsageError(f"{type(model).__name__} has no method {method!r}")
    forwards = _Forwards(model, method, None if save is None else Path(save), values, budget)
    forwards.patch.put()
    try:
        yield forwards.traces
    finally:
        forwards.patch.restore()
