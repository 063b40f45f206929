"""The modes that are on while a body is traced: torch functions are handed to the tracer, and nothing is written."""

from __future__ import annotations

import functools
import gc
import types
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state import internals


class Guide(TorchFunctionMode):
    """Hands every torch function to ``operation`` instead of running it."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        super().__init__()
        self._operation = operation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, args, kwargs or {})


class NothingWritten(internals.TorchDispatchMode):
    """What is written past the guide (by scripted code, with torch functions off) must not be written twice."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            raise CannotTrace(reasons.BELOW_PYTHON(operation=func))
        with internals.DisableTorchFunction():  # the guide is still on
            return func(*args, **(kwargs or {}))


_alive: weakref.WeakSet[Any] = weakref.WeakSet()


class PlaceholderTensor(Tensor):
    """Stands for the tensor object ``uid``; ``slot`` is its place in the pattern being traced."""

    uid: TensorId
    slot: int
    gradient: bool

    @staticmethod
    def __new__(
        cls: type[PlaceholderTensor],
        uid: TensorId,
        slot: int,
        shape: tuple[int, ...],
        stride: tuple[int, ...] | None,
        dtype: torch.dtype,
        device: torch.device,
        gradient: bool,
    ) -> PlaceholderTensor:
        made: PlaceholderTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, shape, strides=stride, dtype=dtype, device=device, requires_grad=False
        )
        made.uid, made.slot, made.gradient = uid, slot, gradient
        _alive.add(made)
        return made

    def __init__(self, *args: Any) -> None:
        pass

    __torch_function__ = internals.disabled_torch_function_impl  # the mode sees everything first
    __hash__ = Tensor.__hash__

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise CannotTrace(reasons.BELOW_PYTHON(operation=func))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<stand-in {int(self.uid)}>"


def count_alive() -> int:
    """How many stand-ins exist: none, once nothing is being traced."""
    return len(_alive)


def taken_back(made: list[weakref.ref[PlaceholderTensor]], real: Callable[[TensorId], Tensor | None]) -> bool:
    """Does somebody keep one of these stand-ins? Where it stands, the tensor it stood for is put, or nothing."""
    for generation in range(4):
        if not any(reference() is not None for reference in made):
            return False
        if generation < 3:  # what is only in a cycle of references goes away
            gc.collect(generation)
    for reference in made:
        standin = reference()
        if standin is not None:
            tensor = real(standin.uid)
            for holder in gc.get_referrers(standin):
                _replace(holder, standin, tensor)
    return True


def _replace(holder: Any, standin: PlaceholderTensor, tensor: Tensor | None) -> None:
    if isinstance(holder, dict):
        for key in [key for key, held in holder.items() if held is standin]:
            if tensor is None:
                del holder[key]
            else:
                holder[key] = tensor
    elif isinstance(holder, (list, deque)):
        for position in reversed([i for i, held in enumerate(holder) if held is standin]):
            del holder[position]  # the run itself put the tensor there already
    elif isinstance(holder, set):
        holder.discard(standin)
    elif isinstance(holder, functools._lru_cache_wrapper):
        holder.cache_clear()
    elif isinstance(holder, tuple):  # nothing can be taken out of it: a cache must forget all it remembers
        for cache in gc.get_referrers(holder):
            if isinstance(cache, functools._lru_cache_wrapper):
                cache.cache_clear()
    elif isinstance(holder, types.CellType):
        holder.cell_contents = tensor
