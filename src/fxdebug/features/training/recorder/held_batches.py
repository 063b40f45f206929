"""Hold the last batches of a training with their targets, and the first weights: a change can be tried on a copy.

A batch is held only if its loss can be computed again from what the model returned: then it can be on a copy, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import named_tensors, untracked
from fxdebug.features.training.loss.loss_graph import LossRead, behind_views
from fxdebug.features.training.recorder.gradient_norm import number_of
from fxdebug.features.training.recorder.held_forward import HeldForward

MOST = 16  # batches
MOST_WEIGHTS = 1 << 28  # bytes of first weights that are copied
CLOSE = 1e-2  # relative: a loss in bfloat16


@dataclass(frozen=True, eq=False)
class HeldBatch:
    """One batch: what the model was given, and how its loss comes from what it returns.

    ``place`` is the position of the result that the loss is of, ``None`` where the model returns its loss itself.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    place: int | None
    kind: str = ""
    target: Tensor | None = None
    weight: Tensor | None = None
    ignore: int = -100
    reduction: str = "mean"
    factor: float = 1.0
    smoothing: float = 0.0

    def mean_loss(self, output: Any) -> Tensor:
        """Return the mean loss of what a model returned for this batch."""
        if self.place is None:
            own: Tensor = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", output)
            return own
        return self._of(floating_in(output)[self.place])

    def loss(self, output: Any) -> Tensor:
        """Return the loss as the training has it: a sum where that is one, and with its factor."""
        return self.mean_loss(output) * self._terms

    def loss_of(self, given: Tensor) -> Tensor:
        """Return the same of the one result that the loss is taken of."""
        return self._of(given) * self._terms

    @property
    def _terms(self) -> float:
        if self.target is None or self.reduction == "mean":
            return self.factor
        return self.factor * (self.target.numel() // (len(self.target) if self.reduction == "batch mean" else 1))

    def _of(self, given: Tensor) -> Tensor:
        target, functional = self.target, torch.nn.functional
        assert target is not None
        if self.kind == "soft cross_entropy":
            return functional.cross_entropy(given, target)
        if self.kind == "cross_entropy":
            if given.shape[:1] + given.shape[2:] != target.shape:
                given, target = given.reshape(-1, given.shape[-1]), target.reshape(-1)
            return functional.cross_entropy(
                given, target, weight=self.weight, ignore_index=self.ignore, label_smoothing=self.smoothing
            )
        loss: Tensor = getattr(functional, self.kind)(given.reshape(target.shape), target)
        return loss


def floating_in(output: Any) -> list[Tensor]:
    """Return the tensors of floating point in what a model returned."""
    return [tensor for _, tensor in named_tensors(output) if tensor.is_floating_point()]


class HeldBatches:
    """The last batches of a training, and the weights that it began with, where these are not too large."""

    def __init__(self, model: nn.Module) -> None:
        self.batches: deque[HeldBatch] = deque(maxlen=MOST)
        self.why_not = "no loss was seen"
        self._places: list[int] = []
        self.first: dict[str, Tensor] | None = None
        state = [one for one in model.state_dict().values() if isinstance(one, Tensor)]
        if sum(one.nbytes for one in state) <= MOST_WEIGHTS and not any(one.is_meta for one in state):
            with untracked():
                self.first = {
                    name: one.detach().clone() for name, one in model.state_dict().items() if isinstance(one, Tensor)
                }

    def note_output(self, output: Any) -> None:
        """Note which of the model's results have a gradient."""
        self._places = [i for i, tensor in enumerate(floating_in(output)) if tensor.requires_grad]

    def add(
        self, forward: HeldForward, root: Tensor, scale: float, loss: tuple[LossRead, str, Sequence[Tensor]]
    ) -> None:
        """Hold the batch of a backward, if its loss can be computed again."""
        read, reduction, outputs = loss
        if forward.is_loss_of(root):
            self.batches.append(HeldBatch(forward.args, forward.kwargs, None))
            return
        if not read.kind or read.target is None:
            self.why_not = "the loss is none that can be computed on a copy"
            return
        made = [one for one in outputs if one.is_floating_point()]
        found = next((i for i, one in enumerate(made) if behind_views(one.grad_fn) is read.prediction), None)
        if found is None or len(made) != len(self._places):
            self.why_not = "the loss is not taken of what the model returns"
            return
        with untracked():
            batch = HeldBatch(
                forward.args, forward.kwargs, self._places[found], read.kind, read.target.detach().clone(),
                None if read.weight is None else read.weight.detach().clone(), read.ignore, reduction or "mean",
                read.factor / scale, read.smoothing,
            )  # fmt: skip
            value = number_of(root) / scale
            try:
                again = number_of(batch.loss_of(made[found].detach()))
            except (RuntimeError, ValueError, IndexError) as error:
                self.why_not = f"the loss cannot be computed on a copy: {type(error).__name__}"
                return
        if abs(again - value) <= CLOSE * abs(value) + 1e-6 or (value != value and again != again):
            self.batches.append(batch)
        else:
            self.why_not = "the loss, computed again, is another one"
