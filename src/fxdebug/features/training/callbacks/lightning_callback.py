"""``fxdebug.watch``, and traces of chosen steps, as callbacks of Lightning."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from fxdebug.api import Trace, Watch, watch
from fxdebug.data.values import Keeping
from fxdebug.features.training.callbacks.step_traces import StepTraces


class WatchCallback(Callback):
    """Watch a training of Lightning: ``Trainer(callbacks=[WatchCallback(every=50, save="runs/train")])``.

    ``watch`` is the :class:`fxdebug.api.Watch` of the training that runs, or of the last one: ``watch.verdict()`` says
    whether it learns. ``tries`` and ``on`` are those of :func:`fxdebug.watch`.
    """

    def __init__(
        self,
        every: int = 50,
        save: str | os.PathLike[str] | None = "runs/train",
        *,
        tries: bool = False,
        on: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.watch: Watch | None = None
        self._every, self._save, self._tries, self._on = every, save, tries, on

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin to watch."""
        self.watch = watch(
            pl_module, every=self._every, save=self._save, method="training_step", tries=self._tries, on=self._on
        )
        self.watch.__enter__()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop watching."""
        self._end(None)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Note the exception that ended the training, and stop watching."""
        self._end(exception)

    def _end(self, error: BaseException | None) -> None:
        if self.watch is not None:
            self.watch.__exit__(None if error is None else type(error), error, None)


class TraceCallback(Callback):
    """Trace ``training_step`` of chosen steps: ``Trainer(callbacks=[TraceCallback(steps=[0, 100])])``.

    ``steps`` are those of the optimizer, from 0. ``save`` is the folder of a step's run and ``export`` are files to
    write of it, in the form of their suffix; ``{step}`` stands for the step. ``values`` is that of
    :func:`fxdebug.fx_debug`. ``traces`` has the traces of each step; with accumulated gradients only the first batch of
    a step is traced.
    """

    def __init__(
        self,
        steps: int | Collection[int] = (0,),
        save: str | os.PathLike[str] | None = "runs/step{step}",
        export: str | Sequence[str] = (),
        values: Keeping = "stats",
    ) -> None:
        self._steps = StepTraces(steps, save, export, values)

    @property
    def traces(self) -> dict[int, list[Trace]]:
        """The traces of each step."""
        return self._steps.traces

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Begin to trace if this step was chosen."""
        self._steps.begin(pl_module, trainer.global_step, "training_step")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop tracing, and write the files of the step."""
        self._steps.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop tracing."""
        self._steps.raised(exception)
