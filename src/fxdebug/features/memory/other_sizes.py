"""Follow the memory of a model at other batch sizes and in other dtypes, to estimate it and to check the estimate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import members, named_tensors
from fxdebug.errors import UsageError, first_line
from fxdebug.features.memory.following.followed_run import run_with_memory
from fxdebug.features.memory.other_inputs import batch_of, with_batch, with_dtype
from fxdebug.features.memory.record import MemoryRecord
from fxdebug.features.shared.tried_settings.trial import Subject


class OtherSizes:
    """Runs of one model with inputs of other sizes and dtypes; ``batch`` is the size of the given inputs."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], loss: Callable[[Any], Tensor] | None
    ) -> None:
        self._model, self._loss = model, loss
        self._inputs = args, dict(kwargs)
        self.batch = batch_of(self._inputs)

    def dtypes(self) -> set[str]:
        """Return the names of the floating dtypes of the model and its inputs: another dtype takes their place."""
        tensors = [
            *members.parameters_of(self._model),
            *members.buffers_of(self._model),
            *(t for _, t in named_tensors(self._inputs)),
        ]
        return {str(tensor.dtype)[6:] for tensor in tensors if tensor.is_floating_point()}

    def subject(self, batch: int) -> Subject:
        """Return the model with inputs of another batch, to try settings on it."""
        args, kwargs = self._at(batch)
        return Subject(self._model, args, kwargs, self._loss)

    def _at(self, batch: int | None) -> Any:
        return self._inputs if batch is None or self.batch is None else with_batch(self._inputs, self.batch, batch)

    def run(self, batch: int | None, dtype: torch.dtype | None = None, limit: int | None = None) -> MemoryRecord:
        """Return the memory of a run. Raises ``UsageError`` where the model raises with such inputs.

        The model itself is run, or, for a dtype, a copy of it.
        """
        inputs = self._at(batch)
        said = f"at batch {batch or self.batch}"
        model = self._model
        if dtype is not None:
            said += f" in {str(dtype)[6:]}"
            try:
                model = copy.deepcopy(model).to(dtype)
            except Exception as error:
                raise UsageError(f"the model cannot be copied: {type(error).__name__}: {first_line(error)}") from error
            inputs = with_dtype(inputs, dtype)
        args, kwargs = inputs
        with Subject(model, args, kwargs, self._loss).unchanged():  # gradients that stay would be none of the next run
            record, raised = run_with_memory(model, args, kwargs, self._loss, 1, limit)
        if raised is not None:
            raise UsageError(f"{said} the model raised {record.error}") from raised
        return record
