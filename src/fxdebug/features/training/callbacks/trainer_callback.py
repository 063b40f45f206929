"""``fxdebug.watch``, and traces of chosen steps, as callbacks of transformers' ``Trainer``."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from fxdebug.api import Trace, Watch, watch
from fxdebug.data.values import Keeping
from fxdebug.features.training.callbacks.step_traces import StepTraces
from fxdebug.features.training.callbacks.trainer_epoch import tell_if_epoch_raises


class WatchCallback(TrainerCallback):
    """Watch a training of transformers: ``Trainer(..., callbacks=[WatchCallback(every=50, save="runs/train")])``.

    ``watch`` is the :class:`fxdebug.api.Watch` of the training that runs, or of the last one: ``watch.verdict()`` says
    whether it learns. ``tries`` and ``on`` are those of :func:`fxdebug.watch`. Nothing stays patched
    between two steps, and where anything in an epoch raises.
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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Begin to watch; a training that raised is ended first."""
        self._end()
        self.watch = watch(given["model"], every=self._every, save=self._save, tries=self._tries, on=self._on)
        self.watch.__enter__()
        self.watch.pause()

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Note the exception that ends the training in this epoch, and stop watching then."""
        tell_if_epoch_raises(self._end)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Watch this step: nothing is patched between two steps."""
        if self.watch is not None:
            self.watch.resume()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Leave nothing patched until the next step."""
        if self.watch is not None:
            self.watch.pause()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Stop watching."""
        self._end()

    def _end(self, error: BaseException | None = None) -> None:
        if self.watch is not None:
            self.watch.__exit__(None if error is None else type(error), error, None)


class TraceCallback(TrainerCallback):
    """Trace the forwards of chosen steps: ``Trainer(..., callbacks=[TraceCallback(steps=[0, 100])])``.

    ``steps`` are those of the optimizer, from 0. ``save`` is the folder of a step's run and ``export`` are files to
    write of it, in the form of their suffix; ``{step}`` stands for the step. ``values`` is that of
    :func:`fxdebug.fx_debug`. ``traces`` has the traces of each step: of the first forward of each batch, of which steps
    with accumulated gradients have several. Where the training raises, the step has the traces made until then.
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
        """The traces of each step, one for each batch."""
        return self._steps.traces

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Stop tracing where the training raises in this epoch."""
        tell_if_epoch_raises(self._steps.raised)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Begin to trace if this step was chosen."""
        self._steps.begin(given["model"], state.global_step)

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Trace the next batch of a step that accumulates gradients."""
        self._steps.next_batch(given["model"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Stop tracing, and write the files of the step."""
        self._steps.end()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        """Stop tracing."""
        self._steps.end()
