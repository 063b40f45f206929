"""Hold what a forward began with, so that the same forward can run again: inputs, random numbers, buffers, autocast."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fxdebug.capture.probe import (
    Guard,
    RngSnapshot,
    deep_copy,
    internals,
    members,
    named_tensors,
    state_restored,
    untracked,
)
from fxdebug.features.training.loss.loss_graph import name_of
from fxdebug.stats.doubles import where_doubles

COPIED = 1 << 26  # bytes of inputs: more are held as they are, and the loop must not write into them
MOST_FACTORS = 6  # products between the model's loss and the root of the backward


class HeldForward:
    """One forward of a training step. ``gradients`` are those of its outputs, by place, once the backward reached them.

    ``loss`` is the ``loss`` in the model's output, where there is one.
    """

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.gradients: dict[str, Tensor] = {}
        self.loss: Tensor | None = None
        self._place = ""  # of that loss
        self._guard = Guard()
        self._loss_node: Any = None  # of autograd's graph
        self._followed = [""]  # the place of the only result whose gradient is noted; empty: of all
        self._model = model
        tensors = [tensor for _, tensor in named_tensors((args, kwargs))]
        small = sum(tensor.nbytes for tensor in tensors if not tensor.is_meta) <= COPIED
        self.args: tuple[Any, ...]
        self.kwargs: dict[str, Any]
        self.args, self.kwargs = deep_copy((args, kwargs)) if small else (args, kwargs)
        self._random = RngSnapshot()
        with untracked():
            self._buffers = [
                (module._buffers, name, buffer.detach().clone())
                for module in members.modules_of(model)
                for name, buffer in module._buffers.items()
                if buffer is not None and not buffer.is_meta
            ]
        self._autocast = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_cache_enabled())
            for device in {"cpu", *(tensor.device.type for tensor in tensors if not tensor.is_meta)}
            if torch.is_autocast_enabled(device)
        ]

    def note_output(self, output: Any, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Put hooks on the tensors that the model returned: their gradients are needed to run the backward again."""
        tensors = list(tensors)
        for place, tensor in tensors:
            if tensor.requires_grad and tensor.grad_fn is not None:
                with internals.DisableTorchFunction():  # a subclass may refuse hooks
                    tensor.register_hook(self._guard.hook("a gradient", self._noting(place)))
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", output)
        if isinstance(loss, Tensor) and not loss.dim():
            self.loss, self._loss_node = loss.detach(), loss.grad_fn
            self._place = next((place for place, tensor in tensors if tensor is loss), "")

    def notes_backward_of(self, root: Tensor) -> bool:
        """Note what a backward begins at; return whether that is the model's own loss.

        Then all gradients come through that loss. Those of the other results, logits of a gigabyte, are parts of the
        same backward, and are not held.
        """
        is_own = self.is_loss_of(root)
        self._followed[0] = self._place if is_own else ""
        return is_own

    def is_loss_of(self, root: Tensor) -> bool:
        """Is the model's own loss the root of a backward, up to a factor of a scaler or of an accumulation?"""
        node = root.grad_fn
        for _ in range(MOST_FACTORS):
            if node is None or self._loss_node is None:
                return False
            if node is self._loss_node:
                return True
            if name_of(node) not in ("Mul", "Div", "ToCopy", "View", "Clone", "Alias"):
                return False
            inputs = [inner for inner, _ in node.next_functions if inner is not None]
            node = inputs[0] if len(inputs) == 1 else None
        return False

    def _noting(self, place: str) -> Any:
        gradients, followed = self.gradients, self._followed  # not self: autograd's graph may outlive the step

        def note(gradient: Tensor | None) -> None:
            if gradient is not None and followed[0] in ("", place):
                gradients[place] = gradient.detach()

        return note

    @contextlib.contextmanager
    def as_it_began(self) -> Iterator[None]:
        """Set random numbers, buffers and autocast to what they were; what they are now is back after the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(state_restored(self._model))
            stack.enter_context(self._buffers_exchanged())
            self._random.restore()
            for device, dtype, cached in self._autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=cached))
            stack.enter_context(torch.enable_grad())
            yield

    @contextlib.contextmanager
    def _buffers_exchanged(self) -> Iterator[None]:
        """Put copies of the held buffers in place of the model's: autograd refuses saved ones that were written to."""
        now = [(registry, name, registry[name]) for registry, name, _ in self._buffers if name in registry]
        try:
            with untracked():
                for registry, name, content in self._buffers:
                    registry[name] = content.clone()
            yield
        finally:
            for registry, name, buffer in now:
                registry[name] = buffer

    def surrogate_loss(self, output: Any) -> Tensor:
        """Return a scalar of a new output whose backward gives the outputs the gradients that they had."""
        terms = [
            (tensor * self.gradients[place]).sum()
            for place, tensor in named_tensors(output)
            if place in self.gradients and tensor.requires_grad
        ]
        return torch.stack([where_doubles(term).double() for term in terms]).sum() if terms else torch.zeros(())
