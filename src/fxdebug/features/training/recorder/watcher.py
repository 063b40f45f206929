"""Watch a training loop step by step: nothing but the model's forward, the backward and the optimizer is looked at."""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from threading import get_ident
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed import ReduceOp, all_reduce
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from fxdebug.capture.probe import Attached, Sites, internals, members, named_tensors, patch, root_forward, untracked
from fxdebug.features.shared.gradients import gradient_runs
from fxdebug.features.shared.records.learning import StepSigns
from fxdebug.features.shared.records.training import StepHistograms, StepRecord, Trouble, WatchedStep
from fxdebug.features.training.loss.loss_graph import is_made_with
from fxdebug.features.training.pairs.asked_again import ASKED_AT
from fxdebug.features.training.recorder.gradient_norm import Edges, norm_of_all, norm_of_parts, number_of
from fxdebug.features.training.recorder.held_batches import HeldBatches
from fxdebug.features.training.recorder.held_forward import HeldForward
from fxdebug.features.training.recorder.leaf_calls import LeafCalls
from fxdebug.features.training.recorder.learning import Learning
from fxdebug.features.training.recorder.loop_facts import MANY, SETTLED, SKIPS, LoopFacts
from fxdebug.features.training.recorder.nested_steps import optimizers_around
from fxdebug.features.training.recorder.optimizer_steps import OptimizerSteps
from fxdebug.features.training.recorder.step_statistics import StepStatistics, step_histograms
from fxdebug.stats.accelerator import captures_graph

LARGE_SCALE = 1024.0  # scalers of other packages multiply with a number of Python: 65,536 at first
MOST_HELD = 64  # forwards of one step: of more, with gradients accumulated over hundreds, the last are held


class Listener(Protocol):
    """The part that keeps, judges and explains what a watcher sees."""

    def is_spike(self, loss: float, place: int) -> bool:
        """Is this loss far above those at the same place of the last steps, the first backward, the second?"""

    def on_trouble(self, trouble: Trouble, loss: float | None, norm: float | None, held: Sequence[HeldForward]) -> None:
        """Explain a step; the optimizer has not changed the weights yet, and the watcher is not looking."""

    def on_step(
        self,
        step: StepRecord,
        signs: StepSigns | None,
        watched: WatchedStep | None,
        histograms: StepHistograms | None,
    ) -> None:
        """Keep a step that has ended, with its signs, and the statistics and histograms that were taken of it."""

    def on_facts(self, facts: LoopFacts) -> None:
        """Look at the facts about the whole loop: one of them is new."""

    def on_failure(self, error: Exception) -> None:
        """Tell of a failure of ours: the training goes on."""

    def on_note(self, what: str) -> None:
        """Note what was not looked at."""


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
        holds: bool = False,
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
        self._is_in_method = False  # of the program's own call
        self._has_own_backward = False  # the method is a whole step of the loop, not what a loss is computed with
        self._steps = OptimizerSteps(optimizer, self._before_step, self._after_step)
        self._since = time.perf_counter()
        self._own = frozenset(map(id, members.parameters_of(self.inner)))
        self.facts = LoopFacts(self.inner)
        self.learning = Learning(self.inner, self.facts)
        self.batches = HeldBatches(self.inner) if holds else None
        self.stops_with: Exception | None = None  # raised at the end of the step that is under way
        self.last_forward: HeldForward | None = None
        self.last_optimizer: Optimizer | None = None  # that made a step
        self._stepping: Callable[[], Optimizer | None] = lambda: None
        self._rates: dict[int, float | None] = {}  # of the step that is being made, by the id of the parameter
        self._was_skipped = False  # the step before this backward, once more
        sharded = [parameter for parameter in members.parameters_of(self.inner) if isinstance(parameter, DTensor)]
        self._meshes = tuple(dict.fromkeys(parameter.device_mesh for parameter in sharded))
        self._edges = Edges()
        self._norm_is_shared = True  # is it that of all ranks that share gradients?

    def begin(self) -> None:
        """Begin to watch."""
        self.resume()
        self._since = time.perf_counter()

    def resume(self) -> None:
        """Look at the forward, the backward and the optimizer; again after :meth:`pause`."""
        if self._steps.is_put:
            return
        _backward.begin(self)
        _schedule.begin(self)
        _beside.begin(self)
        self.learning.beside.copies.put()
        self.learning.waits.put()
        self._forward.put()
        self._steps.put()

    def pause(self) -> None:
        """Look at nothing until :meth:`resume`: everything is as before. What is known of this step is forgotten."""
        self._steps.remove()
        self._forward.restore()
        self.learning.beside.copies.remove()
        self.learning.waits.remove()
        _beside.end(self)
        _schedule.end(self)
        _backward.end(self)
        self._held, self._losses, self._statistics, self._norm = [], [], None, None
        self._is_reported = False

    @property
    def optimizer_that_stepped(self) -> Optimizer | None:
        """The optimizer that made the last step, while it is there; ``None`` before the first step."""
        return self._stepping()

    @property
    def has_optimizer(self) -> bool:
        """Is the optimizer known, so that the first step tells which parameters it has?"""
        return self._optimizer is not None

    @property
    def is_sharded(self) -> bool:
        """Are the weights distributed over ranks, so that a forward runs on all of them or on none?"""
        return bool(self._meshes)

    @property
    def compiled(self) -> list[str]:
        """The paths of parts that torch.compile has compiled: calls in them cannot be measured."""
        return [
            path or "the model"
            for path, module in members.named_modules_of(self.model)
            if hasattr(module, "_orig_mod") or vars(module).get("_compiled_call_impl") is not None
        ]

    def on_any_rank(self, fact: bool) -> bool:
        """Is this so on one of the ranks that share the weights? They run a step again together, or not at all."""
        if not self._meshes:
            return fact
        with untracked():
            flag = torch.tensor(float(fact), device=self._meshes[0].device_type)
            for group in (group for mesh in self._meshes for group in mesh.get_all_groups()):
                all_reduce(flag, ReduceOp.MAX, group)
            return bool(flag)

    def end(self) -> None:
        """Stop watching; everything is as before. May be called again."""
        self.pause()

    @contextlib.contextmanager
    def looking_away(self) -> Iterator[None]:
        """Look at nothing in a block of ours."""
        before, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = before

    def raised(self) -> None:
        """Look at nothing more where the forward or the backward raised, if nobody tells that a training ended."""
        if self.pauses_on_raise:
            self.pause()

    def _looks_away(self) -> bool:
        """Is this work not to be looked at: of ours, of another thread, or captured as a CUDA graph?"""
        return self._is_busy or get_ident() != self._thread or captures_graph()

    # The forward ---------------------------------------------------------------------------------

    def _around_forward(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if captures_graph() and not self._is_busy:
            self._guarded(lambda: self._listener.on_note(_CAPTURED))
        if self._looks_away() or not torch.is_grad_enabled():
            output = run(*args, **kwargs)
            if not self._looks_away() and isinstance(output, Tensor) and self.learning.looks_at(self.number):
                self._guarded(lambda: self.learning.beside.copies.note_own(output))
            return output
        self._guarded(self._forget_skipped)
        self.facts.on_forward()
        if self.facts.forwards == SETTLED and not self.facts.steps:
            self._guarded(lambda: self._listener.on_facts(self.facts))
        self._guarded(lambda: self.learning.before_forward(self.number, args, kwargs))
        held = self._guarded(lambda: HeldForward(self.inner, args, kwargs))
        self._is_busy = self._is_in_method = True
        try:
            output = self._observed(run, args, kwargs)
        except BaseException:
            self.raised()
            raise
        finally:
            self._is_busy = self._is_in_method = False
        if self._has_own_backward:
            self._guarded(self._follow_forward)
            return output
        returned = self._guarded(lambda: list(named_tensors(output))) or []
        self._guarded(lambda: self.learning.after_forward([tensor for _, tensor in returned]))
        if held is not None:
            self._guarded(lambda: held.note_output(output, returned))
            self._held = [*self._held, held][-MOST_HELD:]
        if (batches := self.batches) is not None:
            self._guarded(lambda: batches.note_output(output))
        return output

    def _follow_forward(self) -> None:
        """Look at the model's forward from now on: the method calls backward itself, as one step of a loop does."""
        self._has_own_backward = False
        self._listener.on_note(f"{self.method} calls backward itself: the model's forward is followed instead of it")
        self._forward.restore()
        self.method = "forward"
        self._forward = root_forward(self.model, self.method, self._around_forward)
        self._forward.put()
        self._statistics = None
        self.learning.forget_step()
        self.facts.forwards, self.facts.ran = 0, False

    def _forget_skipped(self) -> None:
        """Forget the forwards of a step that a scaler skipped."""
        if self._losses and all(p.grad is None for p in members.parameters_of(self.inner)):
            self._held, self._losses, self._statistics = [], [], None

    def _observed(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.number % self._every or self._statistics is not None:  # of accumulated ones, the first is measured
            return self._looked_into(run, args, kwargs) if self.learning.looks_at(self.number) else run(*args, **kwargs)
        leaves = (
            None
            if self.facts.steps
            else self._guarded(lambda: gradient_runs.UnregisteredLeaves(self.inner, (args, kwargs)))
        )
        made = self._guarded(lambda: self._attached(leaves))
        if made is None:
            return run(*args, **kwargs)
        self._statistics, attached = made
        try:
            if self.model is self.inner:  # its forward has begun already: no wrapper sees it
                output = made[0].around_forward(self.model, run, args, kwargs)
            else:
                output = run(*args, **kwargs)
        finally:
            self._guarded(attached.__exit__)
        if leaves is not None:
            self.facts.found = self._guarded(lambda: leaves.found(output)) or []
        return output

    def _looked_into(self, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a forward whose innermost calls are looked at, and not measured."""
        made = self._guarded(self._attached_to_leaves)
        if made is None:
            return run(*args, **kwargs)
        calls, attached = made
        try:
            if self.model is self.inner:  # as for a step that is measured
                return calls.around_forward(self.model, run, args, kwargs)
            return run(*args, **kwargs)
        finally:
            self._guarded(attached.__exit__)

    def _attached_to_leaves(self) -> tuple[LeafCalls, Attached]:
        sites = Sites(self.inner)
        calls = self.learning.observer(sites)
        attached = Attached(calls, sites)
        attached.__enter__()
        return calls, attached

    def _attached(self, leaves: gradient_runs.UnregisteredLeaves | None) -> tuple[StepStatistics, Attached]:
        """Put an observer that takes statistics on all modules."""
        sites = Sites(self.inner)
        calls = self.learning.observer(sites)
        statistics = StepStatistics(sites, _nobody if leaves is None else leaves.ran, calls.note)
        attached = Attached(statistics, sites)
        attached.__enter__()
        return statistics, attached

    # The backward --------------------------------------------------------------------------------

    def before_backward(self, tensors: Any, *, keeps_graph: bool) -> None:
        """Note the loss; explain the step if it is not finite, or far above the last ones."""
        if self._is_in_method and self.method != "forward" and get_ident() == self._thread:
            self._has_own_backward = True
        if not self._looks_away():
            self._guarded(self.learning.before_other_backward)
        if (self._held or not self.facts.ran) and not self._looks_away():
            self._guarded(lambda: self._note_loss_in(tensors))
            if not keeps_graph:
                self._guarded(self.learning.let_go)

    def _note_loss_in(self, tensors: Any) -> None:
        roots = [tensors] if isinstance(tensors, Tensor) else tensors if isinstance(tensors, (list, tuple)) else []
        root = next((tensor for tensor in roots if isinstance(tensor, Tensor) and tensor.numel() == 1), None)
        if root is None:
            return
        if not self._held:  # a container, of which the parts are called: is it a loss of them?
            self.facts.know_parameters()
            if not is_made_with(root, self._own):
                return
            self.learning.begin_without_forward()
        self._note_loss(root)

    def after_backward(self) -> None:
        """Note that gradients arrived; explain why a scaler skips step after step: those not finite are there."""
        if self._looks_away():
            return
        self._guarded(lambda: self.learning.after_backward(self.number))
        self._guarded(self.facts.look_for_gradients)
        if self._was_skipped:
            self._was_skipped = False
            self._guarded(self._explain_skips)

    def _explain_skips(self) -> None:
        gradients = [p.grad.detach() for p in members.parameters_of(self.inner) if p.grad is not None]
        with untracked():
            self._norm = self._norm_of(gradients) if gradients else None
        if self._norm is not None and not math.isfinite(self._norm):
            self._trouble("skipped", self._loss())
        self._norm = None

    def _note_loss(self, root: Tensor) -> None:
        self._guarded(lambda: self.facts.look_at_loss(root))
        scale = _scale_of_scaler(root)
        self._guarded(lambda: self.learning.before_backward(self.number, root, scale))
        if (batches := self.batches) is not None and self._held:
            self._guarded(lambda: batches.add(self._held[-1], root, scale, self.learning.last_loss))
        if self.facts.on_backward(_scale(root)):  # what is held of the step before belongs to none
            self._held, self._losses, self._is_reported = self._held[-1:], [], False
            self._was_skipped = self.facts.skipped == SKIPS
        begun = [held for held in reversed(self._held) if held.notes_backward_of(root)]
        own = begun[0].loss if begun else None
        scaled_too_far = _is_scaled_too_far(root)
        if own is None and scaled_too_far:
            return  # the scaler decides on this step by its gradients; what the loss was is lost
        is_own = own is not None and (scaled_too_far or math.isfinite(number_of(root)))
        loss = own if own is not None and is_own else _unscaled(root)
        self._losses.append(loss)
        self._judge(loss)

    def _judge(self, loss: Tensor) -> None:
        if self.is_sharded:  # a forward runs on all ranks or on none: judged when the norm of all gradients is known
            return
        number = number_of(loss)
        if not math.isfinite(number):
            self._trouble("loss", number)
        elif self._held and self._listener.is_spike(number, len(self._losses) - 1):
            self._trouble("spike", number)

    # The optimizer -------------------------------------------------------------------------------

    def after_schedule(self, scheduler: LRScheduler) -> None:
        """Note that a schedule of the learning rate goes on."""
        if not self._looks_away():
            self._guarded(lambda: self.facts.on_schedule(scheduler))
            self._guarded(lambda: self.learning.beside.settings.on_schedule(scheduler, self._own))

    def before_clip(self, parameters: Any, bound: Any, norm: Any) -> None:
        """Note that gradients are about to be clipped."""
        if not self._looks_away():
            self._guarded(lambda: self.learning.on_clip(parameters, float(bound), number_of(norm), self._own))

    def _before_step(self, optimizer: Optimizer, step: FrameType) -> None:
        if not self._guarded(lambda: self._counts(optimizer, step)):
            self._guarded(lambda: self._note_other(optimizer))
            return
        self._guarded(lambda: self._look_at_gradients(optimizer))
        self._guarded(lambda: self.learning.before_step(getattr(optimizer, "optimizer", optimizer)))
        if self._statistics is not None:
            self._guarded(partial(self._statistics.before_step, self.inner))

    def _look_at_gradients(self, optimizer: Optimizer) -> None:
        """Take the norm of the gradients that the optimizer is about to use; those of another one are left out."""
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
        self._rates = gradient_runs.rates_of(inner)
        self.last_optimizer = inner if self.batches is not None else None
        self._stepping = weakref.ref(inner)
        self.facts.before_step()
        parameters = [p for group in inner.param_groups for p in group["params"] if id(p) in self._own]
        gradients = [p.grad.detach() for p in parameters if p.grad is not None]
        if gradients:
            with untracked():
                scale = getattr(inner, "grad_scale", None)  # of a scaler, for a fused optimizer that divides by it
                if not (self._is_reported or self._edges.ask_for_all(self.number, parameters, self.learning.products)):
                    return
                self._norm = self._norm_of(gradients) / (1.0 if scale is None else number_of(scale))
        if self.is_sharded:
            self._judge_together(is_skipped=_is_skipped(optimizer))
        elif self._norm is not None and not math.isfinite(self._norm) and not _is_skipped(optimizer):
            self._trouble("gradient", self._loss())

    def _norm_of(self, gradients: Sequence[Tensor]) -> float:
        """Return the norm of all ranks together; where torch takes none, that of this rank's parts, with a note."""
        if self._norm_is_shared:
            try:
                return norm_of_all(gradients)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                if not self.is_sharded:
                    raise
                self._norm_is_shared = False
                self._listener.on_failure(error)
        return norm_of_parts(gradients)

    def _judge_together(self, *, is_skipped: bool) -> None:
        """Judge a step of a model whose weights are distributed over ranks: all run it again, or none.

        Where the gradients of all ranks are finite, or are not known together, trouble of this rank is told without
        another run.
        """
        loss, norm_is_finite = self._loss(), self._norm is None or math.isfinite(self._norm)
        loss_is_finite = loss is None or math.isfinite(loss)
        if not norm_is_finite and self._norm_is_shared and not is_skipped:
            self._trouble("loss" if self.on_any_rank(not loss_is_finite) else "gradient", loss)
        elif not loss_is_finite or (not norm_is_finite and not is_skipped):
            self._held = []
            self._trouble("gradient" if loss_is_finite else "loss", loss)
        elif loss is not None and self._listener.is_spike(loss, 0):
            self._held = []
            self._trouble("spike", loss)

    def _after_step(self, optimizer: Optimizer, step: FrameType) -> None:
        if not self._guarded(lambda: self._counts(optimizer, step)):
            return
        signs = self._guarded(lambda: self.learning.after_step(self.number, getattr(optimizer, "optimizer", optimizer)))
        if self._guarded(lambda: _is_skipped(optimizer)):
            self._held, self._losses, self._statistics, self._norm = [], [], None, None
        else:
            self._guarded(lambda: self.facts.on_step(getattr(optimizer, "optimizer", optimizer), self._rates))
            self._guarded(lambda: self._finish(signs))
        if self.stops_with is not None:
            stop, self.stops_with = self.stops_with, None
            raise stop

    def _counts(self, optimizer: Optimizer, step: FrameType) -> bool:
        """Is this a step of the training? Not where it is a part of another one that counts."""
        if self._is_others(optimizer):
            return False
        return all(self._is_others(around) for around in optimizers_around(step))

    def _finish(self, signs: StepSigns | None) -> None:
        now = time.perf_counter()
        rates = tuple(dict.fromkeys(rate for rate in self._rates.values() if rate is not None))
        step = StepRecord(self.number, self._loss(), self._norm, now - self._since, rates)
        watched = None if self._statistics is None else self._guarded(partial(self._measured, self._statistics))
        histograms = None
        if self._takes_histograms and self._statistics is not None:
            histograms = self._guarded(partial(step_histograms, self.number, self.inner))
        for text in () if self._statistics is None else self._statistics.notes():
            self._listener.on_note(text)
        self.last_forward = self._held[-1] if self._held else None
        if self.number + 1 == ASKED_AT and self._held and not self._meshes and not self.compiled:
            self._ask_again(self._held[-1])
        self._held, self._losses, self._statistics, self._norm = [], [], None, None
        self._is_reported = False
        self.number += 1
        self._since = now
        self._listener.on_step(step, signs, watched, histograms)
        self.last_forward = None
        if self.number in (1, 2, MANY, SETTLED):
            self._listener.on_facts(self.facts)

    def _ask_again(self, held: HeldForward) -> None:
        """Run the model on changed inputs: what does its answer depend on?"""
        if isinstance(self.model, DistributedDataParallel):
            return
        self._forward.restore()
        try:
            with self.looking_away():
                self._guarded(lambda: self.learning.ask_again(held, self.method))
        finally:
            self._forward.put()

    def _note_other(self, optimizer: Optimizer) -> None:
        """Note the step of an optimizer that does not count, by its parameters."""
        if self._looks_away():
            return
        self.facts.on_other(getattr(optimizer, "optimizer", optimizer))
        self.learning.on_other_step(getattr(optimizer, "optimizer", optimizer))
        if self.facts.foreign:
            self._listener.on_facts(self.facts)

    def _measured(self, statistics: StepStatistics) -> WatchedStep:
        parameters = statistics.parameters(self.inner, self._rates, self.facts.optimised)
        return WatchedStep(self.number, statistics.results(), parameters)

    def _is_others(self, optimizer: Optimizer) -> bool:
        if self._looks_away():
            return True
        if self._steps.hooked is not None:
            return optimizer is not self._steps.hooked
        if self._optimizer is not None:
            return optimizer is not self._optimizer and getattr(optimizer, "optimizer", None) is not self._optimizer
        return not any(id(parameter) in self._own for group in optimizer.param_groups for parameter in group["params"])

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
        losses = [number_of(loss) for loss in self._losses]
        return sum(losses) / len(losses) if losses else None

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """Run a part of ours: a failure in it must not end the training."""
        try:
            return action()
        except Exception as error:
            self._listener.on_failure(error)
            return None


internals.keep_dynamo_off(Watcher._around_forward.__code__)
internals.keep_dynamo_off(Watcher._observed.__code__)
internals.keep_dynamo_off(Watcher._looked_into.__code__)
internals.keep_dynamo_off(Watcher._guarded.__code__, inside=True)
internals.keep_dynamo_off(LoopFacts.on_forward.__code__, inside=True)


_CAPTURED = "a forward was captured as a CUDA graph: steps that replay it are not seen"


def _nobody(module: nn.Module) -> None:
    """Do nothing with a module that is not registered."""


def _is_skipped(optimizer: Optimizer) -> bool:
    """Will a fused optimizer leave the weights as they are, because a scaler found infinite gradients?"""
    found = getattr(getattr(optimizer, "optimizer", optimizer), "found_inf", None)
    return isinstance(found, Tensor) and number_of(found) > 0


def _is_scaled_too_far(root: Tensor) -> bool:
    """Is this an infinite product with a large scalar, as a scaler makes it? It skips such a step and scales less."""
    return _scale(root) > 1 and math.isinf(number_of(root))


def _unscaled(root: Tensor) -> Tensor:
    """Return a loss without the factor of a scaler, which is a power of two and changes from time to time."""
    with untracked():
        scale = _scale_of_scaler(root)
        return root.detach() if scale == 1.0 else root.detach() / scale


def _scale_of_scaler(root: Tensor) -> float:
    """Return the factor of a scaler in a loss, where it is above 1; else 1."""
    return max(_scale(root), 1.0)


def _scale(root: Tensor) -> float:
    """Return the factor of a scaler in a loss: a power of two, in a float32 tensor as torch's, or a large number.

    Other factors are the loss's own: ``8 * loss`` is another loss than ``loss``.
    """
    factor = getattr(root.grad_fn, "_saved_other", None)
    if not isinstance(factor, Tensor) or factor.numel() != 1 or factor.requires_grad:
        return 1.0
    scale = number_of(factor)
    is_power = math.isfinite(scale) and math.frexp(scale)[0] == 0.5
    return scale if is_power and (factor.dtype == torch.float32 or scale >= LARGE_SCALE) else 1.0


def _watched(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        retains = kwargs.get("retain_graph", args[1] if len(args) > 1 else None)
        creates = kwargs.get("create_graph", args[2] if len(args) > 2 else False)
        keeps_graph = bool(creates if retains is None else retains)
        for watcher in _backward.users:
            watcher.before_backward(tensors, keeps_graph=keeps_graph)
        try:
            result = original(tensors, *args, **kwargs)
        except BaseException:
            for watcher in _backward.users:
                watcher.raised()
            raise
        for watcher in _backward.users:
            watcher.after_backward()
        return result

    return backward


def _going_on(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        for watcher in _schedule.users:
            watcher.after_schedule(self)
        return result

    return step


def _noted(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def clip(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
        for watcher in _beside.users:
            watcher.before_clip(parameters, max_norm, total_norm)
        return original(parameters, max_norm, total_norm, *args, **kwargs)

    return clip


def _told(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def enter(self: saved_tensors_hooks) -> None:
        for watcher in _beside.users:
            watcher.learning.saves_otherwise = True
        original(self)

    return enter


_beside = patch.SharedPatch(
    patch.Attribute("torch.nn.utils.clip_grad._clip_grads_with_norm_", clip_grad, "_clip_grads_with_norm_", _noted),
    patch.Attribute("torch.autograd.graph.saved_tensors_hooks.__enter__", saved_tensors_hooks, "__enter__", _told),
)
_schedule = patch.SharedPatch(
    patch.Attribute("torch.optim.lr_scheduler.LRScheduler.step", LRScheduler, "step", _going_on)
)
_backward = patch.SharedPatch(patch.Attribute("torch.autograd.backward", torch.autograd, "backward", _watched))
