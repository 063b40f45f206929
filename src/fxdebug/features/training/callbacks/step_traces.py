"""Trace the forwards of chosen training steps: what the callbacks of both trainers share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence

from torch import nn

from fxdebug.api import Trace, trace_forwards
from fxdebug.data.values import Keeping
from fxdebug.errors import FxDebugError


class StepTraces:
    """Traces the first forward of each batch of the steps in ``steps``; with accumulated gradients these are several.

    In ``save`` and ``export`` the text ``{step}`` stands for the number of the step. Files are written for the first
    forward of a step. The model's forward is patched from the beginning of a batch to its first forward, and no
    longer: a trainer that raises later, in the backward or in the optimizer, need not tell its callbacks.
    """

    def __init__(
        self,
        steps: int | Collection[int] = (0,),
        save: str | os.PathLike[str] | None = "runs/step{step}",
        export: str | Sequence[str] = (),
        values: Keeping = "stats",
    ) -> None:
        self._steps = frozenset([steps] if isinstance(steps, int) else steps)
        self._save = None if save is None else os.fspath(save)
        self._export = [export] if isinstance(export, str) else list(export)
        self._values = values
        self._batches: dict[int, list[list[Trace]]] = {}  # step → the traces of each of its batches
        self._step: int | None = None  # that is traced
        self._open = contextlib.ExitStack()

    @property
    def traces(self) -> dict[int, list[Trace]]:
        """The traces of each step, in the order of its batches."""
        return {step: [trace for batch in batches for trace in batch] for step, batches in self._batches.items()}

    def begin(self, model: nn.Module, step: int, method: str = "forward") -> None:
        """Begin a step with its first batch; a step that did not end is closed first."""
        self._open.close()
        self._step = step if step in self._steps and step not in self._batches else None
        self.next_batch(model, method)

    def next_batch(self, model: nn.Module, method: str = "forward") -> None:
        """Begin a batch of the step."""
        self._open.close()
        if self._step is None:
            return
        batches = self._batches.setdefault(self._step, [])
        folder = None if self._save is None else self._save.replace("{step}", str(self._step))
        if folder is not None and batches:
            folder += f"-{len(batches)}"
        tracing = trace_forwards(model, save=folder, values=self._values, method=method, most=1)
        batches.append(self._open.enter_context(tracing))

    def end(self) -> None:
        """End a step, and write what is to be exported of it."""
        self._open.close()
        step, self._step = self._step, None
        traces = [] if step is None else self.traces[step]
        for path in self._export if traces else ():
            traces[0].export(path.replace("{step}", str(step)))

    def raised(self, error: BaseException) -> None:
        """End a step in which the training raised; files that cannot be written must not hide its exception."""
        with contextlib.suppress(FxDebugError):
            self.end()
