"""Note the gradient of every tensor that a call returns, and the first operation whose backward is not finite.

Hooks on tensors and on nodes of autograd's graph read gradients and change none. A mode notes which operation of the
forward, at which line, added which nodes; where a mode would switch off a fused kernel, it is off, and nodes from there
are known by their call alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.hooks import RemovableHandle

from fxdebug.capture.probe import (
    ForwardsOnly,
    Guard,
    MeasuringMode,
    Sites,
    UserLines,
    internals,
    is_in_transform,
    named_tensors,
    special_tensors,
    untracked,
)
from fxdebug.features.shared.gradients.gradient_stops import GradientStops
from fxdebug.features.shared.gradients.open_calls import NumberedCall, OpenCalls
from fxdebug.features.shared.records.gradients import (
    BadBackward,
    Cancelled,
    GradientStop,
    ResultGradient,
    TensorGradient,
    norm_of,
)
from fxdebug.operators.autograd_nodes import new_nodes
from fxdebug.stats.measure import Unmeasurable, elements_of, measure

FLAT = frozenset("round floor ceil trunc fix sign sgn".split())  # their derivative is 0 where there is one
BLOCK = 1 << 16  # elements at a time: they stay in the cache
IN_TRANSFORM = "what runs inside a functorch transform (vmap, grad, …) has no gradients that could be looked at"


@dataclass(frozen=True, slots=True)
class _Op:
    name: str
    line: Callable[[], str | None]
    call: int | None


class ValueGradients(ForwardsOnly, MeasuringMode):
    """An observer of a model's modules, and a mode, for the thread that runs the model."""

    def __init__(self, sites: Sites, ran_unregistered: Callable[[nn.Module], None] = lambda _: None) -> None:
        self._calls = OpenCalls(sites)
        super().__init__(self._calls.path)
        self.bad: BadBackward | None = None
        self._arriving: dict[tuple[Any, int], list[_Op | None]] = {}  # at a result: what sends a gradient that is not 0
        self.stops = GradientStops()
        self.checkpointed: set[str] = set()  # paths of modules that ran in a reentrant checkpoint
        self._ran_unregistered = ran_unregistered
        self._results: list[ResultGradient] = []
        self._gradients: dict[int, TensorGradient] = {}  # by position among the results
        self._handles: list[Any] = []
        self._known: set[Any] = set()  # nodes of autograd's graph
        self._lines = UserLines()

    @property
    def ran(self) -> set[str]:
        """All names of the modules that were called."""
        return self._calls.ran

    # The forward ---------------------------------------------------------------------------------

    def around_forward(
        self, module: nn.Module, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the forward and put hooks on what it returns."""
        is_checkpointed = not torch.is_grad_enabled() and _is_in_checkpoint(sys._getframe(1))
        call, result = self._calls.run(module, lambda: self.around(module, run, args, kwargs))
        if call is not None and is_checkpointed:
            self.checkpointed.add(call.path)
        if call is not None:
            self.guard(f"what {call.path or 'the model'} returned", self._follow_results, call, result)
        return result

    def _follow_results(self, call: NumberedCall, result: Any) -> None:
        for place, tensor in named_tensors(result):
            if tensor.requires_grad:
                handle = note_gradient(tensor, len(self._results), self._gradients, self.guard)
                if handle is None:
                    return
                self._handles.append(handle)
                self._results.append(
                    ResultGradient(*call, place, special_tensors.description_of(tensor).shape, None, _is_silent(tensor))
                )

    def wants(self, module: nn.Module) -> bool:
        """Leave modules that were not in the model without a wrapper, and note them."""
        self._ran_unregistered(module)
        return False

    def after_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, before: Any) -> None:
        """Follow the nodes of autograd's graph that an operation added, and note where gradients stop."""
        if is_in_transform():
            return
        if self.stops.follow(args, kwargs, result):
            self.stops.note(self._stop(func))
        elif isinstance(result, Tensor) and result.requires_grad and self.name_of(func).strip("_") in FLAT:
            self.stops.note_flat(result, self._stop(func))
        if not torch.is_grad_enabled():
            return
        op: _Op | None = None
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None and tensor.grad_fn not in self._known:
                op = op or self._op(func)
                self.follow(tensor.grad_fn, op)

    def _stop(self, func: Callable[..., Any]) -> GradientStop:
        at = self._op(func)
        call = None if at.call is None else self._calls.calls[at.call]
        path, number = ("", 0) if call is None else (call.path, call.number)
        return GradientStop(path, number, self.name_of(func), at.line(), not torch.is_grad_enabled(), ())

    def _op(self, func: Callable[..., Any]) -> _Op:
        line = self._lines.asking(sys._getframe(1))
        return _Op(str(getattr(func, "__name__", func)), line, self._calls.innermost())

    def follow(self, node: Any, op: _Op | None = None) -> None:
        """Put hooks on the nodes of autograd's graph that were added since the last operation."""
        for new in new_nodes(node, self._known):
            kept = None if internals.top_saved_tensors_hooks() is not None else new  # a checkpoint computes them again
            read = self.guard.hook("the gradients of an operation", self._reader(new, op, kept))
            self._handles.append(new.register_hook(read))

    # The backward --------------------------------------------------------------------------------

    def _reader(self, node: Any, op: _Op | None, kept: Any) -> Callable[[Sequence[Any], Sequence[Any]], None]:
        def read(made: Sequence[Any], given: Sequence[Any]) -> None:
            self._look_for_zeros(node, op, made, given)
            if self.bad is not None or all(map(_is_finite, made)) or not all(map(_is_finite, given)):
                return
            bad = [gradient for gradient in made if not _is_finite(gradient)]
            with untracked():
                nan = sum(int(torch.isnan(_data_of(gradient)).sum()) for gradient in bad)
                inf = sum(int(torch.isinf(_data_of(gradient)).sum()) for gradient in bad)
                held, held_inf = _not_finite(_kept_by(kept))
                of_zero = any(_is_zero_where_bad(gradient, bad) for gradient in given)
            call = None if op is None or op.call is None else self._calls.calls[op.call]
            self.bad = BadBackward(
                path="" if call is None else call.path,
                number=0 if call is None else call.number,
                type="" if call is None else call.type,
                op=type(node).__name__ if op is None else op.name,
                node=type(node).__name__,
                source=None if op is None else op.line(),
                nan=nan,
                inf=inf,
                held=held,
                held_inf=held_inf,
                of_zero=of_zero,
            )

        return read

    def _look_for_zeros(self, node: Any, op: _Op | None, made: Sequence[Any], given: Sequence[Any]) -> None:
        """Note a result at which gradients that are not 0 arrive, and sum to exactly 0; and what arrives at FLAT."""
        with untracked():
            if op is not None and op.name.strip("_") in FLAT and not all(_is_silent(one) for one in given):
                self.stops.note_arrived(node)
            for place, gradient in enumerate(given):
                senders = self._arriving.pop((node, place), [])
                if len(senders) > 1 and op is not None and isinstance(gradient, Tensor) and _is_silent(gradient):
                    call = None if op.call is None else self._calls.calls[op.call]
                    named = tuple(dict.fromkeys(one.name for one in senders if one is not None))
                    path, number = ("", 0) if call is None else (call.path, call.number)
                    line = next((one.line() for one in senders if one is not None), None)
                    self.stops.note_cancelled(node, Cancelled(path, number, op.name, line, named, ()))
            for gradient, (before, place) in zip(made, node.next_functions):
                if isinstance(gradient, Tensor) and type(before).__name__ != "AccumulateGrad":
                    data = _data_of(gradient)
                    if data.numel() > 1 and bool(data.any()):
                        self._arriving.setdefault((before, place), []).append(op)

    def forget(self) -> None:
        """Take all hooks off and let go of autograd's graph."""
        self._arriving.clear()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._known.clear()
        self.stops.forget()

    def results(self) -> tuple[ResultGradient, ...]:
        """Return the gradients of all results, in the order in which the calls began."""
        found = [replace(result, gradient=self._gradients.get(i)) for i, result in enumerate(self._results)]
        return tuple(sorted(found, key=lambda result: result.position))


def note_gradient(
    tensor: Tensor, position: int, into: dict[int, TensorGradient], guard: Guard
) -> RemovableHandle | None:
    """Put a hook on a tensor that writes the numbers of its gradient into a table; in a transform only note that.

    >>> table, x = {}, torch.ones(3, requires_grad=True)
    >>> handle = note_gradient(x, 0, table, Guard())
    >>> (2 * x).sum().backward()
    >>> table[0].stats.mean
    2.0
    """
    if is_in_transform():
        guard.note(IN_TRANSFORM)
        return None

    def note(gradient: Tensor | None) -> None:
        if gradient is not None:  # one of several results of an operation that nothing uses
            into[position] = gradient_numbers(gradient)

    with internals.DisableTorchFunction():  # a subclass may refuse hooks
        return tensor.register_hook(guard.hook("a gradient", note))  # type: ignore[no-any-return]


def gradient_numbers(gradient: Tensor) -> TensorGradient:
    """Measure a gradient: its norm, its statistics, its elements below the smallest normal number.

    Of a tensor that is distributed over ranks, the part of this rank is measured; of a sparse or nested one, the
    elements there are. Raises ``Unmeasurable`` for one without data.
    """
    with untracked():
        data = _data_of(gradient)
        stats = measure(data)
        least = torch.finfo(data.dtype).tiny
        sizes = (part.abs() for part in data.reshape(-1).split(BLOCK))
        small = sum(int((size < least).sum()) for size in sizes if size.numel() and not bool(size.min() >= least))
        return TensorGradient(norm_of(stats), stats, small - stats.zeros, str(data.dtype)[6:])


def _is_in_checkpoint(frame: FrameType | None) -> bool:
    """Does a call run in a reentrant checkpoint, by the frames around it?"""
    while frame is not None and frame.f_code is not _CHECKPOINT:
        frame = frame.f_back
    return frame is not None


_CHECKPOINT = CheckpointFunction.forward.__code__


def _is_silent(tensor: Any) -> bool:
    """Are all elements of a result, or of a gradient, 0? ``None``, for no gradient, is silent, too."""
    if tensor is None:
        return True
    if (
        type(tensor) not in special_tensors.PLAIN
        or tensor.is_meta
        or tensor.layout is not torch.strided
        or tensor.is_nested
    ):
        return False
    with untracked():
        return tensor.numel() > 0 and not bool(tensor.detach().any())


def _data_of(gradient: Tensor) -> Tensor:
    """Return the elements of a gradient of any kind as a plain tensor. Raises ``Unmeasurable``."""
    body = special_tensors.description_of(gradient).body
    if body is None:
        raise Unmeasurable(f"a gradient that is a {type(gradient).__name__} has no data")
    return elements_of(body.detach())


def _kept_by(node: Any) -> list[Tensor]:
    """Return the floating tensors that the forward kept for a node of autograd's graph."""
    names = [name for name in dir(node) if name.startswith("_saved_")]
    found = [getattr(node, name, None) for name in names]
    return [
        one
        for one in found
        if isinstance(one, Tensor) and one.is_floating_point() and type(one) in special_tensors.PLAIN
    ]


def _not_finite(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the numbers of NaN and of infinities in some tensors."""
    parts = [_data_of(tensor) for tensor in tensors]
    return sum(int(part.isnan().sum()) for part in parts), sum(int(part.isinf().sum()) for part in parts)


def _is_zero_where_bad(gradient: Any, made: Sequence[Tensor]) -> bool:
    """Is a gradient 0 wherever one that was made of it, of its shape, is not finite?"""
    alike = [one for one in made if isinstance(gradient, Tensor) and one.shape == gradient.shape]
    return bool(alike) and not any(bool(_data_of(gradient)[~torch.isfinite(_data_of(one))].any()) for one in alike)


def _is_finite(gradient: Any) -> bool:
    if not isinstance(gradient, Tensor):
        return True
    with untracked():
        return bool(torch.isfinite(_data_of(gradient)).all())
