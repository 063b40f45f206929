"""Watch a training loop step by step: nothing but the model's forward, the backward and the optimizer is looked at."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed import ReduceOp, all_reduce
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fxdebug.capture.hooks.patch import Attribute, SharedPatch
from fxdebug.capture.recorder.module_names import Sites
from fxdebug.capture.runs.attach import Attached
from fxdebug.capture.torch_state.module_members import named_modules_of, parameters_of
from fxdebug.capture.torch_state.untracked import untracked
from fxdebug.capture.training.held_forward import HeldForward
from fxdebug.capture.training.nested_steps import optimizers_around
from fxdebug.capture.training.root_forward import root_forward
from fxdebug.capture.training.step_statistics import StepStatistics, step_histograms
from fxdebug.data.measured.training import StepHistograms, StepRecord, Trouble, WatchedStep

MOST_HELD = 64  # forwards of one step: of more, with gradients accumulated over hundreds, the last are held


class Listener(Protocol):
    """The part that keeps, judges and explains what a watcher sees."""

    def is_spike(self, loss: float) -> bool:
        """Is this loss far above those of the last steps?"""

    def on_trouble(self, trouble: Trouble, loss: float | None, norm: float | None, held: Sequence[HeldForward]) -> None:
        """Explain a step; the optimizer has not changed the weights yet, and the watcher is not looking."""

    def on_step(self, step: StepRecord, watched: WatchedStep | None, histograms: StepHistograms | None) -> None:
        """Keep a step that has ended, with the statistics and histograms that were taken of it."""

    def on_failure(self, error: Exception) -> None:
        """Note a failure of ours: the training goes on."""


class Watcher:
    """A training loop that is being watched, from :meth:`begin` to :meth:`end`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        every: int,
        method: str,
        listener: Listener,
        *,
        histograms: bool = False,
    ) -> None:
        self.pauses_on_raise = False
        self.model = model
        self.method = method
        self.inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
        self.inner = getattr(self.inner, "_orig_mod", self.inner)
        self.number = 0  # of the step that is under way
        self._optimizer, self._every, self._listener = optimizer, every, listener
        self._takes_histograms = histograms
        self._thread = get_ident()
        self._forward = root_forward(model, method, self._around_forward)
        self._held: list[HeldForward] = []
        self._losses: list[Tensor] = []
        self._statistics: StepStatistics | None = None
        self._norm: float | None = None
        self._is_reported = False  # trouble of this step
        self._is_busy = False  # a forward is running, or a step is being explained
        self._handles: list[Any] = []
        self._since = time.perf_counter()
        self._own = frozenset(map(id, parameters_of(self.inner)))
        sharded = [parameter for parameter in parameters_of(self.inner) if isinstance(parameter, DTensor)]
        self._mesh = sharded[0].device_mesh if sharded else None

    def begin(self) -> None:
        """Begin to watch."""
        self.resume()
        self._since = time.perf_counter()

    def resume(self) -> None:
        """Look at the forward, the backward and the optimizer; again after :meth:`pause`."""
        if self._handles:
            return
        _backward.begin(self)
        self._forward.put()
        self._handles = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def pause(self) -> None:
        """Look at nothing until :meth:`resume`: everything is as before. What is known of this step is forgotten."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forward.restore()
        _backward.end(self)
        self._held, self._losses, self._statistics, self._norm = [], [], None, None
        self._is_reported = False

    @property
    def is_sharded(self) -> bool:
        """Are the weights distributed over ranks, so that a forward runs on all of them or on none?"""
        return self._mesh is not None

    @property
    def compiled(self) -> list[str]:
        """The paths of parts that torch.compile has compiled: calls in them cannot be measured."""
        return [
            path or "the model"
            for path, module in named_modules_of(self.model)
            if hasattr(module, "_orig_mod") or vars(module).get("_compiled_call_impl") is not None
        ]

    def on_any_rank(self, fact: bool) -> bool:
        """Is this so on one of the ranks that share the weights? They run a step again together, or not at all."""
        if self._mesh is None:
            return fact
        with untracked():
            flag = torch.tensor(float(fact), device=self._mesh.device_type)
            for group in self._mesh.get_all_groups():
                all_reduce(flag, ReduceOp.MAX, group)
            return bool(flag)

    def end(self) -> None:
        """Stop watching; everything is as before. May be called again."""
        self.pause()

    def raised(self) -> None:
        """Look at nothing more where the forward or the backward raised, if nobody tells that a training ended."""
        if self.pauses_on_raise:
            self.pause()

    # The forward ---------------------------------------------------------------------------------

    def _around_forward(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._is_busy or not torch.is_grad_enabled() or get_ident() != self._thread:
            return run(*args, **kwargs)
        if self._losses and all(p.grad is None for p in parameters_of(self.inner)):
            self._held, self._losses, self._statistics = [], [], None  # a scaler skipped the step before
        held = self._guarded(lambda: HeldForward(self.inner, args, kwargs))
        self._is_busy = True
        try:
            output = self._observed(run, args, kwargs)
        except BaseException:
            self.raised()
            raise
        finally:
            self._is_busy = False
        if held is not None:
            self._guarded(lambda: held.note_output(output))
            self._held = [*self._held, held][-MOST_HELD:]
        return output

    def _observed(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.number % self._every or self._statistics is not None:
            return run(*args, **kwargs)  # of gradients that are accumulated, the first forward is measured
        sites = Sites(self.inner)
        self._statistics = StepStatistics(sites)
        with Attached(self._statistics, sites):
            if self.model is self.inner:  # its forward has begun already: no wrapper sees it
                return self._statistics.around_forward(self.model, run, args, kwargs)
            return run(*args, **kwargs)

    # The backward --------------------------------------------------------------------------------

    def before_backward(self, tensors: Any) -> None:
        """Note the loss; explain the step if it is not finite, or far above the last ones."""
        if self._is_busy or get_ident() != self._thread or not self._held:
            return
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        root = next((tensor for tensor in roots if isinstance(tensor, Tensor) and tensor.numel() == 1), None)
        if root is None:
            return
        self._guarded(lambda: self._note_loss(root))

    def _note_loss(self, root: Tensor) -> None:
        own = next((held.loss for held in reversed(self._held) if held.is_loss_of(root)), None)
        scaled_too_far = _is_scaled_too_far(root)
        if own is None and scaled_too_far:
            return  # the scaler decides on this step by its gradients; what the loss was is lost
        is_own = own is not None and (scaled_too_far or math.isfinite(_number(root)))
        loss = own if own is not None and is_own else _unscaled(root)
        self._losses.append(loss)
        self._judge(loss)

    def _judge(self, loss: Tensor) -> None:
        if self.is_sharded:  # a forward runs on all ranks or on none: the gradients' norm, later, is that of all
            return
        number = _number(loss)
        if not math.isfinite(number):
            self._trouble("loss", number)
        elif self._listener.is_spike(number):
            self._trouble("spike", number)

    # The optimizer -------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_others(optimizer) or self._is_in_another(sys._getframe(1)):
            return
        self._guarded(lambda: self._look_at_gradients(optimizer))

    def _look_at_gradients(self, optimizer: Optimizer) -> None:
        """Take the norm of the gradients that the optimizer is about to use; those of another one are left out."""
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        parameters = [p for group in inner.param_groups for p in group["params"] if id(p) in self._own]
        gradients = [p.grad.detach() for p in parameters if p.grad is not None]
        if gradients:
            with untracked():
                scale = getattr(inner, "grad_scale", None)  # of a scaler, for a fused optimizer that divides by it
                self._norm = _norm_of_all(gradients) / (1.0 if scale is None else _number(scale))
            if not math.isfinite(self._norm) and not _is_skipped(optimizer):
                self._trouble("gradient", self._loss())
        if self._statistics is not None:
            self._statistics.before_step(self.inner)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_others(optimizer) or self._is_in_another(sys._getframe(1)):
            return
        if self._guarded(lambda: _is_skipped(optimizer)):
            self._held, self._losses, self._statistics, self._norm = [], [], None, None
        else:
            self._guarded(self._finish)

    def _finish(self) -> None:
        now = time.perf_counter()
        step = StepRecord(self.number, self._loss(), self._norm, now - self._since)
        watched = None if self._statistics is None else self._guarded(partial(self._measured, self._statistics))
        histograms = None
        if self._takes_histograms and self._statistics is not None:
            histograms = self._guarded(partial(step_histograms, self.number, self.inner))
        self._held, self._losses, self._statistics, self._norm = [], [], None, None
        self._is_reported = False
        self.number += 1
        self._since = now
        self._listener.on_step(step, watched, histograms)

    def _measured(self, statistics: StepStatistics) -> WatchedStep:
        return WatchedStep(self.number, statistics.results(), statistics.parameters(self.inner))

    def _is_others(self, optimizer: Optimizer) -> bool:
        if self._is_busy or get_ident() != self._thread:
            return True
        if self._optimizer is not None:
            return optimizer is not self._optimizer and getattr(optimizer, "optimizer", None) is not self._optimizer
        return not any(id(parameter) in self._own for group in optimizer.param_groups for parameter in group["params"])

    def _is_in_another(self, step: FrameType) -> bool:
        """Is the step, by the frame that calls its hooks, a part of another one that counts?"""
        return any(not self._is_others(optimizer) for optimizer in optimizers_around(step))

    # Trouble -------------------------------------------------------------------------------------

    def _trouble(self, trouble: Trouble, loss: float | None) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        self._is_busy = True
        self._forward.restore()
        try:
            self._listener.on_trouble(trouble, loss, self._norm, tuple(self._held))
        finally:
            self._forward.put()
            self._is_busy = False

    def _loss(self) -> float | None:
        losses = [_number(loss) for loss in self._losses]
        return sum(losses) / len(losses) if losses else None

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run a part of ours: a failure in it must not end the training."""
        try:
            return action()
        except Exception as error:
            self._listener.on_failure(error)
            return None


def _number(tensor: Tensor) -> float:
    with untracked():
        value: complex | float = tensor.detach().reshape(()).item()
    return abs(value) if isinstance(value, complex) else float(value)


def _is_skipped(optimizer: Optimizer) -> bool:
    """Will a fused optimizer leave the weights as they are, because a scaler found infinite gradients?"""
    found = getattr(getattr(optimizer, "optimizer", optimizer), "found_inf", None)
    return isinstance(found, Tensor) and _number(found) > 0


def _norm_of_all(gradients: Sequence[Tensor]) -> float:
    """Return the 2-norm of all gradients together, of all ranks that share them, also where its square overflows."""
    total = torch.nn.utils.get_total_norm(gradients)
    if isinstance(total, DTensor):
        return _number(total.full_tensor())
    norm = _number(total)
    if math.isinf(norm) and all(bool(gradient.isfinite().all()) for gradient in gradients):
        largest = max(float(gradient.abs().max()) for gradient in gradients if gradient.numel())
        return largest * _number(torch.nn.utils.get_total_norm([gradient / largest for gradient in gradients]))
    return norm


def _is_scaled_too_far(root: Tensor) -> bool:
    """Is this an infinite product with a large scalar, as a scaler makes it? It skips such a step and scales less."""
    return _scale(root) > 1 and math.isinf(_number(root))


def _unscaled(root: Tensor) -> Tensor:
    """Return a loss without the factor of a scaler, which is a power of two and changes from time to time."""
    scale = _scale(root)
    is_scaled = scale > 1 and math.frexp(scale)[0] == 0.5
    with untracked():
        return root.detach() / scale if is_scaled else root.detach()


def _scale(root: Tensor) -> float:
    factor = getattr(root.grad_fn, "_saved_other", None)
    is_factor = isinstance(factor, Tensor) and factor.numel() == 1 and not factor.requires_grad
    return _number(factor) if is_factor and isinstance(factor, Tensor) else 1.0


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        for watcher in _backward.users:
            watcher.before_backward(tensors)
        try:
            return original(tensors, *args, **kwargs)
        except BaseException:
            for watcher in _backward.users:
                watcher.raised()
            raise

    return backward


_backward = SharedPatch(Attribute("torch.autograd.backward", torch.autograd, "backward", _watched))
