"""Trace the forwards of chosen training steps: what the callbacks of both trainers share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence

from torch import nn

from fxdebug.api import Trace, trace_forwards
from fxdebug.data.values import Keeping


class StepTraces:
    """Traces the forwards of the steps in ``steps``; ``traces`` has them by step.

    In ``save`` and ``export`` the text ``{step}`` stands for the number of the step. Files are written for the first
    forward of a step; with accumulated gradients a step has more than one.
    """

    def __init__(
        self,
        steps: int | Collection[int] = (0,),
        save: str | os.PathLike[str] | None = "runs/step{step}",
        export: str | Sequence[str] = (),
        values: Keeping = "stats",
    ) -> None:
        self.traces: dict[int, list[Trace]] = {}
        self._steps = frozenset([steps] if isinstance(steps, int) else steps)
        self._save = None if save is None else os.fspath(save)
        self._export = [export] if isinstance(export, str) else list(export)
        self._values = values
        self._step = -1
        self._open = contextlib.ExitStack()

    def begin(self, model: nn.Module, step: int, method: str = "forward") -> None:
        """Begin a step; forwards of a step that did not end are closed first."""
        self._open.close()
        if step not in self._steps or step in self.traces:
            return
        folder = None if self._save is None else self._save.replace("{step}", str(step))
        self._step = step
        self.traces[step] = self._open.enter_context(
            trace_forwards(model, save=folder, values=self._values, method=method)
        )

    def end(self) -> None:
        """End a step, and write what is to be exported of it."""
        self._open.close()
        step, self._step = self._step, -1
        for path in self._export if self.traces.get(step) else ():
            self.traces[step][0].export(path.replace("{step}", str(step)))
