"""Tensors without memory in the place of those of the run, and the modes that are on while a body is traced.

One mode passes every torch function to the tracer; the other refuses writes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fxdebug.capture import reasons
from fxdebug.capture.hooks.patch import OwnAttribute
from fxdebug.capture.reasons import CannotTrace
from fxdebug.capture.tensors.tensor_ref import TensorId
from fxdebug.capture.torch_state import internals
from fxdebug.capture.torch_state.whose_code import is_of_python, is_part_of


class TracingMode(TorchFunctionMode):
    """Calls ``operation`` for every torch function instead of running it."""

    def __init__(self, operation: Callable[..., Any]) -> None:
        super().__init__()
        self._operation = operation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._operation(func, args, kwargs or {})


class NoWritesMode(internals.TorchDispatchMode):
    """Raises at any write that bypasses :class:`TracingMode`: scripted code, or code with torch functions off.

    The run has made that write already.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.set_:  # of Tensor's methods, the one that modes do not see
            raise CannotTrace(reasons.CHANGED_UNSEEN(function="set_()"))
        if func._schema.is_mutable:
            raise CannotTrace(reasons.BELOW_PYTHON(operation=func))
        with internals.DisableTorchFunction():  # the tracing mode is still on
            return func(*args, **(kwargs or {}))


# No ``WeakSet``: it runs Python where a tensor is freed, and Python drops an interrupt that comes there.
_alive: set[weakref.ref[Any]] = set()


class PlaceholderTensor(Tensor):
    """A placeholder for the tensor object ``tensor_id``; ``slot`` is its number in the template being traced.

    ``sparse`` is the layout of a sparse tensor, for which the tracer answers: torch makes no such tensor without data.
    """

    tensor_id: TensorId
    slot: int
    gradient: bool
    sparse: torch.layout | None = None

    @staticmethod
    def __new__(
        cls: type[PlaceholderTensor],
        tensor_id: TensorId,
        slot: int,
        shape: tuple[int, ...],
        stride: tuple[int, ...] | None,
        dtype: torch.dtype,
        device: torch.device,
        gradient: bool,
    ) -> PlaceholderTensor:
        tensor: PlaceholderTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, shape, strides=stride, dtype=dtype, device=device, requires_grad=False
        )
        tensor.tensor_id, tensor.slot, tensor.gradient = tensor_id, slot, gradient
        _alive.add(weakref.ref(tensor, _alive.discard))
        return tensor

    def __init__(self, *args: Any) -> None:
        pass

    __torch_function__ = internals.disabled_torch_function_impl  # the mode sees everything first
    __hash__ = Tensor.__hash__

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise CannotTrace(reasons.BELOW_PYTHON(operation=func))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<placeholder {int(self.tensor_id)}>"


SPARSE = frozenset((torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc))


def count_placeholders() -> int:
    """Return how many placeholders exist: none, once nothing is being traced."""
    return len(_alive)


def replace_leaked(
    placeholders: list[weakref.ref[PlaceholderTensor]], real: Callable[[TensorId], Tensor | None]
) -> bool:
    """Does the program still hold one of these placeholders? If so, replace it by its tensor, or remove it.

    ``real`` returns the tensor that a placeholder stood for, or ``None``.
    """
    if _none_is_left(placeholders):
        return False
    gc.collect(0)  # the collector was off: a cycle that the body left is among the youngest objects, which are few
    if _none_is_left(placeholders):
        return False
    left = [placeholder for reference in placeholders if (placeholder := reference()) is not None]
    for holder in gc.get_referrers(*left):  # looks through all objects: once for all placeholders
        if holder is not left:
            for placeholder in left:
                _replace(holder, placeholder, real(placeholder.tensor_id))
    return True


def _none_is_left(placeholders: list[weakref.ref[PlaceholderTensor]]) -> bool:
    return not any(reference() is not None for reference in placeholders)


def _replace(holder: Any, placeholder: PlaceholderTensor, tensor: Tensor | None) -> None:
    if isinstance(holder, dict):
        for key in [key for key, item in holder.items() if item is placeholder]:
            if tensor is None:
                del holder[key]
            else:
                holder[key] = tensor
    elif isinstance(holder, (list, deque)):
        for position in reversed([i for i, item in enumerate(holder) if item is placeholder]):
            del holder[position]  # the run itself put the tensor there already
    elif isinstance(holder, set):
        holder.discard(placeholder)
    elif isinstance(holder, functools._lru_cache_wrapper):
        holder.cache_clear()
    elif isinstance(holder, tuple):  # nothing can be removed from it: clear each cache that holds it
        for cache in gc.get_referrers(holder):
            if isinstance(cache, functools._lru_cache_wrapper):
                cache.cache_clear()
    elif isinstance(holder, types.CellType):
        holder.cell_contents = tensor


# The length of a placeholder ---------------------------------------------------------------------


def _length(thing: Any) -> int:
    return Tensor.__len__(thing) if type(thing) is PlaceholderTensor else len(thing)


@contextlib.contextmanager
def lengths_are_sizes(forward: Callable[..., Any], kind: type, more: list[dict[str, Any]]) -> Iterator[None]:
    """Have ``len(x)`` of a placeholder return a size that stays symbolic: the builtin makes a plain integer of it.

    This holds for code in the files of a forward and of the classes of its module, and in ``more`` namespaces: they
    have a global ``len`` for the length of the block. Other threads get from it what they get from the builtin.
    """
    patches = [OwnAttribute("<file>.len", namespace, "len", _length) for namespace in _namespaces(forward, kind, more)]
    try:
        for patch in patches:
            patch.put()
        yield
    finally:
        for patch in patches:
            patch.restore()


def _namespaces(forward: Callable[..., Any], kind: type, more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {id(each): each for each in more if "len" not in each}
    function = inspect.unwrap(getattr(forward, "__func__", forward))
    homes = [sys.modules.get(base.__module__) for base in kind.__mro__[:-1]]
    for namespace in (getattr(function, "__globals__", None), *[getattr(home, "__dict__", None) for home in homes]):
        if type(namespace) is dict and "len" not in namespace:
            name = str(namespace.get("__name__"))
            if not is_part_of(name, "torch", "fxdebug") and not is_of_python(name):
                found[id(namespace)] = namespace
    return list(found.values())
